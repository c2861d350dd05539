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
from grrm.evaluation.held_out_scores import GREEDY, TranslatedPrompt, has_reference
from grrm.evaluation.text_metrics import chrf_difference
from grrm.gqm.groups import TranslationTask

LEVEL = 0.99  # a run has many evaluations, and each may call noise a fall: at 95 % it is one in forty
# The best evaluation was picked for its height, which is partly luck: a later one must be lower than by bad luck.
BEST_LEVEL, BEST_RESAMPLES = 0.998, 3_000
MIN_REFERENCES = 10  # with fewer, resampled texts are too much alike to tell noise from a fall
PREFIX = "eval_alarm/"
REWARD, CHRF = "eval_reward", f"eval_chrf{GREEDY}"
COPIES, LENGTH = "eval_frac_duplicate", "eval_response_length_mean"
COMPARED = (REWARD, CHRF, COPIES, LENGTH)


@dataclass(frozen=True, slots=True)
class PastEvaluation:
    """Baseline of later evaluations: the metrics, and the greedy translations of texts with a reference."""

    step: int
    metrics: dict[str, float]
    greedy: list[str | None]


class RewardAlarm:
    """Compares evaluations of the same held-out texts, `tasks`, with the first one and the one of the best greedy chrF.

    Raised when the mean reward of samples is above that of either and greedy corpus chrF is below it by more than
    noise: the whole interval of the paired difference is below zero, texts resampled; of 99 % against the first
    evaluation, of 99.8 % against the best. Evaluations without any reward say nothing.

    With fewer than ten references it cannot be raised, and says so once. `settings` is how the evaluation decodes;
    evaluations that decode otherwise are not compared.
    """

    def __init__(self, tasks: Sequence[TranslationTask], settings: str = "") -> None:
        self.references = [task.reference or "" for task in tasks if has_reference(task)]
        content = json.dumps([settings, [(task.source, task.trg_lang, task.reference) for task in tasks]])
        self._identity = hashlib.sha256(content.encode("ascii")).hexdigest()
        self.first: PastEvaluation | None = None
        self.best: PastEvaluation | None = None  # of those with a reward, by greedy chrF
        self.is_raised = False
        self._has_warned = False

    def check(
        self, step: int, metrics: Mapping[str, float], prompts: Sequence[TranslatedPrompt], is_relative: bool = False
    ) -> tuple[dict[str, float], str | None]:
        """Return the changes since the first evaluation, and a sentence when the alarm is raised now and was not
        before.

        `metrics` are the `held_out_scores` of `prompts` after step `step`. Where `is_relative` (`compares_only`) the
        reward of samples rises whenever greedy translations get worse, so there is no alarm and no change of reward.
        """
        if len(self.references) < MIN_REFERENCES:
            return {}, self._excuse(len(prompts))
        greedy = [prompt.translations[0] for prompt in prompts if has_reference(prompt.task)]
        if not math.isfinite(metrics[REWARD]):
            return {}, None
        now = PastEvaluation(step, {name: metrics[name] for name in COMPARED if name in metrics}, greedy)
        first, best = self.first or now, self.best or now
        changes = {name: value - first.metrics[name] for name, value in now.metrics.items()}
        fall = chrf_difference([first.greedy], [greedy], self.references, level=LEVEL)
        since = (first, fall, LEVEL) if changes[REWARD] > 0 and fall.high < 0 else self._fall_from_best(best, now)
        if is_relative:
            since = None
            del changes[REWARD]
        was_raised, self.is_raised = self.is_raised, since is not None
        self.first, self.best = first, now if metrics[CHRF] > best.metrics[CHRF] else best
        sentence = None if was_raised or since is None else self._sentence(*since, now.metrics)
        return {
            **({} if is_relative else {f"{PREFIX}raised": float(self.is_raised)}),
            **{f"{PREFIX}{name.removeprefix('eval_')}_change": change for name, change in changes.items()},
            f"{PREFIX}{CHRF.removeprefix('eval_')}_change_low": fall.low,
            f"{PREFIX}{CHRF.removeprefix('eval_')}_change_high": fall.high,
        }, sentence

    def _fall_from_best(
        self, best: PastEvaluation, now: PastEvaluation
    ) -> tuple[PastEvaluation, Interval, float] | None:
        if not (now.metrics[REWARD] > best.metrics[REWARD] and now.metrics[CHRF] < best.metrics[CHRF]):
            return None
        fall = chrf_difference(
            [best.greedy], [now.greedy], self.references, level=BEST_LEVEL, n_resamples=BEST_RESAMPLES
        )
        return (best, fall, BEST_LEVEL) if fall.high < 0 else None

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, as JSON."""
        first, best = (None if past is None else asdict(past) for past in (self.first, self.best))
        return {"identity": self._identity, "first": first, "best": best, "is_raised": self.is_raised}

    def restore(self, state: dict[str, Any] | None) -> None:
        """Go on where `state` was taken; the next evaluation is the first one when that was of other texts."""
        if state is not None and state["identity"] == self._identity and state["first"] is not None:
            self.first, self.is_raised = PastEvaluation(**state["first"]), state["is_raised"]
            self.best = PastEvaluation(**(state.get("best") or state["first"]))  # checkpoints of before have no best

    def _excuse(self, n_prompts: int) -> str | None:
        if self._has_warned:
            return None
        self._has_warned = True
        return (
            f"there can be no alarm of reward hacking: {len(self.references)} of {n_prompts} held-out rows have a "
            f"reference, and it takes {MIN_REFERENCES}"
        )

    def _sentence(self, past: PastEvaluation, fall: Interval, level: float, metrics: Mapping[str, float]) -> str:
        before, n_texts = past.metrics, len(self.references)
        beside = [
            f"{title} {before[name]:{style}} then, {metrics[name]:{style}} now"
            for title, name, style in (
                ("identical samples", COPIES, ".0%"),
                ("mean length in tokens", LENGTH, ".1f"),
            )
            if name in before
        ]
        return (
            f"reward hacking? Since step {past.step} the judge's reward has risen from {before[REWARD]:.3f} to "
            f"{metrics[REWARD]:.3f}, but greedy chrF of {n_texts} held-out texts has fallen from {before[CHRF]:.1f} to "
            f"{metrics[CHRF]:.1f} ({fall.mean:+.1f}, {100 * level:.3g} % interval {fall.low:+.1f} to "
            f"{fall.high:+.1f}); {'; '.join(beside)}. Look at the rollouts, raise kl_loss_coeff (kl_coeff with "
            "use_kl_in_reward), or stop earlier, at the checkpoint that is best by eval_chrf_greedy"
        )
