"""The demo's own judges: what they are made from, how their rankings are measured and shown."""

from __future__ import annotations

import json
import random

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from grrm.data.annotation.damage import damage
from grrm.data.parquet import write_rows
from grrm.demo import evaluate_judges, prepare_judge
from grrm.demo.report import write_report
from grrm.demo.results import rankings_file
from grrm.demo.settings import DemoSettings
from grrm.demo.stages import write_json
from grrm.gqm.groups import Group, TranslationTask

TASK = TranslationTask("Hello", "en", "de")


def found(mean: float) -> dict:
    interval = {"mean": mean, "low": mean - 0.02, "high": mean + 0.02}
    return {
        "accuracy": interval,
        "accuracy_ties_half": interval | {"mean": mean + 0.05},
        "n_groups": 10,
        "n_pairs": 40,
        "coverage": 1.0,
        "tied": 0.1,
        "zero_variance": 0.02,
    }


def test_summary_and_page_show_each_judge_before_and_after_rlvr(finished_demo):
    out, _ = finished_demo
    settings = DemoSettings(n_seeds=3, judge="grrm")
    for seed in settings.seeds:
        record = {
            f"{kind}.{step}": {"on_policy": found(mean + seed / 100), "mixed": found(mean + 0.1)}
            for kind, step, mean in (
                ("sqm", "sft", 0.5),
                ("sqm", "rlvr", 0.55),
                ("gqm", "sft", 0.6),
                ("gqm", "rlvr", 0.7),
            )
        }
        write_json(rankings_file(out, seed), record)
    summary = write_report(out, settings, {"corpus": 1.0})
    ranking = summary["ranking_accuracy"]
    assert ranking["gqm"]["rlvr"]["mean"] == pytest.approx(0.72)
    assert ranking["gqm"]["rlvr"]["seeds"] == 3
    assert ranking["sqm"]["sft"]["mixed"]["mean"] == pytest.approx(0.6)
    assert ranking["sqm"]["sft"]["zero_variance"] == pytest.approx(0.02)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "GQM, RLVR" in page
    assert "72.0 ± 1.0 %" in page
    assert (out / "figures" / "ranking.png").exists()
    assert "not logged: GRPO, SQM, GRPO, GRRM" in page


def test_ties_and_groups_of_one_score_are_told_beside_the_accuracy():
    groups = [Group(str(n), TASK, ()) for n in range(2)]
    record = evaluate_judges.ranking_record(groups, [[1, 2, 3], [4, 5]], [[1.0, 2.0, 2.0], [3.0, 3.0]])
    assert record["accuracy"]["mean"] == pytest.approx(2 / 4)
    assert record["accuracy_ties_half"]["mean"] == pytest.approx(3 / 4)
    assert record["zero_variance"] == 0.5


def test_options_are_read_as_yaml():
    assert evaluate_judges.read_options(["permutations=4", "prompt_type=score"]) == {
        "permutations": 4,
        "prompt_type": "score",
    }


def test_groups_starts_and_rankings_come_from_a_policy(tmp_path, monkeypatch):
    """The stages as commands: a policy's samples become groups, judges grow from it, and can be measured."""
    from support.tiny_policy import tiny_policy, write_policy

    policy, corpus = tiny_policy(tmp_path)
    write_policy(policy, hidden_size=96, num_attention_heads=3, num_key_value_heads=1, intermediate_size=200)
    monkeypatch.setattr(prepare_judge, "Sampler", Forger)
    data = ["data", "--policy", policy, "--train", corpus / "train.parquet", "--heldout", corpus / "heldout.parquet"]
    data += ["--train-rows", 12, "--heldout-rows", 6, "--samples", 4, "--mixed-share", 0.5, "--prompt-type", "Tower"]
    data += ["--compared", 3]
    run(prepare_judge.main, *data, "--seed", 1, "--out", tmp_path / "data")
    groups = pq.read_table(tmp_path / "data" / "train.parquet").to_pylist()
    assert groups
    assert all(0 <= score <= 9 for group in groups for score in group["scores"])
    dealt = [json.loads(row) for row in (tmp_path / "data" / "rl_gqm.jsonl").read_text(encoding="utf-8").splitlines()]
    truths = [json.loads(row["tgt"]) for row in dealt]
    assert all(len(truth) in (2, 3) and {min(truth.values()), max(truth.values())} == {0, 9} for truth in truths)
    reader = ["reader", "--policy", policy, "--groups", tmp_path / "data" / "train.parquet", "--prompt-type", "Tower"]
    run(prepare_judge.main, *reader, "--candidates", 4, "--seed", 1, "--out", tmp_path / "reader")
    labelled = json.loads((tmp_path / "reader" / "expected.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert set(labelled) == {"src", "tgt", "labels"}
    assert labelled["labels"]
    start = ["start", "--reader", tmp_path / "reader", "--candidates", 4, "--free-layers", 1, "--rank", 72, "--seed", 1]
    start += ["--spelling", 16]
    for kind in ("gqm", "sqm"):
        rows = tmp_path / "data" / f"rl_{kind}.jsonl"
        run(prepare_judge.main, *start, "--kind", kind, "--rows", rows, "--out", tmp_path / kind)
    measure = [word for kind in ("gqm", "sqm") for word in ("--judge", f"{kind}.sft={kind}:{tmp_path / kind}")]
    measure += ["--groups", f"mixed={tmp_path / 'data' / 'mixed.parquet'}", "--out", tmp_path / "ranking.json"]
    limits = [
        word
        for kind in ("gqm", "sqm")
        for word in (f"--{kind}-option", "max_new_tokens=16", f"--{kind}-option", "retries=0")
    ]
    of_groups = [word for option in ("prompt_type=score", "max_candidates=4") for word in ("--gqm-option", option)]
    run(evaluate_judges.main, *measure, *limits, *of_groups)
    record = json.loads((tmp_path / "ranking.json").read_text(encoding="utf-8"))
    assert set(record) == {"gqm.sft", "sqm.sft"}
    assert record["gqm.sft"]["mixed"]["coverage"] == 1.0  # it writes verdicts before any training


class Forger:
    """In the place of the policy, which has learned nothing: references with a mistake."""

    def __init__(self, *_: object) -> None:
        self._rng = random.Random(1)

    def write(self, path, rows, temperatures):
        texts = [[damage(row.trg_text, "zwei drei", self._rng) for _ in temperatures] for row in rows]
        write_rows(path, ((*row, drawn) for row, drawn in zip(rows, texts, strict=True)), prepare_judge.SAMPLED)
        return path


def run(command, *arguments: object) -> None:
    result = CliRunner().invoke(command, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
