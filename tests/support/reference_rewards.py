"""The reference's reward processors, quirks included; the length penalty and filters of DAPO and PaddleNLP.

Quirks kept: an unreadable judge reply puts `default_reward` where the score belongs, so that the group processor
scales it and both processors subtract the length penalty from it; copies of a translation share the penalty of the
first copy; Ukrainian is missing; the `none` extractor takes an empty response for a translation; more than 26 distinct
candidates are an exception; and whatever the compat grammar accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from support.reference_parsers import extract

from grrm.gqm.chat import render_chatml
from grrm.gqm.languages import LANG_NAMES
from grrm.gqm.prompts import gqm_prompt, sqm_prompt
from grrm.rewards.overlong import OverlongConfig, overlong_penalty

UNKNOWN_TO_REFERENCE = "uk"


@dataclass(frozen=True, slots=True)
class ReferenceConfig:
    """The reference's settings under its own names and defaults (`reward_model.*`)."""

    prompt_length: int
    extractor_type: str = "line"
    group_prompt_type: str = "ranking_score"
    group_add_example: bool = False
    score_scale_factor: float = 0.1
    default_reward: float = 0.0
    overlong_buffer: Mapping[str, Any] | None = None

    @property
    def overlong(self) -> OverlongConfig | None:
        return OverlongConfig.from_mapping(self.overlong_buffer)


@dataclass(frozen=True, slots=True)
class ReferenceItem:
    """One response of a batch; `lang_pair` ("en-de") stands in for absent languages."""

    uid: str
    response: str
    src_text: str
    valid_len: int
    src_lang: str | None = None
    trg_lang: str | None = None
    lang_pair: str = ""

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language. Raises KeyError for a code that the reference does not know."""
        src_lang, _, trg_lang = self.lang_pair.partition("-")
        pair = (self.src_lang or src_lang, self.trg_lang or trg_lang)
        for lang in pair:
            if len(lang) == 2 and (lang not in LANG_NAMES or lang == UNKNOWN_TO_REFERENCE):
                raise KeyError(lang)
        return pair


@dataclass(slots=True)
class ReferenceGroup:
    """A group of the batch: its candidates' row numbers by distinct text, and its rows without a translation."""

    uid: str
    prompt: str | None
    dup_map: list[list[int]]
    candidate_lens: list[int]
    invalid: list[int]


def reference_groups(
    config: ReferenceConfig, items: Sequence[ReferenceItem], count_tokens: Callable[[str], int]
) -> list[ReferenceGroup]:
    """The batch's groups in first-seen order; `prompt` is None where the reference does not ask its judge."""
    rows_by_uid: dict[str, list[int]] = {}
    for row, item in enumerate(items):
        rows_by_uid.setdefault(str(item.uid), []).append(row)
    return [_reference_group(config, items, uid, rows, count_tokens) for uid, rows in rows_by_uid.items()]


def _reference_group(
    config: ReferenceConfig,
    items: Sequence[ReferenceItem],
    uid: str,
    rows: Sequence[int],
    count_tokens: Callable[[str], int],
) -> ReferenceGroup:
    by_text: dict[str, list[int]] = {}
    invalid = []
    for row in rows:
        text = extract(items[row].response, config.extractor_type)
        if text is None:
            invalid.append(row)
        else:
            by_text.setdefault(text, []).append(row)
    prompt = None
    if len(by_text) > 1:
        first = items[rows[0]]
        prompt = render_chatml(
            gqm_prompt(
                first.src_text, list(by_text), *first.languages, config.group_prompt_type, config.group_add_example
            )
        )
        if count_tokens(prompt) > config.prompt_length:
            prompt = None
    dup_map = list(by_text.values())
    return ReferenceGroup(uid, prompt, dup_map, [items[copies[0]].valid_len for copies in dup_map], invalid)


def reference_group_rewards(
    config: ReferenceConfig,
    groups: Sequence[ReferenceGroup],
    judge_scores: Sequence[Sequence[float] | None],
    n_rows: int,
) -> list[float]:
    """Rewards of all rows; `judge_scores` has one entry per group with a prompt, None for an unreadable reply."""
    rewards = [config.default_reward] * n_rows
    asked = [group for group in groups if group.prompt is not None]
    for group, scores in zip(asked, judge_scores, strict=True):
        if scores is None:
            scores = [config.default_reward] * len(group.dup_map)
        for copies, length, score in zip(group.dup_map, group.candidate_lens, scores, strict=True):
            reward = score * config.score_scale_factor - overlong_penalty(length, config.overlong)
            for row in copies:
                rewards[row] = reward
    return rewards


def reference_single_prompts(
    config: ReferenceConfig, items: Sequence[ReferenceItem], count_tokens: Callable[[str], int]
) -> dict[int, str]:
    """The single judge's prompts by row; rows without a translation or with too long a prompt are left out."""
    prompts = {}
    for row, item in enumerate(items):
        text = extract(item.response, config.extractor_type)
        if text is not None:
            prompt = render_chatml(sqm_prompt(item.src_text, text, *item.languages))
            if count_tokens(prompt) <= config.prompt_length:
                prompts[row] = prompt
    return prompts


def reference_single_rewards(
    config: ReferenceConfig, items: Sequence[ReferenceItem], scores_by_row: Mapping[int, float | None]
) -> list[float]:
    """Rewards of all rows from the single judge's scores, None for an unreadable reply (default, not scaled)."""
    rewards = [config.default_reward] * len(items)
    for row, score in scores_by_row.items():
        base = config.default_reward if score is None else score * config.score_scale_factor
        rewards[row] = base - overlong_penalty(items[row].valid_len, config.overlong)
    return rewards


def uncapped_overlong_reward(n_tokens: int, max_resp_len: int, buffer_len: int, penalty_factor: float) -> float:
    """What DAPO and PaddleNLP ADD to the reward (<= 0): min(-(L - (max_resp_len - len)) / len * factor, 0).

    For comparison only: it has no floor, so one response far past the limit outweighs every other reward. DAPO
    counts response tokens, PaddleNLP everything after the padded prompt. Raises ZeroDivisionError for `buffer_len` 0.
    """
    excess = n_tokens - (max_resp_len - buffer_len)
    return min(-excess / buffer_len * penalty_factor, 0.0)


def paddlenlp_valid_indices(
    rewards: Sequence[float], index: Sequence[Hashable], rollout_n: int, variance_threshold: float = 1e-6
) -> list[int]:
    """PaddleNLP's rule, for comparison: rows of groups with `rollout_n` members and population variance > threshold.

    It drops a group of small but real differences (0.5 beside 0.5001) and says nothing about torn groups.
    """
    kept = {
        key
        for key, values in _by_group(rewards, index).items()
        if len(values) == rollout_n and np.var(values) > variance_threshold
    }
    return [row for row, key in enumerate(index) if key in kept]


def dapo_kept_groups(rewards: Sequence[float], index: Sequence[Hashable]) -> list[Hashable]:
    """DAPO's rule, for comparison: groups whose standard deviation is above 0, and singletons; first-seen order."""
    groups = _by_group(rewards, index)
    return [key for key, values in groups.items() if len(values) == 1 or np.std(values) > 0]


def _by_group(rewards: Sequence[float], index: Sequence[Hashable]) -> dict[Hashable, list[float]]:
    groups: dict[Hashable, list[float]] = {}
    for reward, key in zip(rewards, index, strict=True):
        groups.setdefault(key, []).append(reward)
    return groups
