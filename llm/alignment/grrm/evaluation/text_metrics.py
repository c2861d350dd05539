"""chrF and BLEU as sacrebleu defines them, exact matches, and translations that repeat another.

A hypothesis of None (no translation could be extracted) counts as the empty string: the reader of such an output
gets no translation, so it earns what an empty translation earns. Callers report its share separately.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from grrm.evaluation.bootstrap import LEVEL, Interval, interval_of, resampled_rows
from grrm.gqm.groups import TranslationTask
from grrm.gqm.languages import language_code
from grrm.judges.text_metric import bleu_tokenizer

ROWS_AT_A_TIME = 2048


@dataclass(frozen=True, slots=True)
class MetricScore:
    """A corpus score from 0 to 100 and the sacrebleu signature that says how it was computed."""

    score: float
    signature: str


def references_of(tasks: Sequence[TranslationTask]) -> list[str]:
    """The tasks' references, in order. Raises ValueError for a task without one."""
    for task in tasks:
        if task.reference is None:
            raise ValueError(f"cannot score a row without a reference: {task.source!r}")
    return [task.reference or "" for task in tasks]


def corpus_chrf(hypotheses: Sequence[str | None], references: Sequence[str]) -> MetricScore:
    """chrF2 (Popovic 2015: character 6-grams, beta 2) over the whole corpus, 0 to 100.

    Raises ValueError when there is nothing to score or the lengths differ.
    """
    texts = _checked(hypotheses, references)
    return _corpus_score(CHRF(), texts, references)


def corpus_bleu(hypotheses: Sequence[str | None], references: Sequence[str], trg_lang: str) -> MetricScore:
    """BLEU-4 (Papineni 2002) over the whole corpus, 0 to 100, tokenised for `trg_lang`.

    Raises ValueError when there is nothing to score or the lengths differ.
    """
    texts = _checked(hypotheses, references)
    return _corpus_score(BLEU(tokenize=bleu_tokenizer(trg_lang)), texts, references)


def _corpus_score(metric: CHRF | BLEU, texts: Sequence[str], references: Sequence[str]) -> MetricScore:
    score = metric._aggregate_and_compute(corpus_statistics(metric, texts, references)).score
    return MetricScore(float(score), str(metric.get_signature()))


def corpus_statistics(metric: CHRF | BLEU, texts: Sequence[str], references: Sequence[str]) -> list[list[int]]:
    """Sacrebleu's counts of n-grams [rows][counts], whose sums are a corpus'.

    A few rows at a time: `metric.corpus_score` would keep the n-grams of all references, some 40 kB each.
    """
    statistics: list[list[int]] = []
    for start in range(0, len(texts), ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        statistics += metric._extract_corpus_statistics(texts[rows], [references[rows]])
    return statistics


def bleu_by_language(
    hypotheses: Sequence[str | None], tasks: Sequence[TranslationTask], references: Sequence[str]
) -> dict[str, MetricScore]:
    """Corpus BLEU of each target language by itself: one tokeniser cannot serve a mixture. Keys, codes, are sorted."""
    return _by_language(corpus_bleu, hypotheses, tasks, references)


def chrf_by_language(
    hypotheses: Sequence[str | None], tasks: Sequence[TranslationTask], references: Sequence[str]
) -> dict[str, MetricScore]:
    """Corpus chrF of each target language. Keys as in `bleu_by_language`."""
    return _by_language(lambda texts, refs, _: corpus_chrf(texts, refs), hypotheses, tasks, references)


def _by_language(
    metric: Callable[[Sequence[str | None], Sequence[str], str], MetricScore],
    hypotheses: Sequence[str | None],
    tasks: Sequence[TranslationTask],
    references: Sequence[str],
) -> dict[str, MetricScore]:
    _checked(hypotheses, references)
    rows_of: dict[str, list[int]] = {}
    for row, task in enumerate(tasks):
        rows_of.setdefault(language_code(task.trg_lang), []).append(row)
    return {
        language: metric([hypotheses[row] for row in rows], [references[row] for row in rows], language)
        for language, rows in sorted(rows_of.items())
    }


def sentence_chrfs(hypotheses: Sequence[str | None], references: Sequence[str]) -> list[float]:
    """chrF2 of every sentence by itself, 0 to 100, in order. Raises ValueError as `corpus_chrf` does."""
    metric = CHRF()
    texts = _checked(hypotheses, references)
    return [float(metric.sentence_score(text, [ref]).score) for text, ref in zip(texts, references, strict=True)]


def exact_match_rate(hypotheses: Sequence[str | None], references: Sequence[str]) -> float:
    """Share of hypotheses equal to their reference, ignoring white space at both ends; 0 to 1."""
    texts = _checked(hypotheses, references)
    return sum(text.strip() == ref.strip() for text, ref in zip(texts, references, strict=True)) / len(texts)


def duplicate_share(groups: Sequence[Sequence[str | None]]) -> float | None:
    """Share of the translations behind a group's first that repeat an earlier one of it: 1 where all are the same.

    What is no translation (None) repeats nothing. None where no group has a second translation.
    """
    translated = [[text for text in group if text is not None] for group in groups]
    repeated = sum(len(texts) - len(set(texts)) for texts in translated)
    n_later = sum(max(len(group) - 1, 0) for group in groups)
    return repeated / n_later if n_later else None


def chrf_difference(
    before: Sequence[Sequence[str | None]],
    after: Sequence[Sequence[str | None]],
    references: Sequence[str],
    *,
    n_resamples: int = 1000,
    level: float = LEVEL,
) -> Interval:
    """Return the gain in corpus chrF from before to after, -100 to 100, with its interval over sentences.

    By paired bootstrap resampling (Koehn 2004): sentences are drawn with replacement, the same ones for both systems,
    so that the difficulty of a sentence drops out of the difference.

    `before[r]` and `after[r]` are the outputs of run r (training repeated with another seed) for all references; the
    difference is the mean over runs. A hypothesis of None counts as empty. The interval does not cover other runs.
    Outputs that do not differ give 0 with an interval of zero width.

    Raises ValueError on no runs, no references, or lists of different lengths.
    """
    if not references or not before or len(before) != len(after):
        raise ValueError(f"need references and as many runs before as after, got {len(before)} and {len(after)}")
    if any(len(texts) != len(references) for texts in (*before, *after)):
        raise ValueError(f"need one output of every run for each of the {len(references)} references")
    n_rows, n_runs = len(references), len(before)
    metric = CHRF()
    texts = ([text or "" for text in of_run] for of_run in (*before, *after))
    # As sacrebleu's own significance tests have them: [rows, runs, counts].
    counts = np.stack([corpus_statistics(metric, of_run, references) for of_run in texts], axis=1)

    def difference(times: NDArray[np.int64]) -> float:
        scores = [metric._compute_f_score(sums) for sums in np.tensordot(times, counts, axes=1).tolist()]
        return sum(scores[n_runs:]) / n_runs - sum(scores[:n_runs]) / n_runs

    resampled = (
        difference(np.bincount(rows, minlength=n_rows))
        for block in resampled_rows(n_rows, n_resamples, 0)
        for rows in block
    )
    return interval_of(difference(np.ones(n_rows, dtype=np.int64)), list(resampled), level)


def _checked(hypotheses: Sequence[str | None], references: Sequence[str]) -> list[str]:
    if len(hypotheses) != len(references) or not references:
        raise ValueError(
            f"need as many hypotheses as references and at least one, got {len(hypotheses)} and {len(references)}"
        )
    return [text or "" for text in hypotheses]
