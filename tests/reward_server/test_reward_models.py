"""The reward server over a reward model: its settings, its answers as a process, its counters."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request

import pytest
from support.reward_app import group, score_body
from support.reward_servers import SCRIPT, reward_server
from support.rl_processes import environment
from support.tiny_checkpoint import write_tiny_reward_model

from grrm.errors import UserError
from grrm_reward_server.hosting import build_hosted_judge
from grrm_reward_server.settings import Settings

TEXTS = ("Good morning", "Good night", "Morning", "Good morning")


def ask(url: str, body: dict | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


@pytest.mark.slow
def test_a_ranker_is_served_without_regard_to_the_order_of_candidates(tmp_path):
    folder = write_tiny_reward_model(tmp_path / "ranker", "ranker")
    with reward_server("--port", "0", "--judge", "ranker", "--model", str(folder)) as (_, url):
        body = score_body(group("g", *TEXTS), group("h", *TEXTS[::-1]))
        first, reverse = json.loads(ask(f"{url}/v1/score", body))["verdicts"]
        assert json.loads(ask(f"{url}/readyz")) == {"status": "ready"}
        counters = ask(f"{url}/metrics")
    scores = [candidate["score"] for candidate in first["candidates"]]
    assert [candidate["score"] for candidate in reverse["candidates"]][::-1] == pytest.approx(scores, abs=1e-5)
    assert [candidate["status"] for candidate in first["candidates"]] == ["scored"] * 3 + ["duplicate"]
    assert scores[3] == scores[0]
    assert len(set(scores)) == 3
    assert sum(scores) == pytest.approx(20.0, abs=1e-4)
    value = {name: float(number) for name, number in re.findall(r"^(grrm_judge_\w+) (\S+)$", counters, re.MULTILINE)}
    assert value["grrm_judge_scored_groups_total"] == 2
    assert value["grrm_judge_tokens_read_total"] > 100
    assert value["grrm_judge_model_milliseconds_total"] > 0
    assert 'judge="ranker",model="ranker"' in counters


def test_a_folder_without_a_reward_model_ends_the_server_in_one_sentence(tmp_path):
    command = [sys.executable, str(SCRIPT), "--port", "0", "--judge", "rm", "--model", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment())
    assert done.returncode == 2
    assert re.fullmatch(r"error: [^\n]*no tokenizer that can be read[^\n]*\n", done.stderr)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dtype": "float32"}, "setting 'dtype' has no effect, as a reward model runs in this process"),
        (
            {"openai_urls": ["http://127.0.0.1:1"]},
            "setting 'openai_urls' has no effect, as a reward model runs in this",
        ),
        ({"judge_deadline_s": 5.0}, "setting 'judge_deadline_s' has no effect, as judge 'ranker' computes"),
        ({"judge_options": {"permutations": 2}}, "unknown judge option 'permutations'"),
        ({"judge_options": {"prompt_type": "GQM"}}, "judge option 'prompt_type' is 'GQM'"),
        ({"model": None}, "no model is named: give the folder of a checkpoint with 'model'"),
    ],
)
def test_settings_without_effect_are_refused_before_anything_is_loaded(values, message):
    with pytest.raises(UserError, match=f"(?i){re.escape(message)}"):
        build_hosted_judge(Settings(**{"judge": "ranker", "model": "nowhere", **values}))
