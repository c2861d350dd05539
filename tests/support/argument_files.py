"""PaddleNLP's own argument files for RL, and what the argument files and folders of the demo's plans say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from grrm.config import RewardModelConfig, RLConfig, SFTConfig
from grrm.config.key import Section
from grrm.config.load import explicit_values, usable_values
from grrm.config.problems import Problems
from grrm.demo.stages import Stage

FILES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("paddlenlp_argument_files.json").read_text())
CONFIGS: dict[str, type[Section]] = {
    "run_sft.py": SFTConfig,
    "run_reward.py": RewardModelConfig,
    "run_rl.py": RLConfig,
}


def write_paddlenlp_file(name: str, folder: Path) -> Path:
    """PaddleNLP's file, key by key as its users have and start it; returns its path."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(FILES[name], sort_keys=False))
    return path


def typed_values(section: type[Section], raw: Mapping[str, Any]) -> dict[str, Any]:
    """Of an argument file, without the checks across keys. Raises UserError for a key or a value that cannot be."""
    problems = Problems()
    values = usable_values(section, explicit_values(section, raw, problems), problems)
    problems.raise_if_any("keys")
    return values


def values_of(stage: Stage) -> dict[str, Any]:
    """The values that a stage trains with: those of its argument file, and what its command line changes."""
    command = list(stage.command)
    script = next(index for index, word in enumerate(command) if Path(word).name in CONFIGS)
    assert Path(command[script]).is_file()
    options = command[script + 2 :]
    overrides = dict(zip([key.removeprefix("--") for key in options[::2]], options[1::2], strict=True))
    recipe = yaml.safe_load(Path(command[script + 1]).read_text(encoding="utf-8"))
    values = typed_values(CONFIGS[Path(command[script]).name], {**recipe, **overrides})
    assert (values["max_steps"], values["output_dir"]) == (stage.total_steps, str(stage.folder))
    return values


def check_folders(stages: Iterable[Stage]) -> None:
    """Every input is there or made by an earlier stage, and every stage writes to a folder of its own."""
    folders: list[Path] = []
    for stage in stages:
        for path in stage.inputs:
            assert path.exists() or any(path.is_relative_to(folder) for folder in folders), (stage.name, path)
        assert all(path.is_relative_to(stage.folder) for path in stage.outputs)
        assert stage.folder not in folders
        folders.append(stage.folder)
