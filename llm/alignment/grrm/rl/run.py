"""Builds an RL run from its configuration; `run_rl.py` is a thin wrapper around `train`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from grrm.config import RLConfig
from grrm.config.batch_plan import BatchPlan, batch_plan, repeated_prompts
from grrm.config.keys.objective import StoppingConfig
from grrm.config.rollout_checks import TEXT_METRICS, best_metric
from grrm.data.dataset import PromptItem
from grrm.engine.api import Engine, SamplingParams
from grrm.errors import UserError
from grrm.evaluation.held_out_scores import GREEDY, has_reference
from grrm.evaluation.reward_alarm import RewardAlarm
from grrm.gqm.extraction import extract_translation
from grrm.gqm.groups import TranslationTask
from grrm.models.cpu_layers import require_kernels
from grrm.models.tokenizer import response_decoder, sampled_spans, stop_tokens
from grrm.models.trained_with import training_file
from grrm.paddlenlp_api.training import TrainingArguments
from grrm.parallel.data_ranks import DataRanks
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rl.batch_sampler import BatchSampler
from grrm.rl.critic.actor_trainer import ActorTrainer
from grrm.rl.critic.trainer import CriticTrainer, build_critic
from grrm.rl.experience_maker import ExperienceMaker
from grrm.rl.held_out import Decoding, HeldOut, StopWhenNoBetter
from grrm.rl.prompts import read_rows, record_training
from grrm.rl.reward_sources import await_judges, await_reward_server, build_rewarder, judges_by_phase
from grrm.rl.reward_stage import shaping_config
from grrm.rl.rollout import RolloutWorker
from grrm.rl.rollout_ahead import read_samples
from grrm.rl.token_scorer import TokenScorer
from grrm.rl.trainer import GroupPolicyTrainer
from grrm.rl.verdict import conclude, forget_verdict, verdict_lines
from grrm.tracking.run_record import RunRecord
from grrm.training.checkpoints import save_final, start_over
from grrm.training.model_setup import build_engine, check_fit, load_part, load_reference
from grrm.training.rollout_servers import CHECKED_PROMPTS, build_server_engine, build_weights_check
from grrm.training.supervised_run import StageRun, prepare_policy

# How long the other ranks wait for a rank's rollout or update, in addition to the time limits of servers.
LONGEST_PHASE_S = 1800.0


def train(config: RLConfig) -> None:
    """Run the RL stage that `config` describes, resuming at the last complete checkpoint in its `output_dir`.

    The trained policy and its tokenizer are saved to `output_dir` itself.
    """
    if config.rollout_quant_type:
        require_kernels("rollout_quant_type", "int8")
    run = StageRun(config, config.actor_model_name_or_path)
    args, tokenizer = run.args, run.tokenizer
    calls = 2 if config.reward_streaming else 1  # to the judge that may follow one another once sampling has ended
    servers_s = 2 * config.rollout_deadline_s if config.rollout_servers else 0.0  # an evaluation samples in two ways
    ranks = DataRanks.of(args, timeout_s=LONGEST_PHASE_S + calls * config.reward_deadline_s + servers_s)
    prompts, held_out_prompts = read_rows(config, tokenizer)
    check_held_out(config, held_out_prompts)
    plan = batch_plan(config, ranks.size, len(prompts))
    set_lengths(args, plan)
    file = training_file("rl", config.train_datasets, len(prompts))
    run.check_same_rows(file)
    if run.is_over(lambda: verdict_lines(args.output_dir, not config.use_rule_reward)):
        return
    await_reward_server(config, ranks.processes())
    await_judges(config, ranks.processes())
    state, checkpoint = run.find_checkpoint(), run.checkpoint
    check_rl_state(checkpoint, state)
    stopper = build_stopper(config, state)
    is_trained = state["step"] >= args.max_steps or (stopper is not None and stopper.is_done)
    run.check_checkpoint(state, is_trained=is_trained, updates_per_rollout=plan.updates_per_rollout)
    trained_with = record_training(config, prompts, file)
    model = load_part(config.actor_model_name_or_path, args)
    check_fit(tokenizer, model.config, config.max_prompt_len + config.max_dec_len)
    prepare_policy(model, config)
    model = run.trainable(model)
    maker, critic = build_maker(config, run, plan, ranks, model, prompts)
    if checkpoint:
        maker.restore(state, read_samples(checkpoint) if config.rollout_ahead else {})
    held_out = build_held_out(config, held_out_prompts, maker.sampler, state)
    start_over(args, checkpoint)
    if args.process_index == 0:
        forget_verdict(args.output_dir, is_resumed=checkpoint is not None)
    record = RunRecord.open(config, args.process_index == 0, args.max_steps, first_step=state["step"] + 1)
    if repeats := repeated_prompts(plan, len(prompts)):
        record.say(repeats)
    if stopper is not None and stopper.is_done:
        record.say(f"early_stopping has ended this run at step {state['step']}: {stopper.reason}")
    trainer_of: Any = GroupPolicyTrainer if critic is None else partial(ActorTrainer, critic=critic)
    shared = {"model": model, "args": args, "tokenizer": tokenizer}
    trainer = trainer_of(**shared, maker=maker, record=record, held_out=held_out, stopper=stopper)
    trainer.trained_with = trained_with
    run.train_rest(trainer, is_trained=is_trained)
    record.close()
    save(trainer, critic)
    run.end(trainer)


def set_lengths(args: TrainingArguments, plan: BatchPlan) -> None:
    """Have Trainer count micro-batches and steps as the plan does."""
    assert plan.optimizer_steps is not None  # the number of prompts is known
    args.per_device_train_batch_size = plan.micro_batch_rows
    args.gradient_accumulation_steps = plan.micro_batches_per_update
    args.max_steps = plan.optimizer_steps


def build_maker(
    config: RLConfig, run: StageRun, plan: BatchPlan, ranks: DataRanks, model: Any, prompts: Sequence[PromptItem]
) -> tuple[ExperienceMaker, CriticTrainer | None]:
    """The maker of rows from `prompts`, and the critic that takes part in it, None where the rule needs none."""
    args, tokenizer = run.args, run.tokenizer
    engine = rollout_engine(model, config, args, ranks, tokenizer, prompts)
    worker = build_worker(engine, config, tokenizer)
    reference = reference_policy(config, args)
    rewarder = build_rewarder(
        config,
        shaping_config(config),
        FailurePolicy.from_mapping(config.failure_policy),
        tokenizer.eos_token,
        sampled_spans(tokenizer),
    )
    critic = build_critic(config, args, plan, ranks, tokenizer, run.checkpoint)
    scorer = TokenScorer(
        policy=model if config.kl_coeff or plan.updates_per_rollout > 1 else None,
        reference=reference,
        values=None if critic is None else critic.values,
        pad_id=tokenizer.pad_token_id,
        config=config,
    )
    sampler = BatchSampler(prompts, worker, rewarder, plan, config, ranks)
    return ExperienceMaker(sampler, scorer, judges_by_phase(config)), critic


def save(trainer: GroupPolicyTrainer, critic: CriticTrainer | None) -> None:
    """Save what was trained, and tell the verdict on it."""
    args, config = trainer.args, trainer.config
    best = trainer.state.best_model_checkpoint if config.load_best_model_at_end else None
    save_final(trainer, args.output_dir, trained_with=trainer.trained_with)
    if critic is not None:
        critic.save_trained(Path(args.output_dir), best and Path(best))
    translates = not config.use_rule_reward
    lines = verdict_lines(args.output_dir, translates) if trainer.held_out is None else []
    if trainer.held_out is not None and args.process_index == 0:
        step = int(best.rpartition("-")[2]) if best else trainer.state.global_step
        lines = conclude(args.output_dir, step, has_greedy=config.eval_greedy, translates=translates)
    if args.process_index == 0:
        print("\n".join(lines), file=sys.stderr, flush=True)


def check_rl_state(checkpoint: Path | None, state: dict[str, Any]) -> None:
    """Raises UserError where the `state` of a checkpoint belongs to another kind of training."""
    if checkpoint is not None and "generation" not in state:
        raise UserError(
            f"checkpoint '{checkpoint}' is not of an RL run: give its folder as actor_model_name_or_path to start from "
            "its weights"
        )


def check_held_out(config: RLConfig, prompts: Sequence[PromptItem]) -> None:
    """Raises UserError for evaluations without `prompts`, and where none has a reference to choose a checkpoint by."""
    if not prompts and config.evaluation_strategy != "no":
        raise UserError(f"'{config.train_datasets}' has too few rows to hold some out: give eval_datasets")
    best = (best_metric(config) or "").removesuffix(GREEDY)
    if prompts and best in TEXT_METRICS and not any(has_reference(item.task) for item in prompts):
        rows = config.eval_datasets or config.train_datasets
        raise UserError(
            f"metric_for_best_model is {config.metric_for_best_model}, but no row of '{rows}' has a reference: "
            "name another metric or give rows with references"
        )


def build_held_out(
    config: RLConfig, prompts: Sequence[PromptItem], sampler: BatchSampler, state: dict[str, Any]
) -> HeldOut | None:
    """Evaluation of `prompts` during training, restored from a checkpoint's `state`; None without any."""
    if not prompts:
        return None
    has_references = not config.use_rule_reward  # which reads a ground truth there
    decoding = Decoding(config.eval_samples, config.eval_temperature, config.eval_top_p, config.eval_greedy)
    alarm = None
    if config.eval_greedy and has_references:
        alarm = RewardAlarm([item.task for item in prompts], str(decoding))
        alarm.restore(state.get("alarm"))
    ranks = sampler.ranks.processes()
    is_relative = bool(state.get("is_relative"))
    return HeldOut(prompts, sampler.worker, sampler.rewarder, decoding, ranks, has_references, alarm, is_relative)


