"""Runs without a model: rolled groups judged by chrF, and the dump and metrics that a trainer leaves of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from support.rl_processes import CONFIGS
from support.rolled import TASK, rolled_group

from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.algorithms.advantages.moments import RunningMoments
from grrm.config import RLConfig
from grrm.config.checks import Launch
from grrm.config.load import prepare
from grrm.gqm.groups import Candidate, Group
from grrm.judges.interface import Judge
from grrm.judges.text_metric import TextMetricJudge
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rl.dumped_records import aborted_records, group_records
from grrm.rl.experience import group_advantages
from grrm.rl.experience_maker import Experience
from grrm.rl.records import Judged, ModelOutputs, Rolled
from grrm.rl.reward_stage import Rewarder, RewardStage, RuleRewardStage, reward, shaping_config
from grrm.rl.span_credit import SpanCredit
from grrm.tracking.metrics_log import MetricsLog
from grrm.tracking.rollout_dump import ROLLOUTS, RolloutDump


def config_of(**settings: str) -> RLConfig:
    values = {"actor_model_name_or_path": "org/policy", "train_datasets": "rl.jsonl", "output_dir": "out", **settings}
    overrides = [text for key, value in values.items() for text in (f"--{key}", value)]
    launch, path = Launch(), CONFIGS / "grpo_grrm_tiny_argument.yaml"
    return prepare(RLConfig, path, overrides, launch, check_machine=False).config


def a_group(position: int, name: str) -> Rolled:
    """Three samples, the first of them right, the second nearly."""
    samples = enumerate([("two", 3), ("twos", 5), ("one", 2)])
    candidates = tuple(Candidate(str(i), text, text, length) for i, (text, length) in samples)
    return rolled_group(position, [3, 5, 2], group=Group(name, TASK, candidates))


def write_run(
    folder: Path,
    config: RLConfig,
    steps: int = 3,
    file_format: str = "jsonl",
    judge: Judge | None = None,
    credit: SpanCredit | None = None,
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
        stage = RewardStage(judge or TextMetricJudge(), shaping, policy, credit)
    draw = np.random.default_rng(3)
    for step in range(1, steps + 1):
        groups = [
            replace(scored, outputs=outputs(config, draw))
            for scored in reward(stage, [a_group(p, f"{step}-{p}") for p in range(3)])
        ]
        _, advantages_RT = group_advantages(groups, config, moments)
        made = Experience([], [], groups, advantages_RT, {}, 1)
        dump.write(step, group_records(made, step, bool(config.kl_coeff)))
        metrics.log(step, {"reward_mean": 0.1 * step, "loss": 1.0 / step, "status/unparsable_candidate": 0.1 / step})
    aborted = Judged(rolled_group(0, [3], name="aborted"))
    dump.write(steps + 1, aborted_records([], [(aborted, None)], steps + 1))
    return folder


def outputs(config: RLConfig, draw: np.random.Generator) -> ModelOutputs:
    """Random log-probs and values, as far as the algorithm needs them."""

    def numbers() -> list[np.ndarray]:
        return [draw.normal(size=n).astype(np.float32) for n in (3, 5, 2)]

    logprobs = (numbers(), numbers()) if config.kl_coeff else (None, None)
    return ModelOutputs(*logprobs, numbers() if ADVANTAGE_RULES[config.advantage_rule].needs_critic else None)
