"""Conversions between groups, verdicts and the messages of the reward server's wire protocol.

Both sides check: a client that the answer is to its request, a server that its judge answered on its groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from grrm.gqm.groups import Candidate, ContextSegment, Group, TranslationTask, Verdict
from grrm.gqm.spans import span_fields, spans_in_order
from grrm.gqm.terms import terms_mapping, terms_of_mapping
from grrm.http_client.exchange import AnswerError, clean_text, parse_answer
from grrm.rewards.messages import (
    PartialAnswer,
    ScoreAnswer,
    ScoreRequest,
    WireCandidate,
    WireGroup,
    WireSegment,
    WireVerdict,
)
from grrm.rewards.mixing import part_fields, part_in_order


def request_from_groups(request_id: str, groups: Sequence[Group], judge: str | None = None) -> ScoreRequest:
    """The request that asks for verdicts on `groups`. Raises pydantic's ValidationError on repeated or empty ids.

    On the wire a candidate's id is its group's index and its own, so that it is unique in the request: the verdict of
    one group under the id of another has candidates that are not that group's. `with_own_ids` undoes that.
    """
    wire = [_wire_group(index, group) for index, group in enumerate(groups)]
    return ScoreRequest(request_id=request_id, judge=judge, groups=wire)


def check_verdict(group: Group, verdict: Verdict) -> None:
    """Raise ValueError for a verdict that is not on the group's candidates, or has values of other types."""
    if len(verdict.statuses) != len(group.candidates):
        raise ValueError(f"{len(verdict.statuses)} statuses for {len(group.candidates)} candidates")
    _check_ranking(verdict.ranking, [candidate.candidate_id for candidate in group.candidates])
    numbers, texts = (verdict.attempts, verdict.tokens), (verdict.analysis, *verdict.rejections)
    for values, kind in ((verdict.scores, float | int | None), (numbers, int), (texts, str)):
        if others := [value for value in values if isinstance(value, bool) or not isinstance(value, kind)]:
            raise ValueError(f"a verdict has a {type(others[0]).__name__}: give Python's own numbers and texts")


def verdict_fields(group: Group, verdict: Verdict) -> dict[str, Any]:
    """The fields of a WireVerdict, for a verdict that `check_verdict` accepts."""
    outcomes = zip(group.candidates, verdict.statuses, verdict.scores, strict=True)
    fields: dict[str, Any] = {
        "group_id": group.group_id,
        "candidates": [
            {"candidate_id": candidate.candidate_id, "status": status.value, "score": score}
            for candidate, status, score in outcomes
        ],
        "ranking": None if verdict.ranking is None else [list(tier) for tier in verdict.ranking],
        "analysis": clean_text(verdict.analysis),
        "attempts": verdict.attempts,
        "tokens": verdict.tokens,
    }
    lists = {
        "rejections": [clean_text(reason) for reason in verdict.rejections],
        "parts": [part_fields(part) | {"analysis": clean_text(part.analysis)} for part in verdict.parts],
        "spans": [span_fields(spans) for spans in verdict.spans],
    }
    return fields | {name: values for name, values in lists.items() if values}


def verdicts_from_answer(request: ScoreRequest, body: bytes) -> list[Verdict]:
    """Verdicts aligned with `request.groups`, whose rankings have the ids of the request.

    The answer may list groups and candidates in any order.

    Raises AnswerError unless the answer is to this request and has exactly its groups and candidates, every score is
    finite, within 0 to 10 and consistent with its status, and rankings name candidates of their own group only.
    """
    answer = parse_answer(ScoreAnswer, body)
    _check_request_id(request, answer.request_id)
    requested = [group.group_id for group in request.groups]
    _check_ids("groups", requested, [verdict.group_id for verdict in answer.verdicts])
    by_group = {verdict.group_id: verdict for verdict in answer.verdicts}
    return [_verdict(group, by_group[group.group_id]) for group in request.groups]


def verdicts_in_time(request: ScoreRequest, body: bytes) -> dict[str, Verdict]:
    """Verdicts by group id from a PartialAnswer, checked as those of a whole answer are. Raises AnswerError."""
    answer = parse_answer(PartialAnswer, body, "partial answer")
    _check_request_id(request, answer.request_id)
    done = [verdict.group_id for verdict in answer.verdicts]
    groups = {group.group_id: group for group in request.groups}
    _check_ids("groups that were done", [group_id for group_id in dict.fromkeys(done) if group_id in groups], done)
    return {verdict.group_id: _verdict(groups[verdict.group_id], verdict) for verdict in answer.verdicts}


