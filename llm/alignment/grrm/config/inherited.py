"""The keys of PaddleNLP 3.0.0b4's TrainingArguments with types and defaults: files are checked without paddle.

Only the annotations and defaults of this class are read; it is never instantiated. A test compares it with the
installed TrainingArguments, field by field. Where PaddleNLP keeps an open string that it later turns into an
enumeration, the choices are spelt out here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

When = Literal["no", "steps", "epoch"]


@dataclass
class InheritedFields:
    """Names, types and defaults of paddlenlp.trainer.TrainingArguments; `output_dir` has no default there."""

    output_dir: str | None = None
    overwrite_output_dir: bool = False
    do_train: bool = False
    do_eval: bool = False
    do_predict: bool = False
    do_export: bool = False
    evaluation_strategy: When = "no"
    prediction_loss_only: bool = False
    per_device_train_batch_size: int = 8
    per_device_eval_batch_size: int = 8
    gradient_accumulation_steps: int = 1
    eval_accumulation_steps: int | None = None
    learning_rate: float = 5e-5
    weight_decay: float = 0.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    max_grad_norm: float = 1.0
    num_train_epochs: float = 1.0
    max_steps: int = -1
    lr_scheduler_type: Literal["linear", "cosine", "constant", "constant_with_warmup", "polynomial"] = "linear"
    warmup_ratio: float = 0.0
    warmup_steps: int = 0
    num_cycles: float = 0.5
    lr_end: float = 1e-7
    power: float = 1.0
    log_on_each_node: bool = True
    logging_dir: str | None = None
    output_signal_dir: str | None = None
    logging_strategy: When = "steps"
    logging_first_step: bool = False
    logging_steps: int = 500
    save_strategy: When = "steps"
    save_steps: int = 500
    save_total_limit: int | None = None
    save_on_each_node: bool = False
    no_cuda: bool = False
    seed: int = 42
    bf16: bool = False
    fp16: bool = False
    fp16_opt_level: Literal["O0", "O1", "O2"] = "O1"
    amp_master_grad: bool = False
    bf16_full_eval: bool = False
    fp16_full_eval: bool = False
    amp_custom_black_list: list[str] | None = None
    amp_custom_white_list: list[str] | None = None
    sharding: str = ""
    sharding_degree: int = -1
    sharding_parallel_degree: int = -1
    sharding_parallel_mesh_dimension: str = "dp"
    sharding_comm_buffer_size_MB: int = -1
    save_sharded_model: bool = False
    load_sharded_model: bool = False
    tensor_parallel_degree: int = -1
    pipeline_parallel_degree: int = -1
    sep_parallel_degree: int = -1
    split_inputs_sequence_dim: bool = True
    context_parallel_degree: int = -1
    expert_parallel_degree: int = -1
    expert_tensor_parallel_degree: int = -1
    data_parallel_config: str = ""
    sequence_parallel: bool = False
    fuse_sequence_parallel_allreduce: bool = False
    sequence_parallel_config: str = ""
    tensor_parallel_config: str = ""
    pipeline_parallel_config: str = ""
    sharding_parallel_config: str = ""
    hybrid_parallel_topo_order: Literal["pp_first", "sharding_first"] | None = None
    recompute: bool = False
    refined_recompute: str = ""
    scale_loss: float = 32768
    minimum_eval_times: int | None = None
    local_rank: int = -1
    dataloader_drop_last: bool = False
    eval_steps: int | None = None
    max_evaluate_steps: int = -1
    dataloader_num_workers: int = 0
    past_index: int = -1
    run_name: str | None = None
    device: str | None = "gpu"
    disable_tqdm: bool | None = None
    remove_unused_columns: bool | None = True
    label_names: list[str] | None = None
    load_best_model_at_end: bool | None = False
    metric_for_best_model: str | None = None
    greater_is_better: bool | None = None
    ignore_data_skip: bool = False
    optim: Literal["adamw", "adafactor", "adamw_mini", "adamw_custom", "adamw_16bit_moment"] = "adamw"
    report_to: list[str] | None = None
    ddp_find_unused_parameters: bool | None = None
    wandb_api_key: str | None = None
    wandb_http_proxy: str | None = None
    resume_from_checkpoint: str | None = None
    auto_parallel_resume_form_hybrid_parallel: bool | None = False
    skip_memory_metrics: bool = True
    flatten_param_grads: bool | None = False
    lazy_data_processing: bool | None = True
    use_async_save: bool | None = False
    ordered_save_group_size: int = 0
    metrics_output_path: str | None = None
    skip_profile_timer: bool | None = True
    distributed_dataloader: bool | None = False
    unified_checkpoint: bool | None = False
    to_static: bool | None = False
    unified_checkpoint_config: str | None = ""
    ckpt_quant_stage: Literal["O0", "O1", "O2"] = "O0"
    ignore_load_lr_and_optim: bool | None = False
    ignore_save_lr_and_optim: bool | None = False
    force_reshard_pp: bool | None = False
    enable_auto_parallel: bool | None = False
    use_expert_parallel: bool | None = False
    expert_max_capacity: int | None = 4294967296
    expert_min_capacity: int | None = 1
    release_grads: bool | None = False
    skip_data_intervals: list[list[int]] | None = None
    offload_optim: bool | None = False
    save_sharding_stage1_model_include_freeze_params: bool | None = False
    pdc_download_ckpt: bool | None = False
    pdc_download_timeout: int | None = 300
    count_trained_tokens: bool = False
    pad_token_id: int = 0
