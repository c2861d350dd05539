"""A request may say how long its answer is of use: by then there is one, with what was done."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import requests
from support.completions_server import CompletionsServer
from support.reward_app import RecordingJudge, group, make_client, request_at_the_judge, score_body
from support.reward_servers import reward_server
from support.stopped_clock import PATIENCE_S, stop_clock
from support.text_models import TextModel

from grrm.gqm.chat import render_chatml
from grrm.http_client.exchange import DEADLINE_HEADER
from grrm.judges.deadline import Deadline, TimedCounts
from grrm.judges.generative import first_prompts
from grrm.judges.gqm import GQMOptions
from grrm.judges.interface import OpenedGenerator
from grrm.judges.pairwise import PairwiseOptions
from grrm.judges.spec import Process
from grrm.judges.sqm import SQMOptions
from grrm.rewards.messages import PartialAnswer
from grrm_reward_server.hosting import HostedJudge


def within(seconds):
    return {DEADLINE_HEADER: str(seconds)}


def many_groups(n_groups):
    return score_body(*(group(f"g{number}", "x" * (number % 9 + 1)) for number in range(n_groups)))


@pytest.mark.parametrize("path", ["/v1/score", "/v1/prompts"])
@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan", "inf", ""])
def test_deadlines_that_are_none_are_refused(path, value):
    answer = make_client().post(path, json=score_body(), headers={DEADLINE_HEADER: value})
    assert (answer.status_code, answer.get_json()["field"]) == (422, DEADLINE_HEADER)


def test_a_call_beyond_its_deadline_does_not_make_a_longer_one_usual(monkeypatch):
    clock = stop_clock(monkeypatch, *(f"grrm_reward_server.{name}" for name in ("app", "bodies", "service", "turns")))
    began, release = threading.Event(), threading.Event()

    def work():
        if len(judge.calls) == 2:
            clock.sleep(120)
        elif len(judge.calls) == 3:
            began.set()
            assert release.wait(PATIENCE_S)

    judge = RecordingJudge(work)
    http = make_client(judge)
    for number, headers in enumerate([{}, within(100)]):
        http.post("/v1/score", json=score_body(request_id=str(number)), headers=headers)
    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(lambda: http.application.test_client().post("/v1/score", json=score_body()))
        assert began.wait(PATIENCE_S)
        clock.sleep(61)
        readiness = http.get("/readyz")
        release.set()
        assert (readiness.status_code, held.result(PATIENCE_S).status_code) == (503, 200)


def test_groups_done_at_the_deadline_are_answered_with_504_and_all_when_asked_again(monkeypatch):
    clock = stop_clock(monkeypatch, *(f"grrm_reward_server.{name}" for name in ("app", "bodies", "service", "turns")))
    judge = RecordingJudge()
    judge.before = lambda: clock.sleep(len(judge.calls[-1]))  # a second for a group
    http = make_client(judge)
    late = http.post("/v1/score", json=many_groups(2000), headers=within(300))
    answer = PartialAnswer.model_validate_json(late.data)
    assert (late.status_code, answer.error_code, answer.request_id) == (504, 504, "r")
    assert len(answer.verdicts) == sum(map(len, judge.calls)) == 320  # by 32: the last ones had begun in time
    fields, verdict_fields = late.get_json(), late.get_json()["verdicts"][0]
    assert list(fields) == ["error_code", "error_msg", "field", "reference_id", "request_id", "verdicts"]
    assert list(verdict_fields) == ["group_id", "candidates", "ranking", "analysis", "attempts", "tokens"]
    for number, verdict in enumerate(answer.verdicts):
        assert (verdict.group_id, verdict.candidates[0].score) == (f"g{number}", number % 9 + 1)
    again = http.post("/v1/score", json=many_groups(2000))
    assert len(again.get_json()["verdicts"]) == 2000
    assert http.get("/readyz").status_code == 200


def test_request_that_still_waits_at_its_deadline_is_answered_with_nothing_done_and_may_come_again():
    with request_at_the_judge(score_body(request_id="first")) as (client, _, _):
        late = client().post("/v1/score", json=score_body(), headers=within(0.05))
    assert late.status_code == 504
    assert late.get_json()["verdicts"] == []
    assert client().post("/v1/score", json=score_body(), headers=within(PATIENCE_S)).status_code == 200


class SlowCounts(TextModel):
    """A model whose `counted` texts take it ten seconds each of a stopped clock."""

    def __init__(self, clock):
        super().__init__(lambda prompt: "no idea")
        self.clock, self.counted = clock, []

    def count_tokens(self, prompt):
        self.counted.append(prompt)
        self.clock.sleep(10)
        return super().count_tokens(prompt)


@pytest.mark.parametrize("options", [GQMOptions(), SQMOptions(), PairwiseOptions()])
def test_no_tokens_are_counted_after_the_deadline_and_the_model_is_asked_nothing(options, monkeypatch):
    names = (f"grrm_reward_server.{name}" for name in ("app", "bodies", "service", "turns"))
    clock = stop_clock(monkeypatch, *names, "grrm.judges.deadline")
    model, deadline = SlowCounts(clock), Deadline()
    opened = OpenedGenerator(TimedCounts(model, deadline.remaining_s), render_chatml, 2048)
    judge = options.open(Process(generator=lambda: opened))
    prompts_of = partial(first_prompts, options=options, opened=opened)
    hosted = HostedJudge(judge, deadline=deadline, answers=lambda: True, prompts_of=prompts_of)
    http = make_client(hosted)
    body = score_body(*(group(f"g{number}", "one", "two") for number in range(8)))
    for path in ("/v1/score", "/v1/prompts"):
        model.counted.clear()
        late = http.post(path, json=body, headers=within(25))
        assert (late.status_code, len(model.counted), model.prompts) == (504, 3, [])
    assert len(http.post("/v1/prompts", json=body, headers=within(3600)).get_json()["prompts"]) == 8


def test_model_that_does_not_answer_in_time_costs_the_deadline():
    hang = threading.Event()
    model = CompletionsServer(lambda request, number: hang.wait(PATIENCE_S) and "")
    try:
        with reward_server("--judge", "gqm", "--openai-url", model.url) as (_, url):
            body = score_body(group("g0", "one", "two"), group("g1", "one", "two"))
            late = requests.post(f"{url}/v1/score", json=body, headers=within(1), timeout=PATIENCE_S)
        assert (late.status_code, late.json()["verdicts"]) == (504, [])
        assert "when 0 of 2 groups were done" in late.json()["error_msg"]
    finally:
        hang.set()
        model.close()
