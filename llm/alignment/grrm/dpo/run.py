"""Assembling preference optimization from its configuration; `run_dpo.py` is a thin shell around `train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grrm.config.batch_plan import supervised_steps
from grrm.config.dpo_config import DPOConfig
from grrm.config.training_arguments import training_arguments
from grrm.data.dataset import held_out_split
from grrm.dpo.trainer import PairTrainer
from grrm.models.cpu_layers import use_cpu_layers
from grrm.models.hub import checkpoint_folder
from grrm.models.lora import check_same_adapters, with_adapters
from grrm.models.policy import freeze_layers
from grrm.models.tokenizer import load_tokenizer
from grrm.parallel.gloo import support_gloo
from grrm.parallel.lifeline import watch_peers
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
from grrm.training.gold_groups import GoldGroup, PairEncoder, read_pairs
from grrm.training.model_setup import check_fit, load_part, load_reference, weights_dtype
from grrm.training.trainer_log import quiet_paddlenlp


def train(config: DPOConfig) -> None:
    """Optimize the policy that `config` names on its pairs, resuming at the last complete checkpoint in `output_dir`.

    The trained policy and its tokenizer are left in `output_dir` itself.
    """
    support_gloo()
    args = training_arguments(config)
    use_cpu_layers(args.precision)
    peers = watch_peers(args.world_size)
    claim_output_dir(args.output_dir, args.world_size)
    quiet_paddlenlp(args.output_dir, args.process_index == 0)
    tokenizer = load_tokenizer(config.tokenizer_name_or_path or config.model_name_or_path)
    pairs, held_out = read_data(config, tokenizer)
    args.max_steps = supervised_steps(args, args.dataset_world_size, len(pairs))
    checkpoint = resume_point(args)
    state = read_marker(checkpoint) if checkpoint else {"step": 0}
    done = state["step"]
    if checkpoint and done < args.max_steps:
        check_resumable(args, checkpoint, state)
    check_same_adapters(checkpoint, config)
    model = load_part(config.model_name_or_path, args)
    check_fit(tokenizer, model.config, config.max_length)
    freeze_layers(model, config.frozen_layers)
    if config.recompute:
        model.recompute_enable()
    model = with_adapters(model, config, weights_dtype(args), config.seed)
    start_over(args, checkpoint)
    is_first = args.process_index == 0
    trainer = PairTrainer(
        model=model,
        ref_model=load_reference(config.model_name_or_path, args),
        args=args,
        config=config,
        pairs=pairs,
        held_out=held_out,
        tokenizer=tokenizer,
        metrics_log=MetricsLog(Path(args.output_dir), done + 1) if is_first else None,
        progress=StepProgress(args.max_steps, initial=done, description="dpo") if is_first else None,
    )
    freeze_gc()
    train_or_load(trainer, checkpoint, is_finished=done >= args.max_steps)
    if trainer.progress is not None:
        trainer.progress.close()
    save_final(trainer, args.output_dir)
    peers.leave()


def read_data(config: DPOConfig, tokenizer: Any) -> tuple[list[GoldGroup], list[GoldGroup]]:
    """(training, held-out) pairs; rows that cannot be used are left out and counted.

    Raises UserError for a file without any that can, and a split that leaves nothing to train on.
    """
    directory = checkpoint_folder(config.tokenizer_name_or_path or config.model_name_or_path)
    encode = PairEncoder(config, tokenizer, directory, [int(tokenizer.eos_token_id)])
    pairs = read_pairs(Path(config.train_datasets), encode).groups
    if config.eval_datasets:
        return pairs, read_pairs(Path(config.eval_datasets), encode).groups
    if not config.val_size:
        return pairs, []
    return held_out_split(pairs, lambda pair: tuple(pair.candidates.prompt_ids), config.val_size, config.seed)
