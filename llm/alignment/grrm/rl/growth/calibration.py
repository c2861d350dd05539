"""What has to be measured on a policy before a judge can be grown from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from grrm.errors import UserError
from grrm.rl.growth.stream import JudgeTokens, candidate_places

NORMS = ("input_layernorm", "post_attention_layernorm")
_FLOOR = 1e-6  # of the largest variance: directions below it are noise


@dataclass(frozen=True, slots=True)
class Calibration:
    """Mean squares of a policy's stream on typical prompts, and how its outputs and words are best shortened.

    `squares[layer, norm]` is the mean square that a norm of a layer reads, `last_square` that of the final one;
    `state_square` is how long a shortened state is, squared. The logit of a word is the final hidden state times its
    embedding, about (state @ `of_states`) * (embedding @ `of_words`) summed over the rank: the best product of that
    rank for the states and the `words` that occur. Its mean over a candidate has the standard deviation `logit_spread`
    within a group, 0 where there are only single candidates.
    """

    squares: dict[tuple[int, str], float]
    last_square: float
    state_square: float
    of_states: np.ndarray
    of_words: np.ndarray
    words: np.ndarray
    logit_spread: float

    @classmethod
    def measure(cls, policy: Any, prompts: Sequence[Sequence[int]], tokens: JudgeTokens, rank: int) -> Calibration:
        """Run the prompts through the policy, one by one. What counts is what stands between the tokens of `tokens`.

        Raises UserError when that is nothing.
        """
        sums: dict[Any, list[float]] = defaultdict(list)
        base = getattr(policy, policy.base_model_prefix)

        def watch(module: Any, key: Any) -> Any:
            return module.register_forward_pre_hook(lambda _, inputs: sums[key].append(float((inputs[0] ** 2).mean())))

        hooks = [watch(base.norm, "last")]
        hooks += [
            watch(getattr(layer, norm), (number, norm)) for number, layer in enumerate(base.layers) for norm in NORMS
        ]
        states: list[np.ndarray] = []
        followed: list[np.ndarray] = []
        with paddle.no_grad():
            for prompt in prompts:
                followed.append(np.asarray(prompt[1:]))
                states.append(base(paddle.to_tensor([prompt]))[0].numpy()[0][:-1])
        for hook in hooks:
            hook.remove()
        squares = {key: float(np.mean(values)) for key, values in sums.items()}
        is_text = ~np.isin(np.concatenate(followed or [np.zeros(0, int)]), [tokens.begin, *tokens.opens, tokens.end])
        if not is_text.any():
            raise UserError("there is no text in the prompts to measure a judge's scales on; give rows with some")
        words, counts = np.unique(np.concatenate(followed)[is_text], return_counts=True)
        embeddings = policy.state_dict()[f"{policy.base_model_prefix}.embed_tokens.weight"].numpy()
        weighted_VH = embeddings[words] * np.sqrt(counts)[:, None]
        states_NH = np.concatenate(states)[is_text]
        of_states, of_words = shorten(states_NH, weighted_VH, rank)
        state_square = float(((states_NH @ of_states) ** 2).sum(1).mean())
        spreads = [
            _spread(prompt, (state_TH * embeddings[prompt[1:]]).sum(-1), tokens)
            for prompt, state_TH in zip(prompts, states, strict=True)
        ]
        logit_spread = float(np.mean([spread for spread in spreads if spread] or [0.0]))
        return cls(squares, squares.pop("last"), state_square, of_states, of_words, words, logit_spread)


def _spread(prompt: Sequence[int], logits_T: np.ndarray, tokens: JudgeTokens) -> float:
    """Standard deviation over a prompt's candidates of the mean logit of the words, given from the second token on."""
    means = [logits_T[place.start - 1 : place.stop - 1].mean() for place in candidate_places(prompt, tokens)]
    return float(np.std(means)) if means else 0.0


def shorten(states_NH: np.ndarray, words_VH: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Two [H, rank] matrices whose products with states and words have the products of these, as nearly as can be.

    With C the states' second moment, the singular value decomposition of words C^(1/2) gives the best approximation
    over the states (Eckart and Young). Turned so that states keep their length as far as they can: a final norm makes
    them all alike, and what is next to them in the stream stays as large beside them whatever they say.
    """
    moment = states_NH.T @ states_NH / len(states_NH)
    values, vectors = np.linalg.eigh(moment)
    values = np.maximum(values, values.max() * _FLOOR)
    root, inverse = (vectors * values**0.5) @ vectors.T, (vectors / values**0.5) @ vectors.T
    whitened_VH = words_VH @ root
    _, directions = np.linalg.eigh(whitened_VH.T @ whitened_VH)  # the right singular vectors, smallest first
    best = directions[:, ::-1][:, :rank]
    basis, triangle = np.linalg.qr(inverse @ best)
    return basis, root @ best @ triangle.T
