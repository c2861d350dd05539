"""Assembling a supervised run from its configuration; `run_sft.py` is a thin shell around `train`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paddle
from paddlenlp.trainer import TrainingArguments

from grrm.config import SFTConfig
from grrm.config.batch_plan import supervised_steps
from grrm.config.training_arguments import training_arguments
from grrm.data.dataset import SftDataset, SftItem, held_out_split
from grrm.errors import UserError
from grrm.models.checkpoint import share_rotary_tables
from grrm.models.cpu_layers import use_cpu_layers
from grrm.models.lora import check_same_adapters, with_adapters
from grrm.models.policy import freeze_layers, policy_class
from grrm.models.tokenizer import encoder, load_tokenizer
from grrm.models.whole_weights import part_of
from grrm.parallel.gloo import support_gloo
from grrm.parallel.lifeline import watch_peers
from grrm.parallel.tensor_ranks import TensorRanks
from grrm.sft.trainer import SftCollator, SftTrainer
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
from grrm.training.model_setup import check_divides, check_fit, load_part, weights_dtype
from grrm.training.trainer_log import quiet_paddlenlp


def train(config: SFTConfig) -> None:
    """Run the SFT stage that `config` describes, resuming at the last complete checkpoint in its `output_dir`.

    The trained model and its tokenizer are left in `output_dir` itself.
    """
    support_gloo()
    args = training_arguments(config)
    use_cpu_layers(args.precision)
    peers = watch_peers(args.world_size)
    claim_output_dir(args.output_dir, args.world_size)
    quiet_paddlenlp(args.output_dir, args.process_index == 0)
    tokenizer = load_tokenizer(config.tokenizer_name_or_path or config.model_name_or_path or "")
    dataset, held_out = read_data(config, tokenizer)
    checkpoint = resume_point(args)
    state = read_marker(checkpoint) if checkpoint else {"step": 0}
    done = state["step"]
    args.max_steps = supervised_steps(args, args.dataset_world_size, len(dataset))
    if checkpoint and done < args.max_steps:
        check_resumable(args, checkpoint, state)
    check_same_adapters(checkpoint, config)
    model = build_model(config, args, len(tokenizer))
    check_fit(tokenizer, model.config, config.max_length)
    freeze_layers(model, config.frozen_layers)
    if config.recompute:
        model.recompute_enable()
    model = with_adapters(model, config, weights_dtype(args), config.seed)
    start_over(args, checkpoint)
    is_first = args.process_index == 0
    trainer = SftTrainer(
        model=model,
        args=args,
        train_dataset=dataset,
        held_out=held_out,
        data_collator=SftCollator(tokenizer.pad_token_id, config.max_length if model.reads_ranges else 0),
        tokenizer=tokenizer,
        metrics_log=MetricsLog(Path(args.output_dir), done + 1) if is_first else None,
        progress=StepProgress(args.max_steps, initial=done, description="sft") if is_first else None,
    )
    freeze_gc()
    train_or_load(trainer, checkpoint, is_finished=done >= args.max_steps)
    if trainer.progress is not None:
        trainer.progress.close()
    save_final(trainer, args.output_dir)
    peers.leave()


def read_data(config: SFTConfig, tokenizer: Any) -> tuple[Sequence[SftItem], Sequence[SftItem]]:
    """(training, held-out) rows. Raises UserError as `SftDataset`, and for a split that leaves nothing to train on."""
    rows = read_rows(config, tokenizer, config.train_datasets)
    if config.eval_datasets:
        return rows, read_rows(config, tokenizer, config.eval_datasets)
    if not config.val_size:
        return rows, ()
    return held_out_split(rows, lambda item: item.prompt_text, config.val_size, config.seed)


def read_rows(config: SFTConfig, tokenizer: Any, path: str) -> SftDataset:
    """The rows of a file, tokenised; over-long ones are left out and counted."""
    return SftDataset(
        Path(path),
        encoder(tokenizer),
        tokenizer.eos_token_id,
        config.max_length,
        prompt_key=config.prompt_key,
        response_key=config.response_key,
    )


def build_model(config: SFTConfig, args: TrainingArguments, vocab_size: int) -> Any:
    """The checkpoint in `model_name_or_path`, or a fresh model of `init_from_config`, initialised from `seed`.

    Of either, this process's part where tensor ranks divide it.
    """
    if not config.init_from_config:
        return load_part(config.model_name_or_path or "", args)
    model = fresh_model(config.init_from_config, config.seed, vocab_size)
    ranks = TensorRanks.of(args)
    check_divides(config.init_from_config, model.config.to_dict(), ranks.size)
    return part_of(model, ranks.model_settings())


def fresh_model(config_path: str, seed: int, vocab_size: int) -> Any:
    """An untrained float32 model of the JSON file `config_path`, initialised from `seed`."""
    path = Path(config_path)
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"init_from_config '{path}' is not a readable JSON file ({error}): give a model config"
        ) from None
    if not isinstance(settings, dict):
        raise UserError(f"init_from_config '{path}' is not a JSON object: give a model config")
    paddle.seed(seed)
    cls = policy_class(settings.pop("model_type", ""))
    config = cls.config_class(**{**settings, "vocab_size": vocab_size, "dtype": "float32"})
    model = cls(config)
    share_rotary_tables(model)
    return model
