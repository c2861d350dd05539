"""Memory of a training process above an idle trainer, beside the forecast of `grrm plan`.

    python benchmarks/memory.py [--cases alone-512,sharding2-1024] [--out FILE]

Models with random weights take two steps on rows of one length: one of SmolLM2-135M's shape supervised ones, one of
half that size those of RL and of a ranker too. Each case is one process, or two or three under
paddle.distributed.launch, with one thread each.

A trainer is idle once model, data and trainer are made and no step was taken; what counts is the highest resident
memory from there on, less what the idle trainer uses, on the rank that takes most.

Memory that setting up has freed is not in use: steps take it first, and ranks that share an optimizer's states have
freed a copy of the weights.

The bytes in Paddle's tensors are counted apart, so that an error is that of the tensors or of the heap around them.

Takes some ten minutes on two idle cores. Named cases replace their rows in FILE, others stay.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from machine import ROOT, command_line, describe_machine, write_result
from processes import records_of_ranks

SHAPE = {
    "model_type": "qwen2",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49_152,
    "tie_word_embeddings": True,
    "max_position_embeddings": 4096,
}
HALF = SHAPE | {  # which two tensor ranks can divide
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 32_768,
    "tie_word_embeddings": False,
}
MIB = 2**20
IDLE = ("weights", "rotary tables")  # what an idle trainer has
OUTSIDE = ("gaps of the heap", "packed weights")  # of Paddle's tensors


@dataclass(frozen=True, slots=True)
class Case:
    """`rows` of `length` tokens a micro-batch on each of `processes`; settings are keys of an argument file."""

    name: str
    length: int
    rows: int = 1
    processes: int = 1
    settings: tuple[tuple[str, object], ...] = ()
    stage: str = "sft"
    is_half: bool = False

    @property
    def shape(self) -> dict[str, Any]:
        """The model's config."""
        return HALF if self.is_half else SHAPE


RECOMPUTE = ("recompute", True)
CASES = (
    Case("alone-512", 512),
    Case("alone-1024", 1024),
    Case("recompute-2048", 2048, settings=(RECOMPUTE,)),
    Case("rows-4x512-recompute", 512, rows=4, settings=(RECOMPUTE,)),
    Case("sharding2-1024", 1024, processes=2, settings=(("sharding", "stage1"),)),
    Case("data2-512", 512, processes=2),
    Case("tensor3-512", 512, processes=3, settings=(("tensor_parallel_degree", 3),)),
    Case("tensor2-1024-recompute", 1024, 1, 2, (("tensor_parallel_degree", 2), RECOMPUTE), is_half=True),
    Case("bf16-512", 512, settings=(("bf16", True),), is_half=True),
    Case("rl-4x128", 128, rows=4, stage="rl", is_half=True),
    Case("ranker-8x64", 64, stage="reward", is_half=True),
)
PROMPT, CANDIDATES = 64, 8  # tokens of a prompt in RL, candidates of a group of the ranker


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, "memory")
    parser.add_argument("--cases", help="names, separated by commas (default: all)")
    options = parser.parse_args(arguments)
    names = options.cases.split(",") if options.cases else [case.name for case in CASES]
    unknown = set(names) - {case.name for case in CASES}
    if unknown:
        parser.error(f"there are no cases {', '.join(sorted(unknown))}")
    earlier = (
        json.loads(options.out.read_text(encoding="utf-8"))["rows"] if options.cases and options.out.exists() else []
    )
    rows = {row["name"]: row for row in earlier}
    machine = describe_machine()
    rows |= {case.name: compare(case) for case in CASES if case.name in names}
    write_result(options.out, {"machine": machine, "rows": [rows[case.name] for case in CASES if case.name in rows]})


def compare(case: Case) -> dict[str, Any]:
    """Growth of one case in MiB, measured and planned, with the plan's error: all of it, and that of tensors."""
    measured, planned = measure(case), plan(case)
    row = {**asdict(case), "settings": dict(case.settings)}
    for name in measured:
        error = planned[name] / measured[name] - 1
        sizes = f"{measured[name] / MIB:8.0f} MiB measured {planned[name] / MIB:8.0f} planned {error:+7.1%}"
        print(f"{case.name:<24}{name:<9}{sizes}", flush=True)
        before = "" if name == "resident" else f"{name}_"
        row |= {
            f"{before}measured_mib": round(measured[name] / MIB),
            f"{before}planned_mib": round(planned[name] / MIB),
        }
        row[f"{before}error"] = round(error, 4)
    return row


def settings_of(case: Case, folder: Path) -> dict[str, object]:
    """An argument file of the case."""
    of_stage: dict[str, dict[str, object]] = {
        "sft": {"init_from_config": str(folder / "config.json"), "max_length": case.length},
        "reward": {"model_name_or_path": str(folder), "max_length": case.length},
        "rl": {
            "actor_model_name_or_path": str(folder),
            "max_prompt_len": PROMPT,
            "max_dec_len": case.length - PROMPT,
            "min_dec_len": case.length - PROMPT,
            "share_prompt": False,
            "rollout_n": 2,
            "rollout_max_num_seqs": case.rows,
            "per_device_logprob_batch_size": case.rows,
            "global_batch_size": case.rows // 2,
            "extractor_type": "none",
            "kl_loss_coeff": 0.0,
            "dump_rollouts": False,
            "console_groups": 0,
        },
    }
    return {
        **of_stage[case.stage],
        **({} if case.stage == "rl" else {"tokenizer_name_or_path": str(folder)}),
        "output_dir": str(folder / "out"),
        "train_datasets": str(folder / "rows.jsonl"),
        "max_steps": 2,
        "per_device_train_batch_size": case.rows,
        "device": "cpu",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "logging_steps": 1,
        **dict(case.settings),
    }


def plan(case: Case) -> dict[str, int]:
    """Bytes above model and idle trainer that the plan expects on one device: all of them, and those of tensors."""
    import yaml

    from grrm.config.layout import Layout
    from grrm.config.memory import memory_of
    from grrm.config.model_shape import shape_of_config
    from grrm.config.workload import Workload

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "argument.yaml"
        file.write_text(yaml.safe_dump(settings_of(case, Path(folder))), encoding="utf-8")
        config = config_of(case, file, case.processes)
    layout = Layout.of(config, case.processes)
    memory = memory_of(config, shape_of_config(case.shape, "the shape"), layout, Workload.of(config, case.rows))
    idle = sum(part.size for part in memory.held if part.name in IDLE)
    outside = sum(part.size for part in (*memory.held, *memory.update) if part.name in OUTSIDE)
    peak = memory.peak(memory.sequences) - idle
    return {"resident": peak, "tensors": peak - outside}


def measure(case: Case) -> dict[str, int]:
    """Bytes by which a process of the case grows, at most."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(case.shape), encoding="utf-8")
        command = [ROOT / "benchmarks/memory_worker.py", case.name, folder]
        growths = records_of_ranks(command, case.processes, Path(folder))
    return {name: max(growth[name] for growth in growths) for name in growths[0]}


def config_of(case: Case, file: Path, processes: int) -> Any:
    """The case's argument file, read for so many processes."""
    from grrm.config import Launch, RewardModelConfig, RLConfig, SFTConfig, prepare

    stage: Any = {"sft": SFTConfig, "reward": RewardModelConfig, "rl": RLConfig}[case.stage]
    return prepare(stage, file, (), Launch("cpu", processes), check_machine=False).config


if __name__ == "__main__":
    main()
