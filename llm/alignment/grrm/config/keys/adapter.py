"""Keys of LoRA."""

from __future__ import annotations

from typing import ClassVar

from grrm.config.key import Section, key

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class AdapterConfig(Section):
    """Low-rank adapters in place of all weights."""

    title: ClassVar[str] = "LoRA"

    lora: bool = key(False, "train low-rank adapters on frozen weights, and a reward model's head")
    lora_rank: int = key(8, "rank of the adapters", ge=1, le=10**4)
    lora_alpha: int = key(None, "adapters are scaled by lora_alpha / lora_rank", means="2 × lora_rank", ge=1)
    lora_target_modules: list[str] = key(TARGETS, "names of the projections with adapters")
