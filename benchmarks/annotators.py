"""Measure how many annotated groups a ranker needs: simulated annotators of three skills, chosen or random groups.

A pretrained model learns to translate real text, its samples are annotated through `grrm annotate`, and rankers are
trained on what comes back. An annotator's score is the chrF of a text, shifted and stretched by the person, with noise
by skill. `python benchmarks/annotators.py WORK` keeps everything in WORK, does what is not there yet, and writes
benchmarks/results/annotators.json.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from published import RESULTS

from grrm.data.annotation.gold import chrf_scorer
from grrm.data.atomic import write_json
from grrm.evaluation.candidate_pairs import Scores, both_differences, score_array

ROOT = Path(__file__).resolve().parents[1]
QWEN = ROOT / "llm/config/qwen"
NOISE = {"expert": 4.0, "trained": 10.0, "crowd": 20.0}  # standard deviation on a scale from 0 to 100
FIRST, SIZES = 50, (50, 100, 200)  # groups annotated before a ranker can help to choose, and in all
CHOICES = ("random", "disagreement")
BATCH_GROUPS, PASSES, SFT_STEPS = 16, 2, 80
POOL_ROWS, HELD_OUT_ROWS = 500, 300


@dataclass(frozen=True, slots=True)
class Study:
    """The files of a study, each made by a command of the product when it is first asked for."""

    work: Path

    def output(self, name: str, *command: object) -> Path:
        """The path `name` of the work folder, where `command` writes it; {} stands for it."""
        path = self.work / name
        done = path.with_name(f"{path.name}.done")
        if not done.exists():
            words = [str(path) if word == "{}" else str(word) for word in command]
            print("$", *words, flush=True)
            subprocess.run([sys.executable, "-m", "grrm.cli", *words], check=True, cwd=ROOT)
            done.touch()
        return path

    def policy(self) -> tuple[Path, Path]:
        """(corpus, pretrained model that has learned to translate it)."""
        corpus = self.output("corpus", "data", "corpus", "homeassistant", "{}", "--pairs", "en-de")
        base = self.output("base", "model", "smollm2", "{}")
        rows = self.output("rows", "data", "convert", corpus / "train.parquet", "{}", "--prompt-type", "Tower")
        options = ["--init_from_config", "null", "--model_name_or_path", base, "--tokenizer_name_or_path", base]
        options += ["--train_datasets", rows / "sft.jsonl", "--max_length", 160, "--per_device_train_batch_size", 32]
        options += ["--learning_rate", 3e-4, "--bf16", "true", "--max_steps", SFT_STEPS, "--output_dir", "{}"]
        return corpus, self.output("sft", "sft", QWEN / "sft_mt_tiny_argument.yaml", *options)

    def groups(self, name: str, rows: Path) -> Path:
        """Four samples of the policy for each row, with chrF as `gold` and consensus as `consensus`."""
        _, policy = self.policy()
        sampling = ["--sampling-n", 4, "--temperature", 1, "--retry", 0, "--batch-rows", 256, "--max-new-tokens", 64]
        samples = self.output(
            f"{name}-samples.parquet", "translate", rows, "--model", policy, *sampling, "--dtype", "bfloat16",
            "--seed", 1, "--out", "{}",
        )  # fmt: skip
        gold = self.ranked(f"{name}-gold.parquet", samples, "gold", "--judge", "text_metric")
        return self.ranked(f"{name}.parquet", gold, "consensus", "--judge", "consensus")

    def ranked(self, name: str, rows: Path, key: str, *judge: object) -> Path:
        """The rows with the scores of a judge in the column `key`."""
        return self.output(name, "rank", rows, *judge, "--score-key", key, "--out", "{}")

    def annotated(self, name: str, rows: Path, n_groups: int, *choice: object, seed: int) -> Path:
        """The file that simulated annotators save for `n_groups` groups that `grrm annotate export` selects."""
        options = ["--groups", n_groups, "--seed", seed, "--page", "{}"]
        page = self.output(f"{name}.html", "annotate", "export", rows, *choice, *options)
        saved = page.with_suffix(".json")
        if not saved.exists():
            write_json(saved, annotate(shown_on(page), seed))
        return saved

    def ranker(self, name: str, saved: Sequence[Path], n_groups: int, seed: int) -> Path:
        """A ranker that has learned from these annotations."""
        gold = self.output(f"{name}.parquet", "annotate", "import", *saved, "--out", "{}")
        steps = math.ceil(PASSES * n_groups / BATCH_GROUPS)
        options = ["--model_name_or_path", self.policy()[1], "--train_datasets", gold, "--compare", "none"]
        options += ["--val_size", 0, "--evaluation_strategy", "no", "--per_device_train_batch_size", BATCH_GROUPS]
        options += ["--learning_rate", 1e-3, "--backbone_learning_rate", 5e-5, "--lr_end", 1e-6, "--warmup_steps", 3]
        options += ["--max_length", 256, "--seed", seed, "--bf16", "true", "--max_steps", steps, "--output_dir", "{}"]
        return self.output(name, "reward", QWEN / "ranker_tiny_argument.yaml", *options)

    def accuracy(self, name: str, ranker: Path, held_out: Path) -> float:
        """The ranker's share of held-out pairs in the order of chrF."""
        scored = self.ranked(f"{name}-scored.parquet", held_out, "ranker", "--judge", "ranker", "--model", ranker)
        return pair_accuracy(column(scored, "ranker"), column(held_out, "gold"))

    def of_seed(self, seed: int, pool: Path, held_out: Path) -> Iterator[tuple[str, int, float]]:
        """(choice, annotated groups, accuracy) of each ranker of a seed."""
        start = self.annotated(f"start-{seed}", pool, FIRST, "--choose", "random", seed=seed)
        first = self.ranker(f"ranker-start-{seed}", [start], FIRST, seed)
        at_first = self.accuracy(f"ranker-start-{seed}", first, held_out)
        rest = self.without(f"rest-{seed}", pool, start)
        opinions = self.ranked(f"rest-{seed}-scored.parquet", rest, "ranker", "--judge", "ranker", "--model", first)
        keys = [word for key in ("ranker", "consensus") for word in ("--score-key", key)]
        for choice in CHOICES:
            yield choice, FIRST, at_first
            for size in SIZES[1:]:
                name = f"{choice}-{size}-{seed}"
                more = self.annotated(name, opinions, size - FIRST, "--choose", choice, *keys, seed=seed)
                ranker = self.ranker(f"ranker-{name}", [start, more], size, seed)
                yield choice, size, self.accuracy(f"ranker-{name}", ranker, held_out)

    def without(self, name: str, pool: Path, saved: Path) -> Path:
        """The pool without the sources that were annotated."""
        path = self.work / f"{name}.parquet"
        if not path.exists():
            seen = {group["src_text"] for group in json.loads(saved.read_text(encoding="utf-8"))["groups"]}
            table = pq.read_table(pool)
            pq.write_table(table.filter([text not in seen for text in table["src_text"].to_pylist()]), path)
        return path


