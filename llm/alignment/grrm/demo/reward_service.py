"""The reward server as the demo runs it: started when first needed, on a free port, and always stopped.

One server runs at a time: stages follow each other, and a server that hosts a model takes memory and time to start.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import requests

from grrm.demo.processes import Child, tail
from grrm.errors import UserError

_LISTENING = re.compile(r"listening on (http://\S+)")


class RewardService:
    """Starts `command` with a stage's options, a reward server that prints "listening on http://HOST:PORT"."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        deadline_s: float = 60.0,
    ) -> None:
        self.command, self.log, self.cwd, self.env, self.deadline_s = command, log, cwd, env, deadline_s
        self._child: Child | None = None
        self._options: list[str] = []
        self._url = ""

    def __enter__(self) -> RewardService:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def url(self, options: Sequence[str] = ()) -> str:
        """The address of a server with these options that answers its health check.

        A server that has ended is started again; one with other options is stopped first. Raises UserError with
        the server's last words when it ends or is not healthy within the deadline.
        """
        if self._child is None or self._child.poll() is not None or list(options) != self._options:
            self.stop()
            self._options = list(options)
            self._child = Child([*self.command, *options], self.log, cwd=self.cwd, env=self.env)
            self._url = self._wait_until_healthy(self._child)
        return self._url

    def stop(self) -> None:
        """Stop the server if it runs."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def _wait_until_healthy(self, child: Child) -> str:
        deadline = time.monotonic() + self.deadline_s
        while time.monotonic() < deadline and child.poll() is None:
            address = _LISTENING.search(child.output())
            if address and is_healthy(address.group(1)):
                return address.group(1)
            time.sleep(0.1)
        happened = f"was not healthy after {self.deadline_s:.0f} s" if child.poll() is None else "ended at once"
        words = (tail(child.output(), 1) or ["it said nothing"])[0]
        raise UserError(f"the reward server {happened} ({words}): read {self.log} and run the demo again")


def is_healthy(url: str, timeout_s: float = 2.0) -> bool:
    """True when `GET url/healthz` answers 200; proxies are not asked about the loopback address."""
    with requests.Session() as session:
        session.trust_env = False
        try:
            return session.get(f"{url.rstrip('/')}/healthz", timeout=timeout_s).status_code == 200
        except requests.RequestException:
            return False
