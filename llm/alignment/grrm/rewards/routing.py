"""Choice of the reward of a row by the name of its data source.

The rules are those of RRM's training code, tried in this order, and one for knights and knaves; a suffix `_tinyv` asks
for the verifier, and any other name falls back to comparing answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from grrm.gqm.groups import TranslationTask

FALLBACK = "prime_math"
TRANSLATION = "translation"  # the route of rows that are translation tasks
# RRM's routes by data source, with * as a wildcard; case-sensitive, except for `grade`.
RRM_ROUTES = {
    "openai/gsm8k": "gsm8k",
    "*_mathverify*": "math_verify",
    "*_tinyv*": "tinyv",
    "*knights-and-knaves*": "knights_and_knaves",
}
# The rules (see `rule_rewards`) of the rewards that need no model.
RULE_OF = {
    "gsm8k": "gsm8k",
    "grade": "grade",
    "math_verify": "math",
    "knights_and_knaves": "knights_and_knaves",
    "prime_math": "math",
}


@dataclass(frozen=True, slots=True)
class RewardRoutes:
    """From data source to the name of a reward: by `own` routes first, then RRM's, then the fallback.

    Own routes may have wildcards as RRM's; the first that matches is used.
    """

    own: Mapping[str, str] = field(default_factory=dict)

    def of_task(self, task: TranslationTask) -> str:
        """The name of a task's reward: by own routes, else TRANSLATION for a translation task, else by the others."""
        is_others = task.is_translation and _matching(self.own, task.data_source) is None
        return TRANSLATION if is_others else self.route(task.data_source)

    def route(self, data_source: str) -> str:
        """The name of the reward of rows that are no translation tasks."""
        fallback = "grade" if data_source.lower().strip() == "grade" else FALLBACK
        return _matching(self.own, data_source) or _matching(RRM_ROUTES, data_source) or fallback


def _matching(routes: Mapping[str, str], data_source: str) -> str | None:
    is_like = (name for name in routes if data_source == name or ("*" in name and fnmatchcase(data_source, name)))
    return next(map(routes.__getitem__, is_like), None)
