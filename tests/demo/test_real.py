"""`make real`: its stages follow from one another, and records, tables and figures are made of what they leave."""

from __future__ import annotations

import json
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from support.argument_files import check_folders, values_of
from support.command_line import invoke
from support.rows import write_jsonl

import grrm
from grrm.config import RewardModelConfig, RLConfig, SFTConfig
from grrm.demo import real_runner
from grrm.demo.execution import StageFailure
from grrm.demo.real_plan import PARTS, RealPlan, settings_for
from grrm.demo.real_record import judge_curve
from grrm.demo.real_report import common, write_real
from grrm.demo.real_settings import GRPO_EMBEDDING, HALVES, JUDGES, POLICIES, QUICK, RealSettings
from grrm.demo.results import scores_file
from grrm.demo.similarity import SIMILARITY_FILE, similarities
from grrm.demo.stages import fingerprint_of, write_json
from grrm.entry import read_assignments
from grrm.errors import UserError
from grrm.judges.embedding_qe import EMBEDDER
from grrm.judges.sources import mixture_sources, read_sources

ROOT = Path(grrm.__file__).resolve().parents[3]
CONFIGS = {"run_sft.py": SFTConfig, "run_reward.py": RewardModelConfig, "run_rl.py": RLConfig}


@pytest.fixture(autouse=True)
def without_embedder(monkeypatch):
    monkeypatch.setattr("grrm.demo.real_plan.available", lambda: False)


def stages(tmp_path, halves=HALVES, **changes):
    return RealPlan(RealSettings(**changes), ROOT, tmp_path / "out").stages(halves)


@pytest.mark.parametrize("changes", [{"n_seeds": 2}, QUICK], ids=["whole", "quick"])
def test_every_input_is_made_by_an_earlier_stage(tmp_path, changes):
    check_folders(stages(tmp_path, **changes))


def test_the_halves_are_the_whole_and_the_second_is_about_policies_alone(tmp_path):
    names = {halves: [stage.name for stage in stages(tmp_path, halves)] for halves in ((JUDGES,), (POLICIES,), HALVES)}
    assert names[JUDGES,] + names[POLICIES,] == names[HALVES]
    assert len(set(names[HALVES])) == len(names[HALVES])
    arms = [arm for arm in RealSettings().arms if arm != GRPO_EMBEDDING]  # whose extra is hidden
    assert names[POLICIES,] == [f"seed1/{name}" for arm in arms for name in (arm, f"eval-{arm}")]


@pytest.mark.parametrize("changes", [{}, QUICK, {"dtype": "float32"}], ids=["whole", "quick", "float32"])
def test_training_commands_set_only_keys_that_the_recipes_know(tmp_path, changes):
    trained = [stage for stage in stages(tmp_path, **changes) if stage.metrics]
    assert len(trained) == 1 + 3 + 2 + 1 + 8
    for stage in trained:
        assert values_of(stage).get("bf16", False) is (changes.get("dtype") != "float32")
        assert stage.planned_s > 0
        assert "checkpoint-*" in stage.scrap


def test_an_interrupted_training_loses_few_steps(tmp_path):
    for stage in stages(tmp_path):
        if stage.metrics:
            assert values_of(stage)["save_steps"] <= stage.total_steps / 3


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("minutes", [None, 1000, 3000])
def test_no_stage_is_stopped_before_twice_its_plan(tmp_path, dtype, minutes):
    settings = settings_for(RealSettings(dtype=dtype), minutes, HALVES)
    for stage in RealPlan(settings, ROOT, tmp_path / "out").stages(HALVES):
        assert stage.timeout_s >= 2 * stage.planned_s, stage.name


