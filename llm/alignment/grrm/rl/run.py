"""Assembling an RL run from its configuration; `run_rl.py` is a thin shell around `train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paddlenlp.trainer import TrainingArguments

from grrm.config import RLConfig
from grrm.config.batch_plan import BatchPlan, batch_plan
from grrm.config.evaluation_checks import TEXT_METRICS, best_metric
from grrm.config.keys.objective import StoppingConfig
from grrm.config.training_arguments import training_arguments
from grrm.data.dataset import PromptDataset, RankingPromptDataset
from grrm.engine.api import SamplingParams
from grrm.errors import UserError
from grrm.evaluation.held_out_scores import GREEDY, has_reference
from grrm.evaluation.reward_alarm import RewardAlarm
from grrm.gqm.extraction import extract_translation
from grrm.models.cpu_layers import require_kernels, use_cpu_layers
from grrm.models.policy import freeze_layers, load_policy
from grrm.models.tokenizer import encoder, load_tokenizer, response_decoder, stop_tokens
from grrm.parallel.data_ranks import DataRanks
from grrm.rewards.failure_policy import FailureBudget, FailurePolicy
from grrm.rewards.overlong import OverlongConfig
from grrm.rewards.rule_rewards import rule_reward_function
from grrm.rewards.shaping import ShapingConfig
from grrm.rl.advantages import ADVANTAGE_RULES, RunningMoments
from grrm.rl.batch import pack_tokens
from grrm.rl.experience import TokenScorer
from grrm.rl.experience_maker import ExperienceMaker
from grrm.rl.held_out import Decoding, HeldOut, StopWhenNoBetter
from grrm.rl.losses.config import PolicyLossConfig
from grrm.rl.reward_sources import await_reward_server, build_rewarder
from grrm.rl.rollout import RolloutWorker
from grrm.rl.trainer import GroupPolicyTrainer
from grrm.startup import freeze_gc
from grrm.tracking.run_record import RunRecord
from grrm.training.checkpoints import (
    check_resumable,
    claim_output_dir,
    read_marker,
    resume_point,
    save_final,
    start_over,
    train_or_load,
)
from grrm.training.model_setup import (
    build_engine,
    check_fit,
    load_reference,
    weights_dtype,
)
from grrm.training.trainer_log import quiet_paddlenlp

# How long one rank may roll out or update while the others wait for it, beside the time its reward server may take.
LONGEST_PHASE_S = 1800.0


def train(config: RLConfig) -> None:
    """Run the RL stage that `config` describes, resuming at the last complete checkpoint in its `output_dir`.

    The trained policy and its tokenizer are left in `output_dir` itself.
    """
    args = training_arguments(config)
    use_cpu_layers(args.precision)
    if config.rollout_quant_type:
        require_kernels("rollout_quant_type", "int8")
    calls = 2 if config.reward_streaming else 1  # to the judge that may follow one another once sampling has ended
    ranks = DataRanks.of(args, timeout_s=LONGEST_PHASE_S + calls * config.reward_deadline_s)
    claim_output_dir(args.output_dir)
    quiet_paddlenlp(args.output_dir, args.process_index == 0)
    tokenizer = load_tokenizer(config.actor_model_name_or_path)
    await_reward_server(config, ranks)
    prompts = read_prompts(config, config.train_datasets, tokenizer)
    plan = batch_plan(config, ranks.size, len(prompts))
    args.gradient_accumulation_steps = plan.gradient_accumulation_steps
    assert plan.optimizer_steps is not None  # the number of prompts is known
    args.max_steps = plan.optimizer_steps
    checkpoint = resume_point(args)
    state = read_marker(checkpoint) if checkpoint else {"step": 0}
    model = load_policy(config.actor_model_name_or_path, dtype=weights_dtype(args))
    check_fit(tokenizer, model.config, config.max_prompt_len + config.max_dec_len)
    freeze_layers(model, config.frozen_layers)
    if config.recompute:
        model.recompute_enable()
    maker = build_maker(config, args, ranks, plan, tokenizer, prompts, model)
    if checkpoint:
        restore(maker, state, checkpoint)
    stopper = build_stopper(config, state)
    held_out = build_held_out(config, ranks, tokenizer, maker, state)
    is_finished = state["step"] >= plan.optimizer_steps or (stopper is not None and stopper.is_done)
    if checkpoint and not is_finished:
        check_resumable(args, checkpoint, state["step"], plan.updates_per_rollout)
    start_over(args, checkpoint)
    is_writer = ranks.rank == 0 and args.process_index == 0  # the gathered batch is whole there
    record = RunRecord.open(config, is_writer, plan.optimizer_steps, first_step=state["step"] + 1)
    trainer = GroupPolicyTrainer(
        model=model,
        args=args,
        config=config,
        maker=maker,
        plan=plan,
        loss_config=PolicyLossConfig.of(config),
        record=record,
        tokenizer=tokenizer,
        held_out=held_out,
        stopper=stopper,
    )
    freeze_gc()
    train_or_load(trainer, checkpoint, is_finished=is_finished)
    record.close()
    save_final(trainer, args.output_dir)


def restore(maker: ExperienceMaker, state: dict[str, Any], checkpoint: Path) -> None:
    """Go on where `checkpoint` was saved. Raises UserError when it is not one of this kind of training."""
    try:
        maker.restore(state)
    except KeyError as error:
        raise UserError(
            f"checkpoint '{checkpoint}' is not of an RL run (no {error} in its state): give its folder as "
            "actor_model_name_or_path to start from its weights"
        ) from None


def read_prompts(config: RLConfig, path: str, tokenizer: Any) -> PromptDataset | RankingPromptDataset:
    """The prompts of a `src`/`tgt` file, tokenised; over-long ones are left out and counted."""
    columns = {"prompt_key": config.prompt_key, "response_key": config.response_key}
    if not config.use_rule_reward:
        return PromptDataset(Path(path), encoder(tokenizer), config.max_prompt_len, **columns)
    rule = rule_reward_function(config.rule_reward)
    # Every rule reads the ground truth before it looks at the response.
    return RankingPromptDataset(
        Path(path), encoder(tokenizer), config.max_prompt_len, check=lambda truth: rule("", truth), **columns
    )


def build_held_out(
    config: RLConfig, ranks: DataRanks, tokenizer: Any, maker: ExperienceMaker, state: dict[str, Any]
) -> HeldOut | None:
    """What evaluation during training needs, as a checkpoint's `state` left it; None when none is asked for.

    Raises UserError when the best checkpoint is to be chosen by a metric for which there are no references.
    """
    if not config.eval_datasets:
        return None
    prompts = read_prompts(config, config.eval_datasets, tokenizer)
    has_references = not config.use_rule_reward  # which reads a ground truth there
    best = (best_metric(config) or "").removesuffix(GREEDY)
    if best in TEXT_METRICS and not any(has_reference(item.task) for item in prompts):
        raise UserError(
            f"metric_for_best_model is {config.metric_for_best_model}, but no row of '{config.eval_datasets}' has a "
            "reference: name another metric or give rows with references"
        )
    decoding = Decoding(config.eval_samples, config.eval_temperature, config.eval_top_p, config.eval_greedy)
    alarm = None
    if config.eval_greedy and has_references:
        alarm = RewardAlarm([item.task for item in prompts], str(decoding))
        alarm.restore(state.get("alarm"))
    return HeldOut(prompts, maker.worker, maker.rewarder, decoding, ranks, has_references, alarm)


def build_stopper(config: StoppingConfig, state: dict[str, Any]) -> StopWhenNoBetter | None:
    """The early-stopping callback, when asked for, as a checkpoint's `state` left it."""
    if not config.early_stopping:
        return None
    stopper = StopWhenNoBetter(config.early_stopping_patience, config.early_stopping_threshold)
    stopper.restore(state.get("stopping"))
    return stopper


