"""Keys of a run's output: folders, logs, trackers, checkpoints."""

from __future__ import annotations

from typing import ClassVar, Literal

from grrm.config.key import OURS, TRAINER, Section, Support, key, refused

When = Literal["no", "steps", "epoch"]
Tracker = Literal["visualdl", "tensorboard", "wandb", "all", "none"]

_PDC = refused("this trainer does not do that; remove the key", None)


class OutputConfig(Section):
    """Folder, log lines and trackers."""

    title: ClassVar[str] = "Output and logging"
    usual: ClassVar[Support] = TRAINER

    output_dir: str = key(
        None, "folder of checkpoints, logs and the trained model", required="name the folder for checkpoints and logs"
    )
    overwrite_output_dir: bool = key(
        False, "start over instead of resuming from the last checkpoint in output_dir", by=OURS
    )
    logging_strategy: When = key("steps", "when to log metrics; RL supports steps only")
    logging_steps: int = key(500, "steps between log entries", unit="steps", ge=1, le=10**9)
    logging_first_step: bool = key(False, "log the first step as well")
    logging_dir: str | None = key(None, "folder of the tracker's files", means="below output_dir/runs")
    report_to: list[Tracker] = key(["visualdl"], "experiment trackers")
    run_name: str | None = key(None, "name of the run in trackers", means="output_dir")
    disable_tqdm: bool | None = key(None, "disable the progress bar of Trainer", means="by the log level")
    log_on_each_node: bool = key(True, "log on every machine", by=refused("PaddleNLP does not read it; remove the key"))
    output_signal_dir: str | None = key(
        None,
        "folder for the signals of asynchronous saving",
        by=refused(
            "nothing is saved so, and PaddleNLP would delete old checkpoints of that folder too; remove the key"
        ),
    )
    metrics_output_path: str | None = key(None, "folder for Trainer's own record of metrics")
    skip_profile_timer: bool | None = key(True, "false logs the time of each part of a step")
    skip_memory_metrics: bool = key(True, "false adds memory use to the metrics")
    wandb_api_key: str | None = key(None, "API key of Weights & Biases")
    wandb_http_proxy: str | None = key(None, "HTTP proxy for Weights & Biases")


class CheckpointConfig(Section):
    """Saving, resuming, and which checkpoint is the best."""

    title: ClassVar[str] = "Checkpoints"
    usual: ClassVar[Support] = TRAINER

    save_strategy: When = key("steps", "when to save checkpoints; RL supports steps only")
    save_steps: int = key(
        500, "steps between checkpoints; in RL a multiple of a rollout's steps", unit="steps", ge=1, le=10**9
    )
    save_total_limit: int | None = key(
        None, "number of checkpoints to keep, the newest and the best; 0 and none keep all", ge=0, le=10**6
    )
    save_on_each_node: bool = key(False, "save on every machine instead of the first")
    resume_from_checkpoint: str | None = key(
        None, "checkpoint folder to resume from", means="the newest complete one in output_dir", by=OURS
    )
    load_best_model_at_end: bool | None = key(False, "load the best checkpoint at the end")
    metric_for_best_model: str | None = key(None, "evaluation metric that selects the best checkpoint")
    greater_is_better: bool | None = key(
        None, "whether higher values of that metric are better", means="by the metric's name"
    )
    ignore_data_skip: bool = key(False, "do not skip the rows already seen when resuming")
    unified_checkpoint: bool | None = key(False, "save in PaddleNLP's layout-independent format")
    unified_checkpoint_config: str | None = key("", "options of that format; async_save is refused")
    ckpt_quant_stage: Literal["O0", "O1", "O2"] = key(
        "O0", "quantization of optimizer states in checkpoints: O0 none, O1 8 bits, O2 4 bits"
    )
    save_sharded_model: bool = key(False, "with sharding stage1, save each rank's shard of the model")
    load_sharded_model: bool = key(False, "resume from checkpoints saved that way")
    save_sharding_stage1_model_include_freeze_params: bool | None = key(
        False,
        "with save_sharded_model, save frozen weights as well",
        by=refused("PaddleNLP does not read it; remove the key", None),
    )
    ordered_save_group_size: int = key(
        0, "ranks that save concurrently; 0 for all", by=refused("PaddleNLP fails at its first save; remove the key")
    )
    ignore_save_lr_and_optim: bool | None = key(
        False, "save without optimizer states; such a checkpoint cannot be resumed"
    )
    ignore_load_lr_and_optim: bool | None = key(
        False,
        "resume without the optimizer state",
        by=refused(
            "a resumed run continues with its optimizer; give the checkpoint as the model to start from its weights "
            "alone",
            None,
        ),
    )
    force_reshard_pp: bool | None = key(False, "reshard pipeline stages even where the degrees agree")
    use_async_save: bool | None = key(
        False,
        "save in the background",
        by=refused("a checkpoint could be taken for whole while it is still being written; remove the key", None),
    )
    pdc_download_ckpt: bool | None = key(False, "fetch the checkpoint from Baidu's cluster storage", by=_PDC)
    pdc_download_timeout: int | None = key(300, "timeout of the download", by=_PDC, unit="s")