def test_all_judges_learn_from_equally_many_candidates_a_step_of_the_same_groups(tmp_path):
    by_name = {stage.name.removeprefix("seed1/"): stage for stage in stages(tmp_path)}

    def rows(name):
        command = list(by_name[name].command)
        keys = ("--per_device_train_batch_size", "--gradient_accumulation_steps")
        return math.prod(int(command[command.index(key) + 1]) for key in keys if key in command)

    groups = RealSettings().ranker_batch_groups
    assert rows("rm") == rows("ranker_none") == rows("ranker_group") == rows("gqm_sft") == groups
    assert rows("sqm") == 4 * groups  # rows of one candidate
    source = tmp_path / "out/seed1/groups/groups.parquet"
    for name in ("gold-groups", "data-sft-gqm", "data-sft-sqm"):
        assert by_name[name].inputs == [source]


def test_the_replies_that_a_group_judge_is_taught_fit_into_what_it_may_write(tmp_path):
    by_name = {stage.name.removeprefix("seed1/"): stage for stage in stages(tmp_path)}
    taught, hosted = by_name["data-sft-gqm"], list(by_name["grpo_gqm_sft"].reward_server)
    (groups,) = taught.inputs
    groups.parent.mkdir(parents=True)
    row = {"src_text": "a", "src_lang": "de", "trg_lang": "en", "mt_texts": [*"bcde"], "scores": [0.0, 9.0, 4.0, 9.0]}
    pq.write_table(pa.Table.from_pylist([row | {"analysis": "word: A+ B- C- D+\n" * 20}]), groups)
    invoke(*taught.command[3:])
    (line,) = taught.outputs[0].read_text().splitlines()
    n_tokens = next(int(option.rpartition("=")[2]) for option in hosted if option.startswith("max_new_tokens="))
    assert len(json.loads(line)["tgt"]) <= n_tokens  # of a character or more each


def test_servers_and_lists_of_judges_can_be_read(tmp_path):
    by_name = {stage.name.removeprefix("seed1/"): stage for stage in stages(tmp_path)}
    hosted = {name: list(by_name[f"grpo{name}"].reward_server) for name in ("", "_consensus", "_ranker", "_gqm")}
    assert hosted[""] == ["--judge", "text_metric"]
    assert hosted["_consensus"] == ["--judge", "consensus"]
    assert hosted["_ranker"][:4] == ["--judge", "ranker", "--model", str(tmp_path / "out/seed1/ranker")]
    assert "score_reading=expected_digit" in hosted["_gqm"]
    assert hosted["_gqm"][-2:] == ["--dtype", "bfloat16"]
    mixture = list(by_name["grpo_mixture"].reward_server)
    values = read_assignments([mixture[mixture.index("--judge-option") + 1]], "judge option")
    assert [source.judge for source in mixture_sources(values)] == ["gqm", "consensus"]
    measured = {}
    for part in PARTS:
        command = list(by_name[part].command)
        words = [command[place + 1] for place, word in enumerate(command) if word == "--judge"]
        measured |= {name: json.loads(text) for name, _, text in (word.partition("=") for word in words)}
    assert [source.judge for source in read_sources(list(measured.values())[:1])] == ["consensus"]
    for name, source in measured.items():
        read_sources([source], name)
    readings = {name: source["options"].get("score_reading", "text") for name, source in measured.items()}
    assert [name for name, reading in readings.items() if reading == "expected_digit"] == [
        *("sqm_expected", "gqm_sft_expected", "gqm_sft_permuted", "gqm_expected")
    ]


def test_arms_are_the_policies_that_are_trained(tmp_path):
    chosen = real_runner.read_arms("grpo, grpo_gqm_sft")
    names = [stage.name for stage in stages(tmp_path, (POLICIES,), arms=chosen)]
    assert names == ["seed1/grpo", "seed1/eval-grpo", "seed1/grpo_gqm_sft", "seed1/eval-grpo_gqm_sft"]
    with pytest.raises(UserError, match="--arms has no policy 'gqm': give some of grpo, "):
        real_runner.read_arms("grpo,gqm")
    with pytest.raises(UserError, match="--half judges makes none: leave out one"):
        real_runner.run_real(JUDGES, arms="grpo", out=tmp_path)