def build_maker(
    config: RLConfig,
    args: TrainingArguments,
    ranks: DataRanks,
    plan: BatchPlan,
    tokenizer: Any,
    prompts: Any,
    model: Any,
) -> ExperienceMaker:
    """Wire sampling, judging and scoring; the reference policy is loaded only when some KL term needs it."""
    worker = RolloutWorker(
        engine=build_engine(model, config, args.precision),
        decode=response_decoder(tokenizer),
        extract=lambda response: extract_translation(response, config.extractor_type),
        sampling=SamplingParams(
            max_new_tokens=config.max_dec_len,
            min_new_tokens=config.min_dec_len,
            temperature=config.temperature,
            top_p=config.top_p,
            repetition_penalty=config.repetition_penalty,
            stop_token_ids=stop_tokens(tokenizer, config.eos_token),
            seed=config.rollout_seed,
        ),
        rollout_n=config.rollout_n,
    )
    in_reward = bool(config.kl_coeff)
    reference = None
    if in_reward or config.kl_loss_coeff:
        reference = load_reference(config.actor_model_name_or_path, weights_dtype(args))
    scorer = TokenScorer(
        policy=model if in_reward or plan.updates_per_rollout > 1 else None,
        reference=reference,
        pad_id=tokenizer.pad_token_id,
        batch_size=config.per_device_logprob_batch_size,
        temperature=config.temperature,
        pack_tokens=pack_tokens(config),
    )
    return ExperienceMaker(
        prompts=prompts,
        worker=worker,
        rewarder=build_rewarder(
            config, shaping_config(config), FailurePolicy.from_mapping(config.failure_policy), tokenizer.eos_token
        ),
        advantage_rule=ADVANTAGE_RULES[config.advantage_rule],
        score_tokens=scorer,
        plan=plan,
        config=config,
        ranks=ranks,
        budget=FailureBudget(max_fraction=config.max_unscored_fraction),
        moments=RunningMoments() if config.normalize_reward else None,
        normalize_advantage=config.normalize_advantage,
    )


def shaping_config(config: RLConfig) -> ShapingConfig:
    """Reward shaping as the argument file says; the overlong buffer counts response tokens."""
    overlong = OverlongConfig(
        max_resp_len=config.overlong_max_resp_len,
        buffer_len=config.overlong_reward_buffer,
        penalty_factor=config.overlong_penalty_factor,
        enable=config.enable_overlong_reward_buffer,
        capped=config.overlong_penalty_capped,
    )
    return ShapingConfig(
        config.score_scale_factor, config.default_reward, overlong, unscored_pay_length=config.use_rule_reward
    )
