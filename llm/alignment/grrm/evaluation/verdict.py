"""Did training help? Held-out translations before and after it, compared row by row.

A gain counts where the whole interval of the paired difference is above zero, a loss where it is below (paired
bootstrap, Koehn 2004: the same texts are drawn for both). The interval is over texts; it says nothing about other seeds
of training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from grrm.evaluation.bootstrap import LEVEL, bootstrap_interval
from grrm.evaluation.held_out_scores import TranslatedPrompt, compares_only, has_reference
from grrm.evaluation.reward_alarm import MIN_REFERENCES
from grrm.evaluation.text_metrics import chrf_difference, corpus_chrf

Word = Literal["helped", "did not help", "cannot tell"]
ONLY_COMPARED = "the judge compares translations of one evaluation with each other alone"
CHRF, CHRF_GREEDY, REWARD, REWARD_GREEDY = "chrf", "chrf_greedy", "reward", "reward_greedy"
_TITLES = {
    CHRF: ("chrF of samples", 2),
    CHRF_GREEDY: ("chrF, greedy", 2),
    REWARD: ("judge's reward of samples", 3),
    REWARD_GREEDY: ("judge's reward, greedy", 3),
}


@dataclass(frozen=True, slots=True)
class Change:
    """A mean before and after; `low` and `high` bound its change with a confidence of LEVEL."""

    before: float
    after: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 for a gain, -1 for a loss, 0 for a change that may be noise."""
        return int(self.low > 0) - int(self.high < 0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The word, why, and the numbers: `changes` by name, and the KL to the policy of the first step in nats per token.

    `kl` is None where training did not measure it. chrF is that of all rows with a reference, 0 to 100.
    """

    verdict: Word
    reason: str
    first_step: int
    last_step: int
    rows: int
    references: int
    changes: dict[str, Change]
    kl: float | None = None

    def lines(self) -> list[str]:
        """The verdict for a console."""
        steps = f"steps {self.first_step} to {self.last_step}, {self.rows} held-out rows"
        lines = [f"verdict: {self.verdict} ({self.reason}; {steps})"]
        for name, change in self.changes.items():
            title, digits = _TITLES[name]
            before, after = (f"{value:.{digits}f}" for value in (change.before, change.after))
            mean, low, high = (
                f"{value:+.{digits}f}" for value in (change.after - change.before, change.low, change.high)
            )
            noise = "" if change.sign else ", within noise"
            lines.append(f"  {title}: {before} -> {after} ({mean}, {LEVEL:.0%} interval {low} to {high}{noise})")
        return lines if self.kl is None else [*lines, f"  KL to the policy of the start: {self.kl:.4f} nats per token"]

    def to_json(self) -> dict[str, Any]:
        """As verdict.json has it."""
        return {**asdict(self), "level": LEVEL}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Verdict:
        """Read the result of `to_json`. Raises KeyError, TypeError or ValueError for anything else."""
        fields = {name: content[name] for name in cls.__dataclass_fields__}
        return cls(**{**fields, "changes": {name: Change(**change) for name, change in content["changes"].items()}})


def verdict_of(
    before: Sequence[TranslatedPrompt],
    after: Sequence[TranslatedPrompt],
    *,
    steps: tuple[int, int],
    has_greedy: bool,
    has_references: bool,
    kl: float | None = None,
) -> Verdict:
    """Compare evaluations of the same rows, of as many translations each.

    With at least MIN_REFERENCES references chrF decides: `helped` if sampled or greedy chrF has risen and neither has
    fallen, `did not help` if one has fallen, `cannot tell` if both may be noise. Else the judge's reward decides,
    which training has maximised; with fewer than MIN_REFERENCES rows nothing does.

    Rewards that only compare the translations of one evaluation with each other (`compares_only`) are left out. Raises
    ValueError for rows that do not belong together.
    """
    if not before or [prompt.task for prompt in before] != [prompt.task for prompt in after]:
        raise ValueError("the evaluations are of different rows")
    if len(before[0].translations) != len(after[0].translations):
        raise ValueError("the evaluations decode differently")
    columns = list(range(len(before[0].translations)))
    ways = {"": columns[1:] if has_greedy else columns, "_greedy": columns[:1] if has_greedy else []}
    scored = [i for i, prompt in enumerate(before) if has_references and has_reference(prompt.task)]
    pairs = [(before[i], after[i]) for i in scored]
    changes: dict[str, Change | None] = {}
    if scored:
        changes |= {f"{CHRF}{end}": _chrf_change(pairs, way) for end, way in ways.items() if way}
    everything = list(zip(before, after, strict=True))
    is_relative = compares_only(before) or compares_only(after)
    if not is_relative:
        changes |= {f"{REWARD}{end}": _reward_change(everything, way) for end, way in ways.items() if way}
    defined = {name: change for name, change in changes.items() if change is not None}
    word, reason = _decide(defined, len(before), len(scored), is_relative)
    return Verdict(word, reason, *steps, len(before), len(scored), defined, kl)


def _decide(changes: dict[str, Change], n_rows: int, n_references: int, is_relative: bool) -> tuple[Word, str]:
    by_chrf = n_references >= MIN_REFERENCES
    if n_rows < MIN_REFERENCES:
        return "cannot tell", f"it takes {MIN_REFERENCES} held-out rows"
    names = [name for name in ((CHRF, CHRF_GREEDY) if by_chrf else (REWARD, REWARD_GREEDY)) if name in changes]
    if not names and is_relative:
        return "cannot tell", f"{ONLY_COMPARED}, and only {n_references} rows have a reference"
    if not names:
        return "cannot tell", "the judge gave too few rewards in both evaluations"
    beside = "" if by_chrf else f", and only {n_references} rows have a reference"
    risen, fallen = ([_TITLES[name][0] for name in names if changes[name].sign == sign] for sign in (1, -1))
    if fallen:
        return "did not help", f"{' and '.join(fallen)} {'have' if len(fallen) > 1 else 'has'} fallen{beside}"
    if risen:
        return "helped", f"{' and '.join(risen)} {'have' if len(risen) > 1 else 'has'} risen{beside}"
    return "cannot tell", f"changes of {'chrF' if by_chrf else 'the reward'} are within noise{beside}"


def _chrf_change(pairs: Sequence[tuple[TranslatedPrompt, TranslatedPrompt]], columns: Sequence[int]) -> Change:
    references = [before.task.reference or "" for before, _ in pairs]
    before, after = ([[pair[at].translations[column] for pair in pairs] for column in columns] for at in (0, 1))
    interval = chrf_difference(before, after, references)
    means = [sum(corpus_chrf(texts, references).score for texts in runs) / len(runs) for runs in (before, after)]
    return Change(means[0], means[1], interval.low, interval.high)


def _reward_change(pairs: Sequence[tuple[TranslatedPrompt, TranslatedPrompt]], columns: Sequence[int]) -> Change | None:
    """Of the rows that have a reward before and after; None if these are fewer than half, which tell little of all."""
    means = [[_mean([prompt.rewards[column] for column in columns]) for prompt in pair] for pair in pairs]
    both = [(before, after) for before, after in means if before is not None and after is not None]
    if 2 * len(both) < len(pairs) or not both:
        return None
    interval = bootstrap_interval([after - before for before, after in both])
    before, after = (sum(values) / len(both) for values in zip(*both, strict=True))
    return Change(before, after, interval.low, interval.high)


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None
