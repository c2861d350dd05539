"""Memory of a training process above an idle trainer, beside the forecast of `grrm plan`.

    python benchmarks/memory.py [--cases alone-512,sharding2-1024] [--out FILE]

A model of SmolLM2-135M's shape with random weights takes two supervised steps on rows of one length. Each case is one
process, or two or three under paddle.distributed.launch, with one thread each.

A trainer is idle once model, data and trainer are made and no step was taken; what counts is the highest resident
memory from there on, less that of the idle trainer, on the rank that takes most.

Takes some seven minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from machine import describe_machine, resident_bytes, write_result

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks/results/memory.json"
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
_TIMEOUT_S = 1800.0
MIB = 2**20
IDLE = ("weights", "rotary tables")  # what an idle trainer has


@dataclass(frozen=True, slots=True)
class Case:
    """`rows` of `length` tokens a micro-batch on each of `processes`; settings are keys of an argument file."""

    name: str
    length: int
    rows: int = 1
    processes: int = 1
    settings: tuple[tuple[str, object], ...] = ()


CASES = (
    Case("alone-512", 512),
    Case("alone-1024", 1024),
    Case("recompute-2048", 2048, settings=(("recompute", True),)),
    Case("rows-4x512-recompute", 512, rows=4, settings=(("recompute", True),)),
    Case("sharding2-1024", 1024, processes=2, settings=(("sharding", "stage1"),)),
    Case("data2-512", 512, processes=2),
    Case("tensor3-512", 512, processes=3, settings=(("tensor_parallel_degree", 3),)),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", help="names, separated by commas (default: all)")
    parser.add_argument("--out", type=Path, default=RESULT, help="JSON file to write (default: %(default)s)")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        measure_in_process(next(case for case in CASES if case.name == options.one[0]), Path(options.one[1]))
        return
    names = options.cases.split(",") if options.cases else [case.name for case in CASES]
    unknown = set(names) - {case.name for case in CASES}
    if unknown:
        parser.error(f"there are no cases {', '.join(sorted(unknown))}")
    result = {"machine": describe_machine(), "rows": [compare(case) for case in CASES if case.name in names]}
    write_result(options.out, result)
    print(f"written to {options.out}")


def compare(case: Case) -> dict[str, Any]:
    """Measured and planned growth of one case, in MiB, and the plan's error."""
    measured, planned = measure(case), plan(case)
    error = planned / measured - 1
    print(f"{case.name:<22}{measured / MIB:8.0f} MiB measured {planned / MIB:8.0f} planned {error:+7.1%}", flush=True)
    sizes = {"measured_mib": round(measured / MIB), "planned_mib": round(planned / MIB)}
    return {**asdict(case), "settings": dict(case.settings), **sizes, "error": round(error, 4)}


def settings_of(case: Case, folder: Path) -> dict[str, object]:
    """An argument file of the case."""
    return {
        "init_from_config": str(folder / "config.json"),
        "tokenizer_name_or_path": str(folder),
        "output_dir": str(folder / "out"),
        "train_datasets": str(folder / "config.json"),
        "max_length": case.length,
        "max_steps": 2,
        "per_device_train_batch_size": case.rows,
        "device": "cpu",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "logging_steps": 1,
        **dict(case.settings),
    }


def plan(case: Case) -> int:
    """Bytes above model and idle trainer that the plan expects on one device."""
    import yaml

    from grrm.config import Launch, SFTConfig, prepare
    from grrm.config.layout import Layout
    from grrm.config.memory import memory_of
    from grrm.config.model_shape import shape_of_config
    from grrm.config.workload import Workload

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sft.yaml"
        file.write_text(yaml.safe_dump(settings_of(case, Path(folder))), encoding="utf-8")
        config = prepare(SFTConfig, file, (), Launch("cpu", case.processes), check_machine=False).config
    layout = Layout.of(config, case.processes)
    memory = memory_of(config, shape_of_config(SHAPE, "the shape"), layout, Workload.of(config, case.rows))
    return memory.peak(0) - sum(part.size for part in memory.held if part.name in IDLE)


def measure(case: Case) -> int:
    """Bytes by which a process of the case grows, at most."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(SHAPE), encoding="utf-8")
        command = [str(Path(__file__)), "--one", case.name, folder]
        launcher = ["-m", "paddle.distributed.launch", "--nproc_per_node", str(case.processes), "--log_dir", folder]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "benchmarks")}
        done = subprocess.run(
            [sys.executable, *(launcher if case.processes > 1 else []), *command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
        growths = [int(file.read_text()) for file in Path(folder).glob("growth-*")]
        if done.returncode or len(growths) != case.processes:
            sys.exit(f"{case.name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return max(growths)


def measure_in_process(case: Case, folder: Path) -> None:
    """Take the steps in this process, and write its growth into the folder."""
    from grrm.startup import configure_process

    configure_process()
    import yaml

    from grrm.config import SFTConfig

    file = folder / f"sft-{os.environ.get('PADDLE_TRAINER_ID', '0')}.yaml"
    file.write_text(yaml.safe_dump(settings_of(case, folder)), encoding="utf-8")
    config = _config(SFTConfig, file)
    import numpy as np
    from paddlenlp.trainer import TrainerCallback

    from grrm.config.training_arguments import training_arguments
    from grrm.data.dataset import SftItem
    from grrm.models.cpu_layers import use_cpu_layers
    from grrm.parallel.gloo import support_gloo
    from grrm.parallel.tensor_ranks import TensorRanks
    from grrm.sft.run import fresh_model
    from grrm.sft.trainer import SftCollator, SftTrainer

    support_gloo()
    args = training_arguments(config)
    use_cpu_layers(args.precision)
    settings = TensorRanks.of(args).model_settings()
    model = random_part(settings) if settings else fresh_model(config.init_from_config, 1, SHAPE["vocab_size"])
    if config.recompute:
        model.recompute_enable()
    rng = np.random.default_rng(1)
    rows = [rng.integers(0, SHAPE["vocab_size"], case.length).tolist() for _ in range(4 * case.rows * case.processes)]
    items = [SftItem(number, row, [], 1, "", "") for number, row in enumerate(rows)]
    idle = 0

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *arguments: Any, **keywords: Any) -> None:
            nonlocal idle
            Path("/proc/self/clear_refs").write_text("5")
            idle = resident_bytes("VmRSS")

    trainer = SftTrainer(
        model=model,
        args=args,
        train_dataset=items,
        data_collator=SftCollator(0, config.max_length),
        metrics_log=None,
        progress=None,
    )
    trainer.add_callback(Watch())
    trainer.train()
    (folder / f"growth-{args.process_index}").write_text(str(resident_bytes("VmHWM") - idle))


def random_part(settings: dict[str, Any]) -> Any:
    """A tensor rank's part of the model. The whole is never here: the memory that it left would be used again."""
    from grrm.models.policy import policy_class

    cls = policy_class("qwen2")
    return cls(cls.config_class(**SHAPE, **settings))


def _config(stage: Any, file: Path) -> Any:
    from grrm.config import Launch, prepare
    from grrm.config.load import launched_processes

    return prepare(stage, file, (), Launch("cpu", launched_processes()), check_machine=False).config


if __name__ == "__main__":
    main()
