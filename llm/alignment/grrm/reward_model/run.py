"""Assembling the training of a reward model from its configuration; `run_reward.py` is a thin shell around `train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paddlenlp.trainer import TrainingArguments

from grrm.config import RewardModelConfig
from grrm.config.batch_plan import supervised_steps
from grrm.config.training_arguments import training_arguments
from grrm.data.dataset import held_out_split
from grrm.models.cpu_layers import use_cpu_layers
from grrm.models.hub import checkpoint_folder
from grrm.models.lora import check_same_adapters, with_adapters
from grrm.models.reward_models import save_reward_model, with_new_head
from grrm.models.tokenizer import load_tokenizer
from grrm.parallel.gloo import support_gloo
from grrm.parallel.lifeline import watch_peers
from grrm.reward_model.trainer import RewardModelTrainer
from grrm.startup import freeze_gc
from grrm.tracking.console import StepProgress
from grrm.tracking.metrics_log import MetricsLog
from grrm.training.checkpoints import (
    check_resumable,
    claim_output_dir,
    read_marker,
    resume_point,
    save_final,
    start_over,
    train_or_load,
)
from grrm.training.gold_groups import UNKNOWN_PAIR, GoldGroup, GroupEncoder, read_gold_groups
from grrm.training.model_setup import check_fit, load_part, weights_dtype
from grrm.training.trainer_log import quiet_paddlenlp


def train(config: RewardModelConfig) -> None:
    """Train the reward model that `config` describes, resuming at the last complete checkpoint in its `output_dir`.

    The trained model and its tokenizer are left in `output_dir` itself.
    """
    support_gloo()
    args = training_arguments(config)
    use_cpu_layers(args.precision)
    peers = watch_peers(args.world_size)
    claim_output_dir(args.output_dir, args.world_size)
    quiet_paddlenlp(args.output_dir, args.process_index == 0)
    tokenizer = load_tokenizer(config.tokenizer_name_or_path or config.model_name_or_path)
    groups, held_out = read_data(config, tokenizer)
    args.max_steps = supervised_steps(args, args.dataset_world_size, len(groups))
    checkpoint = resume_point(args)
    state = read_marker(checkpoint) if checkpoint else {"step": 0}
    done = state["step"]
    if checkpoint and done < args.max_steps:
        check_resumable(args, checkpoint, state)
    check_same_adapters(checkpoint, config)
    model = build_model(config, args)
    check_fit(tokenizer, model.backbone.config, config.max_length)
    if not all(group.is_pair for group in groups):  # a pair brings its own prompt
        model.trained_with = {"prompt_type": config.prompt_type, "chat_template": config.chat_template}
    pairs = sorted({group.language_pair for group in groups})
    if UNKNOWN_PAIR not in pairs:
        model.trained_with["language_pairs"] = pairs
    model = with_adapters(model, config, weights_dtype(args), config.seed, has_head=True)
    start_over(args, checkpoint)
    is_first = args.process_index == 0
    trainer = RewardModelTrainer(
        model=model,
        args=args,
        config=config,
        groups=groups,
        held_out=held_out,
        tokenizer=tokenizer,
        metrics_log=MetricsLog(Path(args.output_dir), done + 1) if is_first else None,
        progress=StepProgress(args.max_steps, initial=done, description=config.reward_model) if is_first else None,
    )
    freeze_gc()
    train_or_load(trainer, checkpoint, is_finished=done >= args.max_steps)
    if trainer.progress is not None:
        trainer.progress.close()
    save_final(trainer, args.output_dir, save_reward_model)
    peers.leave()


def read_data(config: RewardModelConfig, tokenizer: Any) -> tuple[list[GoldGroup], list[GoldGroup]]:
    """(training, held-out) groups; rows that cannot be used are left out and counted.

    Raises UserError for a file without any that can, and a split that leaves nothing to train on.
    """
    end = [int(tokenizer.eos_token_id)] if config.reward_model == "pairwise" else []
    directory = checkpoint_folder(config.tokenizer_name_or_path or config.model_name_or_path)
    encode = GroupEncoder(config, tokenizer, directory, end)
    groups = read_gold_groups(Path(config.train_datasets), encode, config).groups
    if config.eval_datasets:
        return groups, read_gold_groups(Path(config.eval_datasets), encode, config).groups
    if not config.val_size:
        return groups, []
    return held_out_split(groups, lambda group: tuple(group.candidates.prompt_ids), config.val_size, config.seed)


def build_model(config: RewardModelConfig, args: TrainingArguments) -> Any:
    """A new head on the model in `model_name_or_path`; with a learning rate of 0 that model is frozen.

    Tensor ranks divide the model among them and have a head each, all alike.
    """
    model = with_new_head(
        config.reward_model,
        load_part(config.model_name_or_path, args, dtype="float32"),
        compare=config.compare,
        blocks=config.blocks,
        width=config.width,
        seed=config.seed,
    )
    if weights_dtype(args) != "float32":
        cast_weights(model, weights_dtype(args))
    if config.backbone_learning_rate == 0:
        for parameter in model.backbone.parameters():
            parameter.stop_gradient = True
    return model


def cast_weights(model: Any, dtype: str) -> None:
    """Weights to `dtype`, while the tables of rotary positions stay as precise as they are."""
    layers = model.sublayers(include_self=True)
    tables = [
        (one, name, table.clone()) for one in layers for name, table in one.named_buffers(include_sublayers=False)
    ]
    model.to(dtype=dtype)
    for layer, name, table in tables:
        setattr(layer, name, table)
