"""Assembling preference optimization from its configuration; `run_dpo.py` is a thin shell around `train`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grrm.config.stage_config import DPOConfig
from grrm.dpo.trainer import PairTrainer
from grrm.models.hub import checkpoint_folder
from grrm.models.tokenizer import response_decoder
from grrm.training.gold_groups import GoldGroup, PairEncoder, read_pairs
from grrm.training.model_setup import check_fit, load_part, load_reference
from grrm.training.supervised_run import SupervisedRun, prepare_policy, read_split


def train(config: DPOConfig) -> None:
    """Optimize the policy that `config` names on its pairs, resuming at the last complete checkpoint in `output_dir`.

    The trained policy and its tokenizer are left in `output_dir` itself.
    """
    run = SupervisedRun(config)
    pairs, held_out = read_data(config, run.tokenizer)
    if not run.resume("dpo", len(pairs)):
        return
    model = load_part(config.model_name_or_path, run.args)
    check_fit(run.tokenizer, model.config, config.max_length)
    prepare_policy(model, config)
    trainer = PairTrainer(
        model=run.trainable(model),
        ref_model=load_reference(config.model_name_or_path, run.args),
        config=config,
        pairs=pairs,
        held_out=held_out,
        **run.trainer_arguments("dpo"),
    )
    decode = response_decoder(run.tokenizer, skip_special_tokens=False)
    prompts = ((decode(pair.candidates.prompt_ids), pair.is_chat) for pair in pairs)
    trainer.trained_with = run.trained_with(prompts)
    run.train(trainer)


def read_data(config: DPOConfig, tokenizer: Any) -> tuple[Sequence[GoldGroup], Sequence[GoldGroup]]:
    """(training, held-out) pairs; rows that cannot be used are left out and counted.

    Raises UserError for a file without any that can, and a split that leaves nothing to train on.
    """
    directory = checkpoint_folder(config.tokenizer_name_or_path or config.model_name_or_path)
    encode = PairEncoder(config, tokenizer, directory, [int(tokenizer.eos_token_id)])
    return read_split(
        config, lambda path: read_pairs(Path(path), encode), lambda pair: tuple(pair.candidates.prompt_ids)
    )
