"""Real RL runs, recomputed in float64 from what they left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import pytest
import yaml
from oracle.comparison import Comparison
from oracle.conftest import ERRORS
from oracle.recompute import Recomputed, recompute
from oracle.rl_settings import ALWAYS, COMMON, REGISTERED, RUNS, YAML
from oracle.run_files import Run
from oracle.world import write_oracle_policy
from support.rl_processes import CONFIGS, RL_SETTINGS, ROOT, TinyWorld, entry_command, environment, one_rank, run

from grrm.config import RLConfig
from grrm.config.key import By, keys_of
from grrm.config.keys.objective import ObjectiveConfig

LIMITS = {
    "reward": 1e-12,
    "learning rate": 1e-3,  # logged with four digits
    "ratio_max": 1e-4,
    "rollout_is_max": 1e-4,  # of a whole response
    "gradient": 1e-4,
    "critic's gradient": 1e-4,
    "AdamW's steps": 3e-4,
    "critic's AdamW's steps": 3e-4,
}
OTHERWISE = 1e-5
QUICK = "grpo"

Record = Callable[[str, object], None]


def settings_of(world: TinyWorld, policy: Path, settings: dict[str, str]) -> dict[str, str]:
    places = {"actor_model_name_or_path": str(policy), "train_datasets": str(world.rl_data)}
    return {**RL_SETTINGS, **COMMON, **settings, **places}


def check(runs: dict[str, Run], record: Record) -> list[Recomputed]:
    """Recompute finished runs; errors beyond their limits fail the test."""
    answers = recompute(list(runs.values()))
    record(ERRORS, json.dumps({name: answer.errors for name, answer in zip(runs, answers, strict=True)}))
    for answer, run_again in zip(answers, runs.values(), strict=True):
        if too_large := Comparison(answer.errors).too_large(LIMITS, OTHERWISE):
            pytest.fail(f"{too_large}\n{_second_opinion(run_again)}")
    return answers


def _second_opinion(first: Run) -> str:
    """What the recomputation, and the run, give when they are done again: both are deterministic."""
    again = Run(first.folder.with_name("again"), first.argument_file, first.settings)
    world = TinyWorld(first.folder, first.model, Path(first.settings["train_datasets"]))
    run(one_rank(entry_command(world, again.folder, YAML, **first.settings)))
    errors = [Comparison(one.errors).too_large(LIMITS, OTHERWISE) for one in recompute([first, again])]
    losses = [[line["loss"] for line in one.metrics.values()] for one in (first, again)]
    return (
        f"recomputed again: {errors[0]}\nrun again: {errors[1]}, samples "
        f"{'equal' if first.rollouts == again.rollouts else 'other'}, losses {losses}"
    )


@pytest.fixture(autouse=True)
def _judge_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"), prepend=os.pathsep)


MARKS = {name: [pytest.mark.slow] for name in RUNS if name != QUICK}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in RUNS])
def test_a_run_with_its_keys_off_their_defaults(
    name: str, world: TinyWorld, tmp_path: Path, record_property: Record
) -> None:
    settings, is_tied, exercised = RUNS[name]
    policy = write_oracle_policy(world, tmp_path / "policy", tied=is_tied)
    chosen = settings_of(world, policy, settings)
    run(one_rank(entry_command(world, tmp_path / "out", YAML, **chosen)))
    (answer,) = check({name: Run(tmp_path / "out", CONFIGS / YAML, chosen)}, record_property)
    assert ALWAYS | exercised <= {what for what, value in answer.seen.items() if value}


def test_every_key_of_the_objective_is_off_its_default_in_one_of_the_runs() -> None:
    keys = keys_of(RLConfig)
    exercised = {"advantage_rule", "policy_loss"}  # below
    for settings in (REGISTERED, *(settings for settings, *_ in RUNS.values())):
        chosen = {name: yaml.safe_load(text) for name, text in settings.items() if name in keys}
        exercised |= {name for name, value in chosen.items() if value != keys[name].default}
    honoured = {name for name in ObjectiveConfig.model_fields if keys[name].support.by is not By.REFUSED}
    assert honoured - exercised == set()


@pytest.mark.slow
def test_every_registered_rule_and_loss(world: TinyWorld, tmp_path: Path, record_property: Record) -> None:
    """Those that no run above has, in pairs; without a formula in the oracle, their own in float64."""
    from grrm.algorithms.advantages import ADVANTAGE_RULES
    from grrm.algorithms.policy_losses import POLICY_LOSSES

    others = {name for name, rule in ADVANTAGE_RULES.items() if not rule.needs_critic}
    rules = sorted(others - {"grpo", "reinforce_plus_plus", "dr_grpo"})
    losses = sorted(set(POLICY_LOSSES) - {"token_clip", "gspo"}) or ["token_clip"]
    n = max(len(rules), len(losses))
    pairs = [pair for pair, _ in zip(zip(cycle(rules), cycle(losses), strict=False), range(n), strict=False)]
    policy = write_oracle_policy(world, tmp_path / "policy")
    chosen = {
        tmp_path / rule / loss: settings_of(world, policy, {**REGISTERED, "advantage_rule": rule, "policy_loss": loss})
        for rule, loss in pairs
    }
    jobs = [["run_rl", entry_command(world, output, YAML, **settings)[1:]] for output, settings in chosen.items()]
    done = subprocess.run(
        [sys.executable, "-m", "oracle.several_runs"],
        input=json.dumps(jobs), capture_output=True, text=True, env=environment(), timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    runs = {f"{output.parent.name}, {output.name}": Run(output, CONFIGS / YAML, chosen[output]) for output in chosen}
    for output, answer in zip(chosen, check(runs, record_property), strict=True):
        assert answer.seen["unscored"]
        assert answer.seen["kl in reward"]
        assert answer.seen.get("error spans", 0) > 0 or not ADVANTAGE_RULES[output.parent.name].needs_spans
