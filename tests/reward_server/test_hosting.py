"""Which judges the settings build, what they refuse, and what the application says about the judge it hosts."""

from __future__ import annotations

import json
import re
import threading

import pytest
from support.completions_server import CompletionsServer, Refuse, completion
from support.judged_groups import ModelOf, by_length, judge_over
from support.local_server import refusing_url
from support.reward_app import RecordingJudge, create_app, group, make_client, rows_body, score_body
from support.text_models import TIMEOUT, TextModel

from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.judges.deadline import Deadline, TimedGenerator
from grrm.judges.gqm import GQMOptions
from grrm.judges.interface import OpenedGenerator
from grrm.judges.metrics import COUNTERS, JudgeMetrics
from grrm.judges.registry import judge_names
from grrm.rewards.answers import ANSWER_RULES
from grrm_reward_server.hosting import HostedJudge, build_hosted_judge
from grrm_reward_server.settings import Settings

NOWHERE = "http://127.0.0.1:1"


def scored(body, _):
    """A group verdict, a total, a verification, or for a single translation a score, and A as often as B of two."""
    if "logprobs" in body:
        told = completion("A")
        told["choices"][0]["logprobs"] = {"tokens": ["A"], "top_logprobs": [{"A": -0.7, "B": -0.7}]}
        return told
    replies = {"Translation A": "A: 7, B: 2", "grading teacher": "Total Score: [7/10]", "<model_answer>": "True"}
    replies |= {"Mark the errors": 'major: "on"'}
    return next((reply for part, reply in replies.items() if part in body["prompt"]), "Fine.\n7")


@pytest.fixture
def model_server():
    with CompletionsServer(scored) as server:
        yield server


def hosted(**values):
    return build_hosted_judge(Settings(**values))


def hosting(model, judge=None, **values):
    """A group judge on `model` as the server hosts it."""
    counters, deadline = JudgeMetrics(), Deadline()
    judge = judge or judge_over(model, GQMOptions(**values), metrics=counters)
    return HostedJudge(judge, "tiny", counters, deadline)


@pytest.mark.parametrize("name", judge_names(["generator"]))
def test_every_generative_judge_scores_with_a_server_of_its_model(model_server, name):
    app = create_app(Settings(), hosted(judge=name, openai_urls=[model_server.url], model="judge-7b"))
    answer = app.test_client().post("/v1/score", json=score_body(group("g", "one", "two"))).get_json()
    of_one = {"mqm": 8.0, "pairwise": 5.0, "sqm": 7.0, "rubric": 7.0, "verifier": 10.0}
    of_one |= {"rule+rubric": 7.0, "rule+verifier": 10.0}
    expected = [of_one[name]] * 2 if name in of_one else [7.0, 2.0]
    assert [candidate["score"] for candidate in answer["verdicts"][0]["candidates"]] == expected
    assert {request["model"] for request in model_server.requests} == {"judge-7b"}


@pytest.mark.parametrize("model", [None, "org/TinyV-Qwen3-1.7B-Think"])
def test_a_verifier_is_asked_as_its_released_model_needs(model):
    with CompletionsServer(lambda *_: "True", model="TinyV-Qwen3-1.7B-Think") as server:
        judge = hosted(judge="verifier", openai_urls=[server.url], model=model)
        body = score_body(group("g", "one", "two"))
        assert create_app(Settings(), judge).test_client().post("/v1/score", json=body).status_code == 200
    assert {request["max_tokens"] for request in server.requests} == {512}
    candidates = (Candidate("0", "one", "one"),)
    (prompt,) = judge.prompts_of(Group("g", TranslationTask("2 + 2?", "", "", "4"), candidates))
    for shown in (prompt, server.requests[0]["prompt"]):
        assert "identifying if the model's answer" in shown


