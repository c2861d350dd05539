"""New words in a policy's vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle

from grrm.errors import UserError
from grrm.models.policy import policy_class

_NOISE = 0.2  # of `initializer_range`, which tells words apart that start alike


def with_words(policy: Any, vocab_size: int, like: Mapping[int, list[int]], seed: int) -> Any:
    """The policy with `vocab_size` words; a new word starts as the mean of the words that `like` names, and noise.

    Raises UserError for an output that is not the embeddings (`tie_word_embeddings`), and for fewer words than the
    policy has.
    """
    if not policy.config.tie_word_embeddings:
        raise UserError("only a model whose output is its embeddings can be given words (tie_word_embeddings)")
    if vocab_size < policy.config.vocab_size:
        raise UserError(
            f"the policy has {policy.config.vocab_size} words, more than the {vocab_size} of its new tokenizer: "
            "give one whose vocabulary is not padded"
        )
    config = policy.config.__class__(**{**policy.config.to_dict(), "vocab_size": vocab_size, "dtype": "float32"})
    paddle.seed(seed)
    model = policy_class(config.model_type)(config)
    old = {name: weights.numpy() for name, weights in policy.state_dict().items()}
    embeddings = f"{policy.base_model_prefix}.embed_tokens.weight"
    old_VH = old[embeddings]
    words_VH = np.zeros((vocab_size, old_VH.shape[1]), np.float32)
    words_VH[: len(old_VH)] = old_VH
    rng = np.random.default_rng(seed)
    for word, models in like.items():
        noise_H = rng.normal(size=old_VH.shape[1]) * config.initializer_range * _NOISE
        words_VH[word] = old_VH[models].mean(0) + noise_H
    for name, weights in model.state_dict().items():
        new = words_VH if name in (embeddings, "lm_head.weight") else old[name]
        weights.set_value(paddle.to_tensor(new))
    return model
