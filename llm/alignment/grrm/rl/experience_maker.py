"""One rollout from prompts to scheduled training rows, groups kept whole: sample, judge, all-gather, advantages."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from grrm.algorithms.advantages.gae import value_fit, value_targets
from grrm.algorithms.advantages.interface import FloatArray
from grrm.algorithms.advantages.moments import RunningMoments
from grrm.config import RLConfig
from grrm.config.batch_plan import BatchPlan
from grrm.errors import UserError
from grrm.models.packing import laid_out_tokens
from grrm.parallel.data_ranks import CollectiveFailure, DataRanks, assign_groups, run_together
from grrm.rewards.client import RewardServerError
from grrm.rewards.failure_policy import FirstScores, RewardFailure, check_failures
from grrm.rewards.group_filter import informative_groups, why_silent
from grrm.rl.batch_sampler import BatchSampler, StartedBatch
from grrm.rl.experience import group_advantages, pad_right, training_rows
from grrm.rl.losses.aggregation import Denominators, count_denominators
from grrm.rl.records import ModelOutputs, Rolled, Row, Scored
from grrm.rl.reward_stage import reads_responses
from grrm.rl.reward_stream import RewardStream, Unscored
from grrm.rl.rollout import check_complete
from grrm.rl.rollout_ahead import SavedSamples


def schedule(
    groups: Sequence[Sequence[Row]], plan: BatchPlan, config: RLConfig, ranks: DataRanks
) -> tuple[list[list[list[Row]]], list[Denominators]]:
    """Split the rows of the global batch's groups into mini-batches, ranks' shares of them, and micro-batches.

    Returns `micro_batches[u][m]`, this rank's rows for micro-batch m of update u, and the `row_denominators` of each
    update. Mini-batches are split before ranks are assigned, so an update uses the same groups with any number of
    ranks.
    """
    size = plan.prompts_per_update
    updates: list[list[list[Row]]] = []
    denominators: list[Denominators] = []
    for start in range(0, len(groups), size):
        members = groups[start : start + size]
        work = [sum(row.length for row in rows) for rows in members]
        mine = assign_groups(work, ranks.size, config.balance_batch)[ranks.rank]
        # Groups of similar length share a micro-batch: less padding, same sums. A group's rows stay neighbours.
        mine.sort(key=lambda i: work[i])
        updates.append(micro_batches_of([row for i in mine for row in members[i]], plan, config.pack_tokens))
        denominators.append(row_denominators([row for rows in members for row in rows], config.max_dec_len))
    repeats = plan.updates_per_rollout // len(updates)
    return updates * repeats, denominators * repeats


def row_denominators(rows: Sequence[Row], longest: int) -> Denominators:
    """Count `rows` of one optimizer step on all ranks; responses have at most `longest` tokens."""
    width = max(len(row.token_ids) for row in rows)
    masks, advantages = [row.mask_T for row in rows], [row.advantages_T for row in rows]
    return count_denominators(pad_right(masks, width), pad_right(advantages, width), width=longest)


def micro_batches_of(share: Sequence[Row], plan: BatchPlan, pack: int) -> list[list[Row]]:
    """As many micro-batches as the plan has for an optimizer step; rows stay in order.

    With a token budget each takes as many rows as `lay_out` fits into it. Remaining micro-batches of the plan are
    empty, and come first, because ranks all-reduce their gradients in the last one.
    """
    if not plan.micro_batch_tokens:
        rows = plan.micro_batch_rows
        return [list(share[i : i + rows]) for i in range(0, len(share), rows)]
    filled: list[list[Row]] = []
    for row in share:
        if filled and _tokens([*filled[-1], row], pack) <= plan.micro_batch_tokens:
            filled[-1].append(row)
        else:
            filled.append([row])
    return [[] for _ in range(plan.micro_batches_per_update - len(filled))] + filled


def _tokens(rows: Sequence[Row], pack: int) -> int:
    return laid_out_tokens([row.prompt_ids for row in rows], [row.token_ids for row in rows], pack)


Autocast = Callable[[], AbstractContextManager[Any]]


@dataclass(slots=True)
class Experience:
    """One rollout, ready for training.

    `micro_batches[u][m]` are this rank's rows for micro-batch m of update u; `denominators[u]` are the counts over all
    ranks that make the micro-batch losses of update u add up to the loss of the whole mini-batch. `groups` and
    `advantages_RT` cover the global batch, equal on every rank. `generated` has all groups generated for it, including
    those that dynamic sampling rejected.

    `seconds` holds the time per phase on this rank: "judge_waiting" is idle time until every rank has its verdicts,
    "judge_overlapped" judging time in parallel with the other phases. `judge_s` is the judging time of all ranks;
    `value_fit` says how well a critic predicted the rewards.
    """

    micro_batches: list[list[list[Row]]]
    denominators: list[Denominators]
    groups: list[Scored]
    advantages_RT: FloatArray
    seconds: dict[str, float]
    generations: int
    generated: list[Scored] = field(default_factory=list)
    value_fit: dict[str, float] = field(default_factory=dict)
    judge_s: float | None = None


@dataclass(slots=True)
class ExperienceMaker:
    """Produces `Experience`s; `generation` counts the generation batches used so far.

    `start_next` samples the first batch of the next one ahead; a reward server judges it in the meantime. With
    `judges_by_phase` the judge shares this device, so nothing is computed during judging. `generated` has the groups of
    the latest rollout, and `unscored` those of its last batch if that failed.
    """

    sampler: BatchSampler
    score_tokens: Callable[[Sequence[Rolled]], list[ModelOutputs]]
    judges_by_phase: bool = False
    generation: int = 0
    generated: list[Scored] = field(default_factory=list)
    unscored: list[Unscored] = field(default_factory=list)
    first_scores: FirstScores = field(init=False)
    moments: RunningMoments | None = field(init=False)
    _seconds: dict[str, float] = field(default_factory=dict)
    _judge_s: float = 0.0
    _ahead: StartedBatch | None = None

    def __post_init__(self) -> None:
        config = self.sampler.config
        self.first_scores = FirstScores(config.max_rollouts_unscored, reads_responses(config))
        self.moments = RunningMoments() if config.normalize_reward else None

    def make(self, step: int, autocast: Autocast = nullcontext) -> Experience:
        """Sample and judge the next rollout with the weights of `step`, and compute advantages.

        Log-probs are computed under `autocast`, as the loss is: else the ratio of unchanged weights would not be one.
        Raises RewardFailure on every rank together.
        """
        config, plan, ranks = self.sampler.config, self.sampler.plan, self.sampler.ranks
        self._seconds, self._judge_s, first = {}, 0.0, self.generation
        self.generated, self.unscored = [], []
        groups = self._informative(step, autocast) if config.dynamic_sampling else self.generate(step, autocast)
        statuses = Counter(status for scored in self.generated for status in scored.shaped.statuses)
        self.first_scores.watch(statuses, self.generated[0].rolled.group.candidates[0].response)
        inputs, advantages_RT = group_advantages(groups, config, self.moments)
        rows = training_rows(groups, advantages_RT, value_targets(inputs))
        return Experience(
            *schedule(rows, plan, config, ranks),
            groups,
            advantages_RT,
            self._seconds,
            self.generation - first,
            self.generated,
            value_fit(inputs),
            self._judge_s,
        )

    def generate(self, step: int, autocast: Autocast = nullcontext) -> list[Scored]:
        """One generation batch: all of its groups, judged and scored, in canonical order, on every rank."""
        batch, self._ahead = self._ahead or self.sampler.start(self.generation, step), None
        self._count("rollout", batch.seconds)
        with batch.rewards as rewards:
            with self._timed("rollout"):
                rolled = self.sampler.together(batch.sampling.result)
            if not batch.is_judged:
                rewards.put(rolled)
            waited = max(batch.waited_s, rewards.settle() if self.judges_by_phase else 0.0)
            self._count("judge_waiting", waited)
            with self._timed("logprob"), autocast():
                outputs = self._outputs_of(rolled)
            self._count("judge_overlapped", max(0.0, rewards.busy_s() - waited))
            with self._timed("judge_waiting"):
                self._await_rewards(rolled, rewards)
        with self._timed("gather"):
            groups = self._gathered(rolled, rewards, outputs)
        self.generation += 1
        self.generated += groups
        verdicts = [scored.judged.verdict for scored in groups if scored.judged.verdict is not None]
        check_failures(verdicts, self.sampler.config.max_unscored_fraction)
        return groups

    def start_next(self, step: int) -> None:
        """Sample the first batch of the next rollout with the current weights, those of `step`.

        Sampling and judging on servers continue after this returns. Work in this process is finished, since training
        needs the device.
        """
        self._ahead = self.sampler.start(self.generation, step, ahead=True)
        if not self.sampler.config.use_rm_server and self._ahead.is_judged:
            self.settle()

    def settle(self) -> None:
        """Wait until sampling and judging of the batch that was started ahead are finished."""
        if self._ahead is not None:
            self._ahead.settle()

    def sampled_ahead(self) -> list[Rolled]:
        """All that `start_next` sampled on any rank, in canonical order; nothing where that failed. A collective."""
        try:
            own = [] if self._ahead is None else self.sampler.together(self._ahead.sampling.result)
        except CollectiveFailure:  # told when the samples are needed; a checkpoint without them is as good
            return []
        parts = self.sampler.ranks.processes().gather(own)
        return sorted((rolled for part in parts for rolled in part), key=lambda rolled: rolled.position)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, beside the model, as JSON."""
        moments = None if self.moments is None else self.moments.state_dict()
        return {"generation": self.generation, "moments": moments, "n_unscored": self.first_scores.n_unscored}

    def restore(self, state: dict[str, Any], samples: dict[int, SavedSamples] | None = None) -> None:
        """Restore `state`, with the samples of the next batch if they had already been generated."""
        self.generation, self.sampler.restored = state["generation"], samples or {}
        self.first_scores.n_unscored = state.get("n_unscored")  # checkpoints of before have none: not watched
        if self.moments is not None and state["moments"] is not None:
            self.moments.load_state_dict(state["moments"])

    def _informative(self, step: int, autocast: Autocast) -> list[Scored]:
        """Dynamic sampling: generate until enough groups have unequal rewards (DAPO, arXiv 2503.14476, section 3.2)."""
        config, enough = self.sampler.config, self.sampler.plan.prompts_per_rollout
        informative: list[Scored] = []
        for _ in range(config.max_gen_batches):
            batch = self.generate(step, autocast)
            informative += [batch[i] for i in informative_groups([scored.shaped for scored in batch], config.rollout_n)]
            if len(informative) >= enough:
                return informative[:enough]
        raise RewardFailure(
            f"only {len(informative)} of {enough} groups carried a signal after {config.max_gen_batches} generation "
            f"batches{why_silent([scored.shaped for scored in self.generated])}"
        )

    def _outputs_of(self, rolled: list[Rolled]) -> list[ModelOutputs]:
        """Log-probs and values of groups; the tensor ranks of a data rank compute those of all of them jointly."""
        ranks = self.sampler.ranks
        if ranks.tensor_size == 1:
            return self.score_tokens(rolled)
        first = ranks.rank * ranks.tensor_size
        parts = ranks.processes().gather(rolled)[first : first + ranks.tensor_size]
        outputs = self.score_tokens([group for part in parts for group in part])
        before = sum(len(part) for part in parts[: ranks.tensor_rank])
        return outputs[before : before + len(rolled)]

    def _await_rewards(self, rolled: list[Rolled], rewards: RewardStream) -> None:
        """Wait until every rank has its rewards. Raises RewardFailure, on every rank, with `unscored` filled."""
        processes, expected = self.sampler.ranks.processes(), (RewardServerError, RewardFailure, UserError)
        try:
            run_together("judging", rewards.wait, processes, expected, RewardFailure)
        except RewardFailure:
            own = [rewards.latest(group) for group in rolled]
            self.unscored = [unscored for part in processes.gather(own) for unscored in part]
            raise

    def _gathered(self, rolled: list[Rolled], rewards: RewardStream, outputs: list[ModelOutputs]) -> list[Scored]:
        """The whole generation batch from every rank's part of it, in canonical order."""
        sampler, judged, shaped = self.sampler, rewards.judged, rewards.shaped
        positions = [group.position for group in rolled]
        own = [Scored(judged[i], shaped[i], numbers) for i, numbers in zip(positions, outputs, strict=True)]
        parts = sampler.ranks.processes().gather((own, rewards.busy_s()))
        self._judge_s += sum(judge_s for _, judge_s in parts)
        groups = [scored for part, _ in parts for scored in part]
        return check_complete(groups, sampler.plan.prompts_generated_per_pass, sampler.config.rollout_n)

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._count(phase, time.perf_counter() - started)

    def _count(self, phase: str, seconds: float) -> None:
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds
