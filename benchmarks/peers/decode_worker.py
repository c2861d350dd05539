"""One engine of another project, in a process of its own: `decode_worker.py ENGINE MODEL`.

ENGINE is transformers or openvino, then -fp32 or -bf16. Says "@@ready", then answers each line of JSON on stdin,
{"batch", "prompt", "new"} with random prompts of `prompt` tokens, by "@@" and the seconds that `new` tokens for each
took. Nothing ends early, tokens are drawn at temperature 1.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

Generate = Callable[[int, int, int], float]


def transformers(model: Path, dtype: str) -> Generate:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    wanted = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    network = AutoModelForCausalLM.from_pretrained(model, dtype=wanted, attn_implementation="sdpa").eval()
    network.generation_config.eos_token_id = None

    def generate(batch: int, prompt: int, new: int) -> float:
        ids = torch.randint(5, network.config.vocab_size, (batch, prompt))
        options = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "pad_token_id": 0}
        begin = time.perf_counter()
        with torch.no_grad():
            made = network.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, **options
            )
        seconds = time.perf_counter() - begin
        assert made.shape == (batch, prompt + new)
        return seconds

    return generate


def openvino(model: Path, dtype: str) -> Generate:
    import numpy as np
    import openvino
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size, scheduler.max_num_batched_tokens, scheduler.max_num_seqs = 2, 4096, 64
    threads = int(os.environ["OMP_NUM_THREADS"])
    wanted = {"fp32": "f32", "bf16": "bf16"}[dtype]
    options = {"INFERENCE_PRECISION_HINT": wanted, "KV_CACHE_PRECISION": wanted, "INFERENCE_NUM_THREADS": threads}
    pipeline = openvino_genai.LLMPipeline(str(model / "f16.gguf"), "CPU", scheduler_config=scheduler, **options)
    vocabulary = json.loads((model / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    rng = np.random.default_rng(0)

    def generate(batch: int, prompt: int, new: int) -> float:
        ids = rng.integers(5, vocabulary, (batch, prompt))
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = new
        config.ignore_eos, config.do_sample, config.apply_chat_template = True, True, False
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        begin = time.perf_counter()
        made = pipeline.generate(inputs, config)
        seconds = time.perf_counter() - begin
        assert [len(tokens) for tokens in made.tokens] == [new] * batch
        return seconds

    return generate


def main() -> None:
    name, _, dtype = sys.argv[1].partition("-")
    generate = {"transformers": transformers, "openvino": openvino}[name](Path(sys.argv[2]), dtype)
    print("@@ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        seconds = generate(asked["batch"], asked["prompt"], asked["new"])
        print("@@" + json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
