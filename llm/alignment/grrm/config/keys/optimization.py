"""Keys of the optimizer, its schedule, the length of a run, and evaluation."""

from __future__ import annotations

from typing import ClassVar, Literal

from grrm.config.key import TRAINER, Section, Support, key, refused, switch
from grrm.config.keys.output import When


class LengthConfig(Section):
    """Length of a run, and the sizes of its steps on one rank."""

    title: ClassVar[str] = "Length and step size"

    max_steps: int = key(
        -1, "optimizer steps; -1 leaves the length to num_train_epochs", unit="steps", ge=1, le=10**9, also=(-1,)
    )
    num_train_epochs: float = key(1.0, "passes over the training rows", unit="epochs", ge=0, le=10**6, also=(-1,))
    per_device_train_batch_size: int = key(8, "rows per micro-batch on one rank", unit="rows", ge=1, le=10**6)
    gradient_accumulation_steps: int = key(1, "micro-batches per optimizer step; derived in RL", ge=1, le=10**6)
    dataloader_drop_last: bool = key(False, "drop the last incomplete batch of an epoch")
    seed: int = key(42, "seed of initial weights and row order", ge=0, le=2**32 - 1)  # NumPy takes no other


class OptimizerConfig(Section):
    """Optimizer and learning rate."""

    title: ClassVar[str] = "Optimizer"
    usual: ClassVar[Support] = TRAINER

    learning_rate: float = key(5e-5, "the learning rate after the warm-up", ge=0, le=10)
    lr_scheduler_type: Literal["linear", "cosine", "constant", "constant_with_warmup", "polynomial"] = key(
        "linear", "learning rate schedule"
    )
    warmup_ratio: float = key(0.0, "share of the steps used for warm-up", ge=0, le=1)
    warmup_steps: int = key(0, "number of warm-up steps; overrides warmup_ratio", unit="steps", ge=0, le=10**9)
    num_cycles: float = key(0.5, "cycles of the cosine schedule", ge=0)
    lr_end: float = key(1e-7, "final learning rate of the polynomial schedule", ge=0)
    power: float = key(1.0, "exponent of the polynomial schedule", ge=0)
    optim: Literal["adamw", "adamw_mini", "adamw_custom", "adamw_16bit_moment"] = key("adamw", "the optimizer")
    weight_decay: float = key(0.0, "weight decay per step, times the learning rate", ge=0)
    adam_beta1: float = key(0.9, "AdamW's beta1, decay of the first moment", ge=0, lt=1)
    adam_beta2: float = key(0.999, "AdamW's beta2, decay of the second moment", ge=0, lt=1)
    adam_epsilon: float = key(1e-8, "AdamW's epsilon", ge=0)
    max_grad_norm: float = key(1.0, "gradient norm clipping")
    flatten_param_grads: bool | None = key(
        False, "one buffer for all gradients", by=refused("PaddleNLP has it for NPU devices only; remove the key", None)
    )


class EvaluationConfig(Section):
    """Evaluation during training."""

    title: ClassVar[str] = "Evaluation"

    eval_datasets: str | None = key(None, "file of held-out rows, in the format of the training file", names="file")
    val_size: float = key(
        0.0, "training rows to hold out instead: a fraction below 1, or a number of rows", ge=0, le=10**9
    )
    do_eval: bool = key(False, "evaluate; follows from evaluation_strategy", by=TRAINER)
    evaluation_strategy: When = key("no", "when to evaluate held-out rows; RL supports steps only", by=TRAINER)
    eval_steps: int | None = key(
        None, "steps between evaluations", by=TRAINER, means="logging_steps", unit="steps", ge=1, le=10**9
    )
    per_device_eval_batch_size: int = key(
        8,
        "rows per evaluation batch",
        by=switch("evaluation keeps rollout_max_num_seqs rows in flight"),
        unit="rows",
        ge=1,
        le=10**6,
    )


_LOADER = "every stage lays out its batches and evaluates in its own way; remove the key"


class LoaderConfig(Section):
    """Keys of PaddleNLP's own data loader and evaluation loop, which no stage has."""

    title: ClassVar[str] = "PaddleNLP's data loader and evaluation loop"
    usual: ClassVar[Support] = refused(_LOADER)

    prediction_loss_only: bool = key(False, "evaluate the loss alone")
    eval_accumulation_steps: int | None = key(None, "steps before predictions go to the CPU")
    minimum_eval_times: int | None = key(None, "lowers eval_steps to reach so many evaluations")
    max_evaluate_steps: int = key(-1, "batches of one evaluation; -1 for all")
    dataloader_num_workers: int = key(0, "worker processes of the data loader")
    past_index: int = key(-1, "output that is handed to the next step; -1 for none")
    remove_unused_columns: bool | None = key(
        True, "drop columns that the model does not use", by=refused(_LOADER, False, None)
    )
    label_names: list[str] | None = key(None, "inputs that are labels")
    distributed_dataloader: bool | None = key(False, "load on one rank and broadcast", by=refused(_LOADER, None))
    skip_data_intervals: list[list[int]] | None = key(None, "ranges of steps whose rows are skipped")
    count_trained_tokens: bool = key(
        False,
        "count the tokens that were trained on",
        by=refused("see train_tokens_a_second in metrics.jsonl; remove it"),
    )
    pad_token_id: int = key(0, "token that is not counted")
    lazy_data_processing: bool | None = key(True, "process rows lazily", by=refused(_LOADER, None))


class ScriptConfig(Section):
    """Parts of the work of a script."""

    title: ClassVar[str] = "What the script does"

    do_train: bool = key(True, "train", by=refused("training scripts always train; remove the key"))
    do_predict: bool = key(False, "predict on a test set", by=refused("this script only trains; remove the key"))
    do_export: bool = key(
        False,
        "export a model for inference",
        by=refused("the saved checkpoint is already a PaddleNLP model folder; remove the key"),
    )
