"""Ground truth of a question, and combination of a rule's and a verifier's results into one reward (TinyV, RRM)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Literal, get_args

from grrm.errors import UserError, require_known

VerifierSetup = Literal["tinyv_only", "addon", "mixed"]
VERIFIER_SETUPS: tuple[str, ...] = get_args(VerifierSetup)


@dataclass(frozen=True, slots=True)
class Truth:
    """Ground truth of a question: the true answer, and the criteria for a rubric judge."""

    answer: str
    criteria: str | None = None

    @property
    def text(self) -> str:
        """The text from which `read_truth` reads this: JSON where the answer alone would not do."""
        if self.criteria is not None:
            return json.dumps({"answer": self.answer, "criteria": self.criteria}, ensure_ascii=False)
        is_plain = read_truth(self.answer) == self
        return self.answer if is_plain else json.dumps({"answer": self.answer}, ensure_ascii=False)


def read_truth(reference: str) -> Truth:
    """The truth in a task's reference: JSON `{"answer": …, "criteria": …}`, or the true answer as it is."""
    try:
        parsed = json.loads(reference) if reference.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        parsed = None
    answer = parsed.get("answer") if isinstance(parsed, dict) else None
    if not isinstance(parsed, dict) or isinstance(answer, bool) or not isinstance(answer, str | int | float):
        return Truth(reference)
    criteria = parsed.get("criteria")
    return Truth(str(answer), criteria if isinstance(criteria, str) else None)


def true_answer(reference: str | None) -> str | None:
    """The true answer in a task's reference; None where there is none, or a blank one."""
    answer = read_truth(reference or "").answer
    return answer if answer.strip() else None


@dataclass(frozen=True)
class VerifierMix:
    """A reward from 0 to 1 of the rule's r, 0 or 1, and the verifier's v, from 0 to 1:

        tinyv_only  v, whatever the weight
        addon       1 where the rule says right, else v * weight; the verifier is not asked about right answers
        mixed       v * weight + r * (1 - weight)

    Without an answer of the verifier there is no reward, except where `addon` does not ask. Raises UserError for
    another setup, or a weight that counts and is not from 0 to 1.
    """

    setup: VerifierSetup = "tinyv_only"
    weight: float = 1.0

    def __post_init__(self) -> None:
        require_known("verifier setup", self.setup, VERIFIER_SETUPS)
        if self.setup == "tinyv_only":
            return
        is_number = isinstance(self.weight, int | float) and not isinstance(self.weight, bool)
        if not (is_number and math.isfinite(self.weight) and 0 <= self.weight <= 1):
            raise UserError(f"The verifier's weight is {self.weight!r}; give a number from 0 to 1.")

    def asks(self, rule_says_right: bool) -> bool:
        """True where the reward depends on the verifier."""
        return self.setup != "addon" or not rule_says_right

    def reward(self, rule_says_right: bool, verified: float | None) -> float | None:
        """The reward; None where the verifier was to be asked and gave no answer."""
        if not self.asks(rule_says_right):
            return 1.0
        if verified is None:
            return None
        if self.setup == "tinyv_only":
            return verified
        rest = rule_says_right * (1 - self.weight) if self.setup == "mixed" else 0.0
        return verified * self.weight + rest
