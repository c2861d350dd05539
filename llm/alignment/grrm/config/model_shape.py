"""The sizes of a model, from its config.json or its name, and the shapes of its weights on one tensor rank."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from grrm.config.problems import Problems
from grrm.errors import UserError

MODEL_TYPES = ("qwen2", "llama", "qwen3", "qwen2_moe")

# By size: hidden, layers, query heads, key heads, inner, vocabulary, tied (each one's config.json).
_QWEN15 = {
    "0.5": (1024, 24, 16, 16, 2816, 151936, True),
    "1.8": (2048, 24, 16, 16, 5504, 151936, False),
    "4": (2560, 40, 20, 20, 6912, 151936, False),
    "7": (4096, 32, 32, 32, 11008, 151936, False),
    "14": (5120, 40, 40, 40, 13696, 152064, False),
    "32": (5120, 64, 40, 8, 27392, 152064, False),
}
_QWEN2 = {
    "0.5": (896, 24, 14, 2, 4864, 151936, True),
    "1.5": (1536, 28, 12, 2, 8960, 151936, True),
    "3": (2048, 36, 16, 2, 11008, 151936, True),
    "7": (3584, 28, 28, 4, 18944, 152064, False),
    "14": (5120, 48, 40, 8, 13824, 152064, False),
    "32": (5120, 64, 40, 8, 27648, 152064, False),
    "72": (8192, 80, 64, 8, 29568, 152064, False),
}
_QWEN3 = {
    "0.6": (1024, 28, 16, 8, 3072, 151936, True),
    "1.7": (2048, 28, 16, 8, 6144, 151936, True),
    "4": (2560, 36, 32, 8, 9728, 151936, True),
    "8": (4096, 36, 32, 8, 12288, 151936, False),
    "14": (5120, 40, 40, 8, 17408, 151936, False),
    "32": (5120, 64, 64, 8, 25600, 151936, False),
}
# And the shared expert, number of experts, inner size of each, experts of a token.
_MOE = {
    ("Qwen1.5-MoE", "2.7"): ((2048, 24, 16, 16, 5632, 151936, False), 8192, (5632, 60, 1408, 4)),
    ("Qwen2", "57"): ((3584, 28, 28, 4, 18944, 151936, False), 131072, (20480, 64, 2560, 8)),
}
# By family: the sizes that there are, and positions.
_FAMILIES = {
    "Qwen1.5": (_QWEN15, 32768),
    "Qwen2": ({size: _QWEN2[size] for size in ("0.5", "1.5", "7", "72")}, 131072),
    "Qwen2-Math": ({size: _QWEN2[size] for size in ("1.5", "7", "72")}, 4096),
    "Qwen2.5": (_QWEN2, 131072),
    "Qwen2.5-Math": ({size: _QWEN2[size] for size in ("1.5", "7", "72")}, 4096),
    "Qwen2.5-Coder": ({size: _QWEN2[size] for size in ("0.5", "1.5", "3", "7", "14", "32")}, 32768),
    "Qwen3": (_QWEN3, 40960),
}
_SHORT = {("Qwen2.5", size): 32768 for size in ("0.5", "1.5", "3")}
_NAME = re.compile(r"qwen([123])(?:\.?(5))?[-_](?:([a-z]+)[-_])?a?(\d+(?:\.\d)?)b(?![a-z0-9])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Weight:
    """One matrix or vector of a model: its numbers on one tensor rank, and the layer it is of, None outside of them."""

    name: str
    numbers: int
    layer: int | None = None


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder of Qwen2's, Qwen3's or Llama's kind. `name` says where the sizes were found.

    With experts, `inner` is what a token goes through: the shared expert and the `routed` ones of all `experts`.
    """

    name: str
    hidden: int
    layers: int
    heads: int
    key_heads: int
    inner: int
    vocabulary: int
    positions: int
    tied: bool
    bias: bool = True  # of queries, keys and values: Qwen2 has it, Llama and Qwen3 do not
    head_dim: int | None = None
    norms_heads: bool = False  # queries and keys, as Qwen3 does
    experts: tuple[int, ...] = ()  # the inner size of each, the shared one first
    routed: int = 0

    @property
    def head_width(self) -> int:
        """Numbers of one head."""
        return self.head_dim or self.hidden // self.heads

    def weights(self, tensor: int = 1) -> Iterator[Weight]:
        """Every weight as one of `tensor` ranks holds it.

        As Megatron divides them (arXiv:1909.08053, section 3): queries, keys, values, gate and up by columns, their
        outputs by rows, embedding and output layer by words; norms are whole on each rank.
        """
        queries, keys = self.heads * self.head_width // tensor, self.key_heads * self.head_width // tensor
        inners = self.experts or (self.inner // tensor,)
        words = math.ceil(self.vocabulary / tensor)
        yield Weight("embedding", words * self.hidden)
        for layer in range(self.layers):
            for name, columns in (("q", queries), ("k", keys), ("v", keys)):
                yield Weight(name, self.hidden * columns, layer)
                if self.bias:
                    yield Weight(f"{name}_bias", columns, layer)
            if self.norms_heads:
                yield Weight("q_norm", self.head_width, layer)
                yield Weight("k_norm", self.head_width, layer)
            yield Weight("o", queries * self.hidden, layer)
            for name, inner in product(("gate", "up", "down"), inners):
                yield Weight(name, self.hidden * inner, layer)
            if self.experts:  # a column each, and the shared one's gate
                yield Weight("router", self.hidden * len(self.experts), layer)
            for name in ("attention_norm", "mlp_norm"):
                yield Weight(name, self.hidden, layer)
        yield Weight("norm", self.hidden)
        if not self.tied:
            yield Weight("head", words * self.hidden)

    def numbers(self, tensor: int = 1) -> int:
        """Number of weights that one of `tensor` ranks holds."""
        return sum(weight.numbers for weight in self.weights(tensor))

    def check_divides(self, tensor: int, source: str = "") -> None:
        """Raises UserError, or UserErrors for several, for sizes that `tensor` ranks cannot share: of `source`."""
        problems = Problems()
        if self.experts and tensor > 1:
            problems.add(f"tensor_parallel_degree is {tensor}, but the experts of {self.name} stay whole: use 1.")
            problems.raise_if_any(source)
        sizes = {
            "attention heads": self.heads,
            "key and value heads": self.key_heads,
            "feed-forward columns": self.inner,
            "words of the vocabulary": self.vocabulary,
        }
        allowed = " or ".join(str(degree) for degree in self.degrees(16))
        for what, size in sizes.items():
            if size % tensor:
                problems.add(
                    f"tensor_parallel_degree {tensor} does not divide the {size:,} {what} of {self.name}; use "
                    f"{allowed}."
                )
        problems.raise_if_any(source)

    def degrees(self, most: int) -> list[int]:
        """The tensor parallel degrees up to `most` that divide heads, feed-forward layer and vocabulary."""
        if self.experts:
            return [1]
        together = math.gcd(self.heads, self.key_heads, self.inner, self.vocabulary)
        return [degree for degree in range(1, min(most, together) + 1) if together % degree == 0]


def model_shape(model: str) -> ModelShape:
    """The shape of the model in a folder, of a config.json, or of a released Qwen model by its name.

    A name is also found in a path that does not exist yet, such as `runs/qwen2.5-7b/sft`: a model keeps its shape when
    it is trained. Raises UserError where neither says what the shape is, or the kind of model is not supported.
    """
    path = Path(model)
    file = path / "config.json" if path.is_dir() else path
    if file.is_file():
        return shape_of_config(_read(file), str(file))
    if (shape := _shape_of_name(model)) is not None:
        return shape
    raise UserError(
        f"the shape of the model {model!r} is not known: it is no folder here and not named as a model of "
        f"{', '.join(_FAMILIES)} with a released size; give its config.json with --model"
    )


def _shape_of_name(model: str) -> ModelShape | None:
    match = _NAME.search(model)
    if match is None:
        return None
    series = f"Qwen{match[1]}.{match[2]}" if match[2] else f"Qwen{match[1]}"
    families = {f"{series}-{kind}".lower(): f"{series}-{kind}" for kind in ("Math", "Coder", "MoE")}
    family, size = families.get(f"{series}-{match[3]}".lower(), series), match[4]
    sizes, positions = _FAMILIES.get(family, ({}, 0))
    row, positions, experts = _MOE.get((family, size), (sizes.get(size), positions, None))
    if row is None:
        return None
    hidden, layers, heads, key_heads, inner, vocabulary, tied = row
    positions, is_qwen3 = _SHORT.get((family, size), positions), series == "Qwen3"
    shape = ModelShape(f"{family}-{size}B", hidden, layers, heads, key_heads, inner, vocabulary, positions, tied)
    shape = replace(shape, bias=not is_qwen3, head_dim=128 if is_qwen3 else None, norms_heads=is_qwen3)
    return shape if experts is None else _with_experts(shape, *experts)


def _with_experts(shape: ModelShape, shared: int, n_experts: int, inner: int, routed: int) -> ModelShape:
    return replace(shape, inner=shared + routed * inner, experts=(shared, *[inner] * n_experts), routed=routed)


def shape_of_config(config: Mapping[str, Any], source: str) -> ModelShape:
    """The shape in the mapping of a config.json, with `source` to name in messages.

    Raises UserError for another kind of model, and a size that is missing, no positive whole number or does not divide.
    """
    kind = config.get("model_type")
    if kind not in MODEL_TYPES:
        raise UserError(f"{source}: model_type {kind!r} is not supported; plan a model of {' or '.join(MODEL_TYPES)}")

    def size(key: str, otherwise: int | None = None) -> int:
        value = config.get(key, otherwise)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"{source}: {key} is {value!r}; it must be a positive whole number")
        return value

    heads = size("num_attention_heads")
    hidden = size("hidden_size")
    if hidden % heads:
        raise UserError(f"{source}: num_attention_heads {heads} does not divide hidden_size {hidden}")
    shape = ModelShape(
        name=source,
        hidden=hidden,
        layers=size("num_hidden_layers"),
        heads=heads,
        key_heads=size("num_key_value_heads", heads),
        inner=size("intermediate_size"),
        vocabulary=size("vocab_size"),
        positions=size("max_position_embeddings"),
        tied=bool(config.get("tie_word_embeddings", False)),
        bias=kind in ("qwen2", "qwen2_moe"),
        head_dim=size("head_dim") if config.get("head_dim") is not None else None,
        norms_heads=kind == "qwen3",
    )
    if heads % shape.key_heads:
        raise UserError(f"{source}: num_key_value_heads {shape.key_heads} does not divide num_attention_heads {heads}")
    if shape.head_width % 2:
        raise UserError(f"{source}: heads are {shape.head_width} wide, which rotary embeddings do not halve")
    if kind != "qwen2_moe":
        return shape
    shared, n_experts = size("shared_expert_intermediate_size"), size("num_experts")
    return _with_experts(shape, shared, n_experts, size("moe_intermediate_size"), size("num_experts_per_tok"))


def _read(file: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"'{file}' is not a readable model configuration ({error}); give another one") from None
    if not isinstance(content, dict):
        raise UserError(f"'{file}' is not a model configuration; give a config.json")
    return content


def check_divides(directory: str, config: Mapping[str, Any], n_ranks: int) -> None:
    """Raises UserError for a model whose layers or vocabulary do not divide among `n_ranks` tensor ranks."""
    if n_ranks == 1:
        return
    shape_of_config(config, directory).check_divides(n_ranks)
    fused = [name for name in ("fuse_attention_qkv", "fuse_attention_ffn") if config.get(name)]
    if fused:
        raise UserError(
            f"the model in '{directory}' has {' and '.join(fused)}, whose projections do not divide among tensor "
            "ranks: set tensor_parallel_degree to 1, or use a checkpoint with separate projections"
        )
