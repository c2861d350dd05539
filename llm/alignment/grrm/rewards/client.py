"""The trainer's side of the reward server: what it asks, how answers are read; it never makes up a reward."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar

from grrm.errors import UserError
from grrm.gqm.groups import Group, Verdict
from grrm.http_client.client import PROBE_INTERVAL_S, Call, HttpClient, NoAnswer, check_positive
from grrm.http_client.exchange import AnswerError, Failure, clean_text, parse_answer, single_line
from grrm.rewards.protocol import request_from_groups, verdicts_from_answer, verdicts_in_time, with_own_ids
from grrm.rewards.rows_protocol import RowsAnswer

T = TypeVar("T")
_DEFAULTS = {"max_connections": 4, "max_answer_bytes": 256 * 2**20}


class RewardServerError(UserError):
    """No server gave rewards for these groups; carries what the sentence names."""

    def __init__(
        self,
        server: str,
        group_ids: Sequence[str],
        attempt: int,
        cause: str,
        *,
        is_refused: bool = False,
        status: int | None = None,
    ) -> None:
        remedy = (
            "correct its address, the token or the request" if is_refused else "check that it runs and is reachable"
        )
        more = f" and {len(group_ids) - 1} more" if len(group_ids) > 1 else ""
        super().__init__(
            f"reward server {server} gave no reward for group {group_ids[0]!r}{more} at attempt {attempt}: {cause}; "
            f"{remedy}, then start again"
        )
        self.server, self.group_ids, self.attempt, self.cause = server, tuple(group_ids), attempt, cause
        self.is_refused, self.status = is_refused, status


class ScoreCall(Call[list[Verdict]]):
    """Asks for verdicts on groups; of several answers at the deadline each group's first verdict counts."""

    def __init__(self, groups: Sequence[Group], judge: str | None = None) -> None:
        self.group_ids, self._judge, self._done = _ids(groups), judge, dict[str, Verdict]()
        self._all_groups = groups
        question = f"group {self.group_ids[0]!r} ({len(groups)} in the request)"
        super().__init__(question, "/v1/score", None, self._verdicts)
        self._ask_for(groups)

    def keep(self, content: bytes) -> bool:
        """A body that is no answer to this request, as a proxy may send, has nothing to keep."""
        try:
            done = verdicts_in_time(self._request, content)
        except AnswerError:
            return False
        rest = [group for group in self._groups if group.group_id not in done]
        if done and rest:
            self._done |= done
            self._ask_for(rest)
        return bool(done)

    def _verdicts(self, content: bytes, server: str) -> list[Verdict]:
        rest = verdicts_from_answer(self._request, content)
        by_id = self._done | dict(zip(_ids(self._groups), rest, strict=True))
        return [with_own_ids(group, by_id[group.group_id]) for group in self._all_groups]

    def _ask_for(self, groups: Sequence[Group]) -> None:
        self._groups = groups
        self._request = request_from_groups(uuid.uuid4().hex, groups, self._judge)
        self.body = self._request.model_dump_json().encode()


class RowsCall(Call[list[float]]):
    """Asks for one reward per row of PaddleNLP's protocol."""

    def __init__(self, **rows: Sequence[str]) -> None:
        body = json.dumps({name: [clean_text(text) for text in texts] for name, texts in rows.items()})
        self._n_rows = len(rows["src"])
        self.group_ids = (f"rows 0 to {self._n_rows - 1}",)
        super().__init__(self.group_ids[0], "/", body.encode(), self._rewards)

    def _rewards(self, content: bytes, server: str) -> list[float]:
        answer = parse_answer(RowsAnswer, content)
        if answer.error_code != 0:
            raise AnswerError(f"it reported error {answer.error_code}: {single_line(answer.error_msg)}")
        if len(answer.score) != self._n_rows:
            raise AnswerError(f"the answer has {len(answer.score)} scores for {self._n_rows} rows")
        return answer.score


class RewardClient:
    """Client of one reward server or of a pool of equal ones; thread-safe.

    Requests have `groups_per_request` groups; `judge` names one of the server's judges, by default its first. A call
    takes at most `remaining_s()` seconds. `settings` are those of `HttpClient`, which says what is retried. Raises
    UserError on settings that cannot work.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        protocol: Literal["grrm", "paddlenlp"] = "grrm",
        judge: str | None = None,
        groups_per_request: int = 64,
        remaining_s: Callable[[], float] = lambda: math.inf,
        **settings: Any,
    ) -> None:
        if protocol not in ("grrm", "paddlenlp"):
            raise UserError(f"reward server protocol {protocol!r} is unknown: use 'grrm' or 'paddlenlp'")
        check_positive("reward server", "groups_per_request", groups_per_request)
        self.protocol, self.judge, self.groups_per_request = protocol, judge, groups_per_request
        self._remaining_s = remaining_s
        self.http = HttpClient(
            urls, "reward server", "/readyz" if protocol == "grrm" else "/", **{**_DEFAULTS, **settings}
        )

    def __enter__(self) -> RewardClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close idle connections."""
        self.http.close()

    def score(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept, over `POST /v1/score`.

        Every number returned was sent by a server for that very candidate. Raises RewardServerError when some group
        got no valid verdict within the attempts and the deadline, and ValueError on repeated group ids.
        """
        if self.protocol != "grrm":
            raise UserError("a stock PaddleNLP reward server gives no verdicts: use score_rows or protocol 'grrm'")
        if len(set(_ids(groups))) != len(groups):
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
        return self._ask_all([RowsCall(src=src, tgt=tgt, response=response)])[0] if src else []

    def wait_until_ready(self, timeout_s: float) -> None:
        """Return once every server of the pool is ready.

        Ready means that `GET /readyz` answers 200; for a stock PaddleNLP server, that it speaks HTTP at all. Raises
        RewardServerError when `timeout_s` passes first, and at once for an answer that will stay the same.
        """
        deadline = time.monotonic() + timeout_s
        for url in self.http.pool.urls:
            attempt = 1
            while (error := self.http.unready(url, deadline)) is not None:
                is_refused = error.failure is Failure.REFUSED
                if is_refused or time.monotonic() + PROBE_INTERVAL_S >= deadline:
                    raise RewardServerError(url, ("readiness probe",), attempt, error.cause, is_refused=is_refused)
                time.sleep(PROBE_INTERVAL_S)
                attempt += 1

    def _ask_all(self, calls: Sequence[Call[T]]) -> list[T]:
        try:
            return self.http.ask_all(calls, time.monotonic() + min(self.http.deadline_s, self._remaining_s()))
        except NoAnswer as error:
            is_refused = error.failure is Failure.REFUSED
            ids = error.call.group_ids
            raise RewardServerError(
                error.server, ids, error.attempt, error.cause, is_refused=is_refused, status=error.status
            ) from error


def _ids(groups: Sequence[Group]) -> tuple[str, ...]:
    return tuple(group.group_id for group in groups)
