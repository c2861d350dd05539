"""Loading what a run needs: tokenizer, policy, reference, and the engine that samples from the policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from grrm.data.converters.sft_expected import WordPlaces
from grrm.engine.paddle.engine import PaddleEngine
from grrm.errors import UserError
from grrm.models import tokenizer as model_tokenizer
from grrm.models.policy import load_policy


def load_tokenizer(directory: str) -> Any:
    """The checkpoint's tokenizer, with the pad and eos tokens that rollouts need. Raises UserError without them."""
    tokenizer = model_tokenizer.load_tokenizer(Path(directory))
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def check_fit(tokenizer: Any, config: Any, longest: int) -> None:
    """Raises UserError when the model has no row for a token, or no position for row of `longest` tokens.

    Either would otherwise surface as an index error in the middle of a run, at the first row that gets there.
    """
    if len(tokenizer) > config.vocab_size:
        raise UserError(
            f"the tokenizer has {len(tokenizer)} tokens but the model only {config.vocab_size} (vocab_size in its "
            "config.json): use the tokenizer the model was trained with"
        )
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and longest > positions:
        raise UserError(
            f"rows may have {longest} tokens but the model has only {positions} positions (max_position_embeddings in "
            "its config.json): lower the length limits of the argument file"
        )


def encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    """Text to ids without special tokens added: prompts are rendered from the chat template already."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:  # the wrapper around it takes a third of the time
        # What the wrapper does at each call: a stored file may ask for cutting and padding.
        backend.no_truncation()
        backend.no_padding()
        return lambda text: list(backend.encode(text, add_special_tokens=False).ids)
    return lambda text: list(tokenizer(text, add_special_tokens=False, return_attention_mask=False)["input_ids"])


def word_places(directory: str | Path) -> WordPlaces:
    """The tokenizer of a model folder for `convert_sft_expected`. Raises UserError for one that cannot be used."""
    tokenizer = load_tokenizer(str(directory))
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError(f"the tokenizer in '{directory}' cannot tell where its tokens end; use a fast one")
    return WordPlaces(
        encoder(tokenizer),
        lambda text: [end for _, end in backend.encode(text, add_special_tokens=False).offsets],
        int(tokenizer.eos_token_id),
    )


def response_decoder(tokenizer: Any) -> Callable[[Sequence[int]], str]:
    """Ids to the response's text, special tokens left out."""
    return lambda ids: tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)


def stop_tokens(tokenizer: Any, eos_token: str) -> tuple[int, ...]:
    """The ids that end a response: the tokenizer's eos and the argument file's `eos_token`."""
    ids = {int(tokenizer.eos_token_id)}
    if eos_token:
        extra = tokenizer.convert_tokens_to_ids(eos_token)
        if extra is None or extra == tokenizer.unk_token_id:
            raise UserError(f"eos_token {eos_token!r} is not a token of this tokenizer: correct it or remove the key")
        ids.add(int(extra))
    return tuple(sorted(ids))


def build_engine(model: Any, args: Any) -> PaddleEngine:
    """The engine on the policy's own weights, in the precision of training or that of `rollout_quant_type`."""
    precision = "int8" if args.rollout_quant_type else args.precision
    return PaddleEngine(model, max_num_seqs=args.rollout_max_num_seqs, precision=precision)


def weights_dtype(args: Any) -> str:
    """The type the weights are loaded in: bfloat16 on a GPU with `bf16` at level O2, else float32."""
    return "bfloat16" if args.bf16 and args.fp16_opt_level == "O2" else "float32"


def load_reference(directory: str, dtype: str) -> Any:
    """A frozen copy of the starting policy."""
    reference = load_policy(directory, dtype=dtype)
    reference.eval()
    for parameter in reference.parameters():
        parameter.stop_gradient = True
    return reference
