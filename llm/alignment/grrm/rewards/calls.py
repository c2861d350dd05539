"""What a client asks a reward server for, and how the answers are read."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Protocol, TypeVar

from pydantic import ValidationError

from grrm.gqm.groups import Group, Verdict
from grrm.rewards.protocol import AnswerError, clean_text, request_from_groups, verdicts_from_answer, verdicts_in_time
from grrm.rewards.rows_protocol import RowsAnswer
from grrm.rewards.validation import first_error

T_co = TypeVar("T_co", covariant=True)


class Call(Protocol[T_co]):
    """One request: where it goes, what it carries and how its answer is checked."""

    path: str
    body: bytes
    group_ids: tuple[str, ...]

    def read(self, content: bytes) -> T_co:
        """What a whole answer says. Raises AnswerError."""
        ...

    def keep(self, content: bytes) -> None:
        """Takes what was done from an answer at the request's deadline, so that only the rest is asked for again."""
        ...


class ScoreCall:
    """Asks for verdicts on groups; of several answers at the deadline each group's first verdict counts."""

    path = "/v1/score"

    def __init__(self, groups: Sequence[Group], judge: str | None = None) -> None:
        self._judge = judge
        self.group_ids: tuple[str, ...] = tuple(group.group_id for group in groups)
        self._found: dict[str, Verdict] = {}
        self._ask_for(groups)

    def read(self, content: bytes) -> list[Verdict]:
        """One verdict per group, order kept. Raises AnswerError."""
        rest = verdicts_from_answer(self._request, content)
        by_id = self._found | {group.group_id: verdict for group, verdict in zip(self._groups, rest, strict=True)}
        return [by_id[group_id] for group_id in self.group_ids]

    def keep(self, content: bytes) -> None:
        """A body that is no answer to this request, as a proxy may send, has nothing to keep."""
        try:
            done = verdicts_in_time(self._request, content)
        except AnswerError:
            return
        rest = [group for group in self._groups if group.group_id not in done]
        if done and rest:
            self._found |= done
            self._ask_for(rest)

    def _ask_for(self, groups: Sequence[Group]) -> None:
        self._groups = groups
        self._request = request_from_groups(uuid.uuid4().hex, groups, self._judge)
        self.body = self._request.model_dump_json().encode()


class RowsCall:
    """Asks for one reward per row of PaddleNLP's protocol."""

    path = "/"

    def __init__(self, src: Sequence[str], tgt: Sequence[str], response: Sequence[str]) -> None:
        rows = {"src": list(src), "tgt": list(tgt), "response": list(response)}
        self.body = json.dumps({name: [clean_text(text) for text in texts] for name, texts in rows.items()}).encode()
        self.group_ids: tuple[str, ...] = (f"rows 0 to {len(src) - 1}",)
        self._n_rows = len(src)

    def read(self, content: bytes) -> list[float]:
        """The rewards. Raises AnswerError."""
        try:
            answer = RowsAnswer.model_validate_json(content)
        except ValidationError as error:
            _, place, message = first_error(error)
            raise AnswerError(f"the answer is malformed at {place or 'its top level'}: {message}") from error
        if answer.error_code != 0:
            raise AnswerError(f"it reported error {answer.error_code}: {' '.join(answer.error_msg.split())[:300]}")
        if len(answer.score) != self._n_rows:
            raise AnswerError(f"the answer has {len(answer.score)} scores for {self._n_rows} rows")
        return answer.score

    def keep(self, content: bytes) -> None:
        """Rows are judged all or none."""
