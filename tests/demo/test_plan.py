"""The demo's plan: every stage gets what it reads from an earlier one, and the recipes know every key it sets."""

from pathlib import Path

import click
import pytest
import yaml
from support.argument_files import check_folders, values_of

import grrm
from grrm.cli import grrm as grrm_command
from grrm.demo.plan import Plan
from grrm.demo.settings import DemoSettings
from grrm.demo.stages import fingerprint_of

ROOT = Path(grrm.__file__).resolve().parents[3]


def stages(tmp_path, **changes):
    return Plan(DemoSettings(**changes), ROOT, tmp_path / "out").stages()


def test_three_seeds_share_the_data_and_train_everything_else_anew(tmp_path):
    names = [stage.name for stage in stages(tmp_path, n_seeds=3)]
    assert names[:5] == ["corpus", "tokenizer", "convert", "held-out", "ranker-rows"]
    assert len(names) == len(set(names)) == 5 + 3 * 20
    assert names[:25] == [stage.name for stage in stages(tmp_path, full=True)]
    of_consensus = ("seed1/grpo_consensus", "seed1/eval-grpo_consensus")
    assert [stage.name for stage in stages(tmp_path)] == [name for name in names[:25] if name not in of_consensus]


@pytest.mark.parametrize("judge", ["metric", "ranker"])
def test_every_input_is_in_the_checkout_or_made_by_an_earlier_stage(tmp_path, judge):
    check_folders(stages(tmp_path, judge=judge))


def test_commands_of_grrm_know_the_options_that_stages_give_them(tmp_path):
    commands = [stage.command[3:] for stage in stages(tmp_path) if "grrm.cli" in stage.command]
    assert ["data", "corpus", "phrases"] in [words[:3] for words in commands]
    for words in commands:
        context = click.Context(grrm_command)
        while isinstance(context.command, click.Group):
            name, command, words = context.command.resolve_command(context, words)
            context = click.Context(command, parent=context, info_name=name)
        assert context.command.parse_args(context, words) == []


@pytest.mark.parametrize("nproc", [1, 2])
def test_training_commands_set_only_keys_that_the_recipes_know(tmp_path, nproc):
    trained = [stage for stage in stages(tmp_path, nproc=nproc, sft_steps=5, rl_steps=3) if stage.metrics]
    assert len(trained) == 1 + 2 + 2
    for stage in trained:
        assert ("grrm.cli.launcher" in stage.command) == (nproc == 2)
        assert values_of(stage)["seed"] == 1


def test_steps_of_the_recipe_feed_the_progress_line(tmp_path):
    by_name = {stage.name: stage for stage in stages(tmp_path)}
    quick = {stage.name: stage for stage in stages(tmp_path, judge="metric")}
    assert quick["seed1/grpo"].total_steps == quick["seed1/reinforce_plus_plus"].total_steps == 180
    recipe = yaml.safe_load((ROOT / "llm/config/qwen/grpo_grrm_tiny_argument.yaml").read_text(encoding="utf-8"))
    assert by_name["seed1/grpo"].total_steps == recipe["max_steps"]
    assert by_name["seed1/grpo"].needs_server
    assert not by_name["seed1/sft"].needs_server


def test_time_left_is_told_from_the_first_stage_on_and_follows_the_steps(tmp_path):
    planned = {judge: stages(tmp_path, judge=judge) for judge in ("ranker", "metric")}
    assert all(stage.planned_s > 0 for stage in planned["ranker"])
    minutes = {judge: sum(stage.planned_s for stage in of_judge) / 60 for judge, of_judge in planned.items()}
    assert 10 < minutes["ranker"] < 15
    assert 3 < minutes["metric"] < 15


def test_runs_against_different_judges_differ_in_the_reward_server_and_in_nothing_else(tmp_path):
    by_name = {stage.name: stage for stage in stages(tmp_path, full=True)}
    runs = {name: by_name[f"seed1/{name}"] for name in ("grpo", "grpo_consensus", "grpo_ranker")}
    commands = {" ".join(stage.command).replace(str(stage.folder), "OUT") for stage in runs.values()}
    assert len(commands) == 1
    assert list(runs["grpo"].reward_server) == ["--judge", "text_metric"]
    assert list(runs["grpo_consensus"].reward_server) == ["--judge", "consensus"]
    folder = tmp_path / "out" / "seed1" / "ranker"
    assert list(runs["grpo_ranker"].reward_server)[:4] == ["--judge", "ranker", "--model", str(folder)]
    assert folder / "model.safetensors" in runs["grpo_ranker"].inputs


def test_choices_are_made_on_rows_that_the_report_does_not_look_at(tmp_path):
    by_name = {stage.name: stage for stage in stages(tmp_path)}
    for name in ("ranker_none", "ranker_group"):
        command = " ".join(by_name[f"seed1/{name}"].command)
        assert "gold-dev" in command
        assert "gold-heldout" not in command
    for name in ("sft", "grpo", "grpo_ranker"):
        evaluation = " ".join(by_name[f"seed1/eval-{name}"].command)
        assert "heldout.parquet" in evaluation
        assert "dev.parquet" not in evaluation


def test_the_quick_demo_compares_algorithms_and_trains_no_judge(tmp_path):
    names = [stage.name for stage in stages(tmp_path, judge="metric")]
    assert [name for name in names if "ranker" in name] == []
    assert names[-4:] == [
        "seed1/grpo",
        "seed1/eval-grpo",
        "seed1/reinforce_plus_plus",
        "seed1/eval-reinforce_plus_plus",
    ]


def test_two_processes_share_the_sft_batch(tmp_path):
    for nproc, rows in ((1, "48"), (2, "24")):
        command = next(stage.command for stage in stages(tmp_path, nproc=nproc) if stage.name == "seed1/sft")
        assert command[command.index("--per_device_train_batch_size") + 1] == rows


def test_other_settings_rerun_only_the_stages_they_concern(tmp_path):
    def corpus_and_untrained(**changes):
        corpus = stages(tmp_path, **changes)[0]
        return fingerprint_of(corpus, {})

    assert corpus_and_untrained(judge="metric") == corpus_and_untrained()
    assert corpus_and_untrained(n_seeds=3) == corpus_and_untrained()
    assert corpus_and_untrained(train_rows=7) != corpus_and_untrained()
