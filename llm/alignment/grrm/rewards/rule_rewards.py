"""The rule rewards by the names they have in settings files; those of judges of one text, and of answers, are here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from grrm.errors import UserError, require_known
from grrm.gqm.grammar import MAX_SCORE, Rejection, parse_sqm
from grrm.gqm.rubric import parse_total
from grrm.rewards.answers import ANSWER_RULES, AnswerRule
from grrm.rewards.ranking_accuracy import (
    INVALID,
    GroundTruth,
    RankingReward,
    gold_scores,
    ranking_reward,
    ranking_reward_no_cot,
    ranking_reward_zero,
    ranking_score_reward,
    ranking_score_reward_no_cot,
    score_ordering_reward,
    score_reward,
)
from grrm.rewards.verified import read_truth

RuleReward = Callable[[str, GroundTruth], RankingReward]  # of a response, by the ground truth of its row

RIGHT, WRONG, UNREADABLE = 2.0, -1.5, -2.0  # the answer; the format counts 1 or -1 beside it
_ASSISTANT = "<|im_start|>assistant"
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_ANSWER = re.compile("<answer>(.*?)</answer>", re.DOTALL)
_ROLE = re.compile("knight|knave", re.IGNORECASE)
_NAME, _ROLE_WORD = (re.compile(rf"\b({word})\b", re.IGNORECASE) for word in ("[a-z]+", "knight|knave"))


def paddlenlp_knights_and_knaves(response: str, ground_truth: GroundTruth) -> RankingReward:
    """Reward 3 for a right answer in its format, -0.5 for a wrong one, -1 for one that names not everyone, else -3.

    The format is `<think>…</think><answer>…</answer>`, each tag once; the prompt ends in the first. The answer has one
    role for each name of the truth, `Zoey is a knight`. Raises UserError for a truth that is not a line with a name and
    a role for each inhabitant.
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
    score = (1.0 if has_format else -1.0) + answer
    return RankingReward(score, True, None, float(said == roles))


def _true_roles(ground_truth: GroundTruth) -> dict[str, str]:
    truth = read_truth(ground_truth).answer if isinstance(ground_truth, str) else ""
    roles = {
        name[1]: role[1].lower()
        for line in truth.splitlines()
        if (name := _NAME.search(line)) and (role := _ROLE_WORD.search(line, name.end()))
    }
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


ERROR_CREDIT: Mapping[int, float] = {0: 1.0, 1: 0.8, 2: 0.4, 3: 0.2}  # by error of the score; larger ones earn 0
_OTHER_TRUTH = re.compile(r'\s*\{\s*"(?:A"\s*:\s*-?\d|source"\s*:.*"trg_lang")', re.DOTALL)  # of judges, translators


def single_score_reward(response: str, ground_truth: GroundTruth) -> RankingReward:
    """Reward in [0, 1] for a response whose last line is a whole score from 0 to 10.

    The ground truth holds one candidate, `{"A": 7}`. Raises UserError for a ground truth that is not one score.
    """
    gold = gold_scores(ground_truth)
    if len(gold) != 1:
        truth = repr(ground_truth)[:200]
        raise UserError(f"The ground truth {truth} holds {len(gold)} scores; give one, like {{'A': 7}}.")
    (expected,) = gold.values()
    score = parse_sqm(response)
    if isinstance(score, Rejection):
        return INVALID
    credit = ERROR_CREDIT.get(round(abs(score - expected)), 0.0)
    return RankingReward(credit, True, None, credit)


def grade_reward(response: str, ground_truth: GroundTruth) -> RankingReward:
    """Reward in [0, 1] for a response that ends in a total of 10 points, which trains a rubric judge.

    (1 - |s - g|)^2 with s the total over 10, from 0 to 1, and g the ground truth, a number from 0 to 1 (RRM, `grade`).
    A total above 10 counts as 10. A response that the rubric judge refuses, such as one with `7/1` or a negative total,
    is not valid: otherwise a policy learns to write totals that nobody reads. Raises UserError for a ground truth that
    is not such a number.
    """
    expected = _gold_grade(ground_truth)
    total = parse_total(response)
    if isinstance(total, Rejection):
        return INVALID
    credit = (1.0 - abs(total / MAX_SCORE - expected)) ** 2
    return RankingReward(credit, True, None, credit)


