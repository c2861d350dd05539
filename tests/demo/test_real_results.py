"""`make real`: records, tables and figures are made of what its stages leave."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from rich.console import Console
from support.rows import write_jsonl

import grrm
from grrm.demo import real_runner
from grrm.demo.execution import StageFailure
from grrm.demo.real_plan import RealPlan
from grrm.demo.real_record import judge_curve
from grrm.demo.real_report import common, write_real
from grrm.demo.real_settings import HALVES, JUDGES, POLICIES, RealSettings
from grrm.demo.results import scores_file
from grrm.demo.similarity import SIMILARITY_FILE
from grrm.demo.stages import fingerprint_of, write_json

ROOT = Path(grrm.__file__).resolve().parents[3]
pytestmark = pytest.mark.usefixtures("without_embedder")


def interval(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - 0.02, "high": mean + 0.02}


def measured_judges(mean: float) -> dict[str, object]:
    names = ("accuracy", "accuracy_ties_half", "hardest_third", "correlation", "order_consistency")
    shares = {"readable": 1.0, "tied": 0.125, "score_variance": 2.5, "milliseconds_a_group": 11.0, "n_groups": 600}
    return dict.fromkeys(names, interval(mean)) | shares | {"tokens": interval(96.0)}


@pytest.fixture
def measured(finished_demo, savefig):
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


def test_results_of_seeds_become_records_tables_and_figures(measured, savefig, monkeypatch):
    monkeypatch.setattr(Figure, "savefig", savefig)
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
