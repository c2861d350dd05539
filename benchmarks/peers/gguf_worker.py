"""What transformers makes of a GGUF file, in float32: `gguf_worker.py TASK.json`.

TASK.json has "file", "texts" and "folder", where the logits of text N are written to N.npy. Prints "@@" and, as JSON,
each text's token ids, what they decode to, and the text rendered as a user's turn with the prompt of an answer.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(task: dict[str, Any]) -> None:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    file = Path(task["file"])
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    answers: dict[str, list[Any]] = {"ids": [], "decoded": [], "turns": []}
    for number, text in enumerate(task["texts"]):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            np.save(Path(task["folder"]) / f"{number}.npy", model(torch.tensor([ids])).logits[0].numpy())
        turn = [{"role": "user", "content": text}]
        answers["ids"].append(ids)
        answers["decoded"].append(tokenizer.decode(ids, clean_up_tokenization_spaces=False))
        answers["turns"].append(tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))
    print("@@" + json.dumps(answers), flush=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
