"""One rollout from prompts to training rows, in the order that keeps groups whole: sample, judge, gather, compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from grrm.config import RLConfig
from grrm.config.batch_plan import BatchPlan
from grrm.data.dataset import PromptItem
from grrm.data.prompt_sampler import PromptSampler
from grrm.errors import UserError
from grrm.parallel.collective import run_together
from grrm.parallel.data_ranks import DataRanks, assign_groups
from grrm.rewards.client import RewardServerError
from grrm.rewards.failure_policy import FailureBudget, RewardFailure, count_statuses
from grrm.rewards.group_filter import informative_groups
from grrm.rewards.shaping import ShapedRewards
from grrm.rl.advantages.interface import AdvantageInputs, FloatArray
from grrm.rl.advantages.moments import RunningMoments, normalize_advantages
from grrm.rl.experience import Row, advantage_inputs, pad_right, training_rows
from grrm.rl.losses.aggregation import Denominators, count_denominators
from grrm.rl.reward_stage import Rewarder
from grrm.rl.reward_stream import RewardStream
from grrm.rl.rollout import RolledGroup, RolloutWorker, check_complete
from grrm.tracking.rollout_dump import group_record

Result = TypeVar("Result")


@dataclass(slots=True)
class Experience:
    """One rollout, ready to train on.

    `micro_batches[u][m]` are this rank's rows for micro-batch m of update u; `denominators[u]` are the counts over all
    ranks that make the micro-batch losses of update u add up to the loss of the whole mini-batch. `groups` and
    `advantages_RT` cover the global batch, equal on every rank. `seconds` holds the time per phase on this rank:
    "judge" lasts until every rank has its verdicts, "logprob" passes within it. `judged` has the rewards of every
    group that was generated for it, with those that dynamic sampling left out.
    """

    micro_batches: list[list[list[Row]]]
    denominators: list[Denominators]
    groups: list[RolledGroup]
    advantages_RT: FloatArray
    seconds: dict[str, float]
    generations: int
    judged: list[ShapedRewards] = field(default_factory=list)


@dataclass(slots=True)
class ExperienceMaker:
    """Produces `Experience`s; `generation` counts generation batches drawn so far and is all the state there is."""

    prompts: Sequence[PromptItem]
    worker: RolloutWorker
    rewarder: Rewarder
    advantage_rule: Callable[[AdvantageInputs], FloatArray]
    score_tokens: Callable[[Sequence[RolledGroup]], None]
    plan: BatchPlan
    config: RLConfig
    ranks: DataRanks
    budget: FailureBudget
    moments: RunningMoments | None = None
    normalize_advantage: bool = False
    generation: int = 0
    _seconds: dict[str, float] = field(default_factory=dict)
    _judged: list[ShapedRewards] = field(default_factory=list)

    def make(self) -> Experience:
        """Draw, judge and compare the next rollout. Raises RewardFailure on every rank together."""
        self._seconds, self._judged = {}, []
        first = self.generation
        groups = self._informative() if self.config.dynamic_sampling else self._generate(self.plan.prompts_per_rollout)
        inputs = advantage_inputs(
            groups,
            kl_coeff=self.config.kl_coeff,
            gamma=self.config.gamma,
            clip_range_score=self.config.clip_range_score,
        )
        advantages_RT = self._advantages(inputs)
        rows = training_rows(groups, advantages_RT)
        micro_batches, denominators = self._schedule(groups, rows)
        return Experience(
            micro_batches, denominators, groups, advantages_RT, self._seconds, self.generation - first, self._judged
        )

    def _advantages(self, inputs: AdvantageInputs) -> FloatArray:
        """The rule, between PaddleNLP's optional normalisations of rewards (running) and advantages (batch)."""
        if self.moments is not None:
            self.moments.update(inputs.rewards_R)
            inputs = replace(inputs, rewards_R=self.moments.normalize(inputs.rewards_R))
        advantages_RT = self.advantage_rule(inputs)
        return normalize_advantages(advantages_RT, inputs.valid_RT) if self.normalize_advantage else advantages_RT

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep beside the model, as JSON."""
        moments = None if self.moments is None else self.moments.state_dict()
        return {"generation": self.generation, "failures": self.budget.spent, "moments": moments}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.generation, self.budget.spent = state["generation"], state["failures"]
        if self.moments is not None and state["moments"] is not None:
            self.moments.load_state_dict(state["moments"])

    def _generate(self, n_prompts: int) -> list[RolledGroup]:
        """One generation batch: all of its groups, judged, in canonical order, on every rank."""
        sampler = PromptSampler(len(self.prompts), drop_last=self.config.dataloader_drop_last)
        indices = sampler.batch_for(
            self.generation, n_prompts, self.config.rollout_seed, self.config.dataloader_shuffle
        )
        share = n_prompts // self.ranks.size
        positions = list(range(self.ranks.rank * share, (self.ranks.rank + 1) * share))
        items = [self.prompts[indices[position]] for position in positions]
        expected = (RewardServerError, RewardFailure, UserError)
        # A reward server works while this process samples or scores tokens; neither reads what the other writes.
        with RewardStream(self.rewarder) as rewards:
            streamed = (lambda rolled: rewards.put([rolled])) if self.config.reward_streaming else None
            groups = self._timed("rollout", lambda: self._roll_out(items, positions, streamed))
            started = time.perf_counter()
            if streamed is None:
                rewards.put(groups)
            self._timed("logprob", lambda: self.score_tokens(groups))
            run_together("judging", rewards.wait, self.ranks, expected, RewardFailure)
            self._seconds["judge"] = self._seconds.get("judge", 0.0) + time.perf_counter() - started
        gathered = self._timed("gather", lambda: self.ranks.gather(groups))
        self.generation += 1
        ordered = check_complete([rolled for part in gathered for rolled in part], n_prompts, self.config.rollout_n)
        self._judged += [rolled.shaped for rolled in ordered if rolled.shaped is not None]
        self.budget.charge(count_statuses([rolled.verdict for rolled in ordered if rolled.verdict is not None]))
        return ordered

    def _roll_out(
        self, items: list[PromptItem], positions: list[int], on_group: Callable[[RolledGroup], None] | None
    ) -> list[RolledGroup]:
        """Sample on every rank, or fail on every rank: a diverged policy has logits that are no numbers."""
        return run_together(
            "sampling",
            lambda: self.worker.roll_out(items, positions, self.generation, on_group),
            self.ranks,
            (FloatingPointError, UserError),
        )

    def _informative(self) -> list[RolledGroup]:
        """Dynamic sampling: generate until enough groups carry a signal (DAPO, arXiv 2503.14476, section 3.2)."""
        kept: list[RolledGroup] = []
        for _ in range(self.config.max_gen_batches):
            batch = self._generate(self.plan.prompts_generated_per_pass)
            shaped = [rolled.shaped for rolled in batch if rolled.shaped is not None]
            kept += [batch[i] for i in informative_groups(shaped, self.config.rollout_n)]
            if len(kept) >= self.plan.prompts_per_rollout:
                return kept[: self.plan.prompts_per_rollout]
        raise RewardFailure(
            f"only {len(kept)} of {self.plan.prompts_per_rollout} groups carried a signal after "
            f"{self.config.max_gen_batches} generation batches: raise max_gen_batches or global_gen_batch_size, or "
            "use prompts on which the samples differ"
        )

    def _schedule(
        self, groups: Sequence[RolledGroup], rows: Sequence[Sequence[Row]]
    ) -> tuple[list[list[list[Row]]], list[Denominators]]:
        """Cut the global batch into mini-batches, each mini-batch into ranks' shares, each share into micro-batches.

        Mini-batches are cut before ranks are assigned, so an update sees the same groups with any number of ranks.
        """
        size, micro = self.plan.prompts_per_update, self.plan.micro_batch_rows
        updates: list[list[list[Row]]] = []
        denominators: list[Denominators] = []
        for start in range(0, len(groups), size):
            members = range(start, start + size)
            work = [groups[i].n_tokens for i in members]
            mine = assign_groups(work, self.ranks.size, self.config.balance_batch)[self.ranks.rank]
            # Groups of similar length share a micro-batch: less padding, same sums. A group's rows stay neighbours.
            mine.sort(key=lambda i: work[i])
            share = [row for i in mine for row in rows[start + i]]
            updates.append([share[i : i + micro] for i in range(0, len(share), micro)])
            denominators.append(self._denominators([row for i in members for row in rows[i]]))
        repeats = self.plan.updates_per_rollout // len(updates)
        return updates * repeats, denominators * repeats

    def _denominators(self, rows: Sequence[Row]) -> Denominators:
        width = max(len(row.token_ids) for row in rows)
        return count_denominators(
            pad_right([row.mask_T for row in rows], width),
            pad_right([row.advantages_T for row in rows], width),
            width=self.config.max_dec_len,
        )

    def _timed(self, phase: str, work: Callable[[], Result]) -> Result:
        started = time.perf_counter()
        result = work()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + time.perf_counter() - started
        return result


def row_advantages(experience: Experience) -> list[NDArray[Any]]:
    """Mean advantage of each sample, group by group: what the dump and the console show ([G] per group)."""
    means: list[NDArray[Any]] = []
    start = 0
    for rolled in experience.groups:
        lengths = [len(tokens) for tokens in rolled.token_ids]
        rows = experience.advantages_RT[start : start + len(lengths)]
        means.append(np.asarray([row[:length].mean() for row, length in zip(rows, lengths, strict=True)]))
        start += len(lengths)
    return means


def group_records(experience: Experience, step: int) -> list[dict[str, Any]]:
    """What the dump and the console get of every group that has rewards; no advantage where a row has no reward."""
    return [
        group_record(
            step,
            rolled.group,
            rolled.verdict,
            rolled.shaped.rewards,
            [
                None if reward is None else float(advantage)
                for reward, advantage in zip(rolled.shaped.rewards, advantages_G, strict=True)
            ],
            statuses_G=rolled.shaped.statuses,
        )
        for rolled, advantages_G in zip(experience.groups, row_advantages(experience), strict=True)
        if rolled.shaped is not None
    ]
