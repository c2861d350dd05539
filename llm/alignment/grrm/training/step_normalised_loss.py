"""A loss of the whole optimizer step, however its batch is divided into micro-batches and among ranks.

PaddleNLP's Trainer takes the mean over the micro-batches of a step and over the data ranks. If each micro-batch's loss
were a mean too, a token in a micro-batch of few would weigh more than one in a micro-batch of many. So the denominators
are counted over the step beforehand: the loader reads its micro-batches ahead, and the ranks exchange their counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import paddle
from paddle.io import DataLoader, DistributedBatchSampler

from grrm.parallel.data_ranks import DataRanks

Counts = Mapping[str, float]
OF_STEP = "micro_batches_of_step"


def total_counts(parts: Iterable[Counts]) -> dict[str, float]:
    """The sums of counts by name."""
    total: dict[str, float] = {}
    for part in parts:
        for name, number in part.items():
            total[name] = total.get(name, 0.0) + number
    return total


class StepDataLoader(DataLoader):
    """Micro-batches, each with all those of its optimizer step on this rank, which are read ahead.

    Micro-batches at the end of an epoch that do not fill a step are left out: Trainer would add their gradients to the
    first step of the next epoch, and a resumed run would miss them.
    """

    def __init__(self, *args: Any, micro_batches: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._micro_batches = micro_batches

    def __iter__(self) -> Iterator[dict[str, Any]]:
        step: list[dict[str, Any]] = []
        for inputs in super().__iter__():
            step.append(inputs)
            if len(step) == self._micro_batches():
                yield from ({**inputs, OF_STEP: step} for inputs in step)
                step = []


class StepNormalisedLoss(ABC):
    """Mixin over PaddleNLP's Trainer: the loss of a step is the sum of its micro-batches' shares over all ranks.

    A stage defines `count`, `outputs` and `loss_share`. Rows are in a new order in each epoch unless `shuffle` is off.
    """

    shuffle: bool
    _denominators: Counts

    @abstractmethod
    def count(self, inputs: Mapping[str, Any]) -> Counts:
        """Counts for the denominators of the loss, by name, of a micro-batch as the collator made it."""

    @abstractmethod
    def outputs(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        """The arguments of the loss, computed with the automatic casts of mixed precision."""

    @abstractmethod
    def loss_share(self, outputs: Any, inputs: Mapping[str, Any], denominators: Counts) -> paddle.Tensor:
        """A micro-batch's numerators over the denominators of the whole step, a scalar, without automatic casts."""

    def get_train_dataloader(self) -> StepDataLoader:
        """The loader of the training rows."""
        trainer: Any = self
        args = trainer.args
        batches = SeededBatches(
            trainer.train_dataset,
            batch_size=args.per_device_train_batch_size,
            shuffle=self.shuffle,
            num_replicas=args.dataset_world_size,
            rank=args.dataset_rank,
            drop_last=args.dataloader_drop_last,
            seed=args.seed,
        )
        return StepDataLoader(
            trainer.train_dataset,
            batch_sampler=batches,
            collate_fn=trainer.data_collator,
            micro_batches=lambda: int(args.gradient_accumulation_steps),
        )

    def training_step(self, model: Any, inputs: dict[str, Any], step_control: int = 0) -> Any:
        """As Trainer's; the first micro-batch of a step exchanges the counts of the data ranks. A collective."""
        trainer: Any = self
        step = inputs.pop(OF_STEP)
        if step_control == 0:
            counts = total_counts(map(self.count, step))
            self._denominators = total_counts(DataRanks.of(trainer.args).gather(counts))
        return super().training_step(model, inputs, step_control)  # type: ignore[misc]  # Trainer's

    def compute_loss(self, model: Any, inputs: dict[str, Any]) -> paddle.Tensor:
        """The share of this micro-batch, times the numbers that Trainer's means divide by."""
        trainer: Any = self
        outputs, n_parts = self.outputs(model, inputs), trainer.args.gradient_accumulation_steps
        with paddle.amp.auto_cast(enable=False):
            share = self.loss_share(outputs, inputs, self._denominators)
            return share * (n_parts * DataRanks.of(trainer.args).size)


class SeededBatches(DistributedBatchSampler):
    """Batches in an order of `seed` and epoch, where n ranks with batches of b see what one with n * b sees."""

    def __init__(self, *args: Any, seed: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seed = seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Go to the order of an epoch, from 0."""
        super().set_epoch((self._seed + epoch) % 2**32)  # NumPy takes no other