def build_stopper(config: StoppingConfig, state: dict[str, Any]) -> StopWhenNoBetter | None:
    """The early-stopping callback, if it is on, restored from a checkpoint's `state`."""
    if not config.early_stopping:
        return None
    stopper = StopWhenNoBetter(config.early_stopping_patience, config.early_stopping_threshold)
    stopper.restore(state.get("stopping"))
    return stopper


def rollout_engine(
    model: Any,
    config: RLConfig,
    args: TrainingArguments,
    ranks: DataRanks,
    tokenizer: Any,
    prompts: Sequence[PromptItem],
) -> Engine:
    """The rollout engine: the Paddle engine, or servers, whose weights are checked by the first `prompts`."""
    if config.rollout_backend == "paddle":
        return build_engine(model, config, args.precision)
    first, sampling = [item.prompt_ids for item in prompts[:CHECKED_PROMPTS]], rollout_sampling(config, tokenizer)
    check = build_weights_check(model, config, first, sampling, tokenizer.pad_token_id)
    return build_server_engine(model, config, args, ranks, check)


def build_worker(engine: Engine, config: RLConfig, tokenizer: Any) -> RolloutWorker:
    """Build the sampler of the groups; rules and verifiers extract the answer to a question themselves."""

    def extract(response: str, task: TranslationTask) -> str | None:
        has_extractor = task.is_translation or config.use_rule_reward
        return extract_translation(response, config.extractor_type if has_extractor else "none")

    sampling = rollout_sampling(config, tokenizer)
    return RolloutWorker(engine, response_decoder(tokenizer), extract, sampling, config.rollout_n)


def rollout_sampling(config: RLConfig, tokenizer: Any) -> SamplingParams:
    """The sampling parameters of rollouts."""
    return SamplingParams(
        max_new_tokens=config.max_dec_len,
        min_new_tokens=config.min_dec_len,
        temperature=config.temperature,
        top_p=config.top_p,
        repetition_penalty=config.repetition_penalty,
        stop_token_ids=stop_tokens(tokenizer, config.eos_token),
        seed=config.rollout_seed,
    )


def reference_policy(config: RLConfig, args: TrainingArguments) -> Any | None:
    """The policy that the run begins with, if a KL term needs it."""
    if config.kl_coeff or config.kl_loss_coeff:
        return load_reference(config.actor_model_name_or_path, args)
    return None
