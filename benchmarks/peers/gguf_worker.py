"""Read a GGUF file with transformers: `gguf_worker.py TASK.json`.

TASK.json has "file", "texts" and "folder", which holds our model in "model" and where the logits of text N are written
to N-float32.npy and N-float64.npy.

Prints "@@" and, as JSON, each text's token ids, what they decode to, and the text rendered as a user's turn with the
prompt of an answer; how many weights there are, and how many of ours are equal.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(task: dict[str, Any]) -> None:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    file = Path(task["file"])
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    folder, weights = Path(task["folder"]), model.state_dict()
    ours = load_file(folder / "model/model.safetensors")
    answers: dict[str, Any] = {"ids": [], "decoded": [], "turns": [], "weights": len(ours)}
    answers["same_weights"] = sum(torch.equal(weights[name], tensor) for name, tensor in ours.items())
    del weights, ours
    for text in task["texts"]:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        turn = [{"role": "user", "content": text}]
        answers["ids"].append(ids)
        answers["decoded"].append(tokenizer.decode(ids, clean_up_tokenization_spaces=False))
        answers["turns"].append(tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))
    for dtype in ("float32", "float64"):
        model = model.to(getattr(torch, dtype))
        if dtype == "float64":  # norms too, which it computes in float32 whatever the type of the model
            for kind in {type(module) for module in model.modules() if type(module).__name__.endswith("RMSNorm")}:
                kind.forward = lambda self, x: (
                    x * (x.square().mean(-1, keepdim=True) + self.variance_epsilon) ** -0.5 * self.weight
                )
        for number, ids in enumerate(answers["ids"]):
            with torch.no_grad():
                np.save(folder / f"{number}-{dtype}.npy", model(torch.tensor([ids])).logits[0].numpy())
    print("@@" + json.dumps(answers), flush=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
