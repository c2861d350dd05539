"""LoRA through PaddleNLP's adapters: putting them in, sampling with merged weights, and a whole model in the end.

LoRA, arXiv 2106.09685: a frozen W [in, out] becomes W + (alpha / rank) A B with A [in, rank], B [rank, out] trained and
B zero at first, so that the model starts as it was. A policy's samples come from merged weights; the loss sees W and
A B apart, which differs in the last bits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import paddle

from grrm.config.keys.machine import AdapterConfig
from grrm.errors import UserError
from grrm.paddlenlp_api.adapters import LoRAConfig, LoRALinear, LoRAModel

_NOT_BACKBONE = r"(?!backbone\.).*"  # of a reward model: its head
_ANY_PATH = r"(?:.*\.)?"  # before the name of a target module
_CONFIG_FILE = "lora_config.json"


def with_adapters(model: Any, config: AdapterConfig, dtype: str, seed: int, *, has_head: bool = False) -> Any:
    """`model` as it is without `lora`, else with adapters of `dtype`, all else frozen but the head of a reward model.

    The adapters are drawn from `seed`, equal on every rank. Raises UserError for a target that the model has not.
    """
    if not config.lora:
        return model
    paths = [f".{name}" for name, layer in model.named_sublayers() if isinstance(layer, paddle.nn.Linear)]
    missing = [name for name in config.lora_target_modules if not any(path.endswith(f".{name}") for path in paths)]
    if missing:
        available = sorted({path.rpartition(".")[2] for path in paths} - {"lm_head"})
        raise UserError(
            f"lora_target_modules names {', '.join(missing)}, which the model has not: it has {', '.join(available)}"
        )
    paddle.seed(seed)
    adapters = LoRAConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        target_modules=[_ANY_PATH + name for name in config.lora_target_modules],
        trainable_modules=[_NOT_BACKBONE] if has_head else None,
        dtype=dtype,
        merge_weights=False,
    )
    return LoRAModel(model, adapters)


def has_adapters(model: Any) -> bool:
    """True for what `with_adapters` put adapters into."""
    return isinstance(model, LoRAModel)


def check_same_adapters(checkpoint: Path | None, config: AdapterConfig) -> None:
    """Raises UserError where `checkpoint` was saved with other adapters than `config` asks for, or without any."""
    if checkpoint is None:
        return
    path = checkpoint / _CONFIG_FILE
    saved = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    expected = stored = "without LoRA"
    if config.lora:
        expected = _named(config.lora_rank, config.lora_alpha, config.lora_target_modules)
    if saved is not None:
        targets = [target.removeprefix(_ANY_PATH) for target in saved["target_modules"]]
        stored = _named(saved["r"], saved["lora_alpha"], targets)
    if expected != stored:
        raise UserError(
            f"checkpoint '{checkpoint}' was saved {stored}, this run is {expected}: resume with the LoRA keys it was "
            "saved with, or set overwrite_output_dir to start over"
        )


def without_adapters(model: Any) -> Any:
    """The model with its adapters merged into its weights for good; one that has none is returned as it is."""
    if not has_adapters(model):
        return model
    model.merge()
    plain = model.model
    for path, layer in list(plain.named_sublayers()):
        if isinstance(layer, LoRALinear):
            parent, _, name = path.rpartition(".")
            setattr(reduce(getattr, filter(None, parent.split(".")), plain), name, _linear(layer))
    return plain


@contextmanager
def merged(model: Any) -> Iterator[None]:
    """Adapters merged within the block; after it every weight has the bits it had, which subtracting would not give."""
    layers = [layer for layer in model.sublayers() if isinstance(layer, LoRALinear)]
    weights = [layer.weight.clone() for layer in layers]
    try:
        with paddle.no_grad():
            model.merge()
        yield
    finally:
        for layer, weight in zip(layers, weights, strict=True):
            layer.weight.set_value(weight)
            layer.merged = False


def _linear(layer: LoRALinear) -> Any:
    """Its merged weight and its bias as they are. PaddleNLP's own way back gives a bias to layers that had none."""
    linear = paddle.nn.Linear(1, 1, bias_attr=False if layer.bias is None else None)
    linear.weight, linear.bias = layer.weight, layer.bias
    return linear


def _named(rank: int, alpha: int, targets: Iterable[str]) -> str:
    return f"with LoRA of rank {rank}, alpha {alpha} on {', '.join(sorted(targets))}"
