"""The keys of an RL argument file that PaddleNLP's TrainingArguments does not have, with their defaults.

The names are those of PaddleNLP's RL argument files; the last three blocks are this project's own. What honours each
key is listed in support.py. Importing this module does not import paddle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Algorithm = Literal["grpo", "gspo", "dr_grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "ppo"]
AdvantageRule = Literal[
    "grpo", "grpo_no_std", "dr_grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline"
]  # fmt: skip
Tracker = Literal["visualdl", "tensorboard", "wandb", "all", "none"]
KlType = Literal["k1", "abs", "k2", "k3", "k1+", "abs+", "k3+", "kl", "mse", "low_var_kl", "low_var_kl+"]
RuleReward = Literal[
    "ranking_score", "ranking_score_no_cot", "score", "ranking", "ranking_no_cot", "ranking_zero", "single_score"
]
Aggregation = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


@dataclass
class CommonFields:
    """Keys of TrainingArguments whose default differs here."""

    device: Literal["cpu", "gpu"] | None = None  # None = the GPU when there is one
    do_train: bool = True
    report_to: list[Tracker] = field(default_factory=lambda: ["visualdl"])


@dataclass
class RLFields(CommonFields):
    """Settings of one RL run; None means "derived", see derive.py."""

    # Algorithm and models
    rl_algorithm: Algorithm = "grpo"
    actor_model_name_or_path: str | None = None  # the policy, and the reference policy where one is needed
    reward_model_name_or_path: str | None = None
    critic_model_name_or_path: str | None = None
    use_rm_server: bool = False  # false = the text-metric judge inside the trainer, against the references
    reward_server: list[str] | None = None  # one URL, or several that are a pool
    use_rule_reward: bool = False  # true = ranking accuracy against the ground truths in the data: trains a judge
    actor_tokenizer_alpha: float | None = None
    reward_tokenizer_alpha: float | None = None
    critic_tokenizer_alpha: float | None = None
    chat_template: str = "none"
    stage: str = "PPO"

    # Data
    train_datasets: str | None = None
    eval_datasets: str | None = None
    prompt_key: str = "src"
    response_key: str = "tgt"
    max_prompt_len: int = 4096  # tokens; longer prompts are left out and counted
    max_src_len: int | None = None
    max_length: int | None = None  # tokens of prompt and response; None = max_prompt_len + max_dec_len
    dataloader_shuffle: bool = True
    balance_batch: bool = False
    use_remove_padding: bool = False

    # Rollout
    rollout_n: int = 1  # samples per prompt
    max_dec_len: int = 512  # tokens
    min_dec_len: int = 1
    top_p: float = 1.0
    temperature: float = 1.0
    repetition_penalty: float = 1.0
    eos_token: str = ""  # one more token that ends a response
    rollout_max_num_seqs: int = 8  # rows a rank decodes at the same time
    rollout_quant_type: Literal["", "weight_only_int8"] = ""  # of what rollouts multiply; training is not touched
    rollout_tensor_parallel_degree: int = -1
    use_fusemt: bool = True

    # Batches, see batch_plan.py
    global_batch_size: int = 8  # prompts per rollout
    global_gen_batch_size: int = -1  # prompts per generation pass of dynamic sampling
    global_mini_batch_size: int = -1  # prompts per optimizer step
    update_iters: int = 1
    per_device_rollout_batch_size: int = -1
    per_device_logprob_batch_size: int = -1  # rows; -1 = per_device_train_batch_size
    per_device_reward_batch_size: int = -1
    per_device_value_batch_size: int = -1
    per_device_prompt_batch_size: int = 16

    # Objective
    kl_coeff: float | None = None  # KL inside the reward; None = 0.02 for reinforce_plus_plus, else 0
    kl_loss_coeff: float | None = None  # KL as a loss term; None = 0.001, and 0 for reinforce_plus_plus
    pg_loss_coeff: float = 1.0
    entropy_coeff: float = 0.0
    clip_range_ratio: float = 0.2
    clip_range_ratio_low: float | None = None
    clip_range_ratio_high: float | None = None
    clip_range_score: float = 10.0
    clip_range_value: float = 5.0
    normalize_reward: bool | None = None
    normalize_advantage: bool | None = None
    enable_overlong_reward_buffer: bool = False
    overlong_reward_buffer: int = 256  # tokens
    overlong_penalty_factor: float = 1.0
    dynamic_sampling: bool = False
    max_gen_batches: int = 32  # generation passes one rollout may take
    use_fp32_compute: bool = True
    use_tgt_len_value: bool = False
    ptx_coeff: float = 0.0

    # Optimizer keys beyond TrainingArguments
    min_learning_rate: float | None = None  # what the cosine schedule comes down to; None = 0
    decay_steps: int | None = None
    critic_learning_rate: float | None = None
    critic_weight_decay: float | None = None
    critic_lr_scheduler_type: str | None = None
    critic_warmup_ratio: float | None = None
    critic_recompute: bool | None = None
    critic_recompute_granularity: str = "full"
    critic_min_learning_rate: float | None = None
    critic_decay_steps: int | None = None

    # Early stopping and evaluation
    early_stopping: bool = False
    early_stopping_patience: int = 4
    early_stopping_threshold: float = 0.0
    eval_mode: Literal["single", "tensor_parallel"] | None = None

    # Model configuration, parallelism, memory
    tensor_parallel_output: bool = True
    virtual_pp_degree: int = 1
    use_flash_attention: bool = False
    use_fused_rms_norm: bool = False
    use_fused_rope: bool = False
    use_fused_linear: bool = False
    use_fused_head_and_loss_fn: bool = False
    recompute_granularity: Literal["full", "full_attn", "core_attn"] = "full"
    recompute_use_reentrant: bool = False
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    dropout_warmup_steps: int = 0
    offload_level: str = ""
    autotuner_benchmark: bool = False

    # Ours: objective
    advantage_rule: AdvantageRule | None = None  # None = the rule rl_algorithm stands for
    norm_adv_by_std: bool | None = None  # false turns grpo into grpo_no_std
    policy_loss: Literal["token_clip", "gspo"] | None = None
    loss_agg_mode: Aggregation | None = None  # None = token-mean, and what the paper says for gspo and dr_grpo
    dual_clip_ratio: float | None = None  # bound on the ratio where the advantage is negative, e.g. 3
    sft_coeff: float = 0.0  # weight of the advantage-weighted likelihood of better-than-average rows
    kl_type: KlType = "k3"
    gamma: float = 1.0
    allow_biased_sampling: bool = False  # accept top_p < 1 or a repetition penalty, which the ratios do not account for
    logprob_gap_limit: float | None = None  # stop when engine and trainer differ by more (mean |difference| per token)
    rollout_seed: int | None = None  # None = seed
    rollout_backend: str = "paddle"
    share_prompt: bool = True  # pack a group's responses behind one copy of their prompt, up to max_length tokens a row

    # Ours: reward
    rule_reward: RuleReward = "ranking_score"  # what use_rule_reward asks of a response
    score_scale_factor: float = 0.1
    default_reward: float = 0.0
    extractor_type: Literal["line", "oneline", "codeblock", "none"] = "line"
    failure_policy: dict[str, str] = field(default_factory=dict)  # status -> penalty | mask | drop_group | abort
    max_unscored_fraction: float | None = 0.5
    overlong_max_resp_len: int | None = None  # tokens at which the overlong penalty is whole; None = max_dec_len
    overlong_penalty_capped: bool = True  # false = it rises on beyond that, as in DAPO
    reward_protocol: Literal["grrm", "paddlenlp"] = "grrm"
    reward_token_file: str | None = None
    reward_connect_timeout_s: float = 5.0
    reward_read_timeout_s: float = 120.0
    reward_deadline_s: float = 600.0  # for the rewards of one rollout, all retries included
    reward_attempts: int = 5
    reward_groups_per_request: int = 16
    reward_streaming: bool = False  # judge a group as its last sample ends, while others are being sampled

    # Ours: seeing the run
    dump_rollouts: bool = True
    dump_format: Literal["jsonl", "parquet"] = "jsonl"
    console_groups: int = 1  # sample groups printed per logged rollout; 0 = none
    eval_samples: int = 1  # sampled translations per held-out prompt, beside the greedy one

    # Ours: training
    frozen_layers: int = 0  # lowest layers that are not trained; with them the input embeddings


@dataclass
class SFTFields(CommonFields):
    """Settings of the supervised cold start; the loss covers the response tokens only."""

    model_name_or_path: str | None = None
    init_from_config: str | None = None  # JSON file of a model configuration to train from scratch
    tokenizer_name_or_path: str | None = None  # None = model_name_or_path
    train_datasets: str | None = None
    eval_datasets: str | None = None
    prompt_key: str = "src"
    response_key: str = "tgt"
    prompt_labels_key: str = ""  # labels inside prompts, see grrm.data.prompt_labels; empty = none
    prompt_label_weight: float = 1.0  # of such a label in the loss; a token of the response has 1
    frozen_layers: int = 0  # as in RLFields
    z_loss_weight: float = 0.0  # of the squared log-normaliser, which keeps logits near log-probabilities
    max_length: int = 2048  # tokens of prompt and response; longer rows are left out and counted
    dataloader_shuffle: bool = True
    use_flash_attention: bool = False
    use_fused_rms_norm: bool = False
    use_fused_rope: bool = False
    use_fused_linear: bool = False
    recompute_granularity: Literal["full", "full_attn", "core_attn"] = "full"
    recompute_use_reentrant: bool = False
    tensor_parallel_output: bool = True


# Names that older PaddleNLP argument files use.
RL_ALIASES = {
    "num_return_sequences": "rollout_n",
    "mini_batch_size": "global_mini_batch_size",
    "quant_type": "rollout_quant_type",
    "label_key": "response_key",
    "fused_linear": "use_fused_linear",
}
SFT_ALIASES = {"label_key": "response_key", "fused_linear": "use_fused_linear"}
