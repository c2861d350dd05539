"""Puts the CPU forms in the place of PaddleNLP's."""

from __future__ import annotations

from typing import Any

import paddle
from paddlenlp.transformers.llama import modeling as llama
from paddlenlp.transformers.qwen2 import modeling as qwen2

from grrm.engine.native import available
from grrm.rl.cpu_layers.attention import attention, llama_attention, repeat_kv
from grrm.rl.cpu_layers.feed_forward import swiglu
from grrm.rl.cpu_layers.norm import rms_norm
from grrm.rl.cpu_layers.projection import CpuLinear
from grrm.rl.cpu_layers.rotary import rotate

_in_use = False


def takes_ranges(config: Any) -> bool:
    """True where the attention of models built now reads ranges of visible tokens (grrm.rl.visibility), not a mask."""
    return _in_use and available() and not getattr(config, "alibi", False)


def use_cpu_layers() -> None:
    """Install the CPU forms for models built from here on; does nothing when a GPU is in use."""
    if not paddle.get_device().startswith("cpu"):
        return
    global _in_use
    _in_use = True
    qwen2.Qwen2RMSNorm.forward = rms_norm
    llama.LlamaRMSNorm.forward = rms_norm
    for modeling in (qwen2, llama):
        modeling.apply_rotary_pos_emb = rotate
        modeling.fusion_ops.swiglu = swiglu
        modeling.repeat_kv = repeat_kv
        modeling.Linear = CpuLinear
    llama.swiglu = swiglu  # by a name of its own
    qwen2.scaled_dot_product_attention = attention
    llama.scaled_dot_product_attention = llama_attention
