"""The reward server's wire protocol: the JSON both sides exchange, checked by the same models.

`POST /v1/score` takes a ScoreRequest and answers a ScoreAnswer, or a PartialAnswer when the deadline that the request
names in DEADLINE_HEADER comes first. Every failure is a Problem, whatever the route. All types are strict (nothing is
coerced), numbers are finite, and unknown fields are refused. PaddleNLP's own protocol, `POST /`, is in
`grrm.rewards.rows_protocol`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_serializer, model_validator

from grrm.gqm.context import MAX_CONTEXT_SEGMENTS
from grrm.gqm.groups import Status
from grrm.gqm.spans import Severity
from grrm.gqm.terms import MAX_TERMS, read_terms
from grrm.rewards.mixing import WirePart

Identifier = Annotated[str, Field(min_length=1, max_length=256)]
Language = Annotated[str, Field(max_length=256)]  # those that were seen are remembered
# fail_fast: a list's first wrong item ends the check. An error takes more memory than the item that causes it.
Texts = Annotated[list[str], Field(fail_fast=True)]


class WireModel(BaseModel):
    """Base of all messages: immutable, strict types, no unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


class WireCandidate(WireModel):
    """One sampled response. A `translation` left out is extracted by the server; null means that the client could not
    extract one, and the server does not try again."""

    candidate_id: Identifier
    response: str
    translation: str | None = None
    n_tokens: Annotated[int, Field(ge=0, le=2**31)] = 0


class WireSegment(WireModel):
    """A segment before the source, and its translation, null where there is none."""

    source: str
    translation: str | None = None


class WireGroup(WireModel):
    """All samples of one prompt.

    `context`, left out where it is not known, has the nearest segment last. `terms` are glossary terms of the source
    with their translations, for a gate.
    """

    group_id: Identifier
    source: str
    src_lang: Language
    trg_lang: Language
    reference: str | None = None
    context: Annotated[list[WireSegment], Field(max_length=MAX_CONTEXT_SEGMENTS, fail_fast=True)] | None = None
    candidates: Annotated[list[WireCandidate], Field(min_length=1, fail_fast=True)]
    terms: Annotated[dict[str, Texts], Field(max_length=MAX_TERMS)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _candidates_and_terms(self) -> WireGroup:
        _refuse_repeats("candidate_id", [candidate.candidate_id for candidate in self.candidates])
        if self.terms and isinstance(fault := read_terms(self.terms), str):
            raise ValueError(fault)
        return self

    @model_serializer(mode="wrap")
    def _without_unknown(self, handler: Callable[[WireGroup], dict[str, Any]]) -> dict[str, Any]:
        fields = handler(self)
        unknown = {"context"} if self.context is None else set()
        unknown |= set() if self.terms else {"terms"}
        return {name: value for name, value in fields.items() if name not in unknown}


class ScoreRequest(WireModel):
    """Groups to judge, by the server's judge of that name, by default its first. A server answers a repeated
    `request_id` with the answer it gave first."""

    request_id: Identifier
    judge: Identifier | None = None
    groups: Annotated[list[WireGroup], Field(min_length=1, fail_fast=True)]

    @model_validator(mode="after")
    def _unique_groups(self) -> ScoreRequest:
        _refuse_repeats("group_id", [group.group_id for group in self.groups])
        return self


class WireScore(WireModel):
    """One candidate's outcome: `score` is a number from 0 to 10 exactly when the status is a scored one."""

    candidate_id: Identifier
    status: Annotated[Status, Field(strict=False)]
    score: Annotated[FiniteFloat, Field(ge=0, le=10)] | None

    @model_validator(mode="after")
    def _score_fits_status(self) -> WireScore:
        if self.status.is_scored != (self.score is not None):
            raise ValueError(f"status {self.status.value!r} cannot carry score {self.score!r}")
        return self


class WireSpan(WireModel):
    """An error: characters from `start` up to `end` of a translation."""

    start: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(gt=0)]
    severity: Severity


class WireVerdict(WireModel):
    """The judge's answer for one group, candidates in the order of the request; `parts` are those of a mixture.

    A judge that marks errors has `spans` of each candidate, null for one that it did not look at.
    """

    group_id: Identifier
    candidates: Annotated[list[WireScore], Field(fail_fast=True)]
    ranking: Annotated[list[Annotated[list[str], Field(fail_fast=True)]], Field(fail_fast=True)] | None = None
    analysis: str = ""
    attempts: Annotated[int, Field(ge=0)] = 0
    tokens: Annotated[int, Field(ge=0)] = 0
    rejections: Texts = []
    parts: Annotated[list[WirePart], Field(fail_fast=True)] = []
    spans: Annotated[list[list[WireSpan] | None], Field(fail_fast=True)] = []


class ScoreAnswer(WireModel):
    """One verdict per group, in the order of the request."""

    request_id: Identifier
    verdicts: Annotated[list[WireVerdict], Field(fail_fast=True)]


class Problem(WireModel):
    """Body of every error answer; `field` points into the request, `reference_id` into the server's log."""

    error_code: int
    error_msg: str
    field: str | None = None
    reference_id: str | None = None


class PartialAnswer(Problem):
    """Body of a 504: the verdicts of those groups that were done when the request's deadline came."""

    request_id: Identifier
    verdicts: Annotated[list[WireVerdict], Field(fail_fast=True)]


def _refuse_repeats(name: str, ids: Sequence[str]) -> None:
    if len(set(ids)) != len(ids):
        raise ValueError(f"a {name} occurs more than once")
