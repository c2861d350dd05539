"""Chooses prompts by the number of a rollout, samples batches, and passes groups to the judge, now or in parallel."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from grrm.config import RLConfig
from grrm.config.batch_plan import BatchPlan
from grrm.data.dataset import PromptItem
from grrm.errors import UserError
from grrm.judges.deadline import in_thread
from grrm.parallel.data_ranks import DataRanks, run_together
from grrm.rl.records import Rolled
from grrm.rl.reward_stage import Rewarder
from grrm.rl.reward_stream import RewardStream
from grrm.rl.rollout import PromptBatch, RolloutWorker
from grrm.rl.rollout_ahead import SavedSamples, are_of


def prompt_indices(
    n_items: int, rollout: int, n_prompts: int, *, seed: int, shuffle: bool = True, drop_last: bool = True
) -> list[int]:
    """The indices of the `n_prompts` prompts of a rollout, from 0, in an endless order over `n_items`, epoch by epoch.

    There is no state, so resuming needs the number of the rollout only, and the number of ranks plays no part (each
    rank takes its slice of the same list).

    With `drop_last` the rest of an epoch is skipped once no complete batch fits (a different rest each epoch when
    shuffled); `batch_plan` has refused fewer items than a batch. Without, the batch that crosses the end of an epoch is
    filled from the next one, so an item may then occur twice in that batch.
    """
    first = rollout * n_prompts
    if drop_last:
        epoch, batch = divmod(rollout, n_items // n_prompts)
        first = epoch * n_items + batch * n_prompts
    pairs = (divmod(position, n_items) for position in range(first, first + n_prompts))
    return [int(_permutation(n_items, seed, epoch)[offset]) if shuffle else offset for epoch, offset in pairs]


@lru_cache(maxsize=4)
def _permutation(n_items: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(n_items)


Result = TypeVar("Result")


@dataclass(slots=True)
class StartedBatch:
    """This process's groups of a generation batch, and the stream that rewards them.

    `sampling` returns the groups once they are sampled, immediately if the engine is in this process. `is_judged` says
    that they are sent to the judge as soon as they are complete, without waiting for them. `seconds` are those of
    starting, `waited_s` those in which this process only waited for the judge.
    """

    sampling: Future[list[Rolled]]
    rewards: RewardStream
    is_judged: bool
    seconds: float = 0.0
    waited_s: float = 0.0

    def settle(self) -> None:
        """Wait until engine and judge are idle; their exceptions are raised when the results are used."""
        wait([self.sampling])
        if self.is_judged:
            started = time.perf_counter()
            self.rewards.settle()
            self.waited_s += time.perf_counter() - started


@dataclass(slots=True)
class BatchSampler:
    """Starts generation batches of the plan's size; `restored` has a checkpoint's samples of the first one."""

    prompts: Sequence[PromptItem]
    worker: RolloutWorker
    rewarder: Rewarder
    plan: BatchPlan
    config: RLConfig
    ranks: DataRanks
    restored: dict[int, SavedSamples] = field(default_factory=dict)

    def start(self, generation: int, step: int, ahead: bool = False) -> StartedBatch:
        """Sample this process's share of batch `generation` with the weights of `step`, and hand it to the judge.

        With `ahead`, an engine in other processes samples while this one goes on. The groups then go to a server as
        they are complete, and to a judge in this process only when the caller puts them there. Raises
        CollectiveFailure, on every rank, if sampling fails.
        """
        started = time.perf_counter()
        items, batch = self._prompts_of(generation, step)
        is_remote = ahead and self.worker.engine.is_remote
        # A reward server works while this process samples, computes log-probs or trains; they share no mutable state.
        is_judged = self.config.use_rm_server or not is_remote
        with ExitStack() as on_failure:
            rewards = on_failure.enter_context(RewardStream(self.rewarder))
            on_group = (lambda rolled: rewards.put([rolled])) if is_judged and self.config.reward_streaming else None

            def sample(worker_call: Callable[..., list[Rolled]]) -> list[Rolled]:
                groups = worker_call(batch, on_group)
                if is_judged and on_group is None:
                    rewards.put(groups)
                return groups

            if saved := self._restored(items):
                own = [saved[position].completions for position in batch.positions]
                groups = [self.worker.group(batch, i, completions) for i, completions in enumerate(own)]
                sampling = done(groups)
                rewards.put(groups)
            elif is_remote:
                self.together(partial(self.worker.engine.update_weights, step))
                sampling = in_thread("rollout ahead", partial(sample, self.worker.sample))
            else:
                sampling = done(self.together(partial(sample, self.worker.roll_out)))
            on_failure.pop_all()
        return StartedBatch(sampling, rewards, is_judged, time.perf_counter() - started)

    def together(self, work: Callable[[], Result]) -> Result:
        """Sample on every rank, or fail on every rank: a diverged policy has non-finite logits."""
        return run_together("sampling", work, self.ranks.processes(), (FloatingPointError, UserError))

    def _prompts_of(self, generation: int, step: int) -> tuple[list[PromptItem], PromptBatch]:
        """The prompts of a batch, and those that this process samples and has judged: its share of its data rank's."""
        config, ranks, n_prompts = self.config, self.ranks, self.plan.prompts_generated_per_pass
        how = {"shuffle": config.dataloader_shuffle, "drop_last": config.dataloader_drop_last}
        indices = prompt_indices(len(self.prompts), generation, n_prompts, seed=config.rollout_seed, **how)
        items = [self.prompts[index] for index in indices]
        share = n_prompts // ranks.size
        first, end = (ranks.rank * share + share * (ranks.tensor_rank + i) // ranks.tensor_size for i in (0, 1))
        return items, PromptBatch(items[first:end], range(first, end), generation, step)

    def _restored(self, items: Sequence[PromptItem]) -> dict[int, SavedSamples]:
        """The samples of a batch restored from a checkpoint; nothing, on every rank, if there are none."""
        saved, self.restored = self.restored, {}
        return saved if are_of(saved, items, self.config.rollout_n) else {}


def done(groups: list[Rolled]) -> Future[list[Rolled]]:
    """Groups that are already available."""
    future: Future[list[Rolled]] = Future()
    future.set_result(groups)
    return future
