"""What makes each key take effect, in one place: no key that is accepted is silently ignored.

A key is either read by this package, or by PaddleNLP's Trainer and TrainingArguments, or a performance switch that
changes no result (where it does nothing, one log line says so), or refused, with the reason and the remedy, unless
it has the value that means "off". A test compares these tables with the fields of RLArguments and SFTArguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from grrm.errors import UserError


class By(Enum):
    """Who honours a key."""

    OURS = "this package"
    PADDLENLP = "PaddleNLP's Trainer"
    SWITCH = "performance switch"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class KeySupport:
    """`accepted` are the values that mean "off"; `note` is the reason of a refusal or what happens instead."""

    by: By
    accepted: tuple[Any, ...] = ()
    note: str = ""


_OURS = """
device num_train_epochs max_steps seed overwrite_output_dir resume_from_checkpoint per_device_train_batch_size
gradient_accumulation_steps train_datasets prompt_key response_key max_length dataloader_drop_last frozen_layers
"""
_RL_OURS = """
eval_datasets dataloader_shuffle rl_algorithm actor_model_name_or_path use_rm_server reward_server use_rule_reward
max_prompt_len balance_batch min_learning_rate
rollout_n max_dec_len min_dec_len top_p temperature repetition_penalty eos_token rollout_max_num_seqs
rollout_quant_type
global_batch_size global_gen_batch_size global_mini_batch_size update_iters per_device_logprob_batch_size
kl_coeff kl_loss_coeff pg_loss_coeff entropy_coeff clip_range_ratio clip_range_ratio_low clip_range_ratio_high
clip_range_score normalize_reward normalize_advantage enable_overlong_reward_buffer overlong_reward_buffer
overlong_penalty_factor overlong_max_resp_len overlong_penalty_capped dynamic_sampling max_gen_batches
early_stopping early_stopping_patience early_stopping_threshold
advantage_rule norm_adv_by_std policy_loss loss_agg_mode dual_clip_ratio sft_coeff kl_type
gamma allow_biased_sampling logprob_gap_limit rollout_seed share_prompt rule_reward score_scale_factor
default_reward extractor_type failure_policy max_unscored_fraction reward_protocol reward_token_file
reward_connect_timeout_s
reward_read_timeout_s reward_deadline_s reward_attempts reward_groups_per_request reward_streaming dump_rollouts
dump_format console_groups eval_samples
"""
_SFT_OURS = """
model_name_or_path init_from_config tokenizer_name_or_path prompt_labels_key prompt_label_weight z_loss_weight
"""
_PADDLENLP = """
output_dir learning_rate weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm lr_scheduler_type warmup_ratio
warmup_steps num_cycles lr_end power optim logging_dir output_signal_dir logging_strategy logging_first_step
logging_steps save_strategy save_steps save_total_limit save_on_each_node bf16 fp16 fp16_opt_level amp_master_grad
amp_custom_black_list amp_custom_white_list scale_loss sharding sharding_parallel_degree sharding_comm_buffer_size_MB
sharding_parallel_config save_sharded_model load_sharded_model tensor_parallel_degree tensor_parallel_config
data_parallel_config
hybrid_parallel_topo_order recompute local_rank run_name disable_tqdm load_best_model_at_end
metric_for_best_model greater_is_better ignore_data_skip report_to ddp_find_unused_parameters wandb_api_key
wandb_http_proxy skip_memory_metrics ordered_save_group_size metrics_output_path skip_profile_timer
unified_checkpoint unified_checkpoint_config ckpt_quant_stage ignore_save_lr_and_optim
force_reshard_pp release_grads offload_optim save_sharding_stage1_model_include_freeze_params
"""
_RL_PADDLENLP = "do_eval evaluation_strategy eval_steps"
# PaddleNLP's own data loader and evaluation loop read these; the RL trainer replaces both.
_LOADER = {
    "prediction_loss_only": (False,),
    "eval_accumulation_steps": (None,),
    "minimum_eval_times": (None,),
    "max_evaluate_steps": (-1,),
    "dataloader_num_workers": (0,),
    "past_index": (-1,),
    "remove_unused_columns": (True, False, None),
    "label_names": (None,),
    "distributed_dataloader": (False, None),
    "skip_data_intervals": (None,),
    "count_trained_tokens": (False,),
    "pad_token_id": (0,),
}
_LOADER_REASON = "the RL trainer has its own data loader and evaluation loop; remove the key"

_ELSEWHERE = "this trainer does not do that; remove the key"
_PARALLEL = "only data and sharding parallelism are supported; remove the key"
_REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "do_train": ((True,), "run_rl.py and run_sft.py always train; remove the key"),
    "do_predict": ((False,), "this script only trains; remove the key"),
    "do_export": ((False,), "the saved checkpoint is already a PaddleNLP model folder; remove the key"),
    "no_cuda": ((False,), "PaddleNLP does not read it; set device: cpu"),
    "log_on_each_node": ((True,), "PaddleNLP does not read it; remove the key"),
    "bf16_full_eval": ((False,), "PaddleNLP does not read it; set bf16"),
    "fp16_full_eval": ((False,), "PaddleNLP does not read it; set fp16"),
    "lazy_data_processing": ((True, None), "the data are held in memory; remove the key"),
    "sharding_degree": ((-1,), "it is PaddleNLP's retired name; use sharding_parallel_degree"),
    "sharding_parallel_mesh_dimension": (("dp",), "it belongs to automatic parallelism; remove the key"),
    "pipeline_parallel_degree": ((-1, 1), _PARALLEL),
    "pipeline_parallel_config": (("",), _PARALLEL),
    "sequence_parallel": ((False,), _PARALLEL),
    "sequence_parallel_config": (("",), _PARALLEL),
    "fuse_sequence_parallel_allreduce": ((False,), _PARALLEL),
    "sep_parallel_degree": ((-1, 1), _PARALLEL),
    "context_parallel_degree": ((-1, 1), _PARALLEL),
    "split_inputs_sequence_dim": ((True,), _PARALLEL),
    "expert_parallel_degree": ((-1, 1), _PARALLEL),
    "expert_tensor_parallel_degree": ((-1, 1), _PARALLEL),
    "use_expert_parallel": ((False, None), _PARALLEL),
    "expert_max_capacity": ((4294967296, None), _PARALLEL),
    "expert_min_capacity": ((1, None), _PARALLEL),
    "enable_auto_parallel": ((False, None), _PARALLEL),
    "auto_parallel_resume_form_hybrid_parallel": ((False, None), _PARALLEL),
    "refined_recompute": (("",), "the policy's layers do not have it; use recompute"),
    "to_static": ((False, None), "training runs in dynamic mode only; remove the key"),
    "flatten_param_grads": ((False, None), "PaddleNLP has it for NPU devices only; remove the key"),
    "use_async_save": (
        (False, None),
        "a checkpoint could be taken for whole while it is still being written; remove the key",
    ),
    "ignore_load_lr_and_optim": (
        (False, None),
        "a resumed run goes on with its optimizer; give the checkpoint as the model to start from its weights alone",
    ),
    "pdc_download_ckpt": ((False, None), _ELSEWHERE),
    "pdc_download_timeout": ((300, None), _ELSEWHERE),
}
_CRITIC = "there is no critic; remove the key, or use rl_algorithm grpo or reinforce_plus_plus"
_DROPOUT = "dropout makes the policy that is trained differ from the one that is sampled; set 0"
_RL_REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    **{key: (accepted, _LOADER_REASON) for key, accepted in _LOADER.items()},
    "reward_model_name_or_path": ((None,), "judges run behind the reward server; start it and set reward_server"),
    "critic_model_name_or_path": ((None,), _CRITIC),
    "critic_tokenizer_alpha": ((None,), _CRITIC),
    "critic_learning_rate": ((None,), _CRITIC),
    "critic_weight_decay": ((None,), _CRITIC),
    "critic_lr_scheduler_type": ((None,), _CRITIC),
    "critic_warmup_ratio": ((None,), _CRITIC),
    "critic_recompute": ((None, False), _CRITIC),
    "critic_recompute_granularity": (("full",), _CRITIC),
    "critic_min_learning_rate": ((None,), _CRITIC),
    "critic_decay_steps": ((None,), _CRITIC),
    "clip_range_value": ((5.0,), _CRITIC),
    "use_tgt_len_value": ((False,), _CRITIC),
    "actor_tokenizer_alpha": ((None, 0.0), "Qwen2.5 tokenizers have no such factor; remove the key"),
    "reward_tokenizer_alpha": ((None, 0.0), "the reward server has its own tokenizer; remove the key"),
    "chat_template": (("none", ""), "prompts are written with their chat template by `grrm data`; remove the key"),
    "stage": (("PPO", "RL"), "this script only does RL; use run_sft.py for the supervised stage"),
    "max_src_len": ((None,), "PaddleNLP overwrites it with max_prompt_len; set max_prompt_len"),
    "rollout_tensor_parallel_degree": ((-1,), "rollouts need whole weights on each rank; remove the key"),
    "rollout_backend": (
        ("paddle",),
        "rollouts need the policy's new weights and the log-probability of every drawn token, and FastDeploy's offline "
        "interface neither takes over the one nor tells the other; remove the key, and use FastDeploy for the judge, "
        "with the reward server's setting backend",
    ),
    "ptx_coeff": ((0.0,), "there is no pre-training loss; sft_coeff is the likelihood term of the GRRM recipe"),
    "use_fp32_compute": ((True,), "rewards, advantages and losses are always computed in float32; remove the key"),
    "decay_steps": ((None,), "schedules span the whole run; remove the key"),
    "virtual_pp_degree": ((1,), _PARALLEL),
    "hidden_dropout_prob": ((0.0,), _DROPOUT),
    "attention_probs_dropout_prob": ((0.0,), _DROPOUT),
    "dropout_warmup_steps": ((0,), _DROPOUT),
    "autotuner_benchmark": ((False,), _ELSEWHERE),
}
_LAYERS = "the policy is built from PaddleNLP's plain layers"
_SWITCHES: dict[str, tuple[tuple[Any, ...], str]] = {
    "use_flash_attention": ((False,), _LAYERS),
    "use_fused_rms_norm": ((False,), _LAYERS),
    "use_fused_rope": ((False,), _LAYERS),
    "use_fused_linear": ((False,), _LAYERS),
    "tensor_parallel_output": ((True,), "the policy's scoring needs its logits that way"),
    "recompute_granularity": (("full",), "recompute covers whole layers"),
    "recompute_use_reentrant": ((False,), "recompute covers whole layers"),
}
_RL_SWITCHES: dict[str, tuple[tuple[Any, ...], str]] = {
    "use_fused_head_and_loss_fn": ((False,), "the head and the loss are separate"),
    "use_fusemt": ((False,), "the rollout engine has its own kernels"),
    "use_remove_padding": ((False,), "batches are padded to their longest row"),
    "per_device_rollout_batch_size": ((-1,), "the engine keeps rollout_max_num_seqs rows in flight"),
    "per_device_reward_batch_size": ((-1,), "rewards are asked for reward_groups_per_request groups at a time"),
    "per_device_value_batch_size": ((-1,), "there is no critic"),
    "per_device_eval_batch_size": ((8,), "evaluation keeps rollout_max_num_seqs rows in flight"),
    "per_device_prompt_batch_size": ((), "global_batch_size decides how many prompts a rollout draws"),
    "offload_level": (("",), "nothing is offloaded"),
    "eval_mode": ((None,), "evaluation samples from the policy that is being trained"),
}


def _table(
    ours: str,
    paddlenlp: str,
    refused: Mapping[str, tuple[tuple[Any, ...], str]],
    switches: Mapping[str, tuple[tuple[Any, ...], str]],
) -> dict[str, KeySupport]:
    return {
        **{key: KeySupport(By.OURS) for key in ours.split()},
        **{key: KeySupport(By.PADDLENLP) for key in paddlenlp.split()},
        **{key: KeySupport(By.SWITCH, *entry) for key, entry in switches.items()},
        **{key: KeySupport(By.REFUSED, *entry) for key, entry in refused.items()},
    }


_SFT_REASON = "run_sft.py does not evaluate; score its model with the evaluation of grrm and remove the key"
_SFT_REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "eval_datasets": ((None,), _SFT_REASON),
    "do_eval": ((False,), _SFT_REASON),
    "evaluation_strategy": (("no",), _SFT_REASON),
    "eval_steps": ((None,), _SFT_REASON),
    "per_device_eval_batch_size": ((8,), _SFT_REASON),
    "dataloader_shuffle": ((True,), "PaddleNLP's loader always shuffles; remove the key"),
}

KEY_SUPPORT: Mapping[str, Mapping[str, KeySupport]] = {
    "RL": _table(
        _OURS + _RL_OURS, _PADDLENLP + _RL_PADDLENLP, {**_REFUSED, **_RL_REFUSED}, {**_SWITCHES, **_RL_SWITCHES}
    ),
    "SFT": _table(_OURS + _SFT_OURS, _PADDLENLP + " ".join(_LOADER), {**_REFUSED, **_SFT_REFUSED}, _SWITCHES),
}


def refuse_unsupported(kind: str, values: Mapping[str, Any]) -> None:
    """Raises UserError for the first refused key whose value is not one of those that mean "off"."""
    for key, value in values.items():
        support = KEY_SUPPORT[kind][key]
        if support.by is By.REFUSED and value not in support.accepted:
            raise UserError(f"{key}: {value} is not supported: {support.note}.")


def switches_without_effect(kind: str, given: Mapping[str, Any]) -> str | None:
    """One sentence on the performance switches in the file that do nothing; None when there are none.

    `given` holds only the keys of the file and the command line, so that defaults are not reported.
    """
    idle: dict[str, list[str]] = {}
    for key, value in given.items():
        support = KEY_SUPPORT[kind][key]
        if support.by is By.SWITCH and value not in support.accepted:
            idle.setdefault(support.note, []).append(key)
    if not idle:
        return None
    reasons = "; ".join(f"{', '.join(keys)} ({note})" for note, keys in idle.items())
    return f"These performance switches have no effect here and change no result: {reasons}."
