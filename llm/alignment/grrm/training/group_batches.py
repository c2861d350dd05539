"""Batches of groups in a seeded order, laid out when they are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.io import DistributedBatchSampler

from grrm.paddlenlp_api.training import TrainingArguments
from grrm.training.gold_groups import GoldGroup


class SeededBatches(DistributedBatchSampler):
    """Batches in an order of `seed` and epoch, where n ranks with batches of b see what one with n * b sees."""

    def __init__(self, *args: Any, seed: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seed = seed
        self.set_epoch(0)

    @classmethod
    def of(cls, args: TrainingArguments, rows: Sequence[int], shuffle: bool) -> SeededBatches:
        """Those of a training run on this rank."""
        return cls(
            rows,
            batch_size=args.per_device_train_batch_size,
            shuffle=shuffle,
            num_replicas=args.dataset_world_size,
            rank=args.dataset_rank,
            drop_last=args.dataloader_drop_last,
            seed=args.seed,
        )

    def set_epoch(self, epoch: int) -> None:
        """Go to the order of an epoch, from 0."""
        super().set_epoch(self._seed + epoch)


class GroupNumbers(Sequence[int]):
    """The data set as PaddleNLP's loader sees it: rows are their own numbers.

    A batch is laid out when it is trained on, so that passing over those of an interrupted run costs nothing.
    """

    def __init__(self, groups: Sequence[GoldGroup]) -> None:
        self.groups = groups

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: Any) -> Any:
        return range(len(self.groups))[index]
