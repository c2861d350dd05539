"""Folders and commands of the demo, shared by the plans of the policies and of the judges."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grrm.config.load import read_yaml
from grrm.demo.results import seed_folder
from grrm.demo.settings import STOCK, Settings
from grrm.demo.stages import Stage
from grrm.tracking.metrics_log import FILE_NAME as METRICS_FILE

WEIGHTS = "model.safetensors"
_RECIPES = Path("llm/config/qwen")
_SCRIPTS = Path("llm/alignment/grrm")
_TRAINING_TIMEOUT_S = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Layout:
    """Folders and commands of one demo; `root` is the checkout, `out` the folder everything is written to."""

    settings: Settings
    root: Path
    out: Path

    @property
    def placeholders(self) -> dict[str, str]:
        """Words for the paths in commands that say nothing about results, see `fingerprint_of`."""
        return {str(self.out): "{out}", str(self.root): "{root}", sys.executable: "{python}"}

    @property
    def data(self) -> Path:
        """Everything that all seeds share."""
        return self.out / "data"

    def corpus(self, name: str) -> Path:
        """The rows to "train" on, those "heldout" for the report, or the "dev" rows that choices are made on."""
        return self.data / "corpus" / f"{name}.parquet"

    def model(self, name: str, seed: int) -> Path:
        """The folder of a policy or a judge; the published model is the same for all seeds."""
        return self.data / "model" / name if name == STOCK else seed_folder(self.out, seed) / name

    def weights(self, name: str, seed: int) -> list[Path]:
        """The files of a model that a stage depends on."""
        return [self.model(name, seed) / file for file in (WEIGHTS, "config.json")]

    def recipe(self, name: str) -> Path:
        """An argument file."""
        return self.root / _RECIPES / name

    def module(self, module: str, *arguments: object) -> list[str]:
        """The command of one of the demo's modules."""
        return [sys.executable, "-m", f"grrm.demo.{module}", *map(str, arguments)]

    def grrm(self, *arguments: object) -> list[str]:
        """A `grrm` command."""
        return [sys.executable, "-m", "grrm.cli", *map(str, arguments)]

    def dtype(self) -> list[str]:
        """The option of commands that open a model."""
        return [] if self.settings.dtype == "float32" else ["--dtype", self.settings.dtype]

    def shared(
        self,
        name: str,
        title: str,
        command: list[str],
        inputs: Sequence[Path],
        outputs: Sequence[Path],
        **fields: Any,
    ) -> Stage:
        """A stage of all seeds that leaves `outputs` in one folder."""
        return Stage(name, title, command, outputs[0].parent, inputs=inputs, outputs=outputs, **fields)

    def result(
        self, title: str, command: list[str], inputs: Sequence[Path], outputs: Sequence[Path], **fields: Any
    ) -> Stage:
        """A stage of a seed that leaves `outputs` in one folder, after which it is called, and says what they are."""
        folder = outputs[0].parent
        seed = folder.parent.name
        name, title = f"{seed}/{folder.name}", f"{title}, {seed.replace('seed', 'seed ')}"
        return self.shared(name, title, command, inputs, outputs, ends_with_result=True, **fields)

    def training(
        self,
        run: str,
        seed: int,
        title: str,
        script: str,
        recipe: Path,
        overrides: Sequence[object],
        inputs: Sequence[Path],
        steps: int | None,
        shown: Sequence[str] = ("loss",),
        **fields: Any,
    ) -> Stage:
        """A stage that runs `script` with `recipe` and leaves a model; `steps` overrides the recipe's `max_steps`."""
        folder = self.model(run, seed)
        overrides = [*overrides, "--output_dir", folder, "--seed", seed]
        if self.settings.dtype != "float32":
            overrides += ["--bf16", "true"]
        if steps is not None:
            overrides += ["--max_steps", steps]
        if self.settings.save_steps is not None:
            overrides += ["--save_steps", self.settings.save_steps]
        return Stage(
            name=f"seed{seed}/{run}",
            title=f"{title}, seed {seed}",
            command=[*self._launcher(folder), str(self.root / _SCRIPTS / script), str(recipe), *map(str, overrides)],
            folder=folder,
            inputs=[recipe, *inputs],
            outputs=self.weights(run, seed),
            metrics=folder / METRICS_FILE,
            total_steps=steps if steps is not None else _steps_in(recipe),
            shown=shown,
            timeout_s=_TRAINING_TIMEOUT_S,
            **fields,
        )

    def _launcher(self, folder: Path) -> list[str]:
        """The launcher for several processes; one process needs none."""
        if self.settings.nproc == 1:
            return [sys.executable]
        options = ["--nproc_per_node", str(self.settings.nproc), "--log_dir", str(folder / "rank-logs")]
        return [sys.executable, "-m", "grrm.cli.launcher", *options]


def _steps_in(recipe: Path) -> int | None:
    """`max_steps` of a recipe, None when it has none."""
    steps = read_yaml(recipe).get("max_steps")
    return steps if isinstance(steps, int) else None
