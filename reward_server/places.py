"""How much may be judged at once: so many requests, and so many tokens of them together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .problems import RequestProblem

BYTES_PER_TOKEN = 4  # of a request's body, which has names of fields too; the judge's own tokens are known later


class Places:
    """Places of requests that are being judged or wait for it; thread-safe.

    A request that is larger than the whole budget is let in where it is alone.
    """

    def __init__(self, max_requests: int, max_tokens: int) -> None:
        self._max_requests, self._max_tokens = max_requests, max_tokens
        self._n_tokens = 0
        self._lock = threading.Lock()
        self.n_requests = 0

    @contextmanager
    def taken(self, n_bytes: int) -> Iterator[None]:
        """A place for a request whose body has `n_bytes`. Raises RequestProblem 503 where there is none."""
        n_tokens = n_bytes // BYTES_PER_TOKEN
        with self._lock:
            if self.n_requests >= self._max_requests:
                raise RequestProblem(503, "too many requests are being judged", retry_after_s=1)
            if self.n_requests and self._n_tokens + n_tokens > self._max_tokens:
                raise RequestProblem(503, "too many tokens are being judged", retry_after_s=1)
            self.n_requests += 1
            self._n_tokens += n_tokens
        try:
            yield
        finally:
            with self._lock:
                self.n_requests -= 1
                self._n_tokens -= n_tokens
