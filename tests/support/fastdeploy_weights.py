"""What a worker of FastDeploy does with its weights under `--dynamic-load-weight --load_strategy ipc_snapshot`.

It follows FastDeploy's sources:

* fastdeploy/rl/dynamic_weight_manager.py at 49fe57cba03cc49eb18440be1bdbd77dff0bcbc6: `_update_ipc_snapshot`,
  `_update_model_from_state`, `_verify_parameters`, `clear_model_weight`;
* fastdeploy/worker/gpu/model_runner.py at 7bd5ea133e33e63c77fe86be9ad817238a5a9b16: `sleep`, `wakeup`;
* fastdeploy/model_executor/models/qwen2.py at 60f5e960172ea8f09376789b89877ad1eccca475, layers/linear.py at
  0009064e6f6ed105cfa5d39c4a52021251e275a2 and layers/lm_head.py at 8149c365626c43591fe23b03e7fd0c64f43fa0dc.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Shapes = dict[str, list[int]]
Weights = dict[str, NDArray[np.float32]]


def qwen2_shapes(config: dict[str, Any]) -> Shapes:
    """Every parameter of FastDeploy's Qwen2 on one GPU: linear weights are [in, out], the output layer is its own."""
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    width = hidden // config["num_attention_heads"]
    queries, keys = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    of_layer = {
        "self_attn.qkv_proj.weight": [hidden, queries + 2 * keys],
        "self_attn.qkv_proj.bias": [queries + 2 * keys],
        "self_attn.o_proj.weight": [queries, hidden],
        "mlp.up_gate_proj.weight": [hidden, 2 * inner],
        "mlp.down_proj.weight": [inner, hidden],
        "input_layernorm.weight": [hidden],
        "post_attention_layernorm.weight": [hidden],
    }
    layers = range(config["num_hidden_layers"])
    return {
        "qwen2.embed_tokens.embeddings.weight": [vocab, hidden],
        **{f"qwen2.layers.{i}.{name}": shape for i in layers for name, shape in of_layer.items()},
        "qwen2.norm.weight": [hidden],
        "lm_head.linear.weight": [hidden, vocab],
    }


def split_qwen2(weights: Weights, config: dict[str, Any]) -> Weights:
    """The weights by PaddleNLP's names, as FastDeploy's layers use them: columns of q, k, v, and of gate, up."""
    width = config["hidden_size"] // config["num_attention_heads"]
    n_q, n_kv = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    columns = {
        "qkv_proj": {"q_proj": (0, n_q), "k_proj": (n_q, n_q + n_kv), "v_proj": (n_q + n_kv, n_q + 2 * n_kv)},
        "up_gate_proj": {
            "gate_proj": (0, config["intermediate_size"]),
            "up_proj": (config["intermediate_size"], 2 * config["intermediate_size"]),
        },
    }
    found = {}
    for name, tensor in weights.items():
        joined = next((layer for layer in columns if f".{layer}." in name), None)
        for layer, (start, end) in columns[joined].items() if joined else ():
            found[name.replace(joined, layer)] = tensor[..., start:end]
        if not joined:
            found[name.replace(".embeddings.", ".").replace(".linear.", ".")] = tensor
    return found


class Worker:
    """Holds `weights`, read from `folder` as the rank 0 on GPU number `gpu`; `expected` are the model's parameters.

    Without `expected` they are those of the Qwen2 in the folder's config.json. `steps` has those of the weights that
    were read, as their writer noted them.
    """

    def __init__(self, folder: Path, expected: Shapes | None = None, gpu: int = 0) -> None:
        self._folder, self._expected, self._gpu = folder, expected, gpu
        self.weights: Weights = {}
        self.is_running = self._is_sleeping = False
        self.has_cache = True
        self.steps: list[str] = []

    def start(self) -> None:
        """Raises what keeps a server from starting."""
        if not self.is_running:
            self._read()
            self.check_weights()
            self.is_running = True

    def check_weights(self) -> None:
        """Raises RuntimeError while a parameter has no weights."""
        if missing := self._shapes().keys() - self.weights.keys():
            raise RuntimeError(f"parameters not initialized: {', '.join(sorted(missing)[:3])}")

    def sleep(self, tag: str) -> None:
        """Drop the weights or the KV cache, unless that was done before."""
        if tag == "kv_cache":
            self.has_cache = False
        elif tag != "weight":
            raise ValueError(f"a server leaves out the second of several tags where it has done the first: {tag}")
        elif not self._is_sleeping:
            self.weights.clear()
            self._is_sleeping = True

    def wakeup(self, tag: str) -> None:
        """Make the KV cache, or read the weights again unless they are there; parameters may be left out unnoticed.

        Raises RuntimeError for weights before the KV cache, which CUDA graphs need.
        """
        if tag == "kv_cache":
            self.has_cache = True
        elif tag != "weight":
            raise ValueError(f"a server leaves out the second of several tags where it has done the first: {tag}")
        elif not self.has_cache:
            raise RuntimeError("Waking up [weight] alone is not supported when CUDA Graph is enabled")
        elif self._is_sleeping:
            self._read()
            self._is_sleeping = False

    def _shapes(self) -> Shapes:
        if self._expected is None:
            return qwen2_shapes(json.loads((self._folder / "config.json").read_text()))
        return self._expected

    def _files(self) -> list[Path]:
        base = f"model_state.tp0.{self._gpu}"
        parts = [
            (int(number[1]), path)
            for path in self._folder.glob(f"{base}.part*.pdparams")
            if (number := re.search(r"\.part(\d+)\.", path.name))
        ]
        if parts:
            return [path for _, path in sorted(parts)]
        for name in (f"{base}.pdparams", f"model_state.tp0{self._gpu}.pdparams"):
            if (self._folder / name).exists():
                return [self._folder / name]
        raise FileNotFoundError(f"No snapshot found for {base}")

    def _read(self) -> None:
        shapes = self._shapes()
        for file in self._files():
            metadata, tensors = read_safetensors(file)
            for name, (dtype, tensor) in tensors.items():
                if name not in shapes:
                    continue
                if dtype != "BF16":
                    raise TypeError(f"Type mismatch for {name}: {dtype}")
                if list(tensor.shape) != shapes[name]:
                    raise ValueError(f"Shape mismatch for {name}: {tensor.shape} vs {shapes[name]}")
                self.weights[name] = tensor
            self.steps.append(f"step-{metadata.get('step')}")


def read_safetensors(file: Path) -> tuple[dict[str, str], dict[str, tuple[str, NDArray[np.float32]]]]:
    """The metadata, and each tensor with the dtype it is stored in, as `paddle.load(file, safetensors=True)` has it.

    That function needs stride kernels, which tests turn off.
    """
    content = file.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    metadata, tensors = header.pop("__metadata__", {}), {}
    for name, entry in header.items():
        first, last = (end + offset for offset in entry["data_offsets"])
        words = np.frombuffer(content[first:last], {"BF16": "<u2", "F32": "<f4"}[entry["dtype"]])
        numbers = (words.astype(np.uint32) << 16).view(np.float32) if entry["dtype"] == "BF16" else words
        tensors[name] = entry["dtype"], numbers.reshape(entry["shape"])
    return metadata, tensors
