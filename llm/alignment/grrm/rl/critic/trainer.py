"""Trains the critic on PaddleNLP's Trainer, one micro-batch and one optimizer step at a time, with a clipped loss."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paddle
from paddle.distributed.fleet.utils.hybrid_parallel_util import fused_allreduce_gradients

from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.algorithms.policy_losses.interface import keep
from grrm.config import RLConfig
from grrm.config.batch_plan import BatchPlan
from grrm.errors import UserError
from grrm.models.packing import PackedTokens, lay_out
from grrm.models.reward_models import fill_value_head, save_reward_model
from grrm.models.token_scores import numbers_of_responses
from grrm.models.value_head import TokenValueModel
from grrm.paddlenlp_api.training import Trainer, TrainingArguments
from grrm.parallel.data_ranks import DataRanks
from grrm.rl.experience import pad_right
from grrm.rl.losses.aggregation import Denominators, LossOutput, aggregate
from grrm.rl.records import Rolled, Row
from grrm.rl.token_scorer import PerSample, by_group, prompts_and_responses
from grrm.training.callbacks import DecaysToFloor, OptimizesTrainable, StopsAtDivergence
from grrm.training.checkpoints import claim_output_dir, read_marker, save_final
from grrm.training.model_setup import check_fit, check_same_tokens, load_part, weights_dtype
from grrm.training.topology import Topology


def value_loss(
    values_RT: paddle.Tensor,
    old_RT: paddle.Tensor,
    returns_RT: paddle.Tensor,
    mask_RT: paddle.Tensor,
    clip_range: float,
    denominators: Denominators,
) -> LossOutput:
    """Return the mean over tokens of ``0.5 * max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2)``.

    ``values_RT`` are of the states before each token, ``old_RT`` the same under the critic that the rollout was scored
    with, and ``returns_RT`` their targets (``value_targets``). ``mask_RT`` is 1 on the tokens of responses that have a
    reward; values outside it are never read.

    A value that has left the range has no gradient, unless it is farther from the return than the clipped one. Source:
    the clipped value loss of OpenAI Baselines' PPO2; Engstrom et al., arXiv 2005.12729, section 3. ``denominators``
    are those of the whole optimizer step, so that the losses of its micro-batches add up.

    Metrics: value_loss; value_clipfrac, the share of tokens whose clipped error is the larger one; value_mean.
    Degenerate: no tokens give 0 with zero gradient.
    """
    values_RT, old_RT, returns_RT = (keep(numbers_RT, mask_RT) for numbers_RT in (values_RT, old_RT, returns_RT))
    # Clipping the value and not V - V_old: rounding of the difference would make values within the bounds look clipped.
    clipped_RT = paddle.minimum(paddle.maximum(values_RT, old_RT - clip_range), old_RT + clip_range)
    error_RT, clipped_error_RT = (values_RT - returns_RT) ** 2, (clipped_RT - returns_RT) ** 2

    def mean(numbers_RT: paddle.Tensor) -> paddle.Tensor:
        return aggregate(numbers_RT, mask_RT, "token-mean", denominators.tokens)

    loss = mean(0.5 * paddle.maximum(error_RT, clipped_error_RT))
    metrics = {
        "value_loss": loss,
        "value_clipfrac": mean((clipped_error_RT > error_RT).astype(values_RT.dtype)),
        "value_mean": mean(values_RT),
    }
    return LossOutput(loss, {name: value.detach() for name, value in metrics.items()})


FOLDER = "critic"  # in a checkpoint, and in output_dir


class CriticTrainer(OptimizesTrainable, StopsAtDivergence, DecaysToFloor, Trainer):
    """The critic with an optimizer, a schedule and checkpoints of its own; `args` are those of `critic_arguments`.

    The policy's trainer drives it: `open` once, then `accumulate` for every micro-batch and `step` for every update.
    """

    def __init__(
        self,
        *,
        model: Any,
        args: TrainingArguments,
        config: RLConfig,
        plan: BatchPlan,
        ranks: DataRanks,
        tokenizer: Any,
    ) -> None:
        super().__init__(model=model, args=args, tokenizer=tokenizer)
        self.config, self.plan, self.ranks = config, plan, ranks
        self.min_learning_rate = config.critic_min_learning_rate
        self.pad_id, self.pack_tokens = tokenizer.pad_token_id, config.pack_tokens
        self.is_in_train = True
        self._shares: list[dict[str, float]] = []

    def open(self, max_steps: int, checkpoint: Path | None) -> None:
        """Set up optimizer and schedule for a run of `max_steps`, and go on at the run's `checkpoint`, if there is one.

        As `Trainer.train` begins. Raises UserError for a checkpoint without a critic, or of another layout of ranks.
        """
        folder = None if checkpoint is None else critic_folder(checkpoint, Topology.of(self.args))
        self.create_optimizer_and_scheduler(max_steps)
        self._load_from_checkpoint(folder and str(folder))
        self.model_wrapped: Any = self._wrap_model(self.model)
        if folder is not None and any(folder.glob("optimizer*")):  # a finished run may have kept none
            self._load_optimizer_and_scheduler(str(folder))

    def values(self, groups: Sequence[Rolled]) -> list[PerSample]:
        """Per group the values of its responses: a number for the state before every token."""
        with self.autocast_smart_context_manager():
            values = numbers_of_responses(
                self.model,
                self._values,
                *prompts_and_responses(groups),
                pad_id=self.pad_id,
                batch_size=self.config.per_device_value_batch_size,
                pack_tokens=self.pack_tokens,
            )
        return by_group(groups, values)

    def _values(self, tokens: PackedTokens) -> paddle.Tensor:
        values_N: paddle.Tensor = self.model(**tokens.model_inputs())
        return values_N

    def accumulate(self, rows: Sequence[Row], denominators: Denominators) -> dict[str, float]:
        """Add the gradient of a micro-batch; returns its share of the step's metrics.

        Nothing for no rows, and no metrics of a step without a reward, as of the policy.
        """
        if not rows:
            return {}
        unsynchronised = getattr(self.model_wrapped, "no_sync", contextlib.nullcontext)
        with unsynchronised():
            self.training_step(self.model_wrapped, {"rows": rows, "denominators": denominators})
        return self._shares[-1] if denominators.tokens else {}

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The rows as they are."""
        return inputs

    def compute_loss(self, model: Any, inputs: dict[str, Any]) -> paddle.Tensor:
        """This micro-batch's part of the mini-batch loss, scaled as that of the policy is."""
        rows, denominators = inputs["rows"], inputs["denominators"]
        tokens = lay_out(
            [row.prompt_ids for row in rows], [row.token_ids for row in rows], self.pad_id, self.pack_tokens
        )
        width = max(tokens.lengths_R)
        old_RT, returns_RT, mask_RT = (
            paddle.to_tensor(pad_right(numbers, width).astype("float32"))
            for numbers in (
                [row.values_T for row in rows],
                [row.returns_T for row in rows],
                [row.mask_T for row in rows],
            )
        )
        values_RT = tokens.to_rows(model(**tokens.model_inputs()))
        output = value_loss(values_RT, old_RT, returns_RT, mask_RT, self.config.clip_range_value, denominators)
        self._shares.append({name: float(value) for name, value in output.metrics.items()})
        return output.loss * (self.plan.micro_batches_per_update * self.ranks.size)

    def step(self, number: int) -> None:
        """Optimizer step `number` with the gradients accumulated since the last one, joined over the ranks.

        Raises UserError for a loss that is not finite.
        """
        shares, self._shares = self._shares, []
        self.refuse_divergence("value loss", sum(share["value_loss"] for share in shares), number)
        if self.args.offload_optim:
            self._reload_optimizer()
        if isinstance(self.model_wrapped, paddle.DataParallel):
            fused_allreduce_gradients(list(self.model_wrapped.parameters()), None)
        self.optimizer.step()
        if self.args.offload_optim:
            self._offload_optimizer()
        self.lr_scheduler.step()
        releases = self.args.release_grads or "enable_release_grads" in self.args.sharding_parallel_config
        self.optimizer.clear_grad(set_to_zero=not releases)

    def _enable_delay_scale_loss(self) -> bool:
        """Never: Trainer's loop, which would scale the gradients later, is not the one that trains the critic."""
        return False

    def save(self, checkpoint: Path, step: int) -> None:
        """Add model, optimizer and schedule to the policy's checkpoint of `step`. A collective."""
        self.args.output_dir, self.state.global_step = str(checkpoint / FOLDER), step
        self._save_checkpoint(self.model_wrapped)

    def save_trained(self, output_dir: Path, best: Path | None = None) -> None:
        """Leave the critic, that of the checkpoint `best` if there is one, in `output_dir` as a pairwise reward model.

        A collective.
        """
        if best is not None:
            self._load_from_checkpoint(str(critic_folder(best, Topology.of(self.args))))
        folder = output_dir / FOLDER
        claim_output_dir(folder)
        save_final(self, folder, save_reward_model)

    def _rotate_checkpoints(self, *args: Any, **kwargs: Any) -> None:
        """A critic's checkpoint goes with the policy's."""


