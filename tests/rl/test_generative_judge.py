"""Training against a group judge in the reward server: its verdicts are the rewards, its silence is no reward."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.completions_server import CompletionsServer
from support.judged_groups import ModelOf
from support.reward_servers import reward_server
from support.rl_processes import TinyWorld, entry_command, one_rank, rollouts_of, run

pytestmark = pytest.mark.slow
SETTINGS = {"use_rm_server": "true", "max_steps": "2", "score_scale_factor": "0.1"}
SCORES = [3.0, 8.0, 1.0, 6.0]


def by_place(place: int, text: str) -> float:
    return SCORES[place % len(SCORES)]


def verdict(body: dict, number: int) -> str:
    model = ModelOf(by_place)
    return model.generate_text([body["prompt"]], temperature=0.0, max_new_tokens=9, seeds=[0])[0].text


def test_policy_is_trained_with_the_scores_of_a_group_judge(world: TinyWorld, tmp_path: Path) -> None:
    with CompletionsServer(verdict) as model, reward_server("--judge", "gqm", "--openai-url", model.url) as (_, url):
        for streaming in ("false", "true"):
            settings = {**SETTINGS, "reward_server": url, "reward_streaming": streaming}
            run(one_rank(entry_command(world, tmp_path / streaming, **settings)))
    candidates, streamed = (
        [candidate for group in rollouts_of(tmp_path / streaming) for candidate in group["candidates"]]
        for streaming in ("false", "true")
    )
    assert streamed == candidates, "when a group is judged changes nothing"
    scored = [candidate for candidate in candidates if candidate["score"] is not None]
    assert scored, "the policy is seeded: some of its samples are translations"
    assert {candidate["score"] for candidate in scored} <= set(SCORES)
    assert {candidate["status"] for candidate in scored} <= {"scored", "duplicate"}
    assert [candidate["reward"] for candidate in scored] == pytest.approx([0.1 * c["score"] for c in scored])
    assert not {"judge_timeout", "judge_unreachable", "judge_unparsable"} & {c["status"] for c in candidates}


def test_a_judge_that_gives_no_verdict_stops_the_run_instead_of_paying_rewards(
    world: TinyWorld, tmp_path: Path
) -> None:
    options = ["--judge", "gqm", "--model", str(world.policy), "--judge-option", "retries=0"]
    with reward_server(*options, "--judge-option", "max_new_tokens=8") as (_, url):
        settings = {**SETTINGS, "reward_server": url, "max_unscored_fraction": "0.01"}
        done = run(one_rank(entry_command(world, tmp_path / "out", **settings)), expect=3)
    assert "of a generation batch without a score" in done.stderr
    assert "judge_unparsable" in done.stderr
    assert "Traceback" not in done.stderr
