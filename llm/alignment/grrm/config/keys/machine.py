"""Keys of device, precision, parallelism, LoRA, and of speed and memory."""

from __future__ import annotations

from typing import ClassVar, Literal

from grrm.config.key import OURS, TRAINER, Section, Support, gpu_switch, key, refused, switch

_PARALLEL = "only data, sharding, tensor, sequence and pipeline parallelism are supported; remove the key"


class PrecisionConfig(Section):
    """Device and number formats."""

    title: ClassVar[str] = "Device and precision"
    usual: ClassVar[Support] = TRAINER

    device: Literal["cpu", "gpu"] | None = key(None, "where to train", means="the GPU when there is one", by=OURS)
    no_cuda: bool = key(False, "train on the CPU", by=refused("PaddleNLP does not read it; set device: cpu"))
    bf16: bool = key(False, "train in bfloat16; on a CPU only the operands of projections are rounded")
    fp16: bool = key(False, "train in float16, on a GPU only")
    fp16_opt_level: Literal["O0", "O1", "O2"] = key(
        "O1", "mixed precision level, for bf16 as well: O1 matrix products, O2 weights too"
    )
    amp_master_grad: bool = key(False, "with O2, gradients in float32")
    amp_custom_black_list: list[str] | None = key(None, "operators that stay in float32")
    amp_custom_white_list: list[str] | None = key(None, "operators that run in 16 bits")
    scale_loss: float = key(32768, "initial loss scale in float16", gt=0)
    bf16_full_eval: bool = key(False, "evaluate in bfloat16", by=refused("PaddleNLP does not read it; set bf16"))
    fp16_full_eval: bool = key(False, "evaluate in float16", by=refused("PaddleNLP does not read it; set fp16"))


class ParallelConfig(Section):
    """Division of work among processes."""

    title: ClassVar[str] = "Parallelism"
    usual: ClassVar[Support] = TRAINER

    sharding: str = key("", "what is sharded over data ranks: stage1 optimizer states, stage2 gradients too")
    sharding_parallel_degree: int = key(-1, "ranks of a sharding group; -1 for all", unit="ranks", ge=1, also=(-1,))
    sharding_parallel_config: str = key("", "options of sharding, separated by blanks")
    sharding_comm_buffer_size_MB: int = key(
        -1, "size of a gradient communication bucket; -1 for Paddle's default", unit="MB"
    )
    data_parallel_config: str = key("", "options of data parallelism, separated by blanks")
    ddp_find_unused_parameters: bool | None = key(
        None, "detect weights without gradient in each step", means="by the model"
    )
    tensor_parallel_degree: int = key(-1, "ranks that each layer is split over", unit="ranks", ge=1, also=(-1,))
    tensor_parallel_config: str = key("", "options of tensor parallelism")
    hybrid_parallel_topo_order: Literal["pp_first", "sharding_first"] | None = key(
        None, "order of the process groups", means="pp_first"
    )
    local_rank: int = key(-1, "index of this process; set by the launcher")
    sharding_degree: int = key(
        -1, "older name", by=refused("it is PaddleNLP's retired name; use sharding_parallel_degree")
    )
    sharding_parallel_mesh_dimension: str = key(
        "dp", "mesh dimension that is sharded", by=refused("it belongs to automatic parallelism; remove the key")
    )
    pipeline_parallel_degree: int = key(
        -1, "ranks that the layers are divided among, as stages of a pipeline", unit="ranks", ge=1, also=(-1,)
    )
    virtual_pp_degree: int = key(
        1, "pieces that a stage has of the layers; above 1 takes three stages", ge=1, le=1024, by=OURS
    )
    pipeline_parallel_config: str = key(
        "", "options of pipeline parallelism", by=refused("the trainer sets them; remove the key")
    )
    sequence_parallel: bool = key(
        False, "split activations between layers along tokens over tensor ranks; off without tensor ranks"
    )
    sequence_parallel_config: str = key("", "options of sequence parallelism", by=refused(_PARALLEL))
    fuse_sequence_parallel_allreduce: bool = key(False, "fuse its gradient all-reduces", by=refused(_PARALLEL))
    sep_parallel_degree: int = key(-1, "ranks that a row's attention heads are split over", by=refused(_PARALLEL, 1))
    context_parallel_degree: int = key(-1, "ranks that a row's tokens are split over", by=refused(_PARALLEL, 1))
    split_inputs_sequence_dim: bool = key(True, "split rows for either of them", by=refused(_PARALLEL))
    use_expert_parallel: bool | None = key(False, "distribute experts over ranks", by=refused(_PARALLEL, None))
    expert_parallel_degree: int = key(-1, "ranks that experts are distributed over", by=refused(_PARALLEL, 1))
    expert_tensor_parallel_degree: int = key(-1, "ranks that an expert is split over", by=refused(_PARALLEL, 1))
    expert_max_capacity: int | None = key(4294967296, "maximum tokens per expert", by=refused(_PARALLEL, None))
    expert_min_capacity: int | None = key(1, "minimum tokens per expert", by=refused(_PARALLEL, None))
    enable_auto_parallel: bool | None = key(False, "automatic parallelism of Paddle", by=refused(_PARALLEL, None))
    auto_parallel_resume_form_hybrid_parallel: bool | None = key(
        False, "resume it from a hybrid-parallel run", by=refused(_PARALLEL, None)
    )


class SpeedConfig(Section):
    """Memory against time, and fused operators."""

    title: ClassVar[str] = "Speed and memory"

    recompute: bool = key(False, "recompute activations in the backward pass instead of storing them", by=TRAINER)
    recompute_granularity: Literal["full", "full_attn", "core_attn"] = key(
        "full", "what is recomputed: whole layers, attention, or attention scores only"
    )
    recompute_use_reentrant: bool = key(False, "use Paddle's older, reentrant recompute")
    refined_recompute: str = key(
        "", "what is recomputed, by operator", by=refused("the policy's layers do not have it; use recompute")
    )
    release_grads: bool | None = key(False, "free the gradients after each step", by=TRAINER)
    offload_optim: bool | None = key(False, "keep the optimizer state in host memory between steps", by=TRAINER)
    use_flash_attention: bool = key(
        False,
        "FlashMask attention in training, which stores no scores; needs bf16 or fp16",
        by=gpu_switch("attention runs in kernels for CPUs, which keep none either"),
    )
    use_fused_rms_norm: bool = key(
        False, "fused normalisation", by=switch("PaddleNLP's needs its package fused_ln, which no wheel has")
    )
    use_fused_rope: bool = key(
        False, "fused rotary embeddings in training", by=gpu_switch("rotation runs in kernels for CPUs")
    )
    use_fused_linear: bool = key(
        False, "fused projections", by=switch("Qwen2's and Llama's layers have none"), aliases=("fused_linear",)
    )
    tensor_parallel_output: bool = key(
        True, "keep logits sharded over tensor ranks", by=switch("always so, scores are put together from parts")
    )
    to_static: bool | None = key(
        False, "compile the model", by=refused("training runs in dynamic mode only; remove the key", None)
    )


TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class AdapterConfig(Section):
    """Low-rank adapters in place of all weights."""

    title: ClassVar[str] = "LoRA"

    lora: bool = key(False, "train low-rank adapters on frozen weights, and a reward model's head")
    lora_rank: int = key(8, "rank of the adapters", ge=1, le=10**4)
    lora_alpha: int = key(None, "adapters are scaled by lora_alpha / lora_rank", means="2 × lora_rank", ge=1)
    lora_target_modules: list[str] = key(TARGETS, "names of the projections with adapters")
