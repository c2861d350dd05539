"""A supervised stage's loss and gradient are those of a step's whole batch, however that is divided.

The gradient is read off the weights after one step of AdamW with an epsilon of 1: from zero moments a weight moves by
learning_rate * g / (|g| + 1).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file
from support.rl_processes import CONFIGS, SCRIPTS, TinyWorld, metrics_of, run, train_here, two_ranks
from support.rows import WORDS, write_jsonl

from grrm.config import DPOConfig, RewardModelConfig, SFTConfig, load_config
from grrm.dpo import run as dpo_run
from grrm.reward_model import run as reward_run
from grrm.sft import run as sft_run
from grrm.sft.trainer import SftTrainer
from grrm.training.step_normalised_loss import OF_STEP, SeededBatches, StepDataLoader

N_ROWS = 14  # in micro-batches of 4, the last has 2
RATE = 10.0
STAGES = {
    "sft": (sft_run, SFTConfig, "run_sft.py", "sft_tiny_argument.yaml"),
    "dpo": (dpo_run, DPOConfig, "run_dpo.py", "dpo_tiny_argument.yaml"),
    "ranker": (reward_run, RewardModelConfig, "run_reward.py", "ranker_tiny_argument.yaml"),
    "pairwise": (reward_run, RewardModelConfig, "run_reward.py", "rm_tiny_argument.yaml"),
}
TENSOR = {"tensor_parallel_degree": "2", "per_device_train_batch_size": "14"}
LAYOUTS = {
    "data parallel": {"per_device_train_batch_size": "7"},
    "data parallel, accumulated": {"per_device_train_batch_size": "2", "gradient_accumulation_steps": "4"},
    "sharded": {"sharding": "stage1", "per_device_train_batch_size": "4", "gradient_accumulation_steps": "2"},
    "tensor parallel": TENSOR,
    "tensor and sequence parallel, accumulated": {
        **TENSOR,
        "sequence_parallel": "true",
        "per_device_train_batch_size": "4",
        "gradient_accumulation_steps": "4",
    },
}
# A layout of each stage; `make test-scale` runs the others.
DIAGONAL = {
    ("sft", "sharded"),
    ("dpo", "tensor and sequence parallel, accumulated"),
    ("ranker", "data parallel, accumulated"),
    ("pairwise", "tensor parallel"),
}


def words(rng: random.Random, n: int) -> str:
    return " ".join(rng.choices(WORDS, k=n)) if n > 1 else "a"


def rows_of(stage: str) -> list[dict]:
    """Rows of 3 to 200 tokens, and groups of 2 to 5 candidates, some of equal gold."""
    rng = random.Random(3)
    lengths = [round(1.36**i) for i in range(N_ROWS)]
    if stage == "sft":
        return [{"src": "a", "tgt": words(rng, n)} for n in lengths]
    if stage == "dpo":
        return [{"prompt": "a", "chosen": words(rng, n), "rejected": words(rng, 9)} for n in lengths]
    sizes = [2 + i % 4 for i in range(N_ROWS)]
    return [
        {
            "src_text": words(rng, 2),
            "src_lang": "en",
            "trg_lang": "de",
            "mt_texts": [words(rng, rng.choice(lengths)) for _ in range(size)],
            "scores": [float(rng.randrange(6)) for _ in range(size)],
        }
        for size in sizes
    ]


def overrides(world: TinyWorld, stage: str, data: Path, output: Path, **changes: str) -> list[str]:
    fixed = {
        "model_name_or_path": str(world.policy),
        "train_datasets": str(data),
        "output_dir": str(output),
        "report_to": "none",
        "max_steps": "1",
        "save_steps": "1",
        "logging_steps": "1",
        "max_length": "250",
        "learning_rate": str(RATE),
        "lr_scheduler_type": "constant",
        "warmup_ratio": "0",
        "warmup_steps": "0",
        "adam_epsilon": "1",
        "weight_decay": "0",
        "max_grad_norm": "0",
        "per_device_train_batch_size": str(N_ROWS),
    }
    of_stage = {
        "sft": {"init_from_config": "null", "tokenizer_name_or_path": str(world.policy)},
        "dpo": {"chat_template": "none"},
        "ranker": {"backbone_learning_rate": "null"},
        "pairwise": {},
    }[stage]
    if stage != "sft":
        of_stage |= {"val_size": "0", "eval_datasets": str(data), "eval_steps": "1", "evaluation_strategy": "steps"}
    return [text for key, value in {**fixed, **of_stage, **changes}.items() for text in (f"--{key}", value)]


def weights(folder: Path) -> dict[str, np.ndarray]:
    return {
        f"{path.name}/{name}": weight.astype(np.float64)
        for path in sorted(folder.glob("*.safetensors"))
        for name, weight in load_file(path).items()
    }


def gradient(before: Path, after: Path) -> dict[str, np.ndarray]:
    new = weights(after)
    moved = {name: weight - new[name] for name, weight in weights(before).items()}
    return {name: step / (RATE - np.abs(step)) for name, step in moved.items()}


def apart(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """Distance of two gradients relative to the second's norm."""
    assert one.keys() == other.keys()
    difference, norm = (
        np.sqrt(sum((part**2).sum() for part in parts))
        for parts in ([one[name] - other[name] for name in other], other.values())
    )
    assert norm > 1e-3
    return float(difference / norm)


@pytest.fixture(scope="module", params=STAGES)
def stage(request: pytest.FixtureRequest) -> str:
    return request.param


Train = Callable[..., Path]
PER_PAIR = ("rewards/", "logps/", "eval_pair_accuracy")


