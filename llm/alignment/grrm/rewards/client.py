"""The trainer's side of the reward server: asks, retries, fails over, and never makes up a reward."""

from __future__ import annotations

import math
import multiprocessing
import threading
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.pool import ThreadPool
from types import TracebackType
from typing import Any, Literal, TypeVar

from tenacity.wait import wait_exponential_jitter

from grrm.errors import UserError
from grrm.gqm.groups import Group, Verdict
from grrm.rewards.asking import NoAnswer, PoolAsker
from grrm.rewards.calls import Call, RowsCall, ScoreCall
from grrm.rewards.exchange import ExchangeError, HttpExchange
from grrm.rewards.server_pool import ServerPool

T = TypeVar("T")
PROBE_INTERVAL_S = 0.2


class RewardServerError(UserError):
    """No server gave rewards for these groups; carries what the sentence names."""

    def __init__(self, server: str, group_ids: Sequence[str], attempt: int, cause: str) -> None:
        more = f" and {len(group_ids) - 1} more" if len(group_ids) > 1 else ""
        super().__init__(
            f"reward server {server} gave no reward for group {group_ids[0]!r}{more} at attempt {attempt}: {cause}; "
            "check that it runs and is reachable, then start again"
        )
        self.server = server
        self.group_ids = tuple(group_ids)
        self.attempt = attempt
        self.cause = cause