def test_options_template_and_token_reach_the_model_server(model_server, monkeypatch):
    monkeypatch.setenv("JUDGE_TOKEN", "s3cret")
    options = {"temperature": 0.3, "top_p": 0.9, "max_new_tokens": 77, "add_example": True, "prompt_type": "score"}
    values = {"judge_options": options, "chat_template": "none", "openai_token_env": "JUDGE_TOKEN"}
    judge = hosted(judge="gqm", openai_urls=[model_server.url], **values)
    create_app(Settings(), judge).test_client().post("/v1/score", json=score_body(group("g", "one", "two")))
    request = model_server.requests[0]
    assert (request["temperature"], request["top_p"], request["max_tokens"]) == (0.3, 0.9, 77)
    assert request["prompt"].startswith("Given a source text in German")
    assert "for example" in request["prompt"]
    assert model_server.tokens[0] == "Bearer s3cret"


def test_a_function_of_the_users_own_is_hosted(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from grrm.gqm.groups import Status, Verdict\n"
        "def judge(groups, points=1.0):\n"
        "    return [Verdict((Status.SCORED,) * len(g.candidates), (points,) * len(g.candidates)) for g in groups]\n"
    )
    judge = hosted(judge=f"{tmp_path}/mine.py:judge", judge_options={"points": 4.0}).judge
    answer = make_client(judge).post("/v1/score", json=score_body(group("g", "a", "b"))).get_json()
    assert [candidate["score"] for candidate in answer["verdicts"][0]["candidates"]] == [4.0, 4.0]


def test_text_metrics_take_their_options_too():
    answer = make_client(hosted(judge="chrf", judge_options={"round_to_integer": True}).judge)
    verdict = answer.post("/v1/score", json=score_body(group("g", "Hella"))).get_json()["verdicts"][0]
    score = verdict["candidates"][0]["score"]
    assert score == round(score)


def test_a_server_that_is_not_there_is_not_ready_and_leaves_the_status_unreachable():
    with refusing_url() as url:
        client = create_app(Settings(), hosted(judge="gqm", openai_urls=[url], judge_deadline_s=2.0)).test_client()
        assert client.get("/readyz").status_code == 503
        answer = client.post("/v1/score", json=score_body(group("g", "one", "two"))).get_json()
    candidates = answer["verdicts"][0]["candidates"]
    assert [(c["status"], c["score"]) for c in candidates] == [("judge_unreachable", None)] * 2


def test_readiness_asks_the_model_for_one_token_once(model_server):
    client = create_app(Settings(), hosted(judge="gqm", openai_urls=[model_server.url])).test_client()
    assert [client.get("/readyz").status_code for _ in range(2)] == [200, 200]
    assert [request["max_tokens"] for request in model_server.requests] == [1]


def test_a_model_that_refuses_the_probe_is_not_ready_and_the_log_says_why(caplog):
    client = create_app(Settings(), HostedJudge(RecordingJudge(), "m", answers=lambda: 1 / 0)).test_client()
    assert client.get("/readyz").status_code == 503
    assert "ZeroDivisionError" in caplog.text


def test_unreadable_replies_are_answers_and_silence_is_not():
    body = score_body(group("g", "one", "two"))
    talking = create_app(Settings(), hosting(ModelOf(lambda place, text: None), retries=0)).test_client()
    assert talking.post("/v1/score", json=body).status_code == 200
    assert talking.get("/readyz").status_code == 200
    mute = create_app(
        Settings(), HostedJudge(judge_over(TextModel(lambda prompt: TIMEOUT), GQMOptions()), answers=lambda: False)
    ).test_client()
    mute.post("/v1/score", json=body)
    assert mute.get("/readyz").status_code == 503


