"""Runs without a model: rolled groups judged by chrF, and the dump and metrics that a trainer leaves of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from support.rl_processes import CONFIGS
from support.rolled import rolled_group

from grrm.algorithms.advantages import ADVANTAGE_RULES, RunningMoments, batch_advantages, normalized_rewards
from grrm.config import RLConfig
from grrm.config.checks import Launch
from grrm.config.load import prepare
from grrm.judges.interface import Judge
from grrm.judges.text_metric import TextMetricJudge
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rl.experience import advantage_inputs
from grrm.rl.experience_maker import Experience
from grrm.rl.records import aborted_records, group_records
from grrm.rl.reward_stage import Rewarder, RewardStage, RuleRewardStage, shaping_config
from grrm.rl.rollout import RolledGroup
from grrm.tracking.metrics_log import MetricsLog
from grrm.tracking.rollout_dump import ROLLOUTS, RolloutDump

NORMALISED = {
    "rl_algorithm": "reinforce_plus_plus",
    "norm_adv_by_std": "null",
    "kl_loss_coeff": "0",
    "normalize_reward": "true",
    "normalize_advantage": "true",
}


def config_of(**settings: str) -> RLConfig:
    values = {"actor_model_name_or_path": "org/policy", "train_datasets": "rl.jsonl", "output_dir": "out", **settings}
    overrides = [text for key, value in values.items() for text in (f"--{key}", value)]
    launch, path = Launch("cpu"), CONFIGS / "grpo_grrm_tiny_argument.yaml"
    return prepare(RLConfig, path, overrides, launch, check_machine=False, check_on_device=False).config


def a_group(position: int, name: str) -> RolledGroup:
    """Three samples, the first of them right, the second nearly."""
    rolled = rolled_group(position, [3, 5, 2], name=name)
    texts = ("two", "twos", "one")
    candidates = [
        replace(one, response=text, translation=text) for one, text in zip(rolled.group.candidates, texts, strict=True)
    ]
    rolled.group = replace(rolled.group, candidates=tuple(candidates))
    return rolled


def write_run(
    folder: Path, config: RLConfig, steps: int = 3, file_format: str = "jsonl", judge: Judge | None = None
) -> Path:
    """A run of a few steps without a model, its groups judged by chrF or `judge`; the last one was aborted."""
    dump = RolloutDump(folder / ROLLOUTS, file_format, first_step=1)
    dump.write_arguments(config.model_dump(mode="json"))
    metrics = MetricsLog(folder, first_step=1)
    moments = RunningMoments() if config.normalize_reward else None
    shaping, policy = shaping_config(config), FailurePolicy.from_mapping(config.failure_policy)
    if config.use_rule_reward:
        stage: Rewarder = RuleRewardStage(config.rule_reward, shaping, policy)
    else:
        stage = RewardStage(judge or TextMetricJudge(), shaping, policy)
    draw = np.random.default_rng(3)
    for step in range(1, steps + 1):
        groups = [a_group(p, f"{step}-{p}") for p in range(3)]
        for rolled in groups:
            if config.kl_coeff:
                rolled.policy_logprobs = [draw.normal(size=n).astype(np.float32) for n in (3, 5, 2)]
                rolled.ref_logprobs = [draw.normal(size=n).astype(np.float32) for n in (3, 5, 2)]
            if ADVANTAGE_RULES[config.advantage_rule].needs_critic:
                rolled.values = [draw.normal(size=n).astype(np.float32) for n in (3, 5, 2)]
        stage.reward(groups)
        inputs = advantage_inputs(
            groups,
            kl_coeff=config.kl_coeff,
            gamma=1.0,
            clip_range_score=config.clip_range_score,
            gae_lambda=config.gae_lambda,
        )
        rule = ADVANTAGE_RULES[config.advantage_rule]
        inputs = normalized_rewards(inputs, moments)
        advantages_RT = batch_advantages(inputs, rule, config.normalize_advantage)
        made = Experience([], [], groups, advantages_RT, {}, 1)
        dump.write(step, group_records(made, step, bool(config.kl_coeff)))
        metrics.log(step, {"reward_mean": 0.1 * step, "loss": 1.0 / step, "status/unparsable_candidate": 0.1 / step})
    dump.write(steps + 1, aborted_records([rolled_group(0, [3], name="aborted")], steps + 1))
    return folder
