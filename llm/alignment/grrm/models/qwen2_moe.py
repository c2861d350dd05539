"""Qwen2's mixture of experts (arXiv:2407.10671, section 2.2.2): PaddleNLP's Qwen2 with another feed-forward layer.

A router sends each token to its K most probable experts, and one shared expert sees all tokens. PaddleNLP 3.0.0b4 has
the model, but its experts do not run. Parameters have transformers' names, below `qwen2.`.
"""

from __future__ import annotations

import copy
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn

from grrm.errors import UserError
from grrm.paddlenlp_api.modeling import Qwen2Config, Qwen2ForCausalLM, StateDictNameMapping, qwen2

_DEFAULTS = {
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
    "norm_topk_prob": False,
}
_NETWORK = ("gate_proj", "up_proj", "down_proj")


class Qwen2MoeConfig(Qwen2Config):
    """Qwen2's settings, and number and sizes of experts.

    Raises UserError for settings that such models could have and none has.
    """

    model_type = "qwen2_moe"

    def __init__(self, decoder_sparse_step: int = 1, mlp_only_layers: Any = None, **settings: Any) -> None:
        super().__init__(**(_DEFAULTS | settings))
        problems = {
            "decoder_sparse_step is not 1": decoder_sparse_step != 1,
            "mlp_only_layers is not empty": bool(mlp_only_layers),
            "fuse_attention_ffn is true": self.fuse_attention_ffn,
            "num_experts_per_tok exceeds num_experts": self.num_experts_per_tok > self.num_experts,
        }
        for problem, is_there in problems.items():
            if is_there:
                raise UserError(f"{problem}, which no mixture of experts is built for here: change it in config.json")


class Experts(nn.Layer):
    """The feed-forward layer: every token goes to the shared expert and to K others, none is left out."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.n_chosen, self.is_normalised = config.num_experts_per_tok, config.norm_topk_prob
        self.gate = nn.Linear(config.hidden_size, config.num_experts, bias_attr=False)
        sizes = [config.moe_intermediate_size] * config.num_experts
        self.experts = nn.LayerList([_network(config, size) for size in sizes])
        self.shared_expert = _network(config, config.shared_expert_intermediate_size)
        self.shared_expert_gate = nn.Linear(config.hidden_size, 1, bias_attr=False)

    def forward(self, hidden: paddle.Tensor) -> paddle.Tensor:
        """The output for hidden states [.., H]."""
        tokens_NH, k = hidden.reshape([-1, hidden.shape[-1]]), self.n_chosen
        shares_NK, chosen_NK = paddle.topk(F.softmax(self.gate(tokens_NH).astype("float32"), axis=-1), k)
        if self.is_normalised:
            shares_NK = shares_NK / shares_NK.sum(-1, keepdim=True)
        expert_of = chosen_NK.reshape([-1])
        order = expert_of.argsort(stable=True)  # each token K times, in the order of experts
        counts = paddle.bincount(expert_of, minlength=len(self.experts)).tolist()
        sent = paddle.gather(tokens_NH.unsqueeze(1).expand([-1, k, -1]).reshape([-1, tokens_NH.shape[-1]]), order)
        done, idle, begin = list[paddle.Tensor](), list[paddle.Tensor](), 0
        for expert, count in zip(self.experts, counts, strict=True):
            if count:
                done.append(expert(sent[begin : begin + count]))
            else:
                idle += expert.parameters()
            begin += count
        back_NKH = paddle.gather(paddle.concat(done), order.argsort()).reshape([-1, k, tokens_NH.shape[-1]])
        mixed_NH = paddle.matmul(shares_NK.astype(hidden.dtype).unsqueeze(1), back_NKH).squeeze(1)
        shared_NH = F.sigmoid(self.shared_expert_gate(tokens_NH)) * self.shared_expert(tokens_NH)
        if idle and paddle.is_grad_enabled():  # a gradient of zeros: data ranks wait for that of every parameter
            shared_NH = shared_NH + 0 * paddle.add_n([weight.sum() for weight in idle])
        return (mixed_NH + shared_NH).reshape(hidden.shape)


class Qwen2MoeForCausalLM(Qwen2ForCausalLM):
    """PaddleNLP's Qwen2 with experts."""

    config_class = Qwen2MoeConfig

    def __init__(self, config: Qwen2MoeConfig) -> None:
        super().__init__(config)
        for layer in self.qwen2.layers:
            layer.mlp = Experts(config)

    @classmethod
    def _get_name_mappings(cls, config: Qwen2MoeConfig) -> list[Any]:
        """Qwen2's parameters by transformers' names, with those of experts in the place of its feed-forward layer's."""
        mappings = [m for m in super()._get_name_mappings(config) if ".mlp." not in m.source_name]
        networks = [*(f"experts.{number}" for number in range(config.num_experts)), "shared_expert"]
        matrices = ["gate", "shared_expert_gate", *(f"{network}.{name}" for network in networks for name in _NETWORK)]
        for layer in range(config.num_hidden_layers):
            for matrix in matrices:
                name = f"layers.{layer}.mlp.{matrix}.weight"
                names = f"model.{name}", f"qwen2.{name}", "transpose"
                mappings.append(StateDictNameMapping(*names, index=len(mappings)))
        return mappings


def _network(config: Any, inner: int) -> nn.Layer:
    of_expert = copy.copy(config)
    of_expert.intermediate_size = inner
    return qwen2.Qwen2MLP(of_expert)