def test_a_call_past_its_deadline_answers_timeouts_and_the_next_request_is_told_to_come_back():
    opened = threading.Event()

    class Slow(ModelOf):
        def generate_text(self, prompts, **sampling):
            assert opened.wait(120)
            return super().generate_text(prompts, **sampling)

    deadline = Deadline()
    timed = TimedGenerator(Slow(by_length), deadline.remaining_s)
    judge = HostedJudge(
        judge_over(timed, GQMOptions()),
        deadline=deadline,
        deadline_s=0.05,
        answers=lambda: True,
        when_idle=timed.when_idle,
    )
    client = create_app(Settings(judge_wait_s=0.05), judge).test_client()
    answer = client.post("/v1/score", json=score_body(group("g", "one", "three"))).get_json()
    assert [c["status"] for c in answer["verdicts"][0]["candidates"]] == ["judge_timeout"] * 2
    busy = client.post("/v1/score", json=score_body(group("g", "one", "three"), request_id="second"))
    assert (busy.status_code, busy.headers["Retry-After"]) == (503, "5")
    idle = threading.Event()
    timed.when_idle(idle.set)
    opened.set()
    assert idle.wait(120)
    object.__setattr__(judge, "deadline_s", 120.0)
    rows = rows_body(2, response=["one", "three"], tgt=['{"source":"a","src_lang":"de","trg_lang":"en"}'] * 2)
    assert client.post("/", json=rows).get_json()["score"] == pytest.approx([0.3, 0.5])


@pytest.mark.parametrize(("languages", "message"), [(("qq", "en"), "unknown language 'qq'"), (("de", " "), "not told")])
def test_a_task_that_no_prompt_can_be_made_of_is_422_before_the_judge_is_asked(languages, message):
    model = ModelOf(by_length)
    judge = hosting(model)
    served = HostedJudge(judge.judge, check_task=hosted(judge="gqm", openai_urls=[NOWHERE]).check_task)
    client = create_app(Settings(), served).test_client()
    fields = dict(zip(("src_lang", "trg_lang"), languages, strict=True))
    bad = client.post("/v1/score", json=score_body(group("f", "one", "two"), group("g", "one", "two", **fields)))
    rows = client.post("/", json=rows_body(2, tgt=[json.dumps({"source": "a", **fields})] * 2))
    for answer, place in ((bad, "groups[1]"), (rows, "tgt[0]")):
        assert (answer.status_code, answer.get_json()["field"]) == (422, place)
        assert re.search(message, answer.get_json()["error_msg"])
    assert model.prompts == []


def test_probes_name_judge_and_model_and_show_what_it_counted():
    client = create_app(Settings(), hosting(ModelOf(by_length), permutations=2, cache_size=9)).test_client()
    before = client.get("/healthz").get_json()
    assert before["judge"]["mean_agreement"] is None
    for request_id in ("1", "2"):
        client.post("/v1/score", json=score_body(group("g", "one", "three"), request_id=request_id))
    shown = client.get("/healthz").get_json()["judge"]
    assert (shown["name"], shown["model"], shown["mean_agreement"]) == ("gqm", "tiny", 1.0)
    assert shown["counters"].keys() == COUNTERS.keys()
    assert (shown["counters"]["questions"], shown["counters"]["cache_hits"]) == (2, 2)
    lines = client.get("/metrics").text.splitlines()
    for line in ('grrm_judge_info{judge="gqm",model="tiny"} 1.0', "grrm_judge_cache_hits_total 2.0"):
        assert line in lines
    assert "grrm_judge_agreement_sum 2.0" in lines
    assert lines.count("# TYPE grrm_judge_agreement_sum gauge") == 1


def test_a_judge_without_a_model_has_a_name_and_no_counters():
    client = make_client()
    assert client.get("/healthz").get_json() == {"status": "alive", "judge": {"name": "recording", "model": None}}
    assert 'grrm_judge_info{judge="recording",model=""} 1.0' in client.get("/metrics").text


def test_a_checkpoint_is_called_by_its_folder_not_by_its_path(monkeypatch, tmp_path):
    opened = OpenedGenerator(ModelOf(by_length), str, 1000)
    monkeypatch.setattr("grrm_reward_server.hosting.open_judge_model", lambda *_: (opened, None))
    assert hosted(judge="gqm", model=str(tmp_path / "grrm-7b") + "/").model == "grrm-7b"


