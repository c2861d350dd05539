"""What a run sets up before training: models that fit its rows, their dtype, its length, the policy's engine."""

from __future__ import annotations

import math
from typing import Any

from paddlenlp.trainer import TrainingArguments

from grrm.config.keys.rollout import RolloutConfig
from grrm.engine.paddle.engine import PaddleEngine
from grrm.errors import UserError
from grrm.models.policy import load_policy
from grrm.models.tokenizer import check_vocabulary


def check_fit(tokenizer: Any, config: Any, longest: int) -> None:
    """Raises UserError when the model has no row for a token, or no position for a row of `longest` tokens.

    Either would otherwise surface as an index error in the middle of a run, at the first row that gets there.
    """
    check_vocabulary(tokenizer, config.vocab_size)
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and longest > positions:
        raise UserError(
            f"rows may have {longest} tokens but the model has only {positions} positions (max_position_embeddings in "
            "its config.json): lower the length limits of the argument file"
        )


def build_engine(model: Any, rollout: RolloutConfig, precision: str) -> PaddleEngine:
    """The engine on the policy's own weights, in the `precision` of training or that of `rollout_quant_type`."""
    precision = "int8" if rollout.rollout_quant_type else precision
    return PaddleEngine(model, max_num_seqs=rollout.rollout_max_num_seqs, precision=precision)


def total_steps(args: TrainingArguments, n_examples: int) -> int:
    """`max_steps`, or the optimizer steps in `num_train_epochs`, counted as Trainer counts them.

    Raises UserError when that is not a single step.
    """
    if args.max_steps > 0:
        return int(args.max_steps)
    per_rank = math.ceil(n_examples / args.dataset_world_size)
    batches = per_rank / args.per_device_train_batch_size
    whole = math.floor(batches) if args.dataloader_drop_last else math.ceil(batches)
    steps = int(max(whole // args.gradient_accumulation_steps, 1) * args.num_train_epochs) if whole else 0
    if steps < 1:
        raise UserError(
            f"{n_examples} examples for {args.num_train_epochs:g} epochs are not one optimizer step: add data, lower "
            "per_device_train_batch_size or set max_steps"
        )
    return steps


def weights_dtype(args: TrainingArguments) -> str:
    """The type the weights are loaded in: bfloat16 on a GPU with `bf16` at level O2, else float32."""
    return "bfloat16" if args.bf16 and args.fp16_opt_level == "O2" else "float32"


def load_reference(directory: str, dtype: str) -> Any:
    """A frozen copy of the starting policy."""
    reference = load_policy(directory, dtype=dtype)
    reference.eval()
    for parameter in reference.parameters():
        parameter.stop_gradient = True
    return reference
