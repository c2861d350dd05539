"""One rollout from prompts to training rows, with groups kept whole: sample, judge, all-gather, advantages."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

from grrm.algorithms.advantages.gae import value_fit, value_targets
from grrm.algorithms.advantages.interface import AdvantageRule, FloatArray
from grrm.algorithms.advantages.moments import RunningMoments, batch_advantages, normalized_rewards
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
from grrm.rl.experience import Row, advantage_inputs, training_rows
from grrm.rl.losses.aggregation import Denominators
from grrm.rl.micro_batches import micro_batches_of, pack_tokens, row_denominators
from grrm.rl.reward_stage import FirstScores, Rewarder
from grrm.rl.reward_stream import RewardStream
from grrm.rl.rollout import PromptBatch, RolledGroup, RolloutWorker, check_complete
from grrm.rl.rollout_ahead import Drawn, StartedBatch, are_of, done, in_thread

Result = TypeVar("Result")


@dataclass(slots=True)
class Experience:
    """One rollout, ready for training.

    `micro_batches[u][m]` are this rank's rows for micro-batch m of update u; `denominators[u]` are the counts over all
    ranks that make the micro-batch losses of update u add up to the loss of the whole mini-batch. `groups` and
    `advantages_RT` cover the global batch, equal on every rank. `seconds` holds the time per phase on this rank:
    "judge_waiting" is idle time until every rank has its verdicts, "judge_overlapped" judging time in parallel with
    the other phases. `generated` has all groups generated for it, including those that dynamic sampling rejected;
    `value_fit` says how well a critic predicted the rewards.
    """

    micro_batches: list[list[list[Row]]]
    denominators: list[Denominators]
    groups: list[RolledGroup]
    advantages_RT: FloatArray
    seconds: dict[str, float]
    generations: int
    generated: list[RolledGroup] = field(default_factory=list)
    value_fit: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class ExperienceMaker:
    """Produces `Experience`s; `generation` counts the generation batches used so far.

    `start_next` samples the first batch of the next one ahead; a reward server judges it in the meantime. With
    `judges_by_phase` the judge shares this device, so nothing is computed during judging. `generated` has the groups of
    the latest rollout, also if it failed: then some may not be judged.
    """

    prompts: Sequence[PromptItem]
    worker: RolloutWorker
    rewarder: Rewarder
    advantage_rule: AdvantageRule
    score_tokens: Callable[[Sequence[RolledGroup]], None]
    plan: BatchPlan
    config: RLConfig
    ranks: DataRanks
    budget: FailureBudget
    first_scores: FirstScores = field(default_factory=FirstScores)
    moments: RunningMoments | None = None
    normalize_advantage: bool = False
    judges_by_phase: bool = False
    generation: int = 0
    generated: list[RolledGroup] = field(default_factory=list)
    _seconds: dict[str, float] = field(default_factory=dict)
    _ahead: StartedBatch | None = None
    _drawn: dict[int, Drawn] = field(default_factory=dict)

    def make(self, step: int) -> Experience:
        """Sample and judge the next rollout with the weights of `step`, and compute advantages.

        Raises RewardFailure on every rank together.
        """
        self._seconds, self.generated, first = {}, [], self.generation
        groups = self._informative(step) if self.config.dynamic_sampling else self._generate(self._batch_prompts, step)
        self.first_scores.watch(self.generated)
        inputs = advantage_inputs(
            groups,
            kl_coeff=self.config.kl_coeff,
            gamma=self.config.gamma,
            clip_range_score=self.config.clip_range_score,
            gae_lambda=self.config.gae_lambda,
        )
        inputs = normalized_rewards(inputs, self.moments)
        advantages_RT = batch_advantages(inputs, self.advantage_rule, self.normalize_advantage)
        rows = training_rows(groups, advantages_RT, value_targets(inputs))
        n_batches, fit = self.generation - first, value_fit(inputs)
        return Experience(
            *self._schedule(groups, rows), groups, advantages_RT, self._seconds, n_batches, self.generated, fit
        )

    def start_next(self, step: int) -> None:
        """Sample the first batch of the next rollout with the current weights, those of `step`.

        Sampling and judging on servers continue after this returns. Work in this process is finished, since training
        needs the device.
        """
        self._ahead = self._start(self._batch_prompts, step, is_ahead=True)
        if not self.config.use_rm_server and self._ahead.is_judged:
            self.settle()

    def settle(self) -> None:
        """Wait until sampling and judging of the batch that was started ahead are finished."""
        if self._ahead is not None:
            self._ahead.settle()

    def drawn_ahead(self) -> list[Drawn]:
        """All that `start_next` sampled on any rank, in canonical order. A collective."""
        mine = [] if self._ahead is None else [Drawn.of(rolled) for rolled in self._sampled(self._ahead.drawing.result)]
        parts = self.ranks.processes().gather(mine)
        return sorted((one for part in parts for one in part), key=lambda one: one.position)

    @property
    def _batch_prompts(self) -> int:
        plan = self.plan
        return plan.prompts_generated_per_pass if self.config.dynamic_sampling else plan.prompts_per_rollout

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep beside the model, as JSON."""
        moments = None if self.moments is None else self.moments.state_dict()
        return {"generation": self.generation, "failures": self.budget.spent, "moments": moments}

    def restore(self, state: dict[str, Any], drawn: dict[int, Drawn] | None = None) -> None:
        """Restore `state`, with the samples of the next batch if they had already been generated."""
        self.generation, self.budget.spent = state["generation"], state["failures"]
        self._drawn, self.first_scores = drawn or {}, FirstScores(None)
        if self.moments is not None and state["moments"] is not None:
            self.moments.load_state_dict(state["moments"])

    def _generate(self, n_prompts: int, step: int) -> list[RolledGroup]:
        """One generation batch: all of its groups, judged, in canonical order, on every rank."""
        batch, self._ahead = self._ahead or self._start(n_prompts, step), None
        self._count("rollout", batch.seconds)
        return self._complete(batch)

    def _start(self, n_prompts: int, step: int, is_ahead: bool = False) -> StartedBatch:
        """Sample this process's share of the next generation batch and hand it to the judge."""
        sampler = PromptSampler(len(self.prompts), drop_last=self.config.dataloader_drop_last)
        indices = sampler.batch_for(
            self.generation, n_prompts, self.config.rollout_seed, self.config.dataloader_shuffle
        )
        positions = self._positions(n_prompts)
        batch = PromptBatch([self.prompts[indices[i]] for i in positions], positions, self.generation, step)
        started = time.perf_counter()
        # A reward server works while this process samples, computes log-probs or trains; they share no mutable state.
        with ExitStack() as on_failure:
            rewards = on_failure.enter_context(RewardStream(self.rewarder))
            groups = self._drawn_before(indices, batch)
            if groups is None and is_ahead and self.worker.engine.draws_apart:
                begun = self._start_drawing(n_prompts, batch, rewards)
            else:
                if groups is None:
                    groups = self._roll_out(batch, rewards)
                else:
                    rewards.put(groups)
                begun = StartedBatch(n_prompts, done(groups), rewards, is_judged=True)
            on_failure.pop_all()
        begun.seconds = time.perf_counter() - started
        return begun

    def _start_drawing(self, n_prompts: int, batch: PromptBatch, rewards: RewardStream) -> StartedBatch:
        """Update the engine's weights, and sample in a thread, which sends groups to a judge on a server."""
        worker, is_judged = self.worker, self.config.use_rm_server
        streamed = (lambda rolled: rewards.put([rolled])) if is_judged and self.config.reward_streaming else None

        def draw() -> list[RolledGroup]:
            groups = worker.draw(batch, streamed)
            if is_judged and streamed is None:
                rewards.put(groups)
            return groups

        self._sampled(lambda: worker.engine.update_weights(batch.step))
        return StartedBatch(n_prompts, in_thread(draw), rewards, is_judged)

    def _drawn_before(self, indices: Sequence[int], batch: PromptBatch) -> list[RolledGroup] | None:
        """This process's groups of a batch restored from a checkpoint; None, on every rank, if there is none."""
        drawn, self._drawn = self._drawn, {}
        items = [self.prompts[index] for index in indices] if drawn else []
        if not are_of(drawn, items, self.config.rollout_n):
            return None
        return [self.worker.group(batch, i, drawn[position].completions) for i, position in enumerate(batch.positions)]

    def _complete(self, batch: StartedBatch) -> list[RolledGroup]:
        """Compute log-probs of a batch under the current policy, wait for its rewards and all-gather it."""
        expected = (RewardServerError, RewardFailure, UserError)
        with batch.rewards as rewards:
            groups = self._timed("rollout", lambda: self._sampled(batch.drawing.result))
            if not batch.is_judged:
                rewards.put(groups)
            waited = rewards.settle() if self.judges_by_phase else 0.0
            self._count("judge_waiting", waited)
            self._timed("logprob", lambda: self.score_tokens(self._of_data_rank(groups)))
            self._count("judge_overlapped", rewards.busy_s() - waited)
            try:
                self._timed(
                    "judge_waiting",
                    lambda: run_together("judging", rewards.wait, self.ranks.processes(), expected, RewardFailure),
                )
            except RewardFailure:  # on every rank together
                self.generated += self._gathered(batch)
                raise
        ordered = self._timed("gather", lambda: self._gathered(batch))
        self.generation += 1
        self.generated += ordered
        self.budget.charge(count_statuses([rolled.verdict for rolled in ordered if rolled.verdict is not None]))
        return ordered

    def _gathered(self, batch: StartedBatch) -> list[RolledGroup]:
        """The whole generation batch from every rank's part of it, in canonical order."""
        parts = self.ranks.processes().gather(batch.drawing.result())
        return check_complete([rolled for part in parts for rolled in part], batch.n_prompts, self.config.rollout_n)

    def _roll_out(self, batch: PromptBatch, rewards: RewardStream) -> list[RolledGroup]:
        """Sample, and send groups to the judge: each as it is complete, or all of them together."""
        streamed = (lambda rolled: rewards.put([rolled])) if self.config.reward_streaming else None
        groups = self._sampled(lambda: self.worker.roll_out(batch, streamed))
        if streamed is None:
            rewards.put(groups)
        return groups

    def _sampled(self, work: Callable[[], Result]) -> Result:
        """Sample on every rank, or fail on every rank: a diverged policy has non-finite logits."""
        return run_together("sampling", work, self.ranks.processes(), (FloatingPointError, UserError))

    def _positions(self, n_prompts: int) -> list[int]:
        """The prompts that this process samples and has judged: its share of those of its data rank."""
        share, ranks = n_prompts // self.ranks.size, self.ranks
        first, end = (share * (ranks.tensor_rank + i) // ranks.tensor_size for i in (0, 1))
        return list(range(ranks.rank * share + first, ranks.rank * share + end))

    def _of_data_rank(self, groups: list[RolledGroup]) -> list[RolledGroup]:
        """The groups of all tensor ranks of this data rank, for joint log-prob passes; ours are the objects given."""
        ranks = self.ranks
        if ranks.tensor_size == 1:
            return groups
        first = ranks.rank * ranks.tensor_size
        parts = ranks.processes().gather(groups)[first : first + ranks.tensor_size]
        parts[ranks.tensor_rank] = groups
        return [rolled for part in parts for rolled in part]

    def _informative(self, step: int) -> list[RolledGroup]:
        """Dynamic sampling: generate until enough groups have unequal rewards (DAPO, arXiv 2503.14476, section 3.2)."""
        kept: list[RolledGroup] = []
        for _ in range(self.config.max_gen_batches):
            batch = self._generate(self.plan.prompts_generated_per_pass, step)
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
        """Split the global batch into mini-batches, each mini-batch into ranks' shares, each share into micro-batches.

        Mini-batches are split before ranks are assigned, so an update uses the same groups with any number of ranks.
        """
        size = self.plan.prompts_per_update
        updates: list[list[list[Row]]] = []
        denominators: list[Denominators] = []
        for start in range(0, len(groups), size):
            members = range(start, start + size)
            work = [groups[i].n_tokens for i in members]
            mine = assign_groups(work, self.ranks.size, self.config.balance_batch)[self.ranks.rank]
            # Groups of similar length share a micro-batch: less padding, same sums. A group's rows stay neighbours.
            mine.sort(key=lambda i: work[i])
            share = [row for i in mine for row in rows[start + i]]
            updates.append(micro_batches_of(share, self.plan, pack_tokens(self.config)))
            denominators.append(row_denominators([row for i in members for row in rows[i]], self.config.max_dec_len))
        repeats = self.plan.updates_per_rollout // len(updates)
        return updates * repeats, denominators * repeats

    def _timed(self, phase: str, work: Callable[[], Result]) -> Result:
        started = time.perf_counter()
        result = work()
        self._count(phase, time.perf_counter() - started)
        return result

    def _count(self, phase: str, seconds: float) -> None:
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds
