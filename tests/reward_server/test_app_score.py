"""`POST /v1/score` in process: answers, idempotency, errors, limits."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.reward_app import RecordingJudge, fail, group, make_client, request_at_the_judge, rows_body, score_body

from grrm.gqm.groups import Status, Verdict
from grrm_reward_server.hosting import HostedJudge


def test_score_answers_every_group_and_candidate_in_order():
    client = make_client()
    answer = client.post("/v1/score", json=score_body(group("x", "a", "bb"), group("y", "ccc"))).get_json()
    assert answer["request_id"] == "r"
    assert [v["group_id"] for v in answer["verdicts"]] == ["x", "y"]
    assert answer["verdicts"][0]["candidates"] == [
        {"candidate_id": "c0", "status": "scored", "score": 1.0},
        {"candidate_id": "c1", "status": "scored", "score": 2.0},
    ]


def test_given_translation_is_trusted_absent_is_extracted_null_means_failed():
    judge = RecordingJudge()
    candidates = [
        {"candidate_id": "given", "response": "steps\nlast", "translation": "mine"},
        {"candidate_id": "absent", "response": "steps\nlast"},
        {"candidate_id": "failed", "response": "steps\nlast", "translation": None, "n_tokens": 5},
    ]
    answer = make_client(judge).post("/v1/score", json=score_body(group(candidates=candidates))).get_json()
    seen = judge.calls[0][0].candidates
    assert [candidate.translation for candidate in seen] == ["mine", "last", None]
    assert seen[2].n_tokens == 5
    assert answer["verdicts"][0]["candidates"][2] == {
        "candidate_id": "failed",
        "status": "unparsable_candidate",
        "score": None,
    }


def test_repeated_request_is_answered_without_judging_again():
    judge = RecordingJudge()
    client = make_client(judge)
    first = client.post("/v1/score", json=score_body())
    again = client.post("/v1/score", json=score_body())
    assert again.data == first.data
    assert len(judge.calls) == 1
    assert "grrm_replayed_answers_total 1.0" in client.get("/metrics").text
    client.post("/v1/score", json=score_body(request_id="another"))
    assert len(judge.calls) == 2


def test_request_id_with_another_body_is_a_conflict():
    client = make_client()
    client.post("/v1/score", json=score_body())
    answer = client.post("/v1/score", json=score_body(group("other")))
    assert answer.status_code == 409
    assert answer.get_json()["field"] == "request_id"


def test_concurrent_repeat_waits_for_the_first():
    with request_at_the_judge() as (client, first, judge), ThreadPoolExecutor(1) as threads:
        repeat = threads.submit(lambda: client().post("/v1/score", json=score_body()))
        judge.release.set()
        assert first.result(120).data == repeat.result(120).data
    assert len(judge.calls) == 1


def test_failed_judgement_is_not_cached():
    failures = [fail]
    judge = RecordingJudge(lambda: failures.pop()() if failures else None)
    client = make_client(judge)
    assert client.post("/v1/score", json=score_body()).status_code == 500
    assert client.post("/v1/score", json=score_body()).status_code == 200


def test_judge_failure_is_a_clean_500_with_the_reference_of_the_log(caplog):
    answer = make_client(RecordingJudge(fail)).post("/v1/score", json=score_body())
    problem = answer.get_json()
    assert answer.status_code == 500
    assert "Traceback" not in answer.text
    assert "out of memory" not in answer.text
    assert problem["reference_id"] in caplog.text
    assert "out of memory" in caplog.text


@pytest.mark.parametrize(
    "verdicts",
    [
        [],
        [Verdict((Status.SCORED,), (1.0,))] * 2,
        [Verdict((Status.SCORED, Status.SCORED), (1.0, 2.0))],
        [Verdict((Status.SCORED,), (1.0,), (("stranger",),))],
        [Verdict((Status.SCORED,), (1.0,), (("c0",), ("c0",)))],
        [Verdict((Status.SCORED,), (np.float32(0),))],
        [Verdict((Status.SCORED,), (True,))],
        [Verdict((Status.SCORED,), (1.0,), attempts=True)],
        [Verdict((Status.SCORED,), (1.0,), None, None)],
        [Verdict((Status.SCORED,), (1.0,), tokens=np.int64(3))],
    ],
)
def test_judge_that_breaks_its_contract_is_a_failure(verdicts):
    class Careless:
        name = "careless"

        def judge(self, groups):
            return verdicts

    answer = make_client(Careless()).post("/v1/score", json=score_body())
    assert (answer.status_code, answer.get_json()["error_msg"][:16]) == (500, "the judge failed")


INVALID = [
    (b"{", 400, None),
    (b"\xff\xfe", 400, None),
    (b"[" * 10_000, 400, None),
    (b"", 400, None),
    (b'{"request_id":"r","groups":[NaN]}', 422, "groups[0]"),
    (b'{"request_id":"r","groups":NaN}', 422, "groups"),
    (b"NaN", 422, None),
    (b"[]", 422, None),
    (b'{"request_id":"r","groups":[]}', 422, "groups"),
    (b'{"request_id":"","groups":[]}', 422, "request_id"),
    (b'{"groups":[]}', 422, "request_id"),
    (json.dumps(score_body(group(source=3))).encode(), 422, "groups[0].source"),
    (json.dumps(score_body(group(candidates=[]))).encode(), 422, "groups[0].candidates"),
    (json.dumps(score_body(group(extra=1))).encode(), 422, "groups[0].extra"),
    (json.dumps(score_body(group("a"), group("a"))).encode(), 422, None),
    (
        json.dumps(score_body(group("a"), group(candidates=[{"response": "x"}]))).encode(),
        422,
        "groups[1].candidates[0].candidate_id",
    ),
    (
        json.dumps(score_body(group(candidates=[{"candidate_id": "c", "response": "x", "n_tokens": -1}]))).encode(),
        422,
        "groups[0].candidates[0].n_tokens",
    ),
    (json.dumps(score_body(group(candidates=[{"candidate_id": "c", "response": "x"}] * 2))).encode(), 422, "groups[0]"),
    (json.dumps(score_body(group(source="\ud800"))).encode(), 400, None),
]


@pytest.mark.parametrize(("body", "status", "field"), INVALID)
def test_invalid_request_is_a_clean_error_with_a_pointer(body, status, field):
    answer = make_client().post("/v1/score", data=body, content_type="application/json")
    problem = answer.get_json()
    assert answer.status_code == status
    assert problem["error_code"] == status
    assert problem["error_msg"]
    assert problem["field"] == field


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["request_id", "groups", "src", "tgt", "response", "candidates"]), inner)
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_body_makes_the_server_fail(body):
    client = make_client()
    for path in ("/", "/v1/score"):
        answer = client.post(path, data=body, content_type="application/json")
        assert answer.status_code in (200, 400, 422)
        assert isinstance(answer.get_json(), dict)


LIMITS = {"max_groups": 2, "max_candidates": 3, "max_text_chars": 10, "max_body_bytes": 2000}
LONG = "x" * 11


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("/v1/score", score_body(group("a"), group("b"), group("c")), 422, "groups"),
        ("/v1/score", score_body(group("a"), group("b", "1", "2", "3", "4")), 422, "groups[1].candidates"),
        ("/v1/score", score_body(group("a", source=LONG)), 422, "groups[0].source"),
        ("/v1/score", score_body(group("a", reference=LONG)), 422, "groups[0].reference"),
        ("/v1/score", score_body(group("a", trg_lang="x" * 257)), 422, "groups[0].trg_lang"),
        ("/v1/score", score_body(group("a", terms={"Datei": ["file", "zz"]})), 422, "groups[0].terms"),
        ("/v1/score", score_body(group("a", "x" * 2000)), 413, None),
        ("/", rows_body(2, src=["s", LONG]), 422, "src[1]"),
        ("/", rows_body(2, tgt=["s", LONG]), 422, "tgt[1]"),
        ("/", rows_body(4), 422, "src"),
        ("/", rows_body(3, src=["a", "b", "c"]), 422, "src"),
        ("/", rows_body(400), 413, None),
    ],
)
def test_limits_answer_413_or_422_with_a_pointer(path, body, status, field):
    judge = RecordingJudge()
    answer = make_client(judge, **LIMITS).post(path, json=body)
    assert (answer.status_code, answer.get_json()["field"]) == (status, field)
    assert judge.calls == []


@pytest.mark.parametrize("long", [{"response": LONG}, {"response": "x", "translation": LONG}])
def test_a_candidate_that_is_too_long_has_no_score_and_is_not_shown(long):
    judge = RecordingJudge()
    client = make_client(judge, **LIMITS)
    candidates = [{"candidate_id": "a", "response": "one"}, {"candidate_id": "b", **long}]
    answer = client.post("/v1/score", json=score_body(group(candidates=candidates))).get_json()
    outcomes = [(own["status"], own["score"]) for own in answer["verdicts"][0]["candidates"]]
    assert outcomes == [("scored", 3.0), ("too_long", None)]
    assert LONG not in str(judge.calls)
    assert 'grrm_candidates_total{status="too_long"} 1.0' in client.get("/metrics").text


def test_prompts_do_not_show_a_candidate_that_is_too_long():
    hosted = HostedJudge(RecordingJudge(), prompts_of=lambda group: [str(group)])
    (prompts,) = (
        make_client(hosted, **LIMITS).post("/v1/prompts", json=score_body(group("g", "a", LONG))).json["prompts"]
    )
    assert "'a'" in prompts[0]
    assert LONG not in prompts[0]


def test_a_row_that_is_too_long_gets_the_default_reward_and_is_counted():
    client = make_client(default_reward=-0.5, score_scale_factor=1.0, **LIMITS)
    assert client.post("/", json=rows_body(2, response=[LONG, "ab"])).get_json()["score"] == [-0.5, 2.0]
    assert "grrm_rows_defaulted_total 1.0" in client.get("/metrics").text


def test_request_just_within_the_limits_is_served():
    body = score_body(group("a", "x" * 10, "b", "c"), group("b"))
    assert make_client(**LIMITS).post("/v1/score", json=body).status_code == 200


def test_full_server_says_come_back_and_still_answers_probes():
    with request_at_the_judge(max_in_flight=1) as (client, _, _):
        refused = client().post("/v1/score", json=score_body(request_id="second"))
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert client().post("/", json=rows_body()).status_code == 503
        assert client().get("/healthz").status_code == 200
    assert client().post("/v1/score", json=score_body(request_id="third")).status_code == 200


def test_request_that_waits_too_long_for_the_judge_is_told_to_come_back():
    with request_at_the_judge(judge_wait_s=0.05) as (client, _, _):
        waiting = client().post("/v1/score", json=score_body(request_id="second"))
        repeat = client().post("/v1/score", json=score_body())
        assert client().get("/readyz").status_code == 503
    assert (waiting.status_code, waiting.headers["Retry-After"]) == (503, "5")
    assert (repeat.status_code, repeat.headers["Retry-After"]) == (503, "5")


def test_large_requests_wait_for_their_turn_and_one_alone_is_always_let_in():
    large = score_body(group("g", "x" * 2000), request_id="large")
    with request_at_the_judge(large, max_tokens_in_flight=300) as (client, _, _):
        beside = client().post("/v1/score", json=score_body())
    assert (beside.status_code, beside.headers["Retry-After"]) == (503, "1")
    assert "tokens" in beside.get_json()["error_msg"]
    assert client().post("/v1/score", json=score_body()).status_code == 200
