"""Set-up of a run before training: models that fit its rows, their dtype, its length, the policy's engine."""

from __future__ import annotations

import json
from typing import Any

from grrm.config.keys.rollout import RolloutConfig
from grrm.config.model_shape import check_divides
from grrm.engine.paddle.engine import PaddleEngine
from grrm.engine.paddle.policy_engines import DividedEngine, MergedEngine, ReshardedEngine
from grrm.errors import UserError
from grrm.models.checkpoint import check_policy, read_config
from grrm.models.gathered_weights import is_divided, part_of
from grrm.models.hub import checkpoint_folder
from grrm.models.lora import has_adapters
from grrm.models.pipeline_policy import stage_of
from grrm.models.policy import load_policy
from grrm.models.tokenizer import check_vocabulary
from grrm.paddlenlp_api.training import TrainingArguments
from grrm.parallel.tensor_ranks import TensorRanks

_SAME = 0.9  # of the tokens, at least, under two tokenizers of one family


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


def check_same_tokens(tokenizer: Any, directory: str) -> None:
    """Raises UserError where most tokens of `tokenizer` are others in the tokenizer.json beside the model `directory`.

    A model without one is not checked, nor one whose vocabulary cannot be read, as it need not be.
    """
    try:
        stored = json.loads((checkpoint_folder(directory) / "tokenizer.json").read_text(encoding="utf-8"))
        learned = dict(stored["model"]["vocab"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    vocabulary = tokenizer.get_vocab()
    n_same = sum(learned.get(token) == number for token, number in vocabulary.items())
    if n_same < _SAME * len(vocabulary):
        raise UserError(
            f"the model in '{directory}' learned other tokens: {n_same} of the {len(vocabulary)} that it would read "
            "have the same ids in its tokenizer.json; give a model and a tokenizer that belong together"
        )


def build_engine(model: Any, rollout: RolloutConfig, precision: str) -> PaddleEngine:
    """The engine on the policy's weights, in the `precision` of training or that of `rollout_quant_type`."""
    precision = "int8" if rollout.rollout_quant_type else precision
    return _engine_class(model, rollout)(
        model,
        max_num_seqs=rollout.rollout_max_num_seqs,
        max_cache_bytes=None,
        memory_fraction=rollout.rollout_memory_fraction,
        precision=precision,
    )


def _engine_class(model: Any, rollout: RolloutConfig) -> type[PaddleEngine]:
    if has_adapters(model):
        return MergedEngine
    if not is_divided(model):
        return PaddleEngine
    return DividedEngine if rollout.rollout_tensor_parallel_degree > 1 else ReshardedEngine


def weights_dtype(args: TrainingArguments) -> str:
    """The type the weights are loaded in: at level O2 on a GPU that of `bf16` or `fp16`, else float32.

    Trainer would cast them too, but an engine that was built on them before keeps tables of the earlier type.
    """
    if args.fp16_opt_level != "O2" or not (args.bf16 or args.fp16):
        return "float32"
    return "bfloat16" if args.bf16 else "float16"


def load_part(directory: str, args: TrainingArguments, dtype: str | None = None, *, gets_head: bool = False) -> Any:
    """The policy in `directory`, or this process's part of it where tensor ranks or stages divide it.

    Its type is `dtype`, by default that of `weights_dtype`. Raises UserError for a model whose layers do not divide
    among them, for a reward model unless this one `gets_head` too, and as `load_policy`.
    """
    ranks, folder = TensorRanks.of(args), checkpoint_folder(directory)
    check_divides(directory, read_config(folder) if gets_head else check_policy(folder), ranks.size)
    dtype = dtype or weights_dtype(args)
    if args.pipeline_parallel_degree > 1:
        # PaddleNLP's pipelines do not load Hugging Face's files.
        return divide(load_policy(directory, dtype=dtype, **args.layer_settings), args)
    return load_policy(directory, dtype=dtype, **args.layer_settings, **ranks.model_settings())


def divide(model: Any, args: TrainingArguments) -> Any:
    """This process's part of a whole policy where tensor ranks or stages divide it. A collective of the stages."""
    settings = TensorRanks.of(args).model_settings()
    if args.pipeline_parallel_degree <= 1:
        return part_of(model, settings)
    for name, value in settings.items():
        setattr(model.config, name, value)
    return stage_of(model, args.stage_keys["virtual_pp_degree"])


def load_reference(directory: str, args: TrainingArguments) -> Any:
    """A frozen copy of the starting policy."""
    reference = load_part(directory, args)
    reference.eval()
    for parameter in reference.parameters():
        parameter.stop_gradient = True
    return reference
