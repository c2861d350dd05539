"""What an argument file may say of a judge whose checkpoint is in the trainer's process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.rl_processes import TinyWorld, entry_command

from grrm.config import RLConfig, prepare
from grrm.config.workload import judge_models
from grrm.errors import UserError


def config_of(world: TinyWorld, output: Path, sources: list[dict], **settings: str) -> RLConfig:
    command = entry_command(world, output, reward_sources=json.dumps(sources), **settings)
    return prepare(RLConfig, command[1], command[2:]).config


def test_models_of_judges_in_this_process_are_found_fallbacks_included(world: TinyWorld, tmp_path: Path) -> None:
    here = str(world.policy)
    options = {"prompt_length": 100, "max_new_tokens": 28}
    sources = [
        {"judge": "gqm", "model": here, "options": options, "fallback": {"judge": "ranker", "model": here}},
        {"judge": "sqm", "model": "served", "urls": ["http://127.0.0.1:8000"]},
        {"judge": "chrf"},
    ]
    found = judge_models(config_of(world, tmp_path, sources))
    assert [(model.title, model.folder, model.positions) for model in found] == [
        ("gqm", here, 128),
        ("ranker", here, 0),
    ]
    assert [model.weight("gpu") for model in found] == [2, 4]


def test_a_folder_that_is_not_there_is_told_before_anything_is_loaded(world: TinyWorld, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"reward_sources names the model '\./runs/nowhere', which is no folder"):
        config_of(world, tmp_path, [{"judge": "gqm", "model": "./runs/nowhere"}])


def test_it_cannot_judge_while_samples_are_drawn(world: TinyWorld, tmp_path: Path) -> None:
    sources = [{"judge": "chrf"}, {"judge": "gqm", "model": str(world.policy)}]
    with pytest.raises(UserError, match="reward_streaming has a judge work while samples are drawn"):
        config_of(world, tmp_path, sources, reward_streaming="true")


def test_judges_show_no_more_context_than_rows_bring(world: TinyWorld, tmp_path: Path) -> None:
    sources = [{"judge": "gqm", "model": str(world.policy), "options": {"context_segments": 2}}]
    with pytest.raises(UserError, match=r"judge gqm of reward_sources shows 2 .* bring 1; set context_segments: 2"):
        config_of(world, tmp_path, sources, context_segments="1")
    assert config_of(world, tmp_path, sources, context_segments="2").context_segments == 2


def test_context_without_a_judge_that_could_show_it_is_refused(world: TinyWorld, tmp_path: Path) -> None:
    command = entry_command(world, tmp_path, use_rm_server="true", reward_protocol="paddlenlp", context_segments="1")
    with pytest.raises(UserError, match=r"context_segments has no effect with .* reward_protocol paddlenlp"):
        prepare(RLConfig, command[1], command[2:])
