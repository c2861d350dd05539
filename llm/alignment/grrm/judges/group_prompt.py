"""The group judge's prompt for a group, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from grrm.gqm.chat import render_chatml
from grrm.gqm.fences import is_safe_candidate
from grrm.gqm.groups import Group, Status
from grrm.gqm.languages import CANDIDATE_IDS
from grrm.gqm.prompts import gqm_prompt
from grrm.judges.dedup import DistinctCandidates, dedup_texts


@dataclass(frozen=True, slots=True)
class GroupPrompt:
    """What a group asks of the judge.

    `dup_map[k]` are the positions in `group.candidates` of the candidate called A, B, … (k = 0, 1, …), and `lens[k]`
    the response length of its first copy in tokens. `prompt` is None when there is nothing to ask, with the reason in
    `blocked`.
    """

    prompt: str | None
    distinct: DistinctCandidates
    lens: tuple[int, ...]
    blocked: Status | None = None

    @property
    def dup_map(self) -> tuple[tuple[int, ...], ...]:
        return self.distinct.members


def build_group_prompt(
    group: Group,
    prompt_type: str = "ranking_score",
    add_example: bool = False,
    is_safe: Callable[[str], bool] = is_safe_candidate,
    render: Callable[[str], str] = render_chatml,
    max_candidates: int = len(CANDIDATE_IDS),
) -> GroupPrompt:
    """The judge's prompt for a group, a pure function of it: equal translations merged, unusable ones left out.

    Blocked with SINGLE_CANDIDATE below two distinct translations, with TOO_MANY_CANDIDATES above `max_candidates`,
    which is at most 26. Raises what `gqm_prompt` raises on an unknown language or prompt type.
    """
    return prompt_for(group, dedup_texts(group, is_safe), prompt_type, add_example, render, max_candidates)


def prompt_for(
    group: Group,
    distinct: DistinctCandidates,
    prompt_type: str,
    add_example: bool,
    render: Callable[[str], str],
    max_candidates: int,
) -> GroupPrompt:
    """`build_group_prompt` for those of the group's translations that are in `distinct`."""
    lens = tuple(group.candidates[positions[0]].n_tokens for positions in distinct.members)
    if len(set(distinct.texts)) < 2:
        return GroupPrompt(None, distinct, lens, Status.SINGLE_CANDIDATE)
    if len(distinct.texts) > min(max_candidates, len(CANDIDATE_IDS)):
        return GroupPrompt(None, distinct, lens, Status.TOO_MANY_CANDIDATES)
    task = group.task
    user_prompt = gqm_prompt(task.source, distinct.texts, task.src_lang, task.trg_lang, prompt_type, add_example)
    return GroupPrompt(render(user_prompt), distinct, lens)