class RewardClient:
    """Client of one reward server or of a pool of equal ones.

    `deadline_s` bounds a whole call, retries included. Requests of `groups_per_request` groups go out over at most
    `max_connections` connections at once. `attempts` counts the tries of a request that failed, over all servers, as
    `PoolAsker` says: one at a server that is busy or away is none. A server that let a request time out gets no other
    before it answers a probe, while the pool has others. Any answer that is neither is final. Proxies named in the
    environment are not used. `judge` names one of the server's judges, by default its first. Thread-safe. Raises
    UserError on settings that cannot work.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        protocol: Literal["grrm", "paddlenlp"] = "grrm",
        token: str | None = None,
        connect_timeout_s: float = 5.0,
        read_timeout_s: float = 600.0,
        deadline_s: float = 1800.0,
        attempts: int = 6,
        groups_per_request: int = 64,
        max_connections: int = 4,
        backoff_initial_s: float = 0.5,
        backoff_max_s: float = 30.0,
        max_answer_bytes: int = 256 * 2**20,
        judge: str | None = None,
    ) -> None:
        if protocol not in ("grrm", "paddlenlp"):
            raise UserError(f"reward server protocol {protocol!r} is unknown: use 'grrm' or 'paddlenlp'")
        counts = {"attempts": attempts, "groups_per_request": groups_per_request, "max_connections": max_connections}
        times = {"connect_timeout_s": connect_timeout_s, "read_timeout_s": read_timeout_s, "deadline_s": deadline_s}
        for name, value in (counts | times).items():
            if not (math.isfinite(value) and value > 0 and (name in times or value >= 1)):
                raise UserError(f"reward client setting {name}={value!r} must be a finite number above zero")
        self.protocol = protocol
        self.judge = judge
        self.deadline_s = deadline_s
        self.attempts = attempts
        self.groups_per_request = groups_per_request
        self.max_connections = max_connections
        self._connect_timeout_s = connect_timeout_s
        self._pool = ServerPool(urls, self._answers)
        backoff = wait_exponential_jitter(initial=backoff_initial_s, max=backoff_max_s, jitter=backoff_initial_s)
        self._asker = PoolAsker(self._pool, attempts, deadline_s, backoff)
        self._exchange = HttpExchange(
            token=token,
            connect_timeout_s=connect_timeout_s,
            read_timeout_s=read_timeout_s,
            max_answer_bytes=max_answer_bytes,
        )

    def __enter__(self) -> RewardClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes idle connections."""
        self._exchange.close()

    def score(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept, over `POST /v1/score`.

        Every number returned was sent by a server for that very candidate. Raises RewardServerError when some group
        got no valid verdict within the attempts and the deadline, and ValueError on repeated group ids.
        """
        if self.protocol != "grrm":
            raise UserError("a stock PaddleNLP reward server gives no verdicts: use score_rows or protocol 'grrm'")
        ids = [group.group_id for group in groups]
        if len(set(ids)) != len(ids):
            raise ValueError("a group id occurs more than once")
        size = self.groups_per_request
        calls = [ScoreCall(groups[start : start + size], self.judge) for start in range(0, len(groups), size)]
        return [verdict for verdicts in self._ask_all(calls) for verdict in verdicts]

    def score_rows(self, src: Sequence[str], tgt: Sequence[str], response: Sequence[str]) -> list[float]:
        """One reward per row over PaddleNLP's `POST /`; the rows go in one request, so that their groups stay whole.

        A stock server answers zeros where its scorer failed on a row, and this protocol has no way to tell those zeros
        from earned ones; an `error_code` other than 0 is a failure here. Raises RewardServerError like `score`.
        """
        if not len(src) == len(tgt) == len(response):
            raise ValueError(f"src, tgt and response differ in length: {len(src)}, {len(tgt)}, {len(response)}")
        if not src:
            return []
        return self._ask_all([RowsCall(src, tgt, response)])[0]

    def wait_until_ready(self, timeout_s: float) -> None:
        """Returns once every server of the pool is ready; raises RewardServerError when `timeout_s` passes first.

        Ready means that `GET /readyz` answers 200; for a stock PaddleNLP server, that it speaks HTTP at all.
        """
        deadline = time.monotonic() + timeout_s
        for url in self._pool.urls:
            attempt = 1
            while (cause := self._unready_cause(url, deadline)) is not None:
                if time.monotonic() + PROBE_INTERVAL_S >= deadline:
                    raise RewardServerError(url, ("readiness probe",), attempt, cause)
                time.sleep(PROBE_INTERVAL_S)
                attempt += 1

    def _unready_cause(self, url: str, deadline: float) -> str | None:
        try:
            self._exchange.send("GET", url, "/readyz" if self.protocol == "grrm" else "/", None, deadline)
        except ExchangeError as error:
            spoke_http = error.http_status is not None
            return None if self.protocol == "paddlenlp" and spoke_http else str(error)
        return None

    def _answers(self, url: str) -> bool:
        """Whether the server at `url` is ready, or at least not longer about it than a connection may take."""
        return self._unready_cause(url, time.monotonic() + self._connect_timeout_s) is None

    def _ask_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Answers aligned with `calls`. The threads are daemons: a stuck server cannot keep a failed process alive."""
        if not calls:
            return []
        deadline = time.monotonic() + self.deadline_s
        stop = threading.Event()
        ask = partial(self._ask, deadline=deadline, stop=stop)
        answers: list[T] = []
        with ThreadPool(min(self.max_connections, len(calls))) as threads:
            arriving = threads.imap(ask, calls)
            try:
                for call in calls:
                    answers.append(self._next_answer(arriving, call, deadline))
            finally:
                stop.set()
        return answers

    def _next_answer(self, arriving: Any, call: Call[T], deadline: float) -> T:
        grace_s = 1.0  # the request's own thread notices the deadline first and knows the cause
        try:
            answer: T = arriving.next(max(deadline - time.monotonic(), 0.0) + grace_s)
        except multiprocessing.TimeoutError:
            servers = ", ".join(self._pool.urls)
            cause = f"no answer within the deadline of {self.deadline_s:g} s"
            raise RewardServerError(servers, call.group_ids, self.attempts, cause) from None
        return answer

    def _ask(self, call: Call[T], *, deadline: float, stop: threading.Event) -> T:
        """One request with its retries; runs in a thread of the pool."""

        def send(url: str) -> T:
            try:
                content = self._exchange.send("POST", url, call.path, call.body, deadline)
            except ExchangeError as error:
                if error.http_status == 504:
                    call.keep(error.content)
                raise
            return call.read(content)

        what = f"group {call.group_ids[0]!r} ({len(call.group_ids)} in the request)"
        try:
            return self._asker.ask(send, what, deadline, stop)
        except NoAnswer as failure:
            raise RewardServerError(failure.server, call.group_ids, failure.attempt, failure.cause) from failure
