"""Builds the critic of a run from its configuration."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.config import RLConfig
from grrm.config.batch_plan import BatchPlan
from grrm.models.reward_models import fill_value_head
from grrm.models.value_head import TokenValueModel
from grrm.paddlenlp_api.training import TrainingArguments
from grrm.parallel.data_ranks import DataRanks
from grrm.rl.critic.trainer import CriticTrainer
from grrm.training.model_setup import check_fit, load_part, weights_dtype


def build_critic(
    config: RLConfig,
    args: TrainingArguments,
    plan: BatchPlan,
    ranks: DataRanks,
    tokenizer: Any,
    checkpoint: Path | None,
) -> CriticTrainer | None:
    """The critic, ready to go on at the run's `checkpoint`; None where the advantage rule needs none.

    Its backbone is its own. Its value head is that of its folder, if there is one, else zero. Raises UserError as
    `load_part`, `fill_value_head`, `check_fit` and `CriticTrainer.open`.
    """
    if not ADVANTAGE_RULES[config.advantage_rule].needs_critic:
        return None
    args = critic_arguments(config, args)
    directory = config.critic_model_name_or_path or config.actor_model_name_or_path
    model = TokenValueModel(load_part(directory, args))
    fill_value_head(model, directory)
    model.head.to(dtype=weights_dtype(args))
    check_fit(tokenizer, model.config, config.max_prompt_len + config.max_dec_len)
    if args.recompute:
        model.backbone.recompute_enable()
    critic = CriticTrainer(model=model, args=args, config=config, plan=plan, ranks=ranks, tokenizer=tokenizer)
    critic.open(args.max_steps, checkpoint)
    return critic


def critic_arguments(config: RLConfig, args: TrainingArguments) -> TrainingArguments:
    """The policy's `args` with the critic's optimizer and schedule; each rank saves its own part of the critic.

    The policy's trainer logs, evaluates and says when to save.
    """
    args = copy.copy(args)
    args.learning_rate = config.critic_learning_rate
    args.weight_decay = config.critic_weight_decay
    args.lr_scheduler_type = type(args.lr_scheduler_type)(config.critic_lr_scheduler_type)
    args.warmup_ratio, args.warmup_steps = config.critic_warmup_ratio, 0
    args.recompute = config.critic_recompute
    args.layer_settings = {**args.layer_settings, "recompute_granularity": config.critic_recompute_granularity}
    args.unified_checkpoint = args.save_sharded_model = args.load_sharded_model = False
    args.unified_checkpoint_config = []
    args.report_to = []
    args.load_best_model_at_end, args.metric_for_best_model = False, None
    return args
