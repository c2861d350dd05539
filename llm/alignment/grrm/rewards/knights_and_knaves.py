"""PaddleNLP's scoring of knights and knaves, by which its GRPO and REINFORCE++ examples are trained."""

from __future__ import annotations

import re
from itertools import pairwise

from grrm.errors import UserError
from grrm.rewards.ranking_accuracy import RankingReward
from grrm.rewards.ranking_ground_truth import GroundTruth
from grrm.rewards.verified import read_truth

RIGHT, WRONG, UNREADABLE = 2.0, -1.5, -2.0  # the answer; the format counts 1 or -1 beside it
_ASSISTANT = "<|im_start|>assistant"
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_ANSWER = re.compile("<answer>(.*?)</answer>", re.DOTALL)
_ROLE = re.compile("knight|knave", re.IGNORECASE)
_LINE = re.compile(r"\b([A-Za-z]+)\b.*?\b(knight|knave)\b", re.IGNORECASE)


def paddlenlp_knights_and_knaves(
    response: str, ground_truth: GroundTruth, *, score_scale_factor: float = 1.0, compat: bool = False
) -> RankingReward:
    """Reward 3 for a right answer in its format, -0.5 for a wrong one, -1 for one that names not everyone, else -3.

    The format is `<think>…</think><answer>…</answer>`, each tag once; the prompt ends in the first. The answer has one
    role for each name of the truth, `Zoey is a knight`. `compat` changes nothing. Raises UserError for a truth that is
    not a line with a name and a role for each inhabitant.
    """
    roles = _true_roles(ground_truth)
    text = response if f"\n{_ASSISTANT}\n<think>" in response else f"\n{_ASSISTANT}\n<think>{response}"
    text = text.partition("Assistant:" if "Assistant:" in text else _ASSISTANT)[2]
    has_format = all(text.count(tag) == 1 for tag in _TAGS) and all(
        text.index(first) < text.index(second) for first, second in pairwise(_TAGS)
    )
    answers = _ANSWER.findall(text) if has_format else []
    said = _said_roles(answers[-1], list(roles)) if answers else None
    answer = UNREADABLE if said is None else RIGHT if said == roles else WRONG
    score = ((1.0 if has_format else -1.0) + answer) * score_scale_factor
    return RankingReward(score, True, None, float(said == roles))


def _true_roles(ground_truth: GroundTruth) -> dict[str, str]:
    truth = read_truth(ground_truth).answer if isinstance(ground_truth, str) else ""
    roles = {name: role.lower() for line in truth.splitlines() for name, role in _LINE.findall(line)[:1]}
    if not roles or len(_ROLE.findall(truth)) != len(roles):
        raise UserError(
            f"The ground truth {repr(ground_truth)[:200]} has not one line like '(1) Zoey is a knight' for each "
            "inhabitant, as PaddleNLP's scoring reads it; write such lines."
        )
    return roles


def _said_roles(answer: str, names: list[str]) -> dict[str, str] | None:
    """The role of each name; None unless the answer has as many roles, and one for each."""
    if len(_ROLE.findall(answer)) != len(names):
        return None
    matches = {
        name: re.search(rf"\b{re.escape(name)}\b\s+is\s+a\s+\b(knight|knave)\b", answer, re.IGNORECASE)
        for name in names
    }
    return {name: match[1].lower() for name, match in matches.items() if match} if all(matches.values()) else None
