"""Putting a judge together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from grrm.errors import UserError
from grrm.models.policy import policy_class
from grrm.rl.growth.agreement import gather_codes, judge_agreement, square_codes
from grrm.rl.growth.calibration import NORMS, Calibration
from grrm.rl.growth.comparison import compare_candidates, expect_words, show_all
from grrm.rl.growth.layer import Layer, layer_of
from grrm.rl.growth.policy_part import mark_what_has_begun, wide_words, widen_layer
from grrm.rl.growth.room import check_room
from grrm.rl.growth.spelling import Agreement, spelling_codes
from grrm.rl.growth.stream import JudgeTokens, Stream
from grrm.rl.growth.verdict import verdict_head

COMPARING_LAYERS = 2  # new layers that are written, not learned
_QUIET = 0.2  # of the first weights by which learned layers write to the stream


def grow_judge(
    policy: Any,
    tokens: JudgeTokens,
    prompts: Sequence[Sequence[int]],
    *,
    rank: int = 144,
    texts: Sequence[str] | None = None,
    spelling: int = 48,
    free_layers: int = 1,
    seed: int = 0,
) -> Any:
    """A judge with the policy's layers below, `COMPARING_LAYERS` that compare, and `free_layers` to learn on top.

    Its stream is wider than the policy's (`Stream`), its output is not its embeddings, and every head has keys of its
    own. `prompts`, as token ids, are what scales are measured on; `rank` is how exactly words are compared with
    what was expected. With `texts`, what every word of the vocabulary says ("" for none), it is a judge of groups: it
    measures candidates from their mean, and by how far they agree, on codes of `spelling` numbers a word. Raises
    UserError for a policy with an output of its own, or with too few heads or units for what is to be written.
    """
    config = policy.config
    if free_layers < 1:
        raise UserError(f"free_layers is {free_layers}; a judge needs at least 1 to learn with")
    if texts is not None and len(texts) != config.vocab_size:
        raise UserError(f"the policy has {config.vocab_size} words, but there are texts of {len(texts)}")
    head_size = config.hidden_size // config.num_attention_heads
    stream = Stream(config.hidden_size, rank, len(tokens.opens), head_size, spelling if texts is not None else 0)
    check_room(config, stream)
    calibration = Calibration.measure(policy, prompts, tokens, rank)
    agreement = None
    codes_VS = np.zeros((config.vocab_size, 0), np.float32)
    if texts is not None:
        agreement = Agreement.measure(spelling_codes(texts, spelling, seed), calibration.words, prompts, tokens)
        codes_VS = agreement.codes_VS
    judge = _fresh(config, stream, free_layers, seed)
    old = {name: weights.numpy() for name, weights in policy.state_dict().items()}
    base = policy.base_model_prefix
    words_VS, longer, scale = wide_words(old[f"{base}.embed_tokens.weight"], stream, tokens, calibration, codes_VS)
    writer = _Writer(config, stream, calibration, agreement, old[f"{base}.norm.weight"], longer, scale)
    final_norm = np.ones(stream.size, np.float32)
    writer.show_all(final_norm)
    written = {
        f"{base}.embed_tokens.weight": words_VS,
        f"{base}.norm.weight": final_norm,
        "lm_head.weight": verdict_head(len(words_VS), stream, tokens, agreement, calibration.logit_spread, seed),
    }
    new = judge.state_dict()
    for number in range(judge.config.num_hidden_layers):
        prefix = f"{base}.layers.{number}."
        layer = layer_of(new, prefix, head_size, config.rope_theta)
        writer.write(
            layer, number, {name.removeprefix(prefix): w for name, w in old.items() if name.startswith(prefix)}
        )
        written |= {prefix + name: value for name, value in layer.named().items()}
    for name, weights in new.items():
        weights.set_value(paddle.to_tensor(written[name]))
    return judge


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the layers of a judge, all but the learned ones' weights."""

    config: Any
    stream: Stream
    calibration: Calibration
    agreement: Agreement | None
    last_norm_H: np.ndarray
    longer: float
    written_scale: float

    def write(self, layer: Layer, number: int, of_policy: dict[str, np.ndarray]) -> None:
        """Layer `number`, which is the policy's where that has one."""
        n_old = self.config.num_hidden_layers
        if number < n_old:
            self._widen(layer, number, of_policy)
            return
        for name in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
            layer[name] = layer[name] * _QUIET
        if number == n_old:
            expect_words(layer, self.stream, self.calibration, self.last_norm_H, self.written_scale)
            if self.agreement:
                square_codes(layer, self.stream, self.agreement, 2 * self.stream.rank)
            return
        for norm in NORMS:
            self.show_all(layer[f"{norm}.weight"])
        if number == n_old + 1:
            compare_candidates(layer, self.stream)
            if self.agreement:
                judge_agreement(layer, self.stream, self.agreement, self.calibration, self.stream.n_candidates - 1)

    def show_all(self, norm: np.ndarray) -> None:
        show_all(norm, self.stream, self.calibration, self.last_norm_H)

    def _widen(self, layer: Layer, number: int, of_policy: dict[str, np.ndarray]) -> None:
        head = self.config.num_attention_heads
        widen_layer(layer, number, of_policy, self.stream, self.calibration, self.longer)
        if number == 0:
            mark_what_has_begun(layer, self.stream, head, self.calibration, self.longer)
        if self.agreement and number == self.config.num_hidden_layers - 1:
            gather_codes(layer, self.stream, head, self.calibration, number, self.longer)


def _fresh(config: Any, stream: Stream, free_layers: int, seed: int) -> Any:
    sizes = {
        "hidden_size": stream.size,
        "num_attention_heads": stream.n_heads,
        "num_key_value_heads": stream.n_heads,
        "num_hidden_layers": config.num_hidden_layers + COMPARING_LAYERS + free_layers,
        "tie_word_embeddings": False,
        "dtype": "float32",
    }
    paddle.seed(seed)
    return policy_class(config.model_type)(config.__class__(**{**config.to_dict(), **sizes}))
