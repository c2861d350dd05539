"""`make real`: its stages follow from one another, and are planned for the machine and the time."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.argument_files import check_folders, values_of
from support.command_line import invoke

import grrm
from grrm.config import RewardModelConfig, RLConfig, SFTConfig
from grrm.demo import real_runner
from grrm.demo.real_plan import PARTS, RealPlan, settings_for
from grrm.demo.real_settings import GRPO_EMBEDDING, HALVES, JUDGES, POLICIES, QUICK, RealSettings
from grrm.demo.similarity import similarities
from grrm.entry import read_assignments
from grrm.errors import UserError
from grrm.judges.embedding_qe import EMBEDDER
from grrm.judges.sources import mixture_sources, read_sources

ROOT = Path(grrm.__file__).resolve().parents[3]
CONFIGS = {"run_sft.py": SFTConfig, "run_reward.py": RewardModelConfig, "run_rl.py": RLConfig}
pytestmark = pytest.mark.usefixtures("without_embedder")


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


@pytest.mark.parametrize(("judge", "arm", "n_rows"), [("gqm", "grpo_gqm_sft", 1), ("sqm", "grpo_sqm", 4)])
def test_judges_are_taught_verdicts_alone_which_fit_into_what_they_may_write(tmp_path, judge, arm, n_rows):
    by_name = {stage.name.removeprefix("seed1/"): stage for stage in stages(tmp_path)}
    taught, hosted = by_name[f"data-sft-{judge}"], list(by_name[arm].reward_server)
    (groups,) = taught.inputs
    groups.parent.mkdir(parents=True)
    row = {"src_text": "a", "src_lang": "de", "trg_lang": "en", "mt_texts": [*"bcde"], "scores": [0.0, 9.0, 4.0, 9.0]}
    analyses = {"analysis": "word: A+ B- C- D+\n" * 20, "analyses": ["word: +\n" * 20] * 4}
    pq.write_table(pa.Table.from_pylist([row | analyses]), groups)
    invoke(*taught.command[3:])
    replies = [json.loads(line)["tgt"] for line in taught.outputs[0].read_text().splitlines()]
    n_tokens = next(int(option.rpartition("=")[2]) for option in hosted if option.startswith("max_new_tokens="))
    assert len(replies) == n_rows
    assert max(map(len, replies)) <= n_tokens  # of a character or more each


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
