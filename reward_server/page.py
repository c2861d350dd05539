"""The page at `/`, from which the judge is tried by hand, and what it shows of the server at work."""

from __future__ import annotations

import base64
import hashlib
import re
import statistics
import threading
import time
from collections import deque
from collections.abc import Sequence
from importlib import resources

from pydantic import BaseModel

from grrm.gqm.groups import Group, Status, Verdict

N_RECENT, N_LATENCIES = 20, 500


class JudgeName(BaseModel):
    """A judge of this server, and the model behind it if it has one."""

    name: str
    model: str | None


class JudgesAnswer(BaseModel):
    """The judges of this server."""

    judges: list[JudgeName]


class PromptsAnswer(BaseModel):
    """For each group the prompts that its first questions to the model would be; none for a judge without a prompt."""

    prompts: list[list[str]]


class RecentVerdict(BaseModel):
    """A verdict given a while ago; its texts are not kept."""

    time_s: float  # since 1970
    judge: str
    group_id: str
    scores: list[float | None]
    statuses: list[Status]


class LiveAnswer(BaseModel):
    """Requests at the judge and before it, how long the last ones took, and the last verdicts, newest first."""

    running: int
    waiting: int
    median_ms: float | None
    p95_ms: float | None
    recent: list[RecentVerdict]


class Live:
    """Remembers the last verdicts and how long their requests took; thread-safe."""

    def __init__(self) -> None:
        self._recent: deque[RecentVerdict] = deque(maxlen=N_RECENT)
        self._seconds: deque[float] = deque(maxlen=N_LATENCIES)
        self._lock = threading.Lock()

    def add(self, judge: str, groups: Sequence[Group], verdicts: Sequence[Verdict], took_s: float) -> None:
        """Remembers a request to the judge of this name that took `took_s` seconds."""
        now = time.time()
        recent = [
            RecentVerdict(
                time_s=now,
                judge=judge,
                group_id=group.group_id,
                scores=list(verdict.scores),
                statuses=list(verdict.statuses),
            )
            for group, verdict in zip(groups[-N_RECENT:], verdicts[-N_RECENT:], strict=True)
        ]
        with self._lock:
            self._recent.extend(recent)
            self._seconds.append(took_s)

    def answer(self, running: int, waiting: int) -> LiveAnswer:
        """Return what is remembered, with the numbers of requests under way."""
        with self._lock:
            milliseconds, recent = [1e3 * took_s for took_s in self._seconds], [*self._recent]
        cuts = statistics.quantiles(milliseconds, n=20, method="inclusive") if len(milliseconds) > 1 else milliseconds
        return LiveAnswer(
            running=running,
            waiting=waiting,
            median_ms=statistics.median(milliseconds) if milliseconds else None,
            p95_ms=cuts[-1] if cuts else None,
            recent=recent[::-1],
        )


def load_page() -> tuple[str, dict[str, str]]:
    """The page, and headers that keep it to its own script and style, named by their hashes, and to this server."""
    html = resources.files("grrm_reward_server").joinpath("page/index.html").read_text(encoding="utf-8")
    policy = [
        "default-src 'none'",
        f"script-src {_hash_of('script', html)}",
        f"style-src {_hash_of('style', html)}",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return html, {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": "; ".join(policy),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }


def _hash_of(tag: str, html: str) -> str:
    (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
