"""Assembling an RL run from its arguments; `run_rl.py` is a thin shell around `train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grrm.config.batch_plan import BatchPlan, batch_plan
from grrm.data.dataset import PromptDataset, RankingPromptDataset
from grrm.engine.api import SamplingParams
from grrm.errors import UserError
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
from grrm.rl.experience_maker import ExperienceMaker, RolloutSettings
from grrm.rl.held_out import HeldOut, StopWhenNoBetter
from grrm.rl.losses.config import PolicyLossConfig
from grrm.rl.reward_sources import await_reward_server, build_rewarder
from grrm.rl.rollout import RolloutWorker
from grrm.rl.run_record import RunRecord
from grrm.rl.trainer import GroupPolicyTrainer
from grrm.startup import freeze_gc
from grrm.training.checkpoints import (
    check_resumable,
    claim_output_dir,
    load_trained,
    read_marker,
    resume_point,
    save_final,
    start_over,
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


def train(args: Any) -> None:
    """Run the RL stage that `args` (RLArguments) describe, resuming at the last complete checkpoint in `output_dir`.

    The trained policy and its tokenizer are left in `output_dir` itself.
    """
    use_cpu_layers(args.precision)
    if args.rollout_quant_type:
        require_kernels("rollout_quant_type", "int8")
    calls = 2 if args.reward_streaming else 1  # to the judge that may follow one another once sampling has ended
    ranks = DataRanks.of(args, timeout_s=LONGEST_PHASE_S + calls * args.reward_deadline_s)
    claim_output_dir(args.output_dir)
    quiet_paddlenlp(args.output_dir, args.process_index == 0)
    tokenizer = load_tokenizer(args.actor_model_name_or_path)
    await_reward_server(args, ranks)
    prompts = read_prompts(args, args.train_datasets, tokenizer)
    plan = batch_plan(args, ranks.size, len(prompts))
    args.gradient_accumulation_steps = plan.gradient_accumulation_steps
    args.max_steps = plan.optimizer_steps
    checkpoint = resume_point(args)
    state = read_marker(checkpoint) if checkpoint else {"step": 0}
    model = load_policy(args.actor_model_name_or_path, dtype=weights_dtype(args))
    check_fit(tokenizer, model.config, args.max_prompt_len + args.max_dec_len)
    freeze_layers(model, args.frozen_layers)
    if args.recompute:
        model.recompute_enable()
    maker = build_maker(args, ranks, plan, tokenizer, prompts, model)
    if checkpoint:
        restore(maker, state, checkpoint)
    stopper = build_stopper(args, state)
    is_finished = state["step"] >= plan.optimizer_steps or (stopper is not None and stopper.is_done)
    if checkpoint and not is_finished:
        check_resumable(args, checkpoint, state["step"], plan.updates_per_rollout)
    start_over(args, checkpoint)
    record = RunRecord.open(args, ranks, plan.optimizer_steps, first_step=state["step"] + 1)
    trainer = GroupPolicyTrainer(
        model=model,
        args=args,
        maker=maker,
        plan=plan,
        loss_config=loss_config(args),
        record=record,
        tokenizer=tokenizer,
        held_out=build_held_out(args, ranks, tokenizer, maker),
        stopper=stopper,
    )
    freeze_gc()
    if checkpoint and is_finished:
        load_trained(trainer, checkpoint)
    else:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
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


def read_prompts(args: Any, path: str, tokenizer: Any) -> PromptDataset | RankingPromptDataset:
    """The prompts of a `src`/`tgt` file, tokenised; over-long ones are left out and counted."""
    columns = {"prompt_key": args.prompt_key, "response_key": args.response_key}
    if not args.use_rule_reward:
        return PromptDataset(Path(path), encoder(tokenizer), args.max_prompt_len, **columns)
    rule = rule_reward_function(args.rule_reward)
    # Every rule reads the ground truth before it looks at the response.
    return RankingPromptDataset(
        Path(path), encoder(tokenizer), args.max_prompt_len, check=lambda truth: rule("", truth), **columns
    )


def build_held_out(args: Any, ranks: DataRanks, tokenizer: Any, maker: ExperienceMaker) -> HeldOut | None:
    """What evaluation during training needs; None when the argument file asks for none."""
    if not args.eval_datasets:
        return None
    prompts = read_prompts(args, args.eval_datasets, tokenizer)
    return HeldOut(prompts, maker.worker, maker.rewarder, args.eval_samples, ranks)


def build_stopper(args: Any, state: dict[str, Any]) -> StopWhenNoBetter | None:
    """The early-stopping callback, when asked for, as a checkpoint's `state` left it."""
    if not args.early_stopping:
        return None
    stopper = StopWhenNoBetter(args.early_stopping_patience, args.early_stopping_threshold)
    stopper.restore(state.get("stopping"))
    return stopper


