"""The reward server over a reward model: its settings, its answers as a process, its counters."""

from __future__ import annotations

import json
import re

import pytest
import requests
from support.reward_app import create_app, group, score_body
from support.reward_servers import reward_server
from support.tiny_policy import write_tiny_reward_model

from grrm.errors import UserError
from grrm.gqm.groups import Status, Verdict
from grrm_reward_server.hosting import HostedJudge, build_hosted_judge
from grrm_reward_server.settings import Settings

TEXTS = ("Good morning", "Good night", "Morning", "Good morning")


def ask(url: str, body: dict | None = None) -> str:
    answer = requests.request("GET" if body is None else "POST", url, json=body, timeout=120)
    answer.raise_for_status()
    return answer.text


@pytest.mark.slow
def test_a_ranker_is_served_without_regard_to_the_order_of_candidates(tmp_path):
    folder = write_tiny_reward_model(tmp_path / "ranker", "ranker")
    with reward_server("--judge", "ranker", "--model", str(folder)) as (_, url):
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


def trained_on(folder, *language_pairs):
    write_tiny_reward_model(folder, "ranker")
    (folder / "grrm.json").write_text(json.dumps({"language_pairs": language_pairs}))
    return folder


@pytest.mark.slow
def test_a_reward_model_of_other_languages_is_ready_before_the_first_request_and_has_counted_nothing(tmp_path):
    folder = trained_on(tmp_path / "ranker", "en-zh")
    with reward_server("--judge", "ranker", "--model", str(folder)) as (_, url):
        assert json.loads(ask(f"{url}/readyz")) == {"status": "ready"}
        counters = ask(f"{url}/metrics")
        found = json.loads(ask(f"{url}/v1/score", score_body(group("g", *TEXTS))))["verdicts"][0]
        assert {candidate["status"] for candidate in found["candidates"]} == {"unseen_languages"}
        assert json.loads(ask(f"{url}/readyz")) == {"status": "ready"}
    counted = re.findall(
        r"^grrm_(?:judge_(?:scored|tokens|model|clipped)\w+|groups_total) (\S+)$", counters, re.MULTILINE
    )
    assert len(counted) >= 5
    assert set(map(float, counted)) == {0}


def test_a_reward_model_is_tried_out_in_languages_that_it_knows_and_behind_its_gates(tmp_path):
    folder = trained_on(tmp_path / "ranker", "en-zh", "zh-en")
    hosted = build_hosted_judge(
        Settings(judge="ranker", model=str(folder), gates={"length": {"high": 0.1, "low": 0.01, "slack": 0}})
    )
    seen = []
    judge_inside = hosted.judge.inner
    ask_scorer = judge_inside.scorer.score
    judge_inside.scorer.score = lambda groups: seen.append((groups, ask_scorer(groups))) or seen[-1][1]
    assert create_app(Settings(), hosted).test_client().get("/readyz").status_code == 200
    (((task, texts),), (numbers,)) = seen[0]
    assert (task.src_lang, task.trg_lang, len(texts)) == ("en", "zh", 2)
    assert all(isinstance(number, float) for number in numbers)
    assert hosted.counters.values()["scored_groups"] == hosted.counters.values()["tokens_read"] == 0


@pytest.mark.parametrize("status", [status for status in Status if not status.is_scored], ids=str)
def test_only_an_outage_is_no_answer_to_the_probe(status):
    class Refuses:
        name = "refuses"

        def judge(self, groups):
            return [Verdict.unscored(len(group.candidates), status) for group in groups]

    is_out = status in (Status.JUDGE_TIMEOUT, Status.JUDGE_UNREACHABLE)
    client = create_app(Settings(), HostedJudge(Refuses())).test_client()
    assert [client.get("/readyz").status_code for _ in range(2)] == [503 if is_out else 200] * 2


def test_a_folder_without_a_reward_model_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="no tokenizer that can be read"):
        build_hosted_judge(Settings(judge="rm", model=str(tmp_path)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_num_seqs": 4}, "setting 'max_num_seqs' has no effect, as a reward model runs in this process"),
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
