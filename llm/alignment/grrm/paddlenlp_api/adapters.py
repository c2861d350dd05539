"""Its LoRA adapters."""

from __future__ import annotations

from paddlenlp.peft import LoRAConfig, LoRAModel
from paddlenlp.peft.lora.lora_layers import LoRALinear

__all__ = ["LoRAConfig", "LoRALinear", "LoRAModel"]
