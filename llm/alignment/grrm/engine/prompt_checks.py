"""What every engine refuses before it generates anything."""

from __future__ import annotations

from collections.abc import Sequence

from grrm.engine.api import SamplingParams
from grrm.errors import UserError


def streams_of(prompts: Sequence[Sequence[int]], stream_ids: Sequence[int] | None) -> list[int]:
    """A stream id per prompt, by default 0, 1, 2, …; raises ValueError when they differ in number."""
    streams = list(range(len(prompts))) if stream_ids is None else [int(stream_id) for stream_id in stream_ids]
    if len(streams) != len(prompts):
        raise ValueError(f"{len(streams)} stream_ids for {len(prompts)} prompts")
    return streams


def check_prompts(
    prompts: Sequence[Sequence[int]], params: SamplingParams, max_prompt_tokens: int, vocab_size: int, limit: str
) -> None:
    """Raises UserError for a prompt that is empty or too long, and for a token id outside the vocabulary.

    `limit` says what `max_prompt_tokens` follows from, such as "model's max_position_embeddings of 64".
    """
    for index, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise UserError(f"Prompt {index} is empty: give it at least one token (a BOS or chat template).")
        if len(prompt) > max_prompt_tokens:
            raise UserError(
                f"Prompt {index} has {len(prompt)} tokens, which leaves no room in the {limit}: shorten or filter it."
            )
        if min(prompt) < 0 or max(prompt) >= vocab_size:
            raise UserError(
                f"Prompt {index} holds a token id outside the model's vocabulary of {vocab_size}: "
                "use the tokenizer that belongs to the model."
            )
    if any(not 0 <= stop < vocab_size for stop in params.stop_token_ids):
        raise UserError(
            f"Stop token ids {params.stop_token_ids} do not all lie in the model's vocabulary of {vocab_size}: "
            "use the tokenizer that belongs to the model."
        )
