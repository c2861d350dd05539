"""Steps of PaddleNLP's Trainer through the stages of a pipeline, with the loss of the stage of training."""

from __future__ import annotations

from abc import abstractmethod
from itertools import repeat
from typing import Any

import paddle
from paddle.distributed.fleet.meta_parallel.pp_utils.p2p_communication import P2pHelper

from grrm.models.pipeline_policy import ModelInputs
from grrm.models.policy import HiddenStates


class PipelineSteps:
    """Mixin over PaddleNLP's Trainer: `compute_loss` of a micro-batch is called where its last layer is.

    There it is passed a model that returns the hidden states that have arrived.
    """

    _waiting: tuple[Any, ...] = ()

    @abstractmethod
    def model_inputs(self, inputs: Any) -> ModelInputs:
        """The arguments of the policy's forward, of a micro-batch that is prepared for `compute_loss`."""

    def training_pipeline_step(self, model: Any, inputs: Any) -> paddle.Tensor:
        """The loss of an optimizer step at its last micro-batch, zero before. A collective of the stages."""
        trainer: Any = self
        self._waiting = (*self._waiting, trainer._prepare_inputs(inputs))
        n_micro_batches = trainer.args.gradient_accumulation_steps
        if len(self._waiting) < n_micro_batches:
            return paddle.zeros([])
        batches, self._waiting = self._waiting, ()

        def loss_of(number: int, hidden_NH: paddle.Tensor) -> paddle.Tensor:
            states = HiddenStates(hidden_NH, hidden_NH[:0])
            loss: paddle.Tensor = trainer.compute_loss(lambda **_: states, batches[number])
            return loss

        trainer.model.begin([self.model_inputs(batch) for batch in batches], loss_of)
        _set_up(model, n_micro_batches)
        # In place of its loader: each stage has the batches already.
        data = model._prepare_training(repeat((None, None)), trainer.optimizer, trainer.lr_scheduler)
        model.optimizer = model.lr_scheduler = None  # Trainer takes the step
        with trainer.autocast_smart_context_manager():
            loss = model.forward_backward_pipeline(data, None)
        return loss.detach().reshape([])


def _set_up(model: Any, n_micro_batches: int) -> None:
    """Let Paddle's pipeline run so many micro-batches.

    They may be of any shapes, as each is sent before its numbers; those of several pieces have the shape of the step.
    """
    has_pieces = model._layers.get_num_virtual_stages() > 1
    model.accumulate_steps = n_micro_batches
    model._init_user_hooks()
    model._p2p_helper = P2pHelper(use_cache=has_pieces, dynamic_shape=not has_pieces)
    model._dynamic_shape, model._using_cache = not has_pieces, has_pieces
