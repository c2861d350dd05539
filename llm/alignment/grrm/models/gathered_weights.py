"""Gathering a model that is sharded over ranks: to save it, and to generate with it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paddle

from grrm.models.checkpoint import share_rotary_tables
from grrm.models.pipeline_policy import empty_model, is_stage
from grrm.models.policy import policy_class
from grrm.parallel.pipeline_ranks import from_stage, stages_with
from grrm.parallel.tensor_ranks import gathered_parameter, own_part

Weights = dict[str, paddle.Tensor]


def gathered_weights(model: Any) -> Weights | None:
    """Every parameter of `model` by name, whole, in the host's memory; None where this process has all of them.

    A collective of the tensor ranks.
    """
    if model.config.tensor_parallel_degree <= 1:
        return None
    named = model.state_dict()
    gathered = {id(part): gathered_parameter(part).cpu() for part in named.values()}  # one, where two names share it
    return {name: gathered[id(part)] for name, part in named.items()}


def save_policy(model: Any, directory: str | Path, weights: Weights | None = None) -> None:
    """Write a policy as safetensors; `weights` are its `gathered_weights`."""
    options = {} if weights is None else {"state_dict": weights, "config_to_save": undivided_config(model.config)}
    model.save_pretrained(str(directory), safe_serialization=True, **options)


def part_of(model: Any, settings: Mapping[str, Any]) -> Any:
    """This process's part of a whole `model`; `settings` are those of its config that tell tensor ranks apart.

    The model itself where there are none.
    """
    if not settings:
        return model
    config = copy.deepcopy(model.config)
    for name, value in settings.items():
        setattr(config, name, value)
    parameters = dict(model.named_parameters())
    part = empty_model(type(model), config, parameters)
    share_rotary_tables(model, part)
    for name, parameter in part.named_parameters():
        parameter.set_value(own_part(parameters[name], parameter))
    return part


def undivided_config(config: Any) -> Any:
    """A copy of a model's config for one process that has all of it."""
    undivided = copy.deepcopy(config)
    undivided.tensor_parallel_degree, undivided.tensor_parallel_rank = 1, 0
    undivided.tensor_parallel_output, undivided.sequence_parallel = True, False
    return undivided


def is_divided(policy: Any) -> bool:
    """True where this process has a part of a policy only."""
    return is_stage(policy) or policy.config.tensor_parallel_degree > 1


class GatheredCopy:
    """The whole of a policy that ranks divide among them, as `model`, with the weights of the last `fill`.

    Weights that every rank has are shared with the policy; the others take memory from `fill` to `clear`. Making one is
    a collective of the stages, where there are some.
    """

    def __init__(self, policy: Any) -> None:
        parts = policy.state_dict() if is_stage(policy) else dict(policy.named_parameters())
        self.model = empty_model(policy_class(policy.config.model_type), undivided_config(policy.config), parts)
        share_rotary_tables(*([] if is_stage(policy) else [policy]), self.model)
        self.model.eval()
        stages = stages_with(parts) if is_stage(policy) else {}
        self._weights = [
            (target, list(target.shape), parts.get(name), stages.get(name))
            for name, target in self.model.named_parameters()
        ]

    def fill(self) -> None:
        """Take over the policy's weights as they are now. A collective of the ranks that divide them."""
        for target, shape, part, stage in self._weights:
            # In a variable, because get_tensor() does not keep its tensor alive.
            weights = None if part is None else gathered_parameter(part)
            if stage is not None:
                weights = from_stage(stage, weights, shape, target.dtype)
            assert weights is not None
            target.get_tensor()._share_data_with(weights.get_tensor())

    def clear(self) -> None:
        """Let go of the weights, until the next `fill`."""
        for target, *_ in self._weights:
            target._clear_data()


def joined_stages(model: Any) -> Any:
    """The whole policy of a stage, a collective of all of them; any other model as it is."""
    if not is_stage(model):
        return model
    copy_of_all = GatheredCopy(model)
    copy_of_all.fill()
    return copy_of_all.model
