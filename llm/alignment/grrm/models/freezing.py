"""Training the upper part of a model only."""

from __future__ import annotations

from typing import Any

from grrm.errors import UserError


def freeze_layers(model: Any, n_layers: int) -> None:
    """Keep the input embeddings and the lowest `n_layers` layers as they are; 0 freezes nothing.

    Where `tie_word_embeddings` is set, the output is frozen with the embeddings. Raises UserError when no layer would
    be left to train.
    """
    if not n_layers:
        return
    total = model.config.num_hidden_layers
    if n_layers >= total:
        raise UserError(f"frozen_layers is {n_layers}, but the model has {total} layers: leave at least one to train")
    base = getattr(model, model.base_model_prefix)
    for part in (base.embed_tokens, *base.layers[:n_layers]):
        for parameter in part.parameters():
            parameter.stop_gradient = True
