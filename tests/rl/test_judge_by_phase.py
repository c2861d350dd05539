"""A generative judge in the trainer's own process gives the rewards that the reward server gives, group by group."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.hand_made_judge import write_hand_made_judge, write_lettered_policy
from support.reward_servers import reward_server
from support.rl_processes import TinyWorld, entry_command, metrics_of, on_ranks, one_rank, rollouts_of, run

from grrm.gqm.chat import render_chatml
from grrm.gqm.prompts import gqm_prompt

pytestmark = pytest.mark.slow
OPTIONS = {"prompt_type": "score", "show_copies": True, "retries": 0, "max_new_tokens": 8}
# Every response is its own translation, so that each group shows four of them, which this judge can count to.
SETTINGS = {"extractor_type": "none", "max_steps": "2", "save_steps": "2"}


@pytest.fixture(scope="module")
def lettered(world: TinyWorld, tmp_path_factory: pytest.TempPathFactory) -> TinyWorld:
    policy = write_lettered_policy(world.policy, tmp_path_factory.mktemp("policy") / "policy")
    return TinyWorld(world.folder, policy, world.rl_data)


@pytest.fixture(scope="module")
def judge(world: TinyWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [json.loads(line) for line in world.rl_data.read_text().splitlines()]
    texts = [row["src"] for row in rows]
    groups = [gqm_prompt(text, [text[i : i + 9] for i in range(4)], "de", "en", "score") for text in texts[:40]]
    prompts = [render_chatml(prompt) for prompt in groups]
    return write_hand_made_judge(tmp_path_factory.mktemp("judge") / "judge", texts, prompts)


@pytest.fixture(scope="module")
def served(lettered: TinyWorld, judge: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process whose judge is in a reward server."""
    output = tmp_path_factory.mktemp("served") / "out"
    options = [text for name, value in OPTIONS.items() for text in ("--judge-option", f"{name}={json.dumps(value)}")]
    options[options.index('prompt_type="score"')] = "prompt_type=score"
    with reward_server("--port", "0", "--judge", "gqm", "--model", str(judge), *options) as (_, url):
        run(one_rank(entry_command(lettered, output, **SETTINGS, use_rm_server="true", reward_server=url)))
    return output


def inside(judge: Path) -> dict[str, str]:
    return {**SETTINGS, "reward_sources": json.dumps([{"judge": "gqm", "model": str(judge), "options": OPTIONS}])}


@pytest.mark.parametrize(
    ("n_ranks", "settings"),
    [
        (1, {}),
        (2, {}),
        (2, {"tensor_parallel_degree": "2"}),
        (2, {"tensor_parallel_degree": "2", "rollout_tensor_parallel_degree": "2"}),
    ],
    ids=["one process", "two data ranks", "two tensor ranks", "two that sample together"],
)
def test_rewards_are_those_of_the_reward_server(
    lettered: TinyWorld, judge: Path, served: Path, tmp_path: Path, n_ranks: int, settings: dict[str, str]
) -> None:
    command = entry_command(lettered, tmp_path / "out", **inside(judge), **settings)
    run(on_ranks(n_ranks, command, tmp_path / "logs"))
    ours, theirs = rollouts_of(tmp_path / "out"), rollouts_of(served)
    for one, other in zip(ours, theirs, strict=True):
        assert one["group_id"] == other["group_id"]
        assert one["candidates"] == other["candidates"], "responses, statuses, scores, rewards, advantages"
    scores = [candidate["score"] for group in ours for candidate in group["candidates"]]
    assert len({*scores}) >= 4, "the judge tells candidates apart"
    for line in metrics_of(tmp_path / "out"):
        assert line["seconds_judge_overlapped"] == 0
