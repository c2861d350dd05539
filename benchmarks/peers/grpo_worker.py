"""One GRPO run of TRL on a CPU: `grpo_worker.py TASK.json`, what `benchmarks/grpo_step.py` compares with.

TASK.json has "model" (a folder), "prompts" (texts), "samples" of each, "new" tokens of a sample, "steps", and
"folder" to work in. Each step prints "@@" and its seconds. Float32, no reference model, one update per rollout, nothing
ends early; the reward is the share of different characters in a text.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Clock(TrainerCallback):
    """Prints how long each step took."""

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.begin = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        print("@@" + json.dumps({"seconds": time.perf_counter() - self.begin}), flush=True)


def variety(completions: list[str], **_: Any) -> list[float]:
    return [len(set(text)) / max(1, len(text)) for text in completions]


def main(task: dict[str, Any]) -> None:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    tokenizer = AutoTokenizer.from_pretrained(task["model"], padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(task["model"], dtype=torch.float32)
    n_rows = len(task["prompts"]) * task["samples"]
    config = GRPOConfig(
        output_dir=task["folder"],
        max_steps=task["steps"],
        per_device_train_batch_size=n_rows,
        num_generations=task["samples"],
        max_completion_length=task["new"],
        generation_kwargs={"min_new_tokens": task["new"]},
        learning_rate=1e-6,
        beta=0.0,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        loss_type="grpo",
        disable_dropout=True,
        shuffle_dataset=False,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=variety,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": task["prompts"] * (task["steps"] + 1)}),
        processing_class=tokenizer,
        callbacks=[Clock()],
    )
    trainer.train()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
