"""PaddleNLP's rows as groups, and verdicts as PaddleNLP's numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from grrm.errors import UserError
from grrm.gqm.chat import EOS_TEXT, USER_START
from grrm.gqm.groups import Candidate, Group, TranslationTask, Verdict
from grrm.gqm.mt_prompts import recover_mt_task
from grrm.gqm.terms import read_terms
from grrm.rewards.rows_protocol import RowsRequest, RowTask

from .problems import RequestProblem

Extract = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Groups with the rows they came from: candidate j of `groups[i]` is row `rows[i][j]`."""

    groups: list[Group]
    rows: list[list[int]]
    n_unknown_tasks: int  # groups whose source and languages neither `tgt` nor `src` tells


def group_rows(request: RowsRequest, extract: Extract, special_tokens: Sequence[str]) -> RowGroups:
    """Rows of the same prompt and label, adjacent or not, as one group, in order of first appearance.

    Every row must have a `src`, a `tgt` and a `response`. Prompts of equal text but different labels are different
    data rows, so they stay apart: a judge compares a group with one reference.

    Raises RequestProblem 422 for terms that cannot be read.
    """
    rows_by_prompt: dict[tuple[str, str], list[int]] = {}
    for row, prompt in enumerate(zip(request.src, request.tgt, strict=True)):
        rows_by_prompt.setdefault(prompt, []).append(row)
    groups, n_unknown = [], 0
    for (src, tgt), rows in rows_by_prompt.items():
        try:
            task = find_task(src, tgt, special_tokens)
        except UserError as error:
            raise RequestProblem(422, str(error), field=f"tgt[{rows[0]}]") from error
        n_unknown += not task.trg_lang
        responses = [remove_tokens(request.response[row], special_tokens) for row in rows]
        candidates = (Candidate(str(row), text, extract(text)) for row, text in zip(rows, responses, strict=True))
        groups.append(Group(f"row-{rows[0]}", task, tuple(candidates)))
    return RowGroups(groups, list(rows_by_prompt.values()), n_unknown)


def find_task(src: str, tgt: str, special_tokens: Sequence[str]) -> TranslationTask:
    """The task of a row: from the JSON in `tgt`, else from the translation prompt in `src` with `tgt` as reference.

    JSON that was cut short gives no reference. When the prompt is not a known one, the source is the prompt's text
    and the languages are empty. Raises UserError for terms that cannot be read.
    """
    label = remove_tokens(tgt, special_tokens).strip()
    reference: str | None = label or None
    if label.startswith("{") and '"source"' in label:
        try:
            # A tokenizer of another family ends the label with a token that is not among ours.
            row = RowTask.model_validate_json(label[: label.rfind("}") + 1])
        except ValidationError:
            reference = None
        else:
            if isinstance(terms := read_terms(row.terms), str):
                raise UserError(terms)
            return TranslationTask(row.source, row.src_lang, row.trg_lang, row.reference, terms=terms)
    prompt = _user_text(src, special_tokens)
    source, src_lang, trg_lang = recover_mt_task(prompt) or (prompt, "", "")
    return TranslationTask(source, src_lang, trg_lang, reference)


def remove_tokens(text: str, special_tokens: Sequence[str]) -> str:
    """`text` without the special tokens, which PaddleNLP's trainer leaves in what it decodes."""
    for token in special_tokens:
        text = text.replace(token, "")
    return text


def rewards_by_row(
    row_groups: RowGroups, verdicts: Sequence[Verdict], *, scale: float, default: float
) -> tuple[list[float], int]:
    """Rewards in row order, `score * scale` or `default` where there is no score, and the number of defaults."""
    rewards: dict[int, float] = {}
    n_defaulted = 0
    for rows, verdict in zip(row_groups.rows, verdicts, strict=True):
        for row, score in zip(rows, verdict.scores, strict=True):
            n_defaulted += score is None
            rewards[row] = default if score is None else score * scale
    return [rewards[row] for row in range(len(rewards))], n_defaulted


def _user_text(src: str, special_tokens: Sequence[str]) -> str:
    """The last user turn of a ChatML prompt; all of another prompt."""
    _, opening, rest = src.rpartition(USER_START)
    turn, closing, _ = rest.partition(EOS_TEXT)
    return turn if opening and closing else remove_tokens(src, special_tokens)
