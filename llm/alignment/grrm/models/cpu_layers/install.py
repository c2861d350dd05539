"""Puts the CPU forms in the place of PaddleNLP's."""

from __future__ import annotations

from typing import Any

import paddle

from grrm.errors import UserError
from grrm.models.cpu_kernels import available
from grrm.models.cpu_layers import operators
from grrm.models.cpu_layers.attention import attention, llama_attention, repeat_kv
from grrm.models.cpu_layers.layers import rms_norm, rotate, swiglu
from grrm.models.cpu_layers.precision import set_precision
from grrm.models.cpu_layers.projection import CpuLinear, with_projection
from grrm.paddlenlp_api.files import logger
from grrm.paddlenlp_api.modeling import linear_utils, llama, qwen2
from grrm_csrc.blas import is_native
from grrm_csrc.build import kernels

_PARALLEL = {
    f"{part}{kind}Linear": getattr(linear_utils, f"{part}{kind}Linear")
    for part in ("Column", "Row")
    for kind in ("Parallel", "SequenceParallel")
}

_in_use = False


def takes_ranges(config: Any) -> bool:
    """True where the attention of models built now reads `attention_ranges`, not a mask."""
    return _in_use and operators.available() and not getattr(config, "alibi", False)


def require_kernels(key: str, precision: str = "bfloat16") -> None:
    """Raises UserError, naming the key of the argument file, where the kernels that would honour it are missing.

    Where they are slower than without the key, because this processor has no dot products for the precision, a line
    says so.
    """
    if not available():
        raise UserError(f"{key} needs the C++ kernels on a CPU, but {kernels().reason}: remove the key.")
    if not is_native(precision):
        logger.warning(
            f"{key}: this processor has no {precision} dot products, so its products take longer than float32's"
        )


def use_cpu_layers(precision: str = "float32") -> None:
    """Install the CPU forms for models built from here on; does nothing when a GPU is in use.

    With the precision "bfloat16" matrix products of projections and output layers round their factors to it; sums,
    weights, gradients and the optimizer stay float32. Raises UserError where the kernels that do so are missing.
    """
    if not paddle.get_device().startswith("cpu"):
        return
    if precision != "float32":
        require_kernels("bf16")
    global _in_use
    _in_use = True
    set_precision(precision)
    qwen2.Qwen2RMSNorm.forward = rms_norm
    llama.LlamaRMSNorm.forward = rms_norm
    for modeling in (qwen2, llama):
        modeling.apply_rotary_pos_emb = rotate
        modeling.fusion_ops.swiglu = swiglu
        modeling.repeat_kv = repeat_kv
        modeling.Linear = CpuLinear
    for name, parallel_linear in _PARALLEL.items():
        setattr(linear_utils, name, with_projection(parallel_linear))
    llama.swiglu = swiglu  # by a name of its own
    qwen2.scaled_dot_product_attention = attention
    llama.scaled_dot_product_attention = llama_attention