def critic_folder(checkpoint: Path, now: Topology) -> Path:
    """Return the folder of the critic that `CriticTrainer.save` wrote in `checkpoint`.

    Raises UserError where there is none, or where its parts are of another layout of ranks than `now`.
    """
    folders = list((checkpoint / FOLDER).glob("checkpoint-*"))
    if len(folders) != 1:
        raise UserError(
            f"checkpoint '{checkpoint}' has no critic: set overwrite_output_dir to start over, or give the checkpoint "
            "as actor_model_name_or_path to start from its weights"
        )
    before = Topology(**read_marker(checkpoint)["topology"])
    if before.parts != now.parts:
        raise UserError(
            f"checkpoint '{checkpoint}' has its critic in the parts of {before.layout}, and this run is laid out over "
            f"{now.layout}: resume with the same tensor and sharding degrees"
        )
    return folders[0]


def build_critic(
    config: RLConfig,
    args: TrainingArguments,
    plan: BatchPlan,
    ranks: DataRanks,
    tokenizer: Any,
    checkpoint: Path | None,
) -> CriticTrainer | None:
    """The critic, ready to go on at the run's `checkpoint`; None where the advantage rule needs none.

    Its backbone is its own. Its value head is that of its folder, if there is one, else zero. Raises UserError as
    `check_same_tokens`, `load_part`, `fill_value_head`, `check_fit` and `CriticTrainer.open`.
    """
    if not ADVANTAGE_RULES[config.advantage_rule].needs_critic:
        return None
    args = critic_arguments(config, args)
    directory = config.critic_model_name_or_path or config.actor_model_name_or_path
    if directory != config.actor_model_name_or_path:
        check_same_tokens(tokenizer, directory)
    model = TokenValueModel(load_part(directory, args, gets_head=True))
    fill_value_head(model, directory)
    model.head.to(dtype=weights_dtype(args))
    check_fit(tokenizer, model.config, config.max_prompt_len + config.max_dec_len)
    if args.recompute:
        model.backbone.recompute_enable()
    critic = CriticTrainer(model=model, args=args, config=config, plan=plan, ranks=ranks, tokenizer=tokenizer)
    critic.open(args.max_steps, checkpoint)
    return critic


def critic_arguments(config: RLConfig, args: TrainingArguments) -> TrainingArguments:
    """The policy's `args` with the critic's optimizer and schedule; each rank saves its own part of the critic.

    The policy's trainer logs, evaluates and says when to save.
    """
    args = copy.copy(args)
    args.learning_rate = config.critic_learning_rate
    args.weight_decay = config.critic_weight_decay
    args.lr_scheduler_type = type(args.lr_scheduler_type)(config.critic_lr_scheduler_type)
    args.warmup_ratio, args.warmup_steps = config.critic_warmup_ratio, 0
    args.recompute = config.critic_recompute
    args.layer_settings = {**args.layer_settings, "recompute_granularity": config.critic_recompute_granularity}
    args.unified_checkpoint = args.save_sharded_model = args.load_sharded_model = False
    args.unified_checkpoint_config = []
    args.report_to = []
    args.load_best_model_at_end, args.metric_for_best_model = False, None
    return args
