"""Several judges in one server, told apart by their names."""

from __future__ import annotations

import pytest
from support.judged_groups import group_of
from support.reward_app import RecordingJudge, create_app, group, rows_body, score_body
from support.reward_servers import reward_server

from grrm.errors import UserError
from grrm.gqm.groups import Status
from grrm.judges.metrics import JudgeMetrics
from grrm.rewards.client import RewardClient
from grrm_reward_server.hosting import HostedJudge, build_hosted_judges
from grrm_reward_server.settings import Settings, load_settings


class Always(RecordingJudge):
    def __init__(self, score):
        super().__init__()
        self.score = score

    def verdict(self, group):
        verdict = super().verdict(group)
        return type(verdict)(verdict.statuses, (self.score,) * len(verdict.scores))


@pytest.fixture
def client():
    judges = [
        HostedJudge(Always(score), model=f"m{score}", counters=JudgeMetrics(), title=name)
        for name, score in (("first", 1.0), ("second", 2.0))
    ]
    return create_app(Settings(score_scale_factor=1.0), judges).test_client()


def scores(client, judge=None, request_id="r"):
    body = score_body(group("g", "a", "bb"), request_id=request_id) | {"judge": judge}
    answer = client.post("/v1/score", json=body).get_json()
    return [candidate["score"] for candidate in answer["verdicts"][0]["candidates"]]


def test_a_request_may_name_its_judge_and_others_get_the_default_one(client):
    assert scores(client, "second", "a") == [2.0, 2.0]
    assert scores(client, "first", "b") == [1.0, 1.0]
    assert scores(client, None, "c") == [1.0, 1.0]
    assert client.post("/", json=rows_body()).get_json()["score"] == [1.0, 1.0]


def test_the_same_request_to_another_judge_is_another_request(client):
    assert scores(client, "second", "a") == [2.0, 2.0]
    body = score_body(group("g", "a", "bb"), request_id="a") | {"judge": "first"}
    assert client.post("/v1/score", json=body).status_code == 409


def test_a_name_that_is_not_there_is_told_with_those_that_are(client):
    answer = client.post("/v1/score", json=score_body(group("g", "a")) | {"judge": "third"})
    assert answer.status_code == 422
    told = answer.get_json()
    assert (told["field"], told["error_msg"]) == ("judge", "this server has the judges first, second")


def test_probes_and_counters_tell_them_apart(client):
    assert scores(client, "second") == [2.0, 2.0]
    assert client.get("/readyz").status_code == 200
    told = client.get("/healthz").get_json()
    assert (told["judge"]["name"], [one["name"] for one in told["other_judges"]]) == ("first", ["second"])
    assert client.get("/v1/judges").get_json()["judges"] == [
        {"name": "first", "model": "m1.0"},
        {"name": "second", "model": "m2.0"},
    ]
    text = client.get("/metrics").get_data(as_text=True)
    assert 'grrm_judge_info{judge="second",model="m2.0"} 1' in text
    assert text.count("# TYPE grrm_judge_questions_total counter") == 1
    assert 'grrm_judge_questions_total{judge="first"} 0.0' in text


def test_settings_name_judges_and_the_default_one_comes_first():
    of_file = Settings(judges={"a": {"judge": "chrf"}, "b": {"judge": "bleu"}})
    assert {name: one.judge for name, one in of_file.named_judges().items()} == {"a": "chrf", "b": "bleu"}
    beside = Settings(judge="consensus", judges={"b": {"judge": "bleu"}})
    assert list(beside.named_judges()) == ["consensus", "b"]
    assert [one.name for one in build_hosted_judges(beside)] == ["consensus", "b"]
    assert list(Settings().named_judges()) == ["chrf"]
    assert [one.name for one in build_hosted_judges(Settings(judges={"quick": {"judge": "chrf"}}))] == ["quick"]
    assert [one.name for one in build_hosted_judges(Settings(judge="text_metric"))] == ["text_metric"]
    with pytest.raises(UserError, match="setting 'gates' beside 'judges' is that of no judge"):
        Settings(judges={"a": {}}, gates={"copy": None}).named_judges()
    with pytest.raises(UserError, match="two judges are called 'bleu'"):
        Settings(judge="bleu", judges={"bleu": {"judge": "chrf"}}).named_judges()


@pytest.mark.parametrize(
    ("of_judge", "message"),
    [
        ("{judge: chrff}", "unknown judge 'chrff'"),
        ("{jugde: chrf}", "did you mean 'judge'"),
        ("{judge: chrf, port: 3}", "port"),
        ("{judge: gqm}", "no model is named"),
    ],
)
def test_mistakes_in_a_named_judge_are_one_sentence(tmp_path, of_judge, message):
    file = tmp_path / "server.yaml"
    file.write_text(f"judges:\n  mine: {of_judge}\n")
    with pytest.raises(UserError, match=message):
        build_hosted_judges(load_settings(str(file), {}))


def test_the_real_server_hosts_them_and_the_client_asks_the_one_it_is_told(tmp_path):
    file = tmp_path / "server.yaml"
    file.write_text("port: 0\njudges:\n  quick: {judge: chrf}\n  agreed: {judge: consensus}\n")
    asked = group_of(["Hello", "Hello", "Bye"])  # which chrF cannot judge without a reference
    with (
        reward_server("--config", str(file)) as (_, url),
        RewardClient([url], judge="agreed") as agreed,
        RewardClient([url]) as default,
    ):
        (verdict,), (of_default,) = agreed.score([asked]), default.score([asked])
    assert verdict.scores[0] > verdict.scores[2]
    assert set(of_default.statuses) == {Status.MISSING_REFERENCE}
