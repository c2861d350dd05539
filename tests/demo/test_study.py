"""The study: its stages follow the demo's, and its record, tables and figures are made of what they leave."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from rich.console import Console

import grrm
from grrm.cli import grrm as grrm_command
from grrm.data.annotation.groups import annotate_groups
from grrm.data.parquet import write_rows
from grrm.demo import runner
from grrm.demo.layout import Layout
from grrm.demo.plan import Plan
from grrm.demo.prepare import main as prepare
from grrm.demo.results import scores_file
from grrm.demo.settings import DemoSettings
from grrm.demo.stages import write_json
from grrm.demo.study_generative import SQM, GenerativePlan
from grrm.demo.study_plan import PARTS, RL_JUDGES, ranker_arms, study_file, study_stages
from grrm.demo.study_record import judge_curve, write_records
from grrm.demo.study_report import study_tables, write_study
from grrm.entry import read_assignments
from grrm.judges.sources import mixture_sources, read_sources

ROOT = Path(grrm.__file__).resolve().parents[3]


def test_the_study_goes_on_from_the_demo_and_every_input_is_made_by_an_earlier_stage(tmp_path):
    plan = Plan(DemoSettings(n_seeds=2), ROOT, tmp_path / "out")
    stages = study_stages(plan)
    assert [stage.name for stage in stages[: len(plan.stages())]] == [stage.name for stage in plan.stages()]
    assert len({stage.name for stage in stages}) == len(stages)
    folders: list[Path] = []
    for stage in stages:
        for path in stage.inputs:
            assert path.exists() or any(path.is_relative_to(folder) for folder in folders), (stage.name, path)
        assert stage.folder not in folders
        folders.append(stage.folder)


def test_rankers_differ_in_one_thing_at_a_time_and_read_equally_many_samples_a_step(tmp_path):
    arms = ranker_arms()
    assert {arm.compare for arm in arms} == {"none", "group"}
    names = {arm.name.replace("_none_", "_group_") for arm in arms}
    assert len(arms) == 2 * len(names)
    by_candidates = [arm for arm in arms if arm.name.endswith("_candidates")]
    assert {arm.groups * arm.candidates for arm in by_candidates} == {24_000}
    stages = {stage.name: stage for stage in study_stages(Plan(DemoSettings(), ROOT, tmp_path / "out"))}
    for arm in arms:
        command = list(stages[f"seed1/{arm.name}"].command)
        rows = int(command[command.index("--per_device_train_batch_size") + 1])
        assert rows * 2 * arm.candidates == 192


def test_judges_that_write_and_a_mixture_are_trained_measured_and_trained_against(tmp_path):
    stages = study_stages(Plan(DemoSettings(), ROOT, tmp_path / "out"))
    names = [stage.name.removeprefix("seed1/") for stage in stages]
    by_name = dict(zip(names, stages, strict=True))
    wanted = ["gqm-groups", "data-sft-sqm", "data-rl-sqm", "sqm_sft", "sqm", "study-sqm", "grpo_sqm", "grpo_mixture"]
    assert [name for name in names if name in wanted] == wanted
    rlvr = list(by_name["sqm"].command)
    assert rlvr[rlvr.index("--rule_reward") + 1] == "single_score"
    measured = list(by_name["study-sqm"].command)
    folder = tmp_path / "out" / "seed1"
    assert f"sqm_sft={folder / 'sqm_sft'}" in measured
    (mixture,) = [word for word in measured if word.startswith("mixture=")]
    hosted = by_name["grpo_mixture"].reward_server
    assert hosted[:2] == ["--judge", "mixture"]
    values = read_assignments([hosted[hosted.index("--judge-option") + 1]], "judge option")
    sources = mixture_sources(values)
    assert [source.judge for source in sources] == ["ranker", "consensus"]
    assert read_sources(json.loads(mixture.partition("=")[2])) == sources
    assert by_name["grpo_sqm"].reward_server[:4] == ["--judge", "sqm", "--model", str(folder / "sqm")]


def test_rows_of_every_judge_that_writes_come_from_the_same_groups(tmp_path):
    samples = tmp_path / "samples.parquet"
    row = {"src_text": "Rom", "trg_text": "Rome", "src_lang": "de", "trg_lang": "en", "mt_texts": ["Rome", "Room", "x"]}
    pq.write_table(pa.Table.from_pylist([row]), samples)
    for stage in GenerativePlan(Layout(DemoSettings(), ROOT, tmp_path), SQM).stages(1)[:2]:
        groups = stage.inputs[0]
        groups.parent.mkdir(parents=True, exist_ok=True)
        if not groups.exists():
            annotate_groups(samples, groups)
        stage.folder.mkdir(parents=True)
        done = CliRunner().invoke(grrm_command, list(stage.command[3:]), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert len(stage.outputs[0].read_text().splitlines()) == 3


def test_a_subset_has_the_first_groups_and_candidates(tmp_path):
    names = ("src_text", "src_lang", "trg_lang")
    kinds = {"mt_texts": pa.list_(pa.string()), "scores": pa.list_(pa.float64())}
    schema = pa.schema([*((name, pa.string()) for name in names), *kinds.items()])
    rows = [(f"s{n}", "de", "en", [f"{n}a", None, f"{n}c"], [1.0, None, 3.0]) for n in range(4)]
    write_rows(tmp_path / "gold.parquet", rows, schema)
    arguments = ["subset", "--groups", tmp_path / "gold.parquet", "--rows", 2, "--candidates", 2]
    done = CliRunner().invoke(prepare, [*map(str, arguments), "--out", str(tmp_path / "few.parquet")])
    assert done.exit_code == 0, done.output
    found = pq.read_table(tmp_path / "few.parquet").to_pylist()
    assert [(row["src_text"], row["mt_texts"], row["scores"]) for row in found] == [
        ("s0", ["0a", None], [1.0, None]),
        ("s1", ["1a", None], [1.0, None]),
    ]


def test_a_judge_is_followed_along_the_rollouts():
    def record(step, scores, reference="good day"):
        texts = ("good day", "good boy", None)
        candidates = [{"translation": text, "score": score} for text, score in zip(texts, (*scores, None), strict=True)]
        return {
            "step": step,
            "reference": reference,
            "src_lang": "de",
            "trg_lang": "en",
            "candidates": candidates,
        }

    records = [record(10, (2.0, 1.0)), record(11, (1.0, 2.0)), record(20, (1.0, 2.0)), record(30, (1.0, 1.0))]
    assert judge_curve(records) == [[10, pytest.approx(1.0)], [20, pytest.approx(-1.0)]]
    assert judge_curve([record(10, (2.0, 1.0), reference=None)]) == []


def test_records_of_seeds_become_a_summary_tables_and_figures(finished_demo):
    out, settings = finished_demo
    names = ["consensus", "rm", "gqm", "sqm", "mixture", *(arm.name for arm in ranker_arms())]
    for seed in settings.seeds:
        for run in RL_JUDGES:
            scores_file(out, seed, run).parent.mkdir()
            scores_file(out, seed, run).write_bytes(scores_file(out, seed, "grpo").read_bytes())
        interval = {"mean": 0.7 + seed / 100, "low": 0.6, "high": 0.8}
        figures = {"accuracy": interval, "correlation": interval, "tied": 0.125, "milliseconds_a_group": 11.0 + seed}
        of_sets = dict.fromkeys(("heldout", "mixed"), figures | {"tokens": dict.fromkeys(interval, 96.0)})
        for part, of_part in zip(PARTS, (names[:2], names[2:3], names[3:5], names[5:]), strict=True):
            write_json(study_file(out, seed, part), dict.fromkeys(of_part, of_sets))
    rewards = [{"step": step, "reward_mean": 0.25 * step, "loss": 1.0} for step in (1, 2)]
    (out / "seed1" / "gqm").mkdir()
    (out / "seed1" / "gqm" / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in rewards))
    paths = write_records(out, settings, {"seed1/grpo": 3.0, "seed2/grpo": 4.0})
    assert [path.name for path in paths] == ["study-seed1.json", "study-seed2.json", "study-seed3.json"]
    first = json.loads(paths[0].read_text())
    assert first["judges"]["ranker_none_1000_groups"]["groups"] == 1000
    assert first["policies"]["grpo_rm"]["learned"]["gain"] == pytest.approx(4.5)
    assert first["rlvr"] == {"gqm": [[1, 0.25], [2, 0.5]]}
    assert first["seconds"] == {"seed1/grpo": 3.0}
    summary = write_study(out, paths)
    assert summary["judges"]["rm"]["heldout"]["correlation"]["mean"] == pytest.approx(0.72)
    assert summary["policies"]["grpo_ranker"]["gain"]["mean"] == pytest.approx(4.1)
    figures = {path.name for path in (out / "figures").glob("study_*.png")}
    assert figures == {f"study_{name}.png" for name in ("groups", "candidates", "gains", "followed", "rlvr")}
    console = Console(width=120, record=True)
    for table in study_tables(summary):
        console.print(table)
    shown = console.export_text()
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in shown.splitlines()]
    ranking = ["0.720 ± 0.010"] * 2
    assert ["reward model on pairs", *ranking, "0.125", "96.0", "13.0", "+4.50 ± 0.00"] in rows
    assert ["mixture", *ranking] in rows
    assert ["GRPO, SQM", "+4.50 ± 0.00"] in [row[:2] for row in rows]


def test_a_study_that_was_stopped_is_reported_as_far_as_it_went(finished_demo):
    out, settings = finished_demo
    interval = {"mean": 0.7, "low": 0.6, "high": 0.8}
    of_sets = {name: {"accuracy": interval, "correlation": interval} for name in ("heldout", "mixed")}
    for seed in (1, 2):
        write_json(study_file(out, seed, PARTS[0]), {"rm": of_sets, "consensus": of_sets})
    write_json(study_file(out, 2, PARTS[1]), {"gqm": of_sets})
    paths = write_records(out, settings, {})
    assert [path.name for path in paths] == ["study-seed1.json", "study-seed2.json"]
    summary = write_study(out, paths)
    assert list(summary["judges"]) == ["rm", "consensus"]
    assert {path.name for path in (out / "figures").glob("study_*.png")} == {"study_gains.png", "study_followed.png"}


def test_an_interrupted_study_shows_what_it_has_found(finished_demo, monkeypatch, capsys):
    out, settings = finished_demo
    interval = {"mean": 0.7, "low": 0.6, "high": 0.8}
    of_sets = {name: {"accuracy": interval, "correlation": interval} for name in ("heldout", "mixed")}
    write_json(study_file(out, 1, PARTS[0]), {"rm": of_sets})
    (out / "stages").mkdir()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_run_stages", interrupted)
    assert runner.run_settings(settings, fresh=False, out=out, study=True) == 130
    assert (out / "study-seed1.json").exists()
    shown = capsys.readouterr()
    assert "reward model on pairs" in shown.out
    assert "run the demo again to resume" in shown.err