def build_maker(
    args: Any, ranks: DataRanks, plan: BatchPlan, tokenizer: Any, prompts: Any, model: Any
) -> ExperienceMaker:
    """Wire sampling, judging and scoring; the reference policy is loaded only when some KL term needs it."""
    seed = args.seed if args.rollout_seed is None else args.rollout_seed
    worker = RolloutWorker(
        engine=build_engine(model, args),
        decode=response_decoder(tokenizer),
        extract=lambda response: extract_translation(response, args.extractor_type),
        sampling=SamplingParams(
            max_new_tokens=args.max_dec_len,
            min_new_tokens=args.min_dec_len,
            temperature=args.temperature,
            top_p=args.top_p,
            repetition_penalty=args.repetition_penalty,
            stop_token_ids=stop_tokens(tokenizer, args.eos_token),
            seed=seed,
        ),
        rollout_n=args.rollout_n,
    )
    in_reward = bool(args.kl_coeff)
    reference = None
    if in_reward or args.kl_loss_coeff:
        reference = load_reference(args.actor_model_name_or_path, weights_dtype(args))
    scorer = TokenScorer(
        policy=model if in_reward or plan.updates_per_rollout > 1 else None,
        reference=reference,
        pad_id=tokenizer.pad_token_id,
        batch_size=args.per_device_logprob_batch_size,
        temperature=args.temperature,
        pack_tokens=pack_tokens(args),
    )
    return ExperienceMaker(
        prompts=prompts,
        worker=worker,
        rewarder=build_rewarder(
            args, shaping_config(args), FailurePolicy.from_mapping(args.failure_policy), tokenizer.eos_token
        ),
        advantage_rule=ADVANTAGE_RULES[args.advantage_rule],
        score_tokens=scorer,
        plan=plan,
        settings=RolloutSettings(
            rollout_n=args.rollout_n,
            seed=seed,
            shuffle=args.dataloader_shuffle,
            drop_last=args.dataloader_drop_last,
            balance=args.balance_batch,
            dynamic_sampling=args.dynamic_sampling,
            streams_rewards=args.reward_streaming,
            max_gen_batches=args.max_gen_batches,
            kl_coeff=args.kl_coeff,
            gamma=args.gamma,
            clip_range_score=args.clip_range_score,
            max_dec_len=args.max_dec_len,
        ),
        ranks=ranks,
        budget=FailureBudget(max_fraction=args.max_unscored_fraction),
        moments=RunningMoments() if args.normalize_reward else None,
        normalize_advantage=args.normalize_advantage,
    )


def shaping_config(args: Any) -> ShapingConfig:
    """Reward shaping as the argument file says; the overlong buffer counts response tokens."""
    overlong = OverlongConfig(
        max_resp_len=args.overlong_max_resp_len,
        buffer_len=args.overlong_reward_buffer,
        penalty_factor=args.overlong_penalty_factor,
        enable=args.enable_overlong_reward_buffer,
        capped=args.overlong_penalty_capped,
    )
    return ShapingConfig(
        args.score_scale_factor, args.default_reward, overlong, unscored_pay_length=args.use_rule_reward
    )


def loss_config(args: Any) -> PolicyLossConfig:
    """The policy loss as the argument file says."""
    return PolicyLossConfig(
        policy_loss=args.policy_loss,
        clip_low=args.clip_range_ratio_low,
        clip_high=args.clip_range_ratio_high,
        dual_clip=args.dual_clip_ratio,
        loss_agg_mode=args.loss_agg_mode,
        pg_loss_coeff=args.pg_loss_coeff,
        kl_loss_coeff=args.kl_loss_coeff,
        kl_type=args.kl_type,
        clip_range_score=args.clip_range_score,
        entropy_coeff=args.entropy_coeff,
        sft_coeff=args.sft_coeff,
    )
