"""Translations and questions in one run: each row has the reward of its data source, and a verifier may die."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.completions_server import CompletionsServer
from support.reward_servers import serving
from support.rl_processes import ROOT, TinyWorld, entry_command, metrics_of, rollouts_of, train_here
from support.rolled import rolled_group
from support.rows import write_jsonl

from grrm.config import RLConfig, load_config
from grrm.data.answers import convert_answers
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask
from grrm.rewards.answers import math_match
from grrm.rewards.failure_policy import FailurePolicy, RewardFailure
from grrm.rewards.shaping import ShapingConfig
from grrm.rl.reward_sources import build_rewarder
from grrm.rl.reward_stage import reward
from grrm.rl.run import train as run_rl


def write_mixed(world: TinyWorld, path: Path) -> Path:
    """Two translations, a question to be verified, one compared, one graded."""
    translations = [json.loads(line) for line in world.rl_data.read_text().splitlines()[:2]]
    prompt = render_chatml("2 + 2?")
    graded = json.dumps({"answer": "0.5", "criteria": "10 for 4"})
    questions = [("polaris_tinyv", "4"), ("anything", "7"), ("grade", graded)]
    rows = [*translations, *({"src": prompt, "tgt": tgt, "data_source": name} for name, tgt in questions)]
    return write_jsonl(path, rows)


SERVER = """
import threading
from support.completions_server import CompletionsServer
server = CompletionsServer(lambda body, _: "True")
print("listening on", server.url, flush=True)
threading.Event().wait()
"""


@pytest.fixture
def verifier():
    """A process that calls every answer right, with its `url`."""
    with serving(["-c", SERVER], PYTHONPATH=str(ROOT / "tests")) as (process, url):
        process.url = url
        yield process


def config_of(world: TinyWorld, output: Path, *sources: dict, **settings: str) -> RLConfig:
    values = {
        "max_steps": "1",
        "save_steps": "1",
        "global_batch_size": "5",
        "per_device_train_batch_size": "4",
        "reward_routes": "{}",
        "reward_sources": json.dumps([{"judge": "chrf"}, *sources]),
        **settings,
    }
    command = entry_command(world, output, **values)
    return load_config(RLConfig, command[1], command[2:])


def verified(url: str, **options: object) -> dict:
    options = {"setup": "addon", "retries": 0, **options}
    return {"judge": "rule+verifier", "route": "tinyv", "urls": [url], "options": options, "deadline_s": 120}


train = partial(train_here, run_rl)


def test_rows_of_several_kinds_are_rewarded_by_their_own_judges(world: TinyWorld, tmp_path: Path, verifier) -> None:
    pytest.importorskip("math_verify")
    data = write_mixed(world, tmp_path / "mixed.jsonl")
    held_out = {"eval_datasets": str(data), "evaluation_strategy": "steps", "eval_steps": "1", "eval_samples": "2"}
    train(config_of(world, tmp_path / "out", verified(verifier.url), train_datasets=str(data), **held_out))
    groups = {}
    for group in rollouts_of(tmp_path / "out"):
        groups.setdefault(group["data_source"], []).append(group)
    assert sorted((name, len(members)) for name, members in groups.items()) == [
        ("anything", 1),
        ("grade", 1),
        ("polaris_tinyv", 1),
        ("translation", 2),
    ]
    for candidate in groups["anything"][0]["candidates"]:
        found = math_match(candidate["response"], "7")
        assert candidate["status"] == ("unparsable_candidate" if found.answer is None else "scored")
    assert [part["name"] for part in groups["translation"][0]["verdict"]["parts"]] == ["chrf"]
    assert [part["name"] for part in groups["polaris_tinyv"][0]["verdict"]["parts"]] == ["rule+verifier"]
    step, *_ = [line for line in metrics_of(tmp_path / "out") if "loss" in line]
    check_held_out(tmp_path / "out", data)
    assert step["data/translation/frac_groups"] == 0.4
    assert step["data/polaris_tinyv/frac_groups"] == 0.2
    assert {"data/grade/frac_unscored", "data/anything/response_length_mean"} <= set(step)


def check_held_out(output: Path, data: Path) -> None:
    """Rows of every kind are evaluated by their own judges and written down; only translations have a chrF."""
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    for file in sorted((output / "held_out").iterdir()):
        found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        assert [row["data_source"] for row in found] == [row.get("data_source", "translation") for row in rows]
        assert {len(row[name]) for row in found for name in ("responses", "rewards", "lengths")} == {3}
        *_, verified_row, compared, _ = found
        assert compared["rewards"] == [float(math_match(text, "7").correct) for text in compared["responses"]]
        assert set(verified_row["rewards"]) <= {0.0, 1.0, None}
    evaluations = [line for line in metrics_of(output) if "eval_reward" in line]
    assert len(evaluations) == len(list((output / "held_out").iterdir())) == 2
    assert all(line["eval_chrf"] > 0 and 0 <= line["eval_frac_unrewarded"] < 1 for line in evaluations)


# What the page sizes for 7B models; `config_of` has a tiny run's.
SIZES = {"global_batch_size", "global_mini_batch_size", "rollout_n", "max_prompt_len", "max_dec_len"}


def test_the_argument_file_of_the_page_of_commands_runs(world: TinyWorld, tmp_path: Path) -> None:
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    values = yaml.safe_load(block)
    (source,) = values.pop("reward_sources")
    asked = {"question": "2 + 2?", "criteria": "10 for 4"}
    row = {"data_source": "polaris_tinyv", "prompt": [{"role": "user", "content": "2 + 2?"}], "extra_info": asked}
    rows = pa.Table.from_pylist([row | {"reward_model": {"ground_truth": "4"}}] * 5)
    pq.write_table(rows, tmp_path / "rows.parquet")
    values["train_datasets"] = str(tmp_path / values["train_datasets"])
    convert_answers(tmp_path / "rows.parquet", Path(values["train_datasets"]))
    settings = {name: str(value) for name, value in values.items() if name not in SIZES}
    with CompletionsServer(lambda body, _: "Total Score: 8/10") as server:
        train(config_of(world, tmp_path / "out", source | {"urls": [server.url]}, **settings))
    assert "Scoring Criteria:\n10 for 4\n" in server.requests[0]["messages"][0]["content"]
    assert "/v1/chat/completions" in server.paths
    scores = {one["score"] for group in rollouts_of(tmp_path / "out") for one in group["candidates"]}
    assert scores <= {8.0, None}
    assert 8.0 in scores


def answers(texts) -> Group:
    task = TranslationTask("2 + 2?", "", "", "4", "polaris_tinyv")
    return Group("g", task, tuple(Candidate(str(i), text, text, 3) for i, text in enumerate(texts)))


def test_right_answers_keep_their_reward_when_the_verifier_is_killed(world: TinyWorld, tmp_path, verifier) -> None:
    config = config_of(world, tmp_path / "out", verified(verifier.url, verifier_weight=0.5))
    rewarder = build_rewarder(config, ShapingConfig(), FailurePolicy(), "")
    rolled = rolled_group(0, [3, 3, 3], group=answers(["#### 4", "#### four", "#### 5"]))
    (scored,) = reward(rewarder, [rolled])
    assert scored.shaped.rewards == (1.0, 0.5, 0.5)
    verifier.kill()
    verifier.wait(120)
    source = {**verified(verifier.url, verifier_weight=0.5), "deadline_s": 2, "model": "m"}  # it cannot name its own
    config = config_of(world, tmp_path / "out", source)
    rewarder = build_rewarder(config, ShapingConfig(), FailurePolicy(), "")
    (scored,) = reward(rewarder, [rolled])
    assert scored.shaped.rewards == (1.0, None, None)
    assert scored.shaped.statuses[0] is Status.SCORED
    assert set(scored.shaped.statuses[1:]) <= {Status.JUDGE_UNREACHABLE, Status.JUDGE_TIMEOUT}
    abort = FailurePolicy.from_mapping({"judge_unreachable": "abort", "judge_timeout": "abort"})
    with pytest.raises(RewardFailure, match="has no score"):
        reward(build_rewarder(config, ShapingConfig(), abort, ""), [rolled])


def test_a_row_whose_route_has_no_judge_stops_the_run_before_a_model_is_loaded(world: TinyWorld, tmp_path) -> None:
    data = write_mixed(world, tmp_path / "mixed.jsonl")
    with pytest.raises(UserError, match=r"mixed.jsonl line 3: data_source 'polaris_tinyv' has the route 'tinyv'"):
        train(config_of(world, tmp_path / "out", train_datasets=str(data)))


def test_a_truth_that_the_rule_cannot_use_is_told_with_its_line(world: TinyWorld, tmp_path: Path) -> None:
    data = tmp_path / "mixed.jsonl"
    data.write_text(json.dumps({"src": "Grade this.", "tgt": "8 of 10", "data_source": "grade"}) + "\n")
    with pytest.raises(UserError, match=r"mixed.jsonl line 1: The ground truth '8 of 10' is not a number from 0 to 1"):
        train(config_of(world, tmp_path / "out", train_datasets=str(data), global_batch_size="1"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward_routes": "null"}, "has the route 'tinyv', but rows have no routes; set reward_routes: {}"),
        ({"reward_routes": '{"a*": "rubric"}'}, "reward_routes names 'rubric', which has no judge"),
        ({"reward_sources": '[{"judge": "chrf", "route": "tiny"}]'}, "has the route 'tiny', to which"),
    ],
)
def test_routes_that_lead_nowhere_are_told(world: TinyWorld, tmp_path: Path, settings, message) -> None:
    with pytest.raises(UserError, match=message):
        config_of(world, tmp_path / "out", verified("http://127.0.0.1:1"), **settings)
