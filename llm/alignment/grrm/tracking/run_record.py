"""The traces of a run: metrics.jsonl, the dump of every rollout group, sample groups and progress on the console."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from grrm.config import RLConfig
from grrm.config.keys.machine import ParallelConfig, SpeedConfig
from grrm.config.keys.objective import StoppingConfig
from grrm.config.keys.output import CheckpointConfig, OutputConfig
from grrm.config.keys.reward import RecordConfig
from grrm.config.keys.rollout import RolloutServersConfig
from grrm.gqm.groups import Status
from grrm.rewards.failure_policy import REMEDIES
from grrm.tracking.console import StepProgress, show_groups
from grrm.tracking.metrics_log import MetricsLog, StepLines
from grrm.tracking.report.selection import FOLDER as REJUDGED
from grrm.tracking.rollout_dump import ROLLOUTS, RolloutDump, last_arguments

PROGRESS_METRICS = ("loss", "reward_mean", "kl", "frac_zero_variance")
MANY_FAILURES = 0.05  # of a step's samples: so many of one status are worth a line
# What a run may have otherwise without becoming another one: its length, addresses, records, what costs time or memory.
_SECTIONS = (
    OutputConfig,
    CheckpointConfig,
    RecordConfig,
    SpeedConfig,
    ParallelConfig,
    StoppingConfig,
    RolloutServersConfig,
)
_OTHERS = """
max_steps eval_steps gradient_accumulation_steps per_device_train_batch_size per_device_logprob_batch_size
per_device_value_batch_size max_tokens_per_micro_batch balance_batch rollout_max_num_seqs rollout_memory_fraction
rollout_tensor_parallel_degree reward_server reward_token_file reward_connect_timeout_s reward_read_timeout_s
reward_deadline_s reward_attempts reward_groups_per_request reward_streaming max_unscored_fraction
max_rollouts_unscored
"""
MAY_CHANGE = {*_OTHERS.split(), *(name for section in _SECTIONS for name in section.model_fields)}


@dataclass(slots=True)
class RunRecord:
    """Written by the first rank only: the gathered batch is whole there."""

    metrics_log: MetricsLog | None
    dump: RolloutDump | None
    progress: StepProgress | None
    console_groups: int
    show_every: int = 1
    frequent: set[Status] = field(default_factory=set)

    @classmethod
    def open(cls, config: RLConfig, is_writer: bool, total_steps: int, first_step: int) -> RunRecord:
        """Open the files below `output_dir` on the rank that writes; `first_step` is the first this run will take."""
        if not is_writer:
            return cls(None, None, None, 0)
        folder = Path(config.output_dir)
        dump = RolloutDump(folder / ROLLOUTS, config.dump_format, first_step=first_step)
        settings = config.model_dump(mode="json", exclude={"wandb_api_key"})
        dump.write_arguments(settings)
        _tell_changed(folder, settings, first_step)
        for path in (folder / REJUDGED).glob("*.jsonl"):
            StepLines(path, first_step)  # verdicts on groups that are sampled again
        return cls(
            metrics_log=MetricsLog(folder, first_step if first_step > 1 else 0),  # step 0: evaluated before the first
            dump=dump if config.dump_rollouts else None,
            progress=StepProgress(total_steps, initial=first_step - 1, description=config.rl_algorithm),
            console_groups=config.console_groups,
            show_every=max(1, total_steps // 10),
        )

    def rollout(self, step: int, records_of: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        """Dump the rollout that step `step` starts with, and show a few of its groups now and then.

        `records_of` makes its `group_record`s; it is not called where nobody would see them.
        """
        if self.dump is None and not self.console_groups:
            return
        records = records_of()
        if self.dump is not None:
            self.dump.write(step, records)
        if self.console_groups and (step - 1) % self.show_every == 0:
            show_groups(records, max_groups=self.console_groups)

    def metrics(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Write one step's metrics and move the progress bar."""
        if self.metrics_log is not None:
            self.metrics_log.log(step, metrics)
        if self.progress is not None:
            self.progress.update(step, **{name: metrics.get(name) for name in PROGRESS_METRICS})
        self._tell_failures(step, metrics)

    def _tell_failures(self, step: int, metrics: Mapping[str, Any]) -> None:
        """A line for each status without a score that many samples have now and had not in the step before."""
        shares = {status: metrics.get(f"status/{status.value}", 0.0) for status in REMEDIES}
        frequent = {status for status, share in shares.items() if share > MANY_FAILURES}
        for status in sorted(frequent - self.frequent):
            self.say(f"step {step}, {shares[status]:.0%} of the samples are {status.value}: {REMEDIES[status]}")
        self.frequent = frequent

    def evaluation(self, step: int, metrics: Mapping[str, Any], lines: Sequence[str] = ()) -> None:
        """Write one evaluation as a line of its own, and `lines` to the console."""
        if self.metrics_log is not None:
            self.metrics_log.log(step, metrics)
        for line in lines:
            self.say(f"step {step}, {line}")

    def say(self, line: str) -> None:
        """Show a line on the console, above the progress bar."""
        if self.progress is not None:
            tqdm.write(f"{self.progress.description}: {line}", file=sys.stderr)

    def close(self) -> None:
        """Finish the progress bar."""
        if self.progress is not None:
            self.progress.close()


def _tell_changed(folder: Path, settings: Mapping[str, Any], first_step: int) -> None:
    """Name the settings that a resumed run has with other values than the steps before."""
    before = last_arguments(folder / ROLLOUTS, before=first_step)
    changed = [name for name in settings if before.get(name, settings[name]) != settings[name]]
    if changed := [name for name in changed if name not in MAY_CHANGE]:
        print(
            f"going on at step {first_step} of '{folder}' with other values of {', '.join(changed)}: the verdict "
            "compares with the policy and rewards of the start; name another output_dir for a run of its own",
            file=sys.stderr,
            flush=True,
        )