def test_with_the_embedder_every_evaluation_is_followed_by_the_similarity_of_its_translations(tmp_path, monkeypatch):
    monkeypatch.setattr("grrm.demo.real_plan.available", lambda: True)
    names = [stage.name for stage in stages(tmp_path)]
    for policy in ("stock", "sft", *RealSettings().arms):
        assert names[names.index(f"seed1/eval-{policy}") + 1] == f"seed1/similarity-{policy}"


def test_similarity_is_the_cosine_with_the_reference_and_the_mean_of_a_rows_samples(monkeypatch):
    def embedded(texts):  # how often "a" and "b" stand in a text
        counts = np.array([[text.count("a"), text.count("b")] for text in texts], np.float32)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1)

    monkeypatch.setitem(sys.modules, EMBEDDER, SimpleNamespace(query=embedded))
    right = {"reference": "aa", "greedy": "a", "sampled": ["a", "b"]}
    missing = {"reference": "ab", "greedy": None, "sampled": ["b", "ab"]}
    record = similarities([right, missing])
    assert record["greedy"] == pytest.approx([1.0, 0.0])
    assert record["sampled"] == pytest.approx([0.5, (0.5**0.5 + 1) / 2])


def test_a_policy_that_lacks_its_extra_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setitem(sys.modules, EMBEDDER, None)
    with pytest.raises(UserError, match=r"install it with `pip install 'paddle-grrm\[similarity\]'`"):
        real_runner.read_arms(f"grpo,{GRPO_EMBEDDING}")


@pytest.mark.parametrize("half", HALVES)
def test_minutes_scale_the_training_of_their_half(tmp_path, half):
    settings = RealSettings()
    for minutes in (120, 240):
        scaled = settings_for(settings, minutes, [half])
        planned = sum(stage.planned_s for stage in RealPlan(scaled, ROOT, tmp_path).stages([half]))
        assert planned == pytest.approx(60 * minutes, rel=0.03)
    assert scaled.gqm_steps != settings.gqm_steps if half == JUDGES else scaled.gqm_steps == settings.gqm_steps
    assert settings_for(settings, None, HALVES) == settings
    with pytest.raises(UserError, match=f"too few for the {half}: give more than"):
        settings_for(settings, 0.1, [half])


@pytest.mark.parametrize(("flags", "dtype"), [({"avx2"}, "float32"), ({"avx2", "avx512_bf16"}, "bfloat16")])
def test_the_precision_is_what_the_processor_multiplies_fast(tmp_path, monkeypatch, flags, dtype):
    run = []
    monkeypatch.setattr(real_runner, "cpu_facts", lambda: ("a vendor", frozenset(flags)))
    monkeypatch.setattr(real_runner, "run_halves", lambda settings, *rest, **options: run.append(settings.dtype) or 0)
    real_runner.run_real(out=tmp_path)
    real_runner.run_real(out=tmp_path, dtype="bfloat16")
    assert run == [dtype, "bfloat16"]


def test_without_fast_bfloat16_the_plan_is_longer(tmp_path):
    fast, plain = ([s.planned_s for s in stages(tmp_path, dtype=dtype)] for dtype in ("bfloat16", "float32"))
    assert sum(plain) > 4 * sum(fast)


def test_policies_without_judges_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"policies need .*model.safetensors: make the judges first"):
        real_runner.run_real("policies", out=tmp_path / "out")


def interval(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - 0.02, "high": mean + 0.02}


def measured_judges(mean: float) -> dict[str, object]:
    names = ("accuracy", "accuracy_ties_half", "hardest_third", "correlation", "order_consistency")
    shares = {"readable": 1.0, "tied": 0.125, "score_variance": 2.5, "milliseconds_a_group": 11.0, "n_groups": 600}
    return dict.fromkeys(names, interval(mean)) | shares | {"tokens": interval(96.0)}