def with_own_ids(group: Group, verdict: Verdict) -> Verdict:
    """`verdict`, an answer to a `request_from_groups`, with a ranking of the group's own candidate ids."""
    if verdict.ranking is None:
        return verdict
    own = [candidate.candidate_id for candidate in group.candidates]
    return replace(verdict, ranking=tuple(tuple(own[int(id_.partition("/")[2])] for id_ in t) for t in verdict.ranking))


def task_of(group: WireGroup) -> TranslationTask:
    """The translation task that a group carries."""
    terms = terms_of_mapping(group.terms)
    task = TranslationTask(group.source, group.src_lang, group.trg_lang, group.reference, terms=terms)
    if group.context is None:
        return task
    return replace(task, context=tuple(ContextSegment(part.source, part.translation) for part in group.context))


def _wire_group(index: int, group: Group) -> WireGroup:
    task = group.task
    return WireGroup(
        group_id=group.group_id,
        source=clean_text(task.source),
        src_lang=task.src_lang,
        trg_lang=task.trg_lang,
        reference=None if task.reference is None else clean_text(task.reference),
        context=None if task.context is None else [_wire_segment(segment) for segment in task.context],
        candidates=[_wire_candidate(f"{index}/{at}", candidate) for at, candidate in enumerate(group.candidates)],
        terms=terms_mapping(task.terms),
    )


def _wire_segment(segment: ContextSegment) -> WireSegment:
    translation = None if segment.translation is None else clean_text(segment.translation)
    return WireSegment(source=clean_text(segment.source), translation=translation)


def _wire_candidate(candidate_id: str, candidate: Candidate) -> WireCandidate:
    return WireCandidate(
        candidate_id=candidate_id,
        response=clean_text(candidate.response),
        translation=None if candidate.translation is None else clean_text(candidate.translation),
        n_tokens=candidate.n_tokens,
    )


def _verdict(group: WireGroup, wire: WireVerdict) -> Verdict:
    ids = [candidate.candidate_id for candidate in group.candidates]
    where = f"group {group.group_id!r}"
    _check_ids(f"candidates of {where}", ids, [score.candidate_id for score in wire.candidates])
    index_of = {score.candidate_id: index for index, score in enumerate(wire.candidates)}
    order = [index_of[candidate_id] for candidate_id in ids]
    try:
        _check_ranking(wire.ranking, ids)
        parts = tuple(part_in_order(part, order) for part in wire.parts)
        spans = spans_in_order(
            [None if own is None else [dict(span) for span in own] for own in wire.spans],
            order,
            [candidate.translation for candidate in group.candidates],
        )
    except ValueError as error:
        raise AnswerError(f"{where}: {error}") from error
    return Verdict(
        tuple(wire.candidates[index].status for index in order),
        tuple(wire.candidates[index].score for index in order),
        None if wire.ranking is None else tuple(tuple(tier) for tier in wire.ranking),
        wire.analysis,
        wire.attempts,
        wire.tokens,
        rejections=tuple(wire.rejections),
        parts=parts,
        spans=spans,
    )


def _check_request_id(request: ScoreRequest, answered: str) -> None:
    if answered != request.request_id:
        raise AnswerError(f"the answer is to request {answered!r}, not {request.request_id!r}")


def _check_ids(what: str, requested: Sequence[str], answered: Sequence[str]) -> None:
    missing, unknown = set(requested) - set(answered), set(answered) - set(requested)
    if missing:
        raise AnswerError(f"the answer lacks {len(missing)} of the {what}, for example {min(missing)!r}")
    if unknown:
        raise AnswerError(f"the answer has {len(unknown)} unknown {what}, for example {min(unknown)!r}")
    if len(answered) != len(requested):
        raise AnswerError(f"the answer repeats some of the {what}")


def _check_ranking(ranking: Sequence[Sequence[str]] | None, ids: Sequence[str]) -> None:
    ranked = [candidate_id for tier in ranking or () for candidate_id in tier]
    if len(set(ranked)) != len(ranked) or not set(ranked) <= set(ids):
        raise ValueError("the ranking names a candidate twice or one that is not in the group")
