"""An RL argument file as PaddleNLP ships it works as it is."""

from __future__ import annotations

import pytest

from grrm.config import Launch, RLConfig, prepare
from grrm.config.load import switches_without_effect
from grrm.errors import UserError

PADDLENLP_SAMPLE = """
rl_algorithm: grpo
actor_model_name_or_path: Qwen/Qwen2.5-1.5B
reward_model_name_or_path: null
use_rm_server: true
reward_server: "http://127.0.0.1:8731"
logging_dir: grpo-logs
logging_steps: 1
output_dir: qwen2.5-1.5b-grpo
report_to: visualdl
disable_tqdm: true
train_datasets: train.jsonl
eval_datasets: dev.jsonl
prompt_key: src
response_key: tgt
dataloader_drop_last: true
dataloader_shuffle: false
balance_batch: true
use_remove_padding: true
tensor_parallel_degree: 1
sharding_parallel_degree: -1
sharding: stage1
sharding_parallel_config: enable_release_grads
pipeline_parallel_degree: 1
virtual_pp_degree: 1
max_prompt_len: 512
max_dec_len: 4096
min_dec_len: 32
max_length: 4608
top_p: 1.0
temperature: 0.7
repetition_penalty: 1.0
rollout_max_num_seqs: 32
rollout_quant_type: ""
rollout_n: 8
global_batch_size: 8
global_gen_batch_size: -1
global_mini_batch_size: -1
update_iters: 1
per_device_logprob_batch_size: 8
per_device_reward_batch_size: 8
per_device_value_batch_size: 8
per_device_train_batch_size: 8
do_train: true
seed: 42
max_steps: 3600
learning_rate: 5e-7
lr_scheduler_type: constant
weight_decay: 1e-2
adam_beta1: 0.9
adam_beta2: 0.999
adam_epsilon: 1e-8
max_grad_norm: 1.0
save_steps: 300
save_strategy: steps
ignore_save_lr_and_optim: true
kl_loss_coeff: 0.0
pg_loss_coeff: 1.0
entropy_coeff: 0.0
clip_range_ratio: 0.2
clip_range_ratio_low: 0.2
clip_range_ratio_high: 0.2
clip_range_score: 10.0
enable_overlong_reward_buffer: false
overlong_reward_buffer: 256
overlong_penalty_factor: 1.0
normalize_reward: false
normalize_advantage: false
dynamic_sampling: false
max_gen_batches: 2
use_fp32_compute: true
do_eval: true
per_device_eval_batch_size: 32
evaluation_strategy: steps
eval_steps: 20
use_flash_attention: true
use_fused_rms_norm: false
use_fused_rope: false
use_fused_head_and_loss_fn: true
use_fused_linear: true
recompute: true
recompute_use_reentrant: true
recompute_granularity: full
bf16: true
fp16_opt_level: O2
amp_master_grad: false
amp_custom_black_list: reduce_sum softmax_with_cross_entropy c_softmax_with_cross_entropy
amp_custom_white_list: [lookup_table, flash_attn, matmul]
offload_level: freeze_model
release_grads: true
offload_optim: false
skip_profile_timer: false
autotuner_benchmark: false
unified_checkpoint: true
hidden_dropout_prob: 0
attention_probs_dropout_prob: 0
dropout_warmup_steps: 0
"""


def test_a_paddlenlp_argument_file_works_as_it_is(tmp_path):
    path = tmp_path / "grpo_argument.yaml"
    path.write_text(PADDLENLP_SAMPLE)
    prepared = prepare(RLConfig, path, launch=Launch("gpu", 4), check_machine=False)
    values = prepared.config
    assert values.amp_custom_black_list[-1] == "c_softmax_with_cross_entropy"
    assert (values.weight_decay, values.adam_epsilon) == (0.01, 1e-8)
    assert prepared.plan.updates_per_rollout == 1
    assert "offload_level (nothing is offloaded)" in switches_without_effect(values)
    path.write_text(PADDLENLP_SAMPLE.replace("tensor_parallel_degree: 1", "tensor_parallel_degree: 2"))
    with pytest.raises(UserError, match="set it to 1 and use sharding: stage1"):
        prepare(RLConfig, path)
    path.write_text(PADDLENLP_SAMPLE + "kl_coeff: 0.001\n")
    with pytest.raises(UserError, match="set kl_coeff: 0 and use kl_loss_coeff"):
        prepare(RLConfig, path)
