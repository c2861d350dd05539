"""Which reward a row gets, by the name of its data source.

The rules are those of RRM's training code, tried in this order; a suffix `_tinyv` asks for the verifier, and what
nothing else matches falls back to comparing answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from grrm.errors import UserError

FALLBACK = "prime_math"


@dataclass(frozen=True, slots=True)
class RouteRule:
    """A data source that `matches` gets the reward called `reward`."""

    matches: Callable[[str], bool]
    reward: str


def is_source(name: str) -> Callable[[str], bool]:
    """Matches a data source of exactly this name."""
    return lambda data_source: data_source == name


def contains(part: str) -> Callable[[str], bool]:
    """Matches a data source whose name contains this part."""
    return lambda data_source: part in data_source


SEED_RULES = (
    RouteRule(is_source("openai/gsm8k"), "gsm8k"),
    RouteRule(lambda data_source: data_source.lower().strip() == "grade", "grade"),
    RouteRule(contains("_mathverify"), "math_verify"),
    RouteRule(contains("_tinyv"), "tinyv"),
)
# TinyV's own training code sends its benchmark to the verifier as well; RRM's does not.
TINYV_RULES = (*SEED_RULES, RouteRule(contains("HardVerify-Math"), "tinyv"))
# The answer rules (see `answers`) of the rewards that need no judge.
ANSWER_RULE_OF = {"gsm8k": "gsm8k", "math_verify": "math", "prime_math": "normalised"}


@dataclass(slots=True)
class RewardRoutes:
    """A registry from data source to the name of a reward: own rules first, then the seed's, then the fallback."""

    rules: Iterable[RouteRule] = SEED_RULES
    fallback: str = FALLBACK
    _own: list[RouteRule] = field(default_factory=list, init=False)

    def add(self, matches: Callable[[str], bool] | str, reward: str) -> None:
        """Route data sources that match, or that have exactly this name, to `reward`, before all rules there are."""
        self._own.insert(0, RouteRule(is_source(matches) if isinstance(matches, str) else matches, reward))

    def route(self, data_source: object) -> str:
        """The name of the reward. Raises UserError for a data source that is not text."""
        if not isinstance(data_source, str):
            raise UserError(
                f"The data source {repr(data_source)[:200]} is not text; name one in the column data_source."
            )
        for rule in (*self._own, *self.rules):
            if rule.matches(data_source):
                return rule.reward
        return self.fallback
