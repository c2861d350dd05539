"""Whether a policy has room for what a judge is to be."""

from __future__ import annotations

from typing import Any

from grrm.errors import UserError
from grrm.rl.growth.agreement import AGREEMENT_HEADS
from grrm.rl.growth.comparison import COMPARING_HEADS
from grrm.rl.growth.stream import Stream


def check_room(config: Any, stream: Stream) -> None:
    """Raises UserError for a policy of another kind, or with too few layers, heads, dimensions or units."""
    if not config.tie_word_embeddings:
        raise UserError("a judge cannot be grown from a model whose output is not its embeddings (tie_word_embeddings)")
    if config.model_type != "qwen2":
        raise UserError(f"a judge cannot be grown from a model of type {config.model_type!r}; give a qwen2")
    _check_heads(config, stream)
    if stream.rank > config.hidden_size or 2 * stream.rank > config.intermediate_size:
        raise UserError(
            f"a judge of rank {stream.rank} needs {stream.rank} dimensions and {2 * stream.rank} units in the "
            f"policy's MLP, which has {config.hidden_size} and {config.intermediate_size}: lower the rank"
        )
    if stream.n_marks + 2 > stream.head_size // 2:
        raise UserError(
            f"{stream.n_candidates} candidates do not fit into heads of {stream.head_size}: judge fewer at a time"
        )
    if stream.spelling:
        _check_spelling(config, stream)


def _check_heads(config: Any, stream: Stream) -> None:
    moved = [stream.rank + stream.n_marks, stream.rank + 3 * stream.n_marks + stream.spelling]
    moving = sum(_heads(stream, values) for values in moved)
    comparing = COMPARING_HEADS + (AGREEMENT_HEADS + _heads(stream, 2 * stream.spelling) if stream.spelling else 0)
    needed = max(moving, comparing, config.num_attention_heads + 1)
    if needed > stream.n_heads:
        raise UserError(
            f"a judge of rank {stream.rank} needs {needed} attention heads and has {stream.n_heads}: choose another "
            "rank"
        )


def _check_spelling(config: Any, stream: Stream) -> None:
    if config.num_hidden_layers < 2:
        raise UserError("a judge of groups cannot be grown from a policy of 1 layer: it needs 2 to see its candidates")
    dimensions = min(stream.policy - stream.rank, stream.head_size)
    units = config.intermediate_size - max(2 * stream.rank, stream.n_candidates + 2 * stream.spelling)
    if stream.spelling > min(dimensions, units // 2):
        raise UserError(
            f"there is room for codes of {max(0, min(dimensions, units // 2))} numbers for how a word is spelled, not "
            f"{stream.spelling}: give fewer, or lower the rank"
        )


def _heads(stream: Stream, values: int) -> int:
    return -(-values // stream.head_size)