def _gold_grade(ground_truth: GroundTruth) -> float:
    try:
        grade = float(read_truth(ground_truth).answer) if isinstance(ground_truth, str) else math.nan
    except ValueError:
        grade = math.nan
    if not 0 <= grade <= 1:
        raise UserError(
            f"The ground truth {repr(ground_truth)[:200]} is not a number from 0 to 1; give a grade like 0.8."
        )
    return grade


@dataclass(frozen=True, slots=True)
class AnswerReward:
    """Reward of 1 for a response whose answer is right by a rule of `answers`, 0 for another answer.

    The ground truth may have criteria beside the answer (`read_truth`). A response without an answer is not valid, and
    one on which the rule fails carries the failure. Raises UserError for a ground truth that is not text, or that the
    rule cannot use.
    """

    rule: AnswerRule

    def __call__(self, response: str, ground_truth: GroundTruth) -> RankingReward:
        """The reward of one response."""
        result = self.rule(response, _true_answer(ground_truth))
        if result.failure is not None:
            return replace(INVALID, failure=result.failure)
        if result.answer is None:
            return INVALID
        return RankingReward(result.correct, True, None, float(result.correct))


def _true_answer(ground_truth: GroundTruth) -> str:
    truth = read_truth(ground_truth).answer if isinstance(ground_truth, str) else ""
    if not truth.strip():
        raise UserError(f"The ground truth {repr(ground_truth)[:200]} is not text; give the true answer.")
    if _OTHER_TRUTH.match(truth):
        raise UserError(
            f"The ground truth {truth[:200]!r} is of another kind of rows, by which no answer is right: `grrm data` "
            "makes lines of groups with rl-gqm and of translations with convert."
        )
    return truth


RULE_REWARDS: Mapping[str, RuleReward] = {
    "ranking_score": ranking_score_reward,
    "ranking_score_no_cot": ranking_score_reward_no_cot,
    "score": score_reward,
    "score_ordering": score_ordering_reward,
    "ranking": ranking_reward,
    "ranking_no_cot": ranking_reward_no_cot,
    "ranking_zero": ranking_reward_zero,
    "single_score": single_score_reward,
    "grade": grade_reward,
    "paddlenlp_knights_and_knaves": paddlenlp_knights_and_knaves,
    **{name: AnswerReward(rule) for name, rule in ANSWER_RULES.items()},
}
FINAL_RULES = ("paddlenlp_knights_and_knaves",)  # whose rewards are used as they are, as those of PaddleNLP's server


DEFAULT_RULE = "ranking_score"
# Other rules by which a response to a row can earn something, by the rule that the row names.
_ALSO_FITTING: Mapping[str, tuple[str, ...]] = {
    "ranking_score": ("score", "score_ordering"),
    "ranking_score_no_cot": ("score", "score_ordering"),
    "score": ("score_ordering",),
    "ranking": ("ranking_zero",),
    "ranking_no_cot": ("ranking", "ranking_zero"),
}


def rule_of_row(named: str, chosen: str | None) -> RuleReward:
    """The rule of a row that names one, "" for none; `chosen` is the argument file's, None for the row's.

    Raises UserError for a rule that does not exist, and a choice by which replies as the row's judge is taught earn
    nothing.
    """
    name = chosen or named or DEFAULT_RULE
    if named and name not in (named, *_ALSO_FITTING.get(named, ())):
        rule_reward_function(named)
        raise UserError(
            f"rule_reward is {name}, by which the replies that its converter teaches earn nothing: they fit {named}; "
            "remove rule_reward to use the rule that each row names"
        )
    return rule_reward_function(name)


def rule_reward_function(name: str) -> RuleReward:
    """The reward of a settings file's `name`. Raises UserError for one that does not exist."""
    require_known("rule reward", name, RULE_REWARDS)
    return RULE_REWARDS[name]


def parts_of(rule: RuleReward) -> tuple[str, ...]:
    """The parts of a `RankingReward` that the rule fills."""
    if isinstance(rule, AnswerReward) or rule in (single_score_reward, grade_reward, paddlenlp_knights_and_knaves):
        return ("score_reward",)
    if rule in (ranking_reward, ranking_reward_no_cot, ranking_reward_zero, score_ordering_reward):
        return ("ranking_reward",)
    return ("ranking_reward", "score_reward")
