"""Scores of translations against references, per language pair: sacrebleu with signatures, and learned metrics."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grrm.errors import UserError
from grrm.evaluation.bootstrap import Interval, bootstrap_interval
from grrm.evaluation.text_metrics import MetricScore, corpus_bleu, corpus_chrf, references_of, sentence_chrfs
from grrm.gqm.groups import TranslationTask
from grrm.gqm.languages import language_pair
from grrm.judges.learned_metric import ROWS_PER_REQUEST, start_error
from grrm.judges.metric_worker import MetricWorker, Row
from grrm.judges.text_metric import bleu_tokenizer
from grrm.rewards.worker import WorkerFailure

ALL = "all"


@dataclass(frozen=True, slots=True)
class TranslationScores:
    """Scores of some translations.

    `chrf` and `bleu` are corpus scores from 0 to 100; `bleu` is None over target languages that are tokenised
    differently, which no BLEU is defined for. `chrf_sentence` is the mean over sentences with its interval, and so are
    the scores in `neural`, by scorer. `n_missing` rows have no translation and are scored as empty ones.
    """

    n_rows: int
    n_missing: int
    chrf: MetricScore
    chrf_sentence: Interval
    bleu: MetricScore | None
    neural: Mapping[str, Interval]


def score_translations(
    tasks: Sequence[TranslationTask],
    hypotheses: Sequence[str | None],
    neural: Mapping[str, Sequence[float]] | None = None,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
) -> dict[str, TranslationScores]:
    """Scores of each language pair, sorted, and of `all` rows at the end.

    `neural` holds one score per row by scorer. Raises ValueError when there are no rows, the lengths differ, or a task
    has no reference.
    """
    neural = neural or {}
    if any(len(column) != len(tasks) for column in (hypotheses, *neural.values())):
        raise ValueError(f"need one translation and one score of each scorer for each of {len(tasks)} rows")
    rows_of: dict[str, list[int]] = {}
    for row, task in enumerate(tasks):
        rows_of.setdefault(language_pair(task.src_lang, task.trg_lang), []).append(row)
    rows_of = dict(sorted(rows_of.items()))
    if len(rows_of) != 1:  # else they are the same rows
        rows_of[ALL] = list(range(len(tasks)))
    scores = {
        name: _score_rows(
            [tasks[row] for row in rows],
            [hypotheses[row] for row in rows],
            {scorer: [scores[row] for row in rows] for scorer, scores in neural.items()},
            n_resamples,
            seed,
        )
        for name, rows in rows_of.items()
    }
    return scores | {ALL: next(reversed(scores.values()))}


def _score_rows(
    tasks: Sequence[TranslationTask],
    hypotheses: Sequence[str | None],
    neural: Mapping[str, Sequence[float]],
    n_resamples: int,
    seed: int,
) -> TranslationScores:
    references = references_of(tasks)
    has_common_bleu = len({bleu_tokenizer(task.trg_lang) for task in tasks}) == 1

    def interval(values: Sequence[float]) -> Interval:
        return bootstrap_interval(values, n_resamples=n_resamples, seed=seed)

    return TranslationScores(
        n_rows=len(tasks),
        n_missing=sum(text is None for text in hypotheses),
        chrf=corpus_chrf(hypotheses, references),
        chrf_sentence=interval(sentence_chrfs(hypotheses, references)),
        bleu=corpus_bleu(hypotheses, references, tasks[0].trg_lang) if has_common_bleu else None,
        neural={scorer: interval(scores) for scorer, scores in neural.items()},
    )


def learned_scores(
    worker: MetricWorker,
    sources: Sequence[str],
    hypotheses: Sequence[str | None],
    references: Sequence[str],
    deadline_s: float,
) -> list[float]:
    """One number of the worker's metric per row, order kept; a missing translation is scored as an empty one.

    Raises UserError when the metric fails, does not end in time, or does not answer with one finite number per row.
    """
    title, uses_reference = worker.kind.title, worker.kind.needs_reference is not False
    rows: list[Row] = [
        (source, text or "", reference if uses_reference else None)
        for source, text, reference in zip(sources, hypotheses, references, strict=True)
    ]
    until, scores = time.monotonic() + deadline_s, list[float]()
    try:
        for start in range(0, len(rows), ROWS_PER_REQUEST):
            scores += worker.score(rows[start : start + ROWS_PER_REQUEST], max(until - time.monotonic(), 0.0))
    except WorkerFailure as failure:
        if failure.is_late:
            raise UserError(f"{title} did not end within {deadline_s:g} s: allow it more time or fewer rows") from None
        raise start_error(worker, failure) from failure
    finally:
        worker.close()
    if (n_finite := sum(map(math.isfinite, scores))) < len(rows):
        raise UserError(
            f"{title} gave {n_finite} finite scores for {len(rows)} rows: leave it out, or use another model"
        )
    return scores
