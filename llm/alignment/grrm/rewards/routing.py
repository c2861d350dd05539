"""Choice of the reward of a row by the name of its data source.

The rules are those of RRM's training code, tried in this order, and one for knights and knaves; a suffix `_tinyv` asks
for the verifier, and any other name falls back to comparing answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from grrm.errors import UserError
from grrm.gqm.groups import TranslationTask

FALLBACK = "prime_math"
TRANSLATION = "translation"  # the route of rows that are translation tasks


@dataclass(frozen=True, slots=True)
class RouteRule:
    """A data source that `matches` gets the reward called `reward`."""

    matches: Callable[[str], bool]
    reward: str


def is_source(name: str) -> Callable[[str], bool]:
    """Matches a data source of exactly this name."""
    return lambda data_source: data_source == name


def is_like(pattern: str) -> Callable[[str], bool]:
    """Matches data sources like `polaris*`, in which * stands for anything; case counts."""
    return lambda data_source: fnmatchcase(data_source, pattern)


def contains(part: str) -> Callable[[str], bool]:
    """Matches a data source whose name contains this part."""
    return lambda data_source: part in data_source


SEED_RULES = (
    RouteRule(is_source("openai/gsm8k"), "gsm8k"),
    RouteRule(lambda data_source: data_source.lower().strip() == "grade", "grade"),
    RouteRule(contains("_mathverify"), "math_verify"),
    RouteRule(contains("_tinyv"), "tinyv"),
    RouteRule(contains("knights-and-knaves"), "knights_and_knaves"),
)
# The rules (see `rule_rewards`) of the rewards that need no model.
RULE_OF = {
    "gsm8k": "gsm8k",
    "grade": "grade",
    "math_verify": "math",
    "knights_and_knaves": "knights_and_knaves",
    "prime_math": "math",
}


@dataclass(slots=True)
class RewardRoutes:
    """A registry from data source to the name of a reward: own rules first, then the seed's, then the fallback."""

    rules: Iterable[RouteRule] = SEED_RULES
    fallback: str = FALLBACK
    _own: list[RouteRule] = field(default_factory=list, init=False)

    @classmethod
    def from_mapping(cls, routes: Mapping[str, str]) -> RewardRoutes:
        """Own rules from {data source, in which * stands for anything: reward}; the first that matches holds."""
        table = cls()
        for name, reward in reversed(list(routes.items())):
            table.add(is_like(name) if "*" in name else name, reward)
        return table

    def add(self, matches: Callable[[str], bool] | str, reward: str) -> None:
        """Route data sources that match, or that have exactly this name, to `reward`, before all rules there are."""
        self._own.insert(0, RouteRule(is_source(matches) if isinstance(matches, str) else matches, reward))

    def of_task(self, task: TranslationTask) -> str:
        """The name of a task's reward: by own rules, else TRANSLATION for a translation task, else by the others."""
        if task.is_translation and not any(rule.matches(task.data_source) for rule in self._own):
            return TRANSLATION
        return self.route(task.data_source)

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