@pytest.mark.parametrize(("limit", "expected"), [(None, "scored"), (10, "too_long"), (5000, "scored")])
def test_the_prompt_limit_is_the_tighter_of_the_models_and_the_options(monkeypatch, limit, expected):
    opened = OpenedGenerator(ModelOf(by_length), str, 900)
    monkeypatch.setattr("grrm_reward_server.hosting.open_judge_model", lambda *_: (opened, None))
    options = {} if limit is None else {"prompt_length": limit}
    client = create_app(Settings(), hosted(judge="gqm", model="m", judge_options=options)).test_client()
    near = client.post("/v1/score", json=score_body(group("g", "one", "two"))).get_json()
    far = client.post("/v1/score", json=score_body(group("g", "x" * 500, "y" * 600), request_id="far")).get_json()
    assert near["verdicts"][0]["candidates"][0]["status"] == expected
    assert far["verdicts"][0]["candidates"][0]["status"] == "too_long"


@pytest.mark.parametrize(
    ("name", "shown"),
    [("/srv/models/grrm-7b", "grrm-7b"), ("org/grrm-7b", "org/grrm-7b"), (None, "the first of the servers")],
)
def test_the_open_probe_never_shows_a_path_that_a_model_server_calls_its_model(name, shown):
    judge = hosted(judge="gqm", openai_urls=[NOWHERE], model=name)
    assert create_app(Settings(), judge).test_client().get("/healthz").get_json()["judge"]["model"] == shown


def test_one_group_too_long_for_the_servers_model_costs_no_other_group_its_scores():
    def reply(body, _):
        long = len(body["prompt"]) > 3000
        return Refuse(400, {"message": "maximum context length is 512 tokens"}) if long else "A: 7, B: 2"

    with CompletionsServer(reply) as server:
        settings = Settings(judge="gqm", openai_urls=[server.url], judge_options={"prompt_type": "score"})
        client = create_app(settings, build_hosted_judge(settings)).test_client()
        languages = {"src_lang": "de", "trg_lang": "en"}
        groups = [group("short", "a", "b", **languages), group("long", "a" * 4000, "b", **languages)]
        answer = client.post("/v1/score", json=score_body(*groups))
    assert answer.status_code == 200
    short, long = ([c["status"] for c in verdict["candidates"]] for verdict in answer.json["verdicts"])
    assert (short, long) == (["scored", "scored"], ["too_long", "too_long"])


@pytest.mark.parametrize("rule", [*ANSWER_RULES, "grade"])
def test_a_rule_for_answers_is_ready(rule):
    if rule == "math":
        pytest.importorskip("math_verify")
    app = create_app(Settings(), hosted(judge="answer", judge_options={"rule": rule}))
    assert app.test_client().get("/readyz").status_code == 200


@pytest.mark.parametrize("judge", ["answer", "rule+verifier"])
def test_a_truth_that_the_rule_cannot_use_is_422_and_not_in_the_log(judge, caplog):
    model = {} if judge == "answer" else {"openai_urls": [NOWHERE], "model": "m"}
    client = create_app(Settings(), hosted(judge=judge, judge_options={"rule": "gsm8k"}, **model)).test_client()
    refused = client.post("/v1/score", json=score_body(group("g", "#### 4", reference="secret")))
    assert (refused.status_code, refused.get_json()["field"]) == (422, "groups[0]")
    assert "'secret' is no number" in refused.get_json()["error_msg"]
    assert "secret" not in caplog.text


def test_true_answers_are_told_from_others_on_paddlenlps_route():
    judge = hosted(judge="answer", judge_options={"rule": "gsm8k"})
    app = create_app(Settings(extractor_type="none"), judge)
    rows = {"src": ["2 + 2?"] * 3, "tgt": ["4"] * 3, "response": ["2 + 2\n#### 4", "#### 5", "four"]}
    answer = app.test_client().post("/", json=rows).get_json()
    assert (answer["error_code"], answer["score"]) == (0, [1.0, 0.0, 0.0])
