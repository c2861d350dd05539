"""Keys that every stage's argument file may contain."""

from __future__ import annotations

from pydantic import PrivateAttr

from grrm.config.keys.adapter import AdapterConfig
from grrm.config.keys.machine import ParallelConfig, PrecisionConfig, SpeedConfig
from grrm.config.keys.optimization import LengthConfig, OptimizerConfig, ScriptConfig
from grrm.config.keys.output import CheckpointConfig, OutputConfig


class StageConfig(
    LengthConfig,
    OptimizerConfig,
    OutputConfig,
    CheckpointConfig,
    PrecisionConfig,
    ParallelConfig,
    SpeedConfig,
    AdapterConfig,
    ScriptConfig,
):
    """The keys that all stages have. Obtain a stage's configuration from `grrm.config.load_config`."""

    _source: str = PrivateAttr("")
    _notices: tuple[str, ...] = PrivateAttr(())

    @property
    def source(self) -> str:
        """The argument file, for messages; empty for a configuration that was not read from one."""
        return self._source

    @property
    def notices(self) -> tuple[str, ...]:
        """Requests of the file that are not honoured, a sentence each; the run says so and goes on."""
        return self._notices