@pytest.fixture(scope="module")
def train(world: TinyWorld, stage: str, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Trains a step on the rows of `stage`, in this process or on two ranks; the folder of its output."""
    folder = tmp_path_factory.mktemp(stage)
    data = write_jsonl(folder / "rows.jsonl", rows_of(stage))
    module, config_class, script, yaml = STAGES[stage]

    def _train(name: str, *, on_two: bool = False, **changes: str) -> Path:
        arguments = overrides(world, stage, data, folder / name, **changes)
        if on_two:
            run(two_ranks([str(SCRIPTS / script), str(CONFIGS / yaml), *arguments], folder / f"logs of {name}"))
            return folder / name
        train_here(module.train, load_config(config_class, CONFIGS / yaml, arguments))
        return folder / name

    return _train


@pytest.fixture(scope="module")
def untrained(train: Train, stage: str) -> Path:
    """The weights that each run starts from."""
    backbone = {"backbone_learning_rate": "0"} if stage == "pairwise" else {}
    return train("untrained", learning_rate="0", **backbone)


@pytest.fixture(scope="module")
def joint(train: Train) -> Path:
    """All rows in one micro-batch of one process."""
    return train("joint")


def check_same(found: Path, joint: Path, untrained: Path) -> None:
    of_found, of_joint = ({k: v for line in metrics_of(run) for k, v in line.items()} for run in (found, joint))
    for name, value in of_joint.items():
        if name == "loss" or name.endswith(("_loss", "_correlation", "_low", "_high")) or name.startswith(PER_PAIR):
            assert of_found[name] == pytest.approx(value, rel=1e-6, abs=1e-6), name
    assert apart(gradient(untrained, found), gradient(untrained, joint)) < 1e-5


def test_accumulation_gives_the_loss_and_the_gradient_of_the_joint_batch(
    train: Train, joint: Path, untrained: Path
) -> None:
    changes = {"gradient_accumulation_steps": "4", "per_device_train_batch_size": "4"}
    check_same(train("four micro-batches", **changes), joint, untrained)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "layout"),
    [
        pytest.param(stage, layout, marks=() if (stage, layout) in DIAGONAL else pytest.mark.scale)
        for stage in STAGES
        for layout in LAYOUTS
    ],
    indirect=["stage"],
)
def test_two_ranks_give_the_loss_and_the_gradient_of_the_joint_batch(
    train: Train, joint: Path, untrained: Path, layout: str
) -> None:
    check_same(train(layout, on_two=True, **LAYOUTS[layout]), joint, untrained)


def test_a_step_is_read_ahead_and_the_rest_of_an_epoch_is_left_out() -> None:
    rows = [3, 1, 4, 1, 5, 9, 2, 6, 5]
    loader = StepDataLoader(
        rows, batch_size=2, collate_fn=lambda batch: {"rows": paddle.to_tensor(batch)}, micro_batches=lambda: 2
    )
    batches = list(loader)
    assert [batch["rows"].tolist() for batch in batches] == [[3, 1], [4, 1], [5, 9], [2, 6]]
    steps = [[other["rows"].tolist() for other in batch[OF_STEP]] for batch in batches]
    assert steps == [[[3, 1], [4, 1]]] * 2 + [[[5, 9], [2, 6]]] * 2


@pytest.mark.parametrize("stage", ["sft", "dpo"], indirect=True)
@pytest.mark.parametrize("stop", ["3", "4"])
def test_a_run_that_accumulates_is_resumed_where_an_epoch_leaves_out_rows(train: Train, stop: str) -> None:
    """Seven micro-batches an epoch are three steps; it stops behind an epoch, or within the second."""
    rows = {"per_device_train_batch_size": "2", "gradient_accumulation_steps": "2", "learning_rate": "0.01"}
    whole = train(f"whole {stop}", max_steps="5", save_steps="5", **rows)
    train(f"parts {stop}", max_steps=stop, save_steps=stop, **rows)
    parts = train(f"parts {stop}", max_steps="5", save_steps="5", **rows)
    assert [line["loss"] for line in metrics_of(parts) if "loss" in line] == [
        line["loss"] for line in metrics_of(whole) if "loss" in line
    ]
    assert all((weights(parts)[name] == weight).all() for name, weight in weights(whole).items())


@pytest.mark.parametrize("stage", ["sft"], indirect=True)
def test_a_run_with_more_accumulation_than_an_epoch_has_micro_batches_is_resumed(train: Train) -> None:
    """Four micro-batches an epoch are a step."""
    rows = {"per_device_train_batch_size": "4", "gradient_accumulation_steps": "8", "max_steps": "-1"}
    train("few", num_train_epochs="2", **rows)
    steps = [line["step"] for line in metrics_of(train("few", num_train_epochs="3", **rows)) if "loss" in line]
    assert steps == [1, 2, 3]


@pytest.mark.parametrize("stage", ["sft"], indirect=True)
def test_a_step_counts_each_of_its_micro_batches_once(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    count, counted = SftTrainer.count, []
    monkeypatch.setattr(SftTrainer, "count", lambda trainer, inputs: counted.append(inputs) or count(trainer, inputs))
    train("counted", gradient_accumulation_steps="4", per_device_train_batch_size="4")
    assert len(counted) == 4


def test_an_epoch_behind_the_largest_seed_has_an_order_too() -> None:
    batches = SeededBatches(range(4), 2, num_replicas=1, rank=0, shuffle=True, seed=2**32 - 1)
    batches.set_epoch(1)
    assert sorted(index for batch in batches for index in batch) == [0, 1, 2, 3]
