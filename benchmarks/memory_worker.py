"""One process of a case of memory.py, which starts it."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

from machine import ROOT, resident_bytes
from memory import CANDIDATES, CASES, PROMPT, Case, config_of, settings_of

WORDS = ROOT / "benchmarks/peers/words.txt"


def measure_in_process(case: Case, folder: Path) -> None:
    """Take the steps in this process, and write its growth into the folder."""
    from grrm.startup import configure_process

    configure_process()
    import yaml

    file = folder / f"argument-{os.environ.get('PADDLE_TRAINER_ID', '0')}.yaml"
    file.write_text(yaml.safe_dump(settings_of(case, folder)), encoding="utf-8")
    from grrm.config.load import launched_processes

    config = config_of(case, file, launched_processes())
    from paddle.base import core
    from paddlenlp.trainer import TrainerCallback, trainer

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *arguments: Any, **keywords: Any) -> None:
            Path("/proc/self/clear_refs").write_text("5")
            core.host_memory_stat_reset_peak_value("Allocated", 0)
            self.idle = resident_bytes("VmRSS") - _freed(), core.host_memory_stat_current_value("Allocated", 0)

        def on_train_end(self, args: Any, *arguments: Any, **keywords: Any) -> None:
            resident, tensors = resident_bytes("VmHWM"), core.host_memory_stat_peak_value("Allocated", 0)
            growth = {"resident": resident - self.idle[0], "tensors": tensors - self.idle[1]}
            (folder / f"rank-{args.process_index}.json").write_text(json.dumps(growth))

    trainer.DEFAULT_CALLBACKS.append(Watch)
    if case.stage == "rl":
        train_rl(case, config, folder)
    else:
        train_supervised(case, config)


def train_supervised(case: Case, config: Any) -> None:
    """Two steps of SFT, or of a ranker on groups whose prompt is one token."""
    import numpy as np

    from grrm.config.training_arguments import training_arguments
    from grrm.data.dataset import SftItem
    from grrm.models.cpu_layers import use_cpu_layers
    from grrm.models.reward_models import with_new_head
    from grrm.models.value_head import CandidateGroup
    from grrm.parallel.gloo import support_gloo
    from grrm.parallel.tensor_ranks import TensorRanks
    from grrm.reward_model.trainer import RewardModelTrainer
    from grrm.sft.trainer import SftCollator, SftTrainer
    from grrm.training.gold_groups import GoldGroup

    support_gloo()
    args = training_arguments(config)
    use_cpu_layers(args.precision)
    model = random_part(case, TensorRanks.of(args).model_settings())
    if config.recompute:
        model.recompute_enable()
    rng, n = np.random.default_rng(1), 4 * case.rows * case.processes
    shared = {"args": args, "held_out": [], "metrics_log": None, "progress": None}
    if case.stage == "reward":
        ids_NCT = rng.integers(0, case.shape["vocab_size"], (n, CANDIDATES, case.length - 1)).tolist()
        gold = tuple(range(CANDIDATES))
        groups = [GoldGroup(CandidateGroup([1], candidates), gold, "en-de") for candidates in ids_NCT]
        model = with_new_head("ranker", model)
        RewardModelTrainer(model=model, head={}, config=config, groups=groups, **shared).train()
        return
    rows = [rng.integers(0, case.shape["vocab_size"], case.length).tolist() for _ in range(n)]
    items = [SftItem(number, row, [], 1, "", "") for number, row in enumerate(rows)]
    collator = SftCollator(0, config.max_length)
    SftTrainer(model=model, train_dataset=items, data_collator=collator, shuffle=True, **shared).train()


def train_rl(case: Case, config: Any, folder: Path) -> None:
    """Two steps of RL on prompts of a few tokens less than may be."""
    from grrm.data.bpe import train_bpe
    from grrm.rl import run

    words = WORDS.read_text(encoding="utf-8").split()
    text = " ".join((words * PROMPT)[: PROMPT - 6])  # a token each, and the chat template's
    train_bpe([text], folder)
    facts = {"source": text, "src_lang": "en", "trg_lang": "de", "reference": text}
    rows = [{"src": text, "tgt": json.dumps(facts)}] * 8
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    run.load_part = lambda *arguments, **keywords: random_part(case, {})  # in place of a file
    run.train(config)


def random_part(case: Case, settings: dict[str, Any]) -> Any:
    """A random model, or a tensor rank's part of one. The whole is never made then: its memory would be used again."""
    from grrm.models.checkpoint import share_rotary_tables
    from grrm.models.policy import policy_class

    cls = policy_class("qwen2")
    model = cls(cls.config_class(**case.shape, **settings))
    share_rotary_tables(model)
    return model


class _HeapStatistics(ctypes.Structure):
    _fields_ = (("numbers", ctypes.c_size_t * 10),)  # `mallinfo2`; the ninth are bytes that are not in use


def _freed() -> int:
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = _HeapStatistics
    return int(library.mallinfo2().numbers[8])


if __name__ == "__main__":
    measure_in_process(next(case for case in CASES if case.name == sys.argv[1]), Path(sys.argv[2]))
