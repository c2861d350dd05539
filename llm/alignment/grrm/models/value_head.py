"""Reward models: what they share; the pairwise one, a value head on each response's last token; and critics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import paddle
import paddle.nn.functional as F
from numpy.typing import NDArray
from paddle import nn

from grrm.models.packing import PackedTokens, pack_rows
from grrm.models.trained_with import TrainedWith

PACK_TOKENS = 4096  # a group of more has its prompt twice; without kernels the attention mask is this squared
ROW_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class CandidateGroup:
    """Token ids of one group: its prompt, the chat template applied, and each candidate's translation.

    A pairwise model expects the end-of-sequence token behind each translation.
    """

    prompt_ids: list[int]
    responses: list[list[int]]


class RewardModel(nn.Layer, ABC):
    """A policy without its last step and a head above it, which gives each candidate of a group one number.

    `backbone` is a policy of `grrm.models.policy`, `head` holds all new weights. `trained_with` names what its prompts
    were made with, so that whoever asks it can make them alike, and the language pairs that it was trained on, where
    all are known; it is stored with the model.
    """

    kind: ClassVar[str]
    head: nn.Layer

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone
        self.trained_with = TrainedWith()

    @property
    def config(self) -> Any:
        """The backbone's."""
        return self.backbone.config

    def settings(self) -> dict[str, Any]:
        """Keyword arguments that build the head, beside the backbone's config."""
        return {}

    @abstractmethod
    def collate(self, groups: Sequence[CandidateGroup]) -> dict[str, Any]:
        """Groups as keyword arguments of `forward`. Raises ValueError for an empty prompt or response."""

    @abstractmethod
    def forward(self, **batch: Any) -> paddle.Tensor:
        """Scores [R] float32, one of each candidate, group after group; differentiable."""

    def hidden_states(self, batch: dict[str, Any], positions_N: paddle.Tensor) -> paddle.Tensor:
        """The backbone's last hidden states [N, H] at flat positions of a batch."""
        inputs = {key: batch[key] for key in ("input_ids", "position_ids", "attention_ranges_3BT")}
        return self.backbone(**inputs, positions_N=positions_N).hidden_NH


def pack_groups(groups: Sequence[CandidateGroup]) -> tuple[PackedTokens, NDArray[np.int64]]:
    """Packed rows with every token of every candidate, copies of a group once; and each candidate's number in them [R].

    Raises ValueError for an empty prompt or response.
    """
    prompts: list[list[int]] = []
    responses: list[tuple[int, ...]] = []
    numbers_R: list[int] = []
    for number, group in enumerate(groups):
        if not (group.prompt_ids and group.responses and all(group.responses)):
            raise ValueError(f"group {number} has an empty prompt, no candidates or an empty one")
        distinct = list(dict.fromkeys(map(tuple, group.responses)))
        numbers_R += [len(responses) + distinct.index(tuple(response)) for response in group.responses]
        prompts += [group.prompt_ids] * len(distinct)
        responses += distinct
    packed = pack_rows(prompts, responses, 0, PACK_TOKENS, ROW_TOKENS, keep_last=True)
    return packed, np.asarray(numbers_R, dtype=np.int64)


def score_float32(layer: nn.Linear, x_RH: paddle.Tensor) -> paddle.Tensor:
    """Return the one output of `layer` for each row [R], in float32 even where weights are bfloat16.

    Rounded to the 8 bits of bfloat16, scores of different candidates would tie.
    """
    with paddle.amp.auto_cast(enable=False):
        weight, bias = (parameter.astype("float32") for parameter in (layer.weight, layer.bias))
        return F.linear(x_RH.astype("float32"), weight, bias).squeeze(-1)


class PairwiseModel(RewardModel):
    """score = w · h_last + b, on the last token, which is the end of the sequence.

    The reward model of InstructGPT (arXiv:2203.02155) as LLaMA-Factory trains it, less TRL's dropout before the head.
    """

    kind = "pairwise"

    def __init__(self, backbone: Any, seed: int = 0) -> None:
        super().__init__(backbone)
        width = backbone.config.hidden_size
        self.head = nn.Linear(width, 1)
        self.head.bias.stop_gradient = True  # it cancels in every difference, so its gradient is rounding error
        weight = np.random.default_rng(seed).normal(0.0, width**-0.5, (width, 1))
        self.head.weight.set_value(weight.astype(np.float32))
        self.head.bias.set_value(np.zeros(1, dtype=np.float32))
        if not backbone.config.tie_word_embeddings:
            backbone.lm_head.weight.stop_gradient = True  # kept for the checkpoint, used by nothing

    def collate(self, groups: Sequence[CandidateGroup]) -> dict[str, Any]:
        """Packed rows, and where the last token of each response is."""
        tokens, numbers_R = pack_groups(groups)
        assert tokens.own_positions_N is not None
        last_R = (np.cumsum(tokens.lengths_R) - 1)[numbers_R]
        return {**tokens.model_inputs(), "positions_R": tokens.own_positions_N[paddle.to_tensor(last_R)]}

    def forward(self, **batch: Any) -> paddle.Tensor:
        """Scores [R] float32."""
        return score_float32(self.head, self.hidden_states(batch, batch["positions_R"]))


class TokenValueModel(PairwiseModel):
    """V_t = w · h_t + b of the state before every response token: the critic of PPO (arXiv:1707.06347).

    Backbone and head are those of a pairwise model, so either starts from the other's folder. The head is zero at
    first.
    """

    def __init__(self, backbone: Any) -> None:
        super().__init__(backbone)
        self.head.weight.set_value(paddle.zeros_like(self.head.weight))
        self.head.bias.stop_gradient = False

    def forward(self, **tokens: Any) -> paddle.Tensor:
        """Values [N] float32 at the positions that predict the response tokens; takes `PackedTokens.model_inputs()`."""
        return score_float32(self.head, self.backbone(**tokens).hidden_NH)
