"""Its models and tokenizers, and the modules that their layers are defined in."""

from __future__ import annotations

from paddlenlp import transformers
from paddlenlp.transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForCausalLMPipe,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForCausalLMPipe,
    linear_utils,
)
from paddlenlp.transformers.conversion_utils import StateDictNameMapping
from paddlenlp.transformers.llama import modeling as llama
from paddlenlp.transformers.model_utils import dtype_guard, no_init_weights
from paddlenlp.transformers.qwen2 import modeling as qwen2

__all__ = [
    "LlamaConfig",
    "LlamaForCausalLM",
    "LlamaForCausalLMPipe",
    "Qwen2Config",
    "Qwen2ForCausalLM",
    "Qwen2ForCausalLMPipe",
    "StateDictNameMapping",
    "dtype_guard",
    "linear_utils",
    "llama",
    "no_init_weights",
    "qwen2",
    "transformers",
]
