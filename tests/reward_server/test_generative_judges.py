"""A generative judge in the real server process: from a checkpoint, and from servers of its model."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import requests
from support.completions_server import CompletionsServer
from support.fastdeploy_standin import with_fastdeploy
from support.reward_servers import reward_server
from support.tiny_policy import write_tiny_checkpoint

TASK = {"source": "Guten Morgen", "src_lang": "de", "trg_lang": "en"}
CANDIDATES = [
    {"candidate_id": "a", "response": "Good morning"},
    {"candidate_id": "b", "response": "Bye"},
    {"candidate_id": "c", "response": "Good morning"},
]
BODY = {"request_id": "r", "groups": [{"group_id": "g", **TASK, "candidates": CANDIDATES}]}
ROWS = {"src": ["s"] * 3, "tgt": [json.dumps(TASK)] * 3, "response": [c["response"] for c in CANDIDATES]}
VERDICT = "A is right, B is not.\n\n### Final Ranking:\n\nA > B\n\n### Scores:\n\nA: 9, B: 1"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("judge") / "tiny-grrm")


def post(url: str, body: dict, route: str = "") -> dict:
    return requests.post(url + route, json=body, timeout=120).json()


def statuses_of(answer: dict) -> list[tuple[str, float | None]]:
    return [(c["status"], c["score"]) for c in answer["verdicts"][0]["candidates"]]


def test_an_untrained_checkpoint_is_hosted_and_no_score_is_made_up(checkpoint):
    options = ["--judge", "gqm", "--model", str(checkpoint), "--default-reward", "-0.5"]
    options += ["--judge-option", "max_new_tokens=24", "--judge-option", "retries=1"]
    with reward_server(*options) as (process, url):
        assert requests.get(f"{url}/readyz", timeout=120).status_code == 200
        verdict = post(url, BODY, "/v1/score")
        assert statuses_of(verdict) == [("judge_unparsable", None)] * 3
        assert verdict["verdicts"][0]["attempts"] == 2
        assert verdict["verdicts"][0]["rejections"] == ["truncated"] * 2
        assert post(url, ROWS) == {"error_code": 0, "error_msg": "Success", "score": [-0.5] * 3}
        judge = requests.get(f"{url}/healthz", timeout=120).json()["judge"]
        assert (judge["name"], judge["model"], judge["counters"]["retries"]) == ("gqm", "tiny-grrm", 2)
        process.terminate()
        assert process.wait(120) == 0


@pytest.mark.slow
def test_fastdeploy_hosts_a_checkpoint_and_the_servers_log_goes_on(checkpoint):
    options = ["--judge", "gqm", "--model", str(checkpoint), "--judge-option", "max_new_tokens=8"]
    options += ["--log-level", "info", "--backend", "fastdeploy", "--fastdeploy-option", "max_model_len=900"]
    with reward_server(*options, stderr=subprocess.PIPE, **with_fastdeploy()) as (process, url):
        assert requests.get(f"{url}/readyz", timeout=120).status_code == 200
        assert statuses_of(post(url, BODY, "/v1/score")) == [("judge_unparsable", None)] * 3
        assert requests.get(f"{url}/healthz", timeout=120).json()["judge"]["model"] == "tiny-grrm"
        process.terminate()
        assert process.wait(120) == 0
        assert " INFO " in process.stderr.read()


def test_verdicts_of_a_model_server_become_scores_in_both_protocols():
    with CompletionsServer(lambda body, _: VERDICT) as model:
        options = ["--judge", "grrm", "--openai-url", model.url, "--score-scale-factor", "0.01"]
        with reward_server(*options, "--judge-option", "cache_size=8") as (_, url):
            assert requests.get(f"{url}/readyz", timeout=120).status_code == 200
            answer = post(url, BODY, "/v1/score")
            assert statuses_of(answer) == [("scored", 9.0), ("scored", 1.0), ("duplicate", 9.0)]
            assert answer["verdicts"][0]["ranking"] == [["a", "c"], ["b"]]
            assert answer["verdicts"][0]["analysis"].startswith("A is right")
            assert post(url, ROWS)["score"] == pytest.approx([0.09, 0.01, 0.09])
            assert "grrm_judge_cache_hits_total 1.0" in requests.get(f"{url}/metrics", timeout=120).text


@pytest.mark.slow
def test_a_generation_past_its_deadline_is_a_status_and_the_server_still_ends_cleanly(checkpoint):
    options = ["--judge", "gqm", "--model", str(checkpoint), "--judge-deadline-s", "0.05"]
    with reward_server(*options, "--judge-option", "max_new_tokens=900", stderr=subprocess.PIPE) as (process, url):
        assert statuses_of(post(url, BODY, "/v1/score")) == [("judge_timeout", None)] * 3
        process.terminate()
        assert process.wait(120) == 0
        assert "FATAL" not in process.stderr.read()