@pytest.fixture
def measured(finished_demo):
    """A plan of two seeds whose stages have left invented results."""
    out, _ = finished_demo
    plan = RealPlan(RealSettings(n_seeds=2), ROOT, out)
    for seed in plan.settings.seeds:
        for run in (*plan.settings.arms, "stock"):
            source = json.loads(scores_file(out, seed, "sft" if run == "stock" else "grpo").read_text())
            for decoding in ("sampled", "greedy"):
                source[decoding] |= {"copied": 0.02, "chrf_by_language": {"de": 60.0}}
            write_json(scores_file(out, seed, run), source)
        before = json.loads(scores_file(out, seed, "sft").read_text())
        for decoding in ("sampled", "greedy"):
            before[decoding] |= {"copied": 0.02}
        write_json(scores_file(out, seed, "sft"), before)
        names = {"eval-judges": ("consensus", "rm"), "eval-gqm_sft": ("gqm_sft", "gqm_sft_expected")}
        for part, judges in names.items():
            found = {one: {"dev": measured_judges(0.6), "heldout": measured_judges(0.7 + seed / 100)} for one in judges}
            write_json(out / f"seed{seed}" / part / "ranking.json", found)
    lines = [{"step": step, "reward_mean": 0.25 * step, "loss": 1.0} for step in (1, 2)]
    (out / "seed1" / "gqm").mkdir()
    write_jsonl(out / "seed1" / "gqm" / "metrics.jsonl", lines)
    return plan


def printed(lines) -> list[list[str]]:
    console = Console(width=200, record=True)
    for line in lines:
        console.print(line)
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in console.export_text().splitlines()]


def test_results_of_seeds_become_records_tables_and_figures(measured):
    rows = printed(write_real(measured, HALVES, {"seed1/grpo": 3.0}))
    records = {half: json.loads((measured.out / f"{half}.json").read_text()) for half in HALVES}
    assert list(records[JUDGES]["seeds"]) == ["1", "2"]
    of_seed = records[JUDGES]["seeds"]["1"]
    assert of_seed["judges"]["gqm_sft"]["heldout"]["accuracy"]["mean"] == pytest.approx(0.71)
    assert of_seed["rlvr"] == [[1, 0.25], [2, 0.5]]
    assert "examples" not in of_seed["policies"]["sft"]
    assert records[POLICIES]["seeds"]["2"]["policies"]["grpo_gqm"]["learned"]["gain"] == pytest.approx(4.5)
    assert records[POLICIES]["seconds"] == {"seed1/grpo": 3.0}
    judge = [
        "reward model on pairs",
        "100.0",
        "0.715 ± 0.007",
        *["–"] * 2,
        *["0.715"] * 2,
        "12.5",
        "2.50",
        "0.715",
        "96",
        "11",
    ]
    assert judge in rows
    assert ["GRPO, SQM", "63.8", "+4.50 ± 0.00"] in [row[:3] for row in rows]
    figures = {path.name for path in (measured.out / "figures").glob("real_*.png")}
    assert figures == {f"real_{name}.png" for name in ("judges", "rlvr", "gains", "followed")}