def shown_on(page: Path) -> dict[str, Any]:
    """The groups that a page shows."""
    match = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    assert match is not None, page
    shown = json.loads(match[1])
    return dict(shown.get("data", shown))


def annotate(shown: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The groups with the scores of nine annotators, three of each skill, each group by one of them."""
    draw, chrf = random.Random(f"{seed} {shown['id']}"), chrf_scorer()
    people = [(draw.gauss(0.0, 5.0), draw.uniform(0.8, 1.2), noise) for noise in NOISE.values() for _ in range(3)]
    groups = []
    for group in shown["groups"]:
        shift, stretch, noise = draw.choice(people)
        exact = [chrf(text, group["trg_text"]) for text in group["mt_texts"]]
        said = [50 + shift + stretch * (score - 50) + draw.gauss(0.0, noise) for score in exact]
        scores = [float(round(min(100.0, max(0.0, score)))) for score in said]
        groups.append({**group, "scores": scores, "spans": [[] for _ in scores]})
    return {**shown, "annotator": f"simulated-{seed}", "groups": groups}


def pair_accuracy(judged: Sequence[Scores], gold: Sequence[Scores]) -> float:
    """The share of pairs with different gold that are in its order, ties half."""
    theirs, ours, scored = both_differences(score_array(gold), score_array(judged))
    decided = scored & (theirs != 0)
    return float((np.sign(ours) * np.sign(theirs) / 2 + 0.5)[decided].mean())


def column(path: Path, name: str) -> list[Scores]:
    scores: list[Scores] = pq.read_table(path, columns=[name])[name].to_pylist()
    return scores


def first_rows(work: Path, name: str, rows: Path, n_rows: int) -> Path:
    path = work / f"{name}-rows.parquet"
    if not path.exists():
        pq.write_table(pq.read_table(rows).slice(0, n_rows), path)
    return path


def main() -> None:
    """Run the study, and write its figures after each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    study = Study(arguments.work.resolve())
    corpus, _ = study.policy()
    pool = study.groups("pool", first_rows(study.work, "pool", corpus / "train.parquet", POOL_ROWS))
    held_out = study.groups("held-out", first_rows(study.work, "held-out", corpus / "heldout.parquet", HELD_OUT_ROWS))
    consensus = pair_accuracy(column(held_out, "consensus"), column(held_out, "gold"))
    seeds: dict[str, list[dict[str, Any]]] = {}
    for seed in range(1, arguments.seeds + 1):
        figures = study.of_seed(seed, pool, held_out)
        seeds[str(seed)] = [{"choice": how, "groups": size, "pairs": value} for how, size, value in figures]
        settings = {"noise": NOISE, "passes": PASSES, "sft_steps": SFT_STEPS, "held_out_groups": HELD_OUT_ROWS}
        write_json(RESULTS / "annotators.json", {"settings": settings, "consensus": consensus, "seeds": seeds})


if __name__ == "__main__":
    main()
