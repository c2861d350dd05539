"""Measure RL with and without the gate `terms`: how many glossary terms a policy gets right, and its chrF.

A pretrained model learns to translate real text, then two policies are trained on rows with terms: against chrF, and
against chrF behind the gate. The glossary is drawn from the training rows. `python benchmarks/glossary.py WORK` keeps
everything in WORK, does what is not there yet, and writes benchmarks/results/glossary.json.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from annotators import QWEN, Study
from published import RESULTS

from grrm.data.annotation.gold import chrf_scorer
from grrm.data.atomic import write_json
from grrm.evaluation.bootstrap import bootstrap_interval, bootstrap_ratio
from grrm.gqm.terms import has_term, missing_terms, terms_mapping

ARMS: Mapping[str, Mapping[str, Any]] = {"chrf": {}, "chrf_terms": {"reward_gates": {"terms": {}}}}
STEPS, PROMPTS, SAMPLES = 200, 8, 4
MIN_ROWS, MIN_SHARE, LETTERS = 20, 0.5, 5  # of a term: rows, share of them with its translation, length
WORD = re.compile(r"[^\W\d_]+")


def glossary(rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Words of the source, each with the word that most of its rows' references have and few other rows do."""
    n_source: Counter[str] = Counter()
    n_target: Counter[str] = Counter()
    n_pairs: Counter[tuple[str, str]] = Counter()
    for row in rows:
        source, target = ({*WORD.findall(row[name].casefold())} for name in ("src_text", "trg_text"))
        n_source.update(source)
        n_target.update(target)
        n_pairs.update((term, word) for term in source for word in target)
    terms: dict[str, str] = {}
    best: dict[str, float] = {}
    for (term, word), n_both in n_pairs.items():
        dice = 2 * n_both / (n_source[term] + n_target[word])
        is_term = n_source[term] >= MIN_ROWS and n_both >= MIN_SHARE * n_source[term]
        if is_term and min(len(term), len(word)) >= LETTERS and term != word and dice > max(best.get(term, 0), 0.5):
            terms[term], best[term] = word, dice
    return terms


def with_terms(path: Path, out: Path, terms: Mapping[str, str]) -> Path:
    """The rows whose source has terms, all of which the reference translates so, with these in a column."""
    rows = []
    for row in pq.read_table(path).to_pylist():
        mine = tuple((term, (target,)) for term, target in terms.items() if has_term(row["src_text"], term))
        if mine and not missing_terms(mine, row["trg_text"]):
            rows.append({**row, "terms": json.dumps(terms_mapping(mine), ensure_ascii=False)})
    if not out.exists():
        pq.write_table(pa.Table.from_pylist(rows), out)
    return out


def train(study: Study, rows: Path, arm: str) -> Path:
    """The policy of an arm."""
    arguments = yaml.safe_load((QWEN / "grpo_grrm_tiny_argument.yaml").read_text(encoding="utf-8"))
    del arguments["reward_server"]
    arguments |= {"actor_model_name_or_path": str(study.policy()[1]), "train_datasets": str(rows)}
    arguments |= {"use_rm_server": False, "reward_judge": "text_metric", "report_to": "none", **ARMS[arm]}
    arguments |= {"norm_adv_by_std": True, "learning_rate": 4e-5, "bf16": True, "max_steps": STEPS}
    arguments |= {"global_batch_size": PROMPTS, "rollout_n": SAMPLES, "max_prompt_len": 128, "max_dec_len": 64}
    arguments |= {"max_length": 192, "per_device_train_batch_size": 16, "per_device_logprob_batch_size": 32}
    file = study.work / f"{arm}.yaml"
    file.write_text(yaml.safe_dump(arguments), encoding="utf-8")
    return study.output(arm, "rl", file, "--output_dir", "{}")


def scores(study: Study, name: str, policy: Path, rows: Path) -> dict[str, Any]:
    """Share of terms, and chrF per row, of a policy's sampled and greedy translations."""
    sampled = ("--sampling-n", SAMPLES, "--temperature", 1, "--retry", 0, "--seed", 1)
    figures: dict[str, Any] = {}
    for decoding, options in {"sampled": sampled, "greedy": ("--temperature", 0)}.items():
        out = study.output(
            f"{name}-{decoding}.parquet", "translate", rows, "--model", policy, *options, "--batch-rows", 256,
            "--max-new-tokens", 64, "--dtype", "bfloat16", "--out", "{}",
        )  # fmt: skip
        chrf, per_row, right, n_terms = chrf_scorer(), [], [], []
        for row, task in zip(pq.read_table(out).to_pylist(), pq.read_table(rows).to_pylist(), strict=True):
            texts = [text or "" for text in row.get("mt_texts") or [row["translation"]]]
            terms = tuple((term, tuple(targets)) for term, targets in json.loads(task["terms"]).items())
            per_row.append(float(np.mean([chrf(text, task["trg_text"]) for text in texts])))
            n_terms.append(len(texts) * len(terms))
            right.append(n_terms[-1] - sum(len(missing_terms(terms, text)) for text in texts))
        figures[decoding] = {"chrf": per_row, "right": right, "terms": n_terms}
    return figures


def summary(arms: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Means of each arm; differences from the start in chrF, and of right terms, with 95 % intervals over rows."""
    record: dict[str, Any] = {}
    for name, figures in arms.items():
        for decoding, values in figures.items():
            start = arms["sft"][decoding]
            entry = {"chrf": float(np.mean(values["chrf"])), "terms": sum(values["right"]) / sum(values["terms"])}
            if name != "sft":
                gain = np.subtract(values["chrf"], start["chrf"])
                more = np.subtract(values["right"], start["right"])
                entry["chrf_gain"] = asdict(bootstrap_interval(gain))
                entry["terms_gain"] = asdict(bootstrap_ratio(more, values["terms"]))
            record.setdefault(name, {})[decoding] = entry
    return record


def main() -> None:
    """Run the study and write its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    study = Study(arguments.work.resolve())
    corpus, policy = study.policy()
    terms = glossary(pq.read_table(corpus / "train.parquet").to_pylist())
    files = {
        split: with_terms(corpus / f"{split}.parquet", study.work / f"{split}-terms.parquet", terms)
        for split in ("train", "heldout")
    }
    rows = study.output(
        "rl-terms.jsonl", "data", "convert", files["train"], "{}", "--to", "rl", "--prompt-type", "Tower"
    )
    with ThreadPoolExecutor(len(ARMS)) as pool:
        policies = dict(zip(ARMS, pool.map(partial(train, study, rows), ARMS), strict=True))
    arms = {name: scores(study, f"terms-{name}", path, files["heldout"]) for name, path in
            {"sft": policy, **policies}.items()}  # fmt: skip
    n_rows = {split: pq.read_metadata(path).num_rows for split, path in files.items()}
    settings = {"steps": STEPS, "prompts": PROMPTS, "samples": SAMPLES, "rows": n_rows, "glossary": terms}
    write_json(RESULTS / "glossary.json", {"settings": settings, "policies": summary(arms)})


if __name__ == "__main__":
    main()
