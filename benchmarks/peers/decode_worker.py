"""One engine of another project, in a process of its own: `decode_worker.py ENGINE MODEL`.

ENGINE is transformers or openvino, then -fp32 or -bf16, or llama.cpp-bf16. Says "@@ready", then answers each line of
JSON on stdin, {"batch", "prompt", "new", "samples"} with random prompts of `prompt` tokens, by "@@" and the seconds
that `new` tokens for each of its samples (1 where that is not said) took. Nothing ends early, tokens are drawn at
temperature 1.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

Generate = Callable[[int, int, int, int], float]


def transformers(model: Path, dtype: str) -> Generate:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    network = AutoModelForCausalLM.from_pretrained(model, dtype=dtypes, attn_implementation="sdpa").eval()
    network.generation_config.eos_token_id = None

    def generate(batch: int, prompt: int, new: int, samples: int) -> float:
        ids = torch.randint(5, network.config.vocab_size, (batch, prompt))
        options = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "pad_token_id": 0}
        options["num_return_sequences"] = samples
        begin = time.perf_counter()
        with torch.no_grad():
            output = network.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, **options
            )
        seconds = time.perf_counter() - begin
        assert output.shape == (batch * samples, prompt + new)
        return seconds

    return generate


def openvino(model: Path, dtype: str) -> Generate:
    import numpy as np
    import openvino
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size, scheduler.max_num_batched_tokens, scheduler.max_num_seqs = 2, 4096, 64
    threads = int(os.environ["OMP_NUM_THREADS"])
    dtypes = {"fp32": "f32", "bf16": "bf16"}[dtype]
    options = {"INFERENCE_PRECISION_HINT": dtypes, "KV_CACHE_PRECISION": dtypes, "INFERENCE_NUM_THREADS": threads}
    pipeline = openvino_genai.LLMPipeline(str(model / "f16.gguf"), "CPU", scheduler_config=scheduler, **options)
    vocabulary = json.loads((model / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    rng = np.random.default_rng(0)

    def generate(batch: int, prompt: int, new: int, samples: int) -> float:
        ids = rng.integers(5, vocabulary, (batch, prompt))
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = new
        config.num_return_sequences = samples
        config.ignore_eos, config.do_sample, config.apply_chat_template = True, True, False
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        begin = time.perf_counter()
        output = pipeline.generate(inputs, config)
        seconds = time.perf_counter() - begin
        assert [len(tokens) for tokens in output.tokens] == [new] * batch * samples
        return seconds

    return generate


def llama_cpp(model: Path, dtype: str) -> Generate:
    import ctypes

    import llama_cpp
    import numpy as np

    silent = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    loading = llama_cpp.llama_model_default_params()
    loading.n_gpu_layers = 0
    network = llama_cpp.llama_model_load_from_file(str(model / f"{dtype}.gguf").encode(), loading)
    if not network:
        raise SystemExit(f"{model / dtype}.gguf cannot be read")
    n_vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(network))
    rng = np.random.default_rng(0)

    def generate(batch: int, prompt: int, new: int, samples: int) -> float:
        assert samples == 1
        options = llama_cpp.llama_context_default_params()
        options.n_seq_max, options.n_batch, options.n_ubatch = batch, 2048, 512
        options.n_ctx = batch * ((prompt + new + 255) // 256 * 256)
        options.n_threads = options.n_threads_batch = int(os.environ["OMP_NUM_THREADS"])
        context = llama_cpp.llama_init_from_model(network, options)
        buffer = llama_cpp.llama_batch_init(options.n_batch, 0, 1)
        ids = rng.integers(5, n_vocabulary, (batch, prompt))
        at_once = options.n_batch // prompt
        begin = time.perf_counter()
        sampled: list[int] = []
        for first in range(0, batch, at_once):
            rows = range(first, min(batch, first + at_once))
            tokens = [(row, position, int(ids[row, position])) for row in rows for position in range(prompt)]
            sampled += decode(context, buffer, tokens, [position == prompt - 1 for _, position, _ in tokens])
        for position in range(prompt, prompt + new - 1):
            sampled = decode(context, buffer, [(row, position, sampled[row]) for row in range(batch)], [True] * batch)
        seconds = time.perf_counter() - begin
        llama_cpp.llama_batch_free(buffer)
        llama_cpp.llama_free(context)
        return seconds

    def decode(context, batch, tokens: list[tuple[int, int, int]], needs_logits: list[bool]) -> list[int]:
        """One pass over tokens (sequence, position, id); a sampled token after each with `needs_logits`."""
        for number, (row, position, token) in enumerate(tokens):
            batch.token[number], batch.pos[number], batch.logits[number] = token, position, needs_logits[number]
            batch.n_seq_id[number], batch.seq_id[number][0] = 1, row
        batch.n_tokens = len(tokens)
        if llama_cpp.llama_decode(context, batch):
            raise SystemExit("llama_decode failed")
        return [draw(llama_cpp.llama_get_logits_ith(context, number)) for number in np.flatnonzero(needs_logits)]

    def draw(logits) -> int:
        # llama.cpp's own sampler takes as long for one sequence and a tenth longer for 32.
        scores = np.ctypeslib.as_array(logits, (n_vocabulary,))
        sums = np.cumsum(np.exp(scores - scores.max()))
        return min(int(np.searchsorted(sums, rng.random() * sums[-1])), n_vocabulary - 1)

    generate.keeps = silent  # which llama.cpp calls as long as it runs
    return generate


def main() -> None:
    name, _, dtype = sys.argv[1].partition("-")
    engines = {"transformers": transformers, "openvino": openvino, "llama.cpp": llama_cpp}
    generate = engines[name](Path(sys.argv[2]), dtype)
    print("@@ready", flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        seconds = generate(task["batch"], task["prompt"], task["new"], task.get("samples", 1))
        print("@@" + json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
