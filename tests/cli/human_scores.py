"""A test set with human scores in the layout of mt-metrics-eval, small or large, from a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS = ("the", "a", "house", "river", "old", "green", "walks", "sings", "under", "over", "quickly", "never", "bread")


def write_test_set(
    folder: Path, pair: str = "en-de", *, n_sources: int = 12, n_systems: int = 4, seed: int = 0
) -> np.ndarray:
    """Write a test set of two domains with mqm and two raters' scores and a metric; return the gold scores [P, G].

    Systems with a higher number replace more words of the reference; one source in five has no human score.
    """
    generator = np.random.default_rng(seed)
    references = [" ".join(generator.choice(WORDS, size=generator.integers(4, 16))) for _ in range(n_sources)]
    systems = [f"sys{number}" for number in range(n_systems)]
    errors = np.stack([generator.binomial(4, 0.1 + 0.6 * at / n_systems, n_sources) for at in range(n_systems)], axis=1)
    outputs = {
        system: [_damaged(reference, errors[row, at], generator) for row, reference in enumerate(references)]
        for at, system in enumerate(systems)
    }
    _write(folder / "sources" / f"{pair}.txt", [f"source {row} {text[::-1]}" for row, text in enumerate(references)])
    _write(folder / "references" / f"{pair}.refA.txt", references)
    docs = [f"{'news' if row < n_sources // 2 else 'social'} doc{row // 3}" for row in range(n_sources)]
    _write(folder / "documents" / f"{pair}.docs", docs)
    for system, texts in {**outputs, "refA": references}.items():
        _write(folder / "system-outputs" / pair / f"{system}.txt", texts)
    gold = -errors.astype(float)
    gold[generator.random(n_sources) < 0.2] = np.nan
    raters = {f"rater{at}": gold - generator.integers(0, 2, size=gold.shape) for at in (1, 2)}
    for name, scores in {"mqm": gold, **raters}.items():
        write_scores(folder / "human-scores" / f"{pair}.{name}.seg.score", systems, scores)
    noisy = -errors + generator.normal(0, 0.7, errors.shape)
    write_scores(folder / "metric-scores" / pair / "noisy-src.seg.score", systems, noisy)
    return gold


def write_scores(path: Path, systems: list[str], scores: np.ndarray) -> None:
    """Write scores [P, G] a line per system and source, system by system."""
    _write(
        path,
        [
            f"{system}\t{'None' if np.isnan(score) else score}"
            for system, column in zip(systems, scores.T, strict=True)
            for score in column
        ],
    )


def _damaged(text: str, n_errors: int, generator: np.random.Generator) -> str:
    words = text.split()
    for _ in range(n_errors):
        words[generator.integers(len(words))] = "x" * int(generator.integers(1, 9))
    return " ".join(words)


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
