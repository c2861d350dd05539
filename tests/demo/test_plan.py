"""The demo's plan: every stage gets what it reads from an earlier one, and the recipes know every key it sets."""

from pathlib import Path

import pytest
import yaml
from support.argument_values import typed_values

import grrm
from grrm.config import RLConfig, SFTConfig
from grrm.demo.plan import Plan
from grrm.demo.settings import DemoSettings
from grrm.demo.stages import fingerprint_of

ROOT = Path(grrm.__file__).resolve().parents[3]


def stages(tmp_path, **changes):
    return Plan(DemoSettings(**changes), ROOT, tmp_path / "out").stages()


def test_three_seeds_share_the_data_and_train_everything_else_anew(tmp_path):
    names = [stage.name for stage in stages(tmp_path, n_seeds=3)]
    assert names[:4] == ["corpus", "terms", "tokenizer", "convert"]
    assert len(names) == len(set(names)) == 4 + 3 * 8
    assert names[:12] == [stage.name for stage in stages(tmp_path, n_seeds=1)]


@pytest.mark.parametrize("judge", ["metric", "grrm"])
def test_every_input_is_in_the_checkout_or_made_by_an_earlier_stage(tmp_path, judge):
    folders = []
    for stage in stages(tmp_path, judge=judge):
        for path in stage.inputs:
            assert path.exists() or any(path.is_relative_to(folder) for folder in folders), (stage.name, path)
        assert all(path.is_relative_to(stage.folder) for path in stage.outputs)
        assert stage.folder not in folders
        folders.append(stage.folder)


@pytest.mark.parametrize("nproc", [1, 2])
def test_training_commands_set_only_keys_that_the_recipes_know(tmp_path, nproc):
    trained = [stage for stage in stages(tmp_path, nproc=nproc, sft_steps=5, rl_steps=3, judge="grrm") if stage.metrics]
    assert len(trained) == 3 + 3 + 2
    for stage in trained:
        command = list(stage.command)
        assert ("paddle.distributed.launch" in command) == (nproc == 2)
        script = next(index for index, word in enumerate(command) if word.endswith(("run_sft.py", "run_rl.py")))
        assert Path(command[script]).is_file()
        stage_config = SFTConfig if command[script].endswith("run_sft.py") else RLConfig
        options = command[script + 2 :]
        overrides = dict(zip([key.removeprefix("--") for key in options[::2]], options[1::2], strict=True))
        recipe = yaml.safe_load(Path(command[script + 1]).read_text(encoding="utf-8"))
        values = typed_values(stage_config, {**recipe, **overrides})
        assert values["max_steps"] == stage.total_steps
        assert values["output_dir"] == str(stage.folder)
        assert values["seed"] == 1


def test_steps_of_the_recipe_feed_the_progress_line(tmp_path):
    by_name = {stage.name: stage for stage in stages(tmp_path)}
    recipe = yaml.safe_load((ROOT / "llm/config/qwen/grpo_grrm_tiny_argument.yaml").read_text(encoding="utf-8"))
    assert by_name["seed1/grpo"].total_steps == recipe["max_steps"]
    assert by_name["seed1/grpo"].needs_server
    assert not by_name["seed1/sft"].needs_server


def test_judges_of_its_own_follow_what_the_metric_demo_does_and_change_nothing_of_it(tmp_path):
    metric, whole = stages(tmp_path), stages(tmp_path, judge="grrm")
    assert whole[: len(metric)] == metric
    by_name = {stage.name: stage for stage in whole}
    for policy, kind in (("sqm", "sqm"), ("grrm", "gqm")):
        options = list(by_name[f"seed1/{policy}"].reward_server)
        assert options[:4] == ["--judge", kind, "--model", str(tmp_path / "out" / "seed1" / f"{kind}-rlvr")]
        assert list(by_name)[-4:] == ["seed1/sqm", "seed1/eval-sqm", "seed1/grrm", "seed1/eval-grrm"]
    assert ("show_copies=true" in by_name["seed1/grrm"].reward_server) is True
    assert ("show_copies=true" in by_name["seed1/sqm"].reward_server) is False  # it sees one translation at a time
    assert list(by_name["seed1/grpo"].reward_server) == ["--judge", "text_metric"]


def test_two_processes_share_the_sft_batch(tmp_path):
    for nproc, rows in ((1, "48"), (2, "24")):
        command = next(stage.command for stage in stages(tmp_path, nproc=nproc) if stage.name == "seed1/sft")
        assert command[command.index("--per_device_train_batch_size") + 1] == rows


def test_other_settings_rerun_only_the_stages_they_concern(tmp_path):
    def corpus_and_untrained(**changes):
        corpus = stages(tmp_path, **changes)[0]
        return fingerprint_of(corpus, {})

    assert corpus_and_untrained(judge="bleu") == corpus_and_untrained()
    assert corpus_and_untrained(n_seeds=3) == corpus_and_untrained()
    assert corpus_and_untrained(train_rows=7) != corpus_and_untrained()


def test_policies_learn_from_learned_judges_more_carefully_than_from_the_metric(tmp_path):
    settings = DemoSettings(judge="grrm")
    by_name = {stage.name: stage for stage in stages(tmp_path, judge="grrm")}
    careful = {"kl_loss_coeff", "frozen_layers", "learning_rate"}
    assert not careful & {word.removeprefix("--") for word in by_name["seed1/grpo"].command}
    for name in ("seed1/sqm", "seed1/grrm"):
        command = list(by_name[name].command)
        given = {key: command[command.index(f"--{key}") + 1] for key in careful}
        assert given == {key: str(getattr(settings, f"judged_{key}")) for key in careful}
        assert by_name[name].total_steps == settings.judged_rl_steps
