"""Greedy tokens of transformers in float32: `parity_worker.py TASK.json`.

TASK.json has "model" (a folder), "prompts" (texts) and "new". Prints "@@" and, as JSON, token ids of the prompts, the
tokens that follow each, and their log-probabilities.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(task: dict[str, Any]) -> None:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    tokenizer = AutoTokenizer.from_pretrained(task["model"])
    model = AutoModelForCausalLM.from_pretrained(task["model"], dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    answers = {"prompts": [], "tokens": [], "logprobs": []}
    for text in task["prompts"]:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        options = {"max_new_tokens": task["new"], "do_sample": False, "pad_token_id": 0}
        with torch.no_grad():
            output = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
            logprobs = model(output).logits.log_softmax(-1)[0, ids.shape[1] - 1 : -1]
        tokens = output[0, ids.shape[1] :]
        answers["prompts"].append(ids[0].tolist())
        answers["tokens"].append(tokens.tolist())
        answers["logprobs"].append(logprobs.gather(-1, tokens[:, None])[:, 0].tolist())
    print("@@" + json.dumps(answers), flush=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
