"""An alarm of reward hacking: the judge's reward rises while greedy translations of the same texts get worse.

What pleases a judge need not be better: where samples are rewarded for agreeing with each other, their reward and even
their chrF rise while the policy forgets what only its greedy translations got right.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from grrm.evaluation.bootstrap import Interval
from grrm.evaluation.chrf_difference import chrf_difference
from grrm.evaluation.held_out_scores import GREEDY, TranslatedPrompt, has_reference
from grrm.gqm.groups import TranslationTask

LEVEL = 0.99  # a run has many evaluations, and each may call noise a fall: at 95 % it is one in forty
MIN_REFERENCES = 10  # with fewer, resampled texts are too much alike to tell noise from a fall
PREFIX = "eval_alarm/"
REWARD, CHRF = "eval_reward", f"eval_chrf{GREEDY}"
COPIES, LENGTH = "eval_frac_duplicate", "eval_response_length_mean"


@dataclass(frozen=True, slots=True)
class FirstEvaluation:
    """What later evaluations are compared with: the metrics, and the greedy translations of texts with a reference."""

    step: int
    metrics: dict[str, float]
    greedy: list[str | None]


class RewardAlarm:
    """Compares evaluations of the same held-out texts, `tasks`, with the first one.

    Raised when the mean reward of samples is above the first one and greedy corpus chrF is below it by more than noise:
    the whole 99 % interval of the paired difference is below zero, texts resampled. Evaluations without any reward say
    nothing. With fewer than ten references it cannot be raised, and says so once. `settings` is how the evaluation
    decodes; evaluations that decode otherwise are not compared.
    """

    def __init__(self, tasks: Sequence[TranslationTask], settings: str = "") -> None:
        self.references = [task.reference or "" for task in tasks if has_reference(task)]
        content = json.dumps([settings, [(task.source, task.trg_lang, task.reference) for task in tasks]])
        self._identity = hashlib.sha256(content.encode("ascii")).hexdigest()
        self.first: FirstEvaluation | None = None
        self.is_raised = False
        self._has_told = False

    def check(
        self, step: int, metrics: Mapping[str, float], prompts: Sequence[TranslatedPrompt]
    ) -> tuple[dict[str, float], str | None]:
        """What has changed since the first evaluation, and a sentence when the alarm is raised now and was not before.

        `metrics` are the `held_out_scores` of `prompts` after step `step`.
        """
        if len(self.references) < MIN_REFERENCES:
            return {}, self._excuse(len(prompts))
        greedy = [prompt.translations[0] for prompt in prompts if has_reference(prompt.task)]
        if not math.isfinite(metrics[REWARD]):
            return {}, None
        if self.first is None:
            compared = {name: metrics[name] for name in (REWARD, CHRF, COPIES, LENGTH) if name in metrics}
            self.first = FirstEvaluation(step, compared, greedy)
        first = self.first
        changes = {name: metrics[name] - first.metrics[name] for name in first.metrics}
        fall = chrf_difference([first.greedy], [greedy], self.references, level=LEVEL)
        was_raised, self.is_raised = self.is_raised, changes[REWARD] > 0 and fall.high < 0
        sentence = None if was_raised or not self.is_raised else self._sentence(first, metrics, fall)
        return {
            f"{PREFIX}raised": float(self.is_raised),
            **{f"{PREFIX}{name.removeprefix('eval_')}_change": change for name, change in changes.items()},
            f"{PREFIX}{CHRF.removeprefix('eval_')}_change_low": fall.low,
            f"{PREFIX}{CHRF.removeprefix('eval_')}_change_high": fall.high,
        }, sentence

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep, as JSON."""
        first = None if self.first is None else asdict(self.first)
        return {"identity": self._identity, "first": first, "is_raised": self.is_raised}

    def restore(self, state: dict[str, Any] | None) -> None:
        """Go on where `state` was taken; the next evaluation is the first one when that was of other texts."""
        if state is not None and state["identity"] == self._identity and state["first"] is not None:
            self.first, self.is_raised = FirstEvaluation(**state["first"]), state["is_raised"]

    def _excuse(self, n_prompts: int) -> str | None:
        if self._has_told:
            return None
        self._has_told = True
        return (
            f"there can be no alarm of reward hacking: {len(self.references)} of {n_prompts} held-out rows have a "
            f"reference, and it takes {MIN_REFERENCES}"
        )

    def _sentence(self, first: FirstEvaluation, metrics: Mapping[str, float], fall: Interval) -> str:
        before, n_texts = first.metrics, len(self.references)
        beside = [
            f"{title} {before[name]:{style}} then, {metrics[name]:{style}} now"
            for title, name, style in (
                ("identical samples", COPIES, ".0%"),
                ("mean length in tokens", LENGTH, ".1f"),
            )
            if name in before
        ]
        return (
            f"reward hacking? Since step {first.step} the judge's reward has risen from {before[REWARD]:.3f} to "
            f"{metrics[REWARD]:.3f}, but greedy chrF of {n_texts} held-out texts has fallen from {before[CHRF]:.1f} to "
            f"{metrics[CHRF]:.1f} ({fall.mean:+.1f}, {LEVEL:.0%} interval {fall.low:+.1f} to {fall.high:+.1f}); "
            f"{'; '.join(beside)}. Look at the rollouts, raise kl_loss_coeff (kl_coeff of reinforce_plus_plus), or "
            "stop earlier, at the checkpoint that is best by eval_chrf_greedy"
        )
