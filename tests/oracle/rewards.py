"""Rewards of a group from the judge's statuses and scores: scale, penalty of length, candidates without a score."""

from __future__ import annotations

from typing import Any

NAN = float("nan")
MIDDLE_SCORE = 5.0
SCORED = ("scored", "duplicate")
# What the documentation says of statuses that failure_policy does not name; all others are masked.
PENALISED = ("unparsable_candidate", "wrong_language", "wrong_length", "source_copy", "repetition", "missing_term",
             "wrong_placeholders", "over_limit", "wrong_formality")  # fmt: skip


def group_rewards(candidates: list[dict[str, Any]], arguments: dict[str, Any]) -> list[float]:
    """The reward of every candidate, NaN without one."""
    scale, fixed = arguments["score_scale_factor"], arguments["default_reward"]
    actions = [_action(candidate["status"], arguments["failure_policy"]) for candidate in candidates]
    if "drop_group" in actions:
        return [NAN] * len(candidates)
    scores = [one["score"] * scale for one, action in zip(candidates, actions, strict=True) if action is None]
    contrast = MIDDLE_SCORE * scale if "penalty" in actions and MIDDLE_SCORE * scale > fixed else NAN
    rewards = []
    for candidate, action in zip(candidates, actions, strict=True):
        penalty = length_penalty(candidate["n_tokens"], arguments)
        rewards.append(
            candidate["score"] * scale - penalty
            if action is None
            else {
                "penalty": fixed,
                "lowest": min(scores, default=NAN) - penalty,
                "contrast": contrast,
                "mask": NAN,
            }[action]
        )
    return rewards


def length_penalty(n_tokens: int, arguments: dict[str, Any]) -> float:
    """The ramp over the last tokens below the limit."""
    if not arguments["enable_overlong_reward_buffer"]:
        return 0.0
    width = arguments["overlong_reward_buffer"]
    share = max(0.0, (n_tokens - (arguments["overlong_max_resp_len"] - width)) / width)
    return arguments["overlong_penalty_factor"] * (min(1.0, share) if arguments["overlong_penalty_capped"] else share)


def _action(status: str, policy: dict[str, str]) -> str | None:
    if status in SCORED:
        return None
    return policy.get(status, "penalty" if status in PENALISED else "mask")