def test_a_judge_is_compared_on_all_pairs_of_the_same_groups(measured):
    golds = [[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]
    for part, name, judged in (
        ("eval-gqm_sft", "gqm_sft_expected", golds),
        ("eval-sqm", "sqm_expected", [golds[0], [None] * 3]),
    ):
        figures = measured_judges(0.7) | {"scores": list(zip(golds, judged, strict=True))}
        write_json(measured.out / "seed1" / part / "ranking.json", {name: {"heldout": figures}})
    plan = replace(measured, settings=RealSettings(n_seeds=1))
    rows = {row[0]: row[3:5] for row in printed(write_real(plan, (JUDGES,), {}))}
    assert rows["SQM, expected scores"] == ["0.750", "–"]  # half of the three pairs of the group that it did not score
    assert rows["GQM after SFT, expected scores"] == ["1.000", "0.250 (0.000 to 0.500)"]
    record = json.loads((measured.out / "judges.json").read_text())
    assert "scores" not in record["seeds"]["1"]["judges"]["sqm_expected"]["heldout"]


def test_a_seed_that_has_not_begun_hides_nothing_of_the_others(measured):
    shutil.rmtree(measured.out / "seed3")  # of the demo
    plan = replace(measured, settings=RealSettings(n_seeds=3, arms=("grpo_gqm",)))
    rows = {row[0] for row in printed(write_real(plan, HALVES, {}))}
    assert {"consensus", "SFT", "GRPO, GQM after RLVR"} <= rows


def test_a_seed_with_policies_of_before_alone_hides_nothing_either() -> None:
    seeds = {"1": {POLICIES: {"sft": {}, "grpo": {}, "grpo_gqm": {}}}, "2": {POLICIES: {"sft": {}, "grpo": {}}}}
    assert common({"seeds": seeds, "settings": {"arms": ["grpo_gqm"]}}, POLICIES) == ["sft", "grpo_gqm"]


def test_policies_that_were_made_before_stay_in_the_record(measured):
    write_real(replace(measured, settings=RealSettings(n_seeds=1, arms=("grpo_gqm",))), (POLICIES,), {})
    kept = json.loads((measured.out / "policies.json").read_text())["seeds"]["1"][POLICIES]
    assert {"sft", "grpo", "grpo_gqm"} <= kept.keys()


def test_results_of_other_settings_are_neither_compared_nor_shown(measured):
    plan = replace(measured, settings=RealSettings(n_seeds=1, arms=("grpo_gqm",)))
    by_name = {stage.name: stage for stage in RealPlan(RealSettings(), ROOT, plan.out).stages(HALVES)}
    for name in ("eval-grpo", "eval-grpo_gqm", "eval-gqm_sft", "gqm"):
        stage = by_name[f"seed1/{name}"]
        for path in (path for path in stage.inputs if not path.exists()):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("invented")
        fingerprint = fingerprint_of(stage, plan.layout.placeholders) if name == "eval-grpo_gqm" else "of a slice"
        write_json(plan.out / "stages" / f"seed1-{name}.done.json", {"fingerprint": fingerprint, "seconds": 1.0})
    path = scores_file(plan.out, 1, "grpo")
    scores = json.loads(path.read_text())
    write_json(path, scores | {"examples": scores["examples"][:2]})  # fewer rows than the other policies have
    rows = {row[0] for row in printed(write_real(plan, HALVES, {}))}
    assert {"consensus", "SFT", "GRPO, GQM after RLVR"} <= rows
    assert "GQM after SFT" not in rows
    records = {half: json.loads((plan.out / f"{half}.json").read_text())["seeds"]["1"] for half in HALVES}
    assert records[JUDGES]["rlvr"] == []
    assert "grpo" not in records[POLICIES][POLICIES]
    (plan.out / "seed1/sft/model.safetensors").write_text("trained again")
    assert "GRPO, GQM after RLVR" not in {row[0] for row in printed(write_real(plan, HALVES, {}))}


def test_policies_are_shown_without_that_of_the_metric(measured):
    plan = replace(measured, settings=RealSettings(n_seeds=2, arms=("grpo_gqm",)))
    rows = printed(write_real(plan, (POLICIES,), {}))
    assert {"SFT", "GRPO, GQM after RLVR"} <= {row[0] for row in rows}
    assert not [row for row in rows if row[0] == "GRPO, metric"]


def test_similarities_are_shown_and_their_gains_paired_by_row(measured):
    for run, values in (("sft", [0.5, 0.7]), ("grpo_gqm", [0.6, 0.9])):
        path = measured.out / "seed1" / f"similarity-{run}" / SIMILARITY_FILE
        write_json(path, {"sampled": values, "greedy": values})
    plan = replace(measured, settings=RealSettings(n_seeds=1, arms=("grpo_gqm", "grpo_sqm")))
    rows = {row[0]: row for row in printed(write_real(plan, (POLICIES,), {}))}
    assert [rows[name][6] for name in ("SFT", "GRPO, GQM after RLVR", "GRPO, SQM")] == ["0.600", "0.750", "–"]
    policies = json.loads((measured.out / "policies.json").read_text())["seeds"]["1"][POLICIES]
    gain = policies["grpo_gqm"]["scores"]["greedy"]["similarity_gain"]
    assert gain == {"mean": pytest.approx(0.15), "low": pytest.approx(0.1), "high": pytest.approx(0.2)}


def test_one_seed_has_intervals_and_a_judge_that_nobody_can_read_a_dash(measured):
    path = measured.out / "seed1" / "eval-gqm" / "ranking.json"
    write_json(path, {"gqm": {"heldout": measured_judges(0.5) | {"accuracy_ties_half": None, "readable": 0.0}}})
    plan = replace(measured, settings=RealSettings(n_seeds=1))
    rows = printed(write_real(plan, HALVES, {}))
    assert "0.710 (0.690 to 0.730)" in next(row for row in rows if row[0] == "consensus")
    assert next(row for row in rows if row[0] == "GQM after RLVR")[1:3] == ["0.0", "–"]


def test_a_narrow_terminal_cuts_off_no_name_and_no_interval(measured):
    plan = replace(measured, settings=RealSettings(n_seeds=1))
    console = Console(width=150, record=True)
    for table in write_real(plan, HALVES, {}):
        console.print(table)
    assert "…" not in console.export_text()


def test_runs_without_a_measured_correlation_leave_no_empty_figure(measured):
    for folder in measured.out.glob("seed*/grpo*/rollouts"):
        shutil.rmtree(folder)
    write_real(measured, (POLICIES,), {})
    assert {path.name for path in (measured.out / "figures").iterdir()} == {"real_gains.png"}


def test_a_run_that_was_stopped_shows_and_keeps_what_it_has(measured, monkeypatch, capsys):
    (measured.out / "stages").mkdir()

    def failing(*_):
        raise StageFailure("stage 'seed1/gqm' ended with status 1", [])

    monkeypatch.setattr(real_runner, "run_stages", failing)
    settings = replace(measured.settings, n_seeds=1)
    assert real_runner.run_halves(settings, (JUDGES,), out=measured.out) == 1
    assert "Judges on 600 held-out groups" in capsys.readouterr().out
    assert not (measured.out / "policies.json").exists()
    assert json.loads((measured.out / "judges.json").read_text())["seeds"]["1"]["judges"]


def test_a_fresh_run_that_is_stopped_shows_nothing_of_the_one_before(measured, monkeypatch, capsys):
    (measured.out / "stages").mkdir()
    monkeypatch.setattr(real_runner, "run_stages", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    real_runner.run_halves(measured.settings, (JUDGES,), fresh=True, out=measured.out)
    assert "held-out groups" not in capsys.readouterr().out
    assert list(measured.out.glob("seed*/grpo/*"))  # of the other half


def test_fresh_starts_a_half_over_and_leaves_the_other(tmp_path, monkeypatch):
    out = tmp_path / "out"
    for name in ("seed1-gqm", "seed1-grpo"):
        write_json(out / "stages" / f"{name}.done.json", {"fingerprint": "x", "seconds": 1.0})
    monkeypatch.setattr(real_runner, "run_stages", lambda *_: {})
    real_runner.run_real("judges", fresh=True, out=out)
    assert [path.name for path in (out / "stages").glob("*.json")] == ["seed1-grpo.done.json"]


def test_a_judge_is_followed_along_the_rollouts():
    def record(step, scores, reference="good day"):
        texts = ("good day", "good boy", None)
        candidates = [{"translation": text, "score": score} for text, score in zip(texts, (*scores, None), strict=True)]
        return {"step": step, "reference": reference, "src_lang": "de", "trg_lang": "en", "candidates": candidates}

    records = [record(4, (2.0, 1.0)), record(5, (1.0, 2.0)), record(8, (1.0, 2.0)), record(12, (1.0, 1.0))]
    assert judge_curve(records) == [[4, pytest.approx(1.0)], [8, pytest.approx(-1.0)]]
    assert judge_curve([record(4, (2.0, 1.0), reference=None)]) == []
