"""The Flask application in process: both protocols, limits, errors, idempotency, counters."""

from __future__ import annotations

import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grrm.data.convert import render_tgt
from grrm.gqm.groups import Status, TranslationTask, Verdict
from grrm.judges.registry import build_judge
from grrm_reward_server.app import RewardApp, create_app
from grrm_reward_server.settings import Settings


class RecordingJudge:
    """Scores a translation by its length; remembers the groups; does `before()` first."""

    name = "recording"

    def __init__(self, before=lambda: None):
        self.calls: list = []
        self.before = before

    def judge(self, groups):
        self.calls.append(list(groups))
        self.before()
        return [self.verdict(group) for group in groups]

    def verdict(self, group):
        texts = [candidate.translation for candidate in group.candidates]
        statuses = tuple(Status.UNPARSABLE_CANDIDATE if text is None else Status.SCORED for text in texts)
        return Verdict(statuses, tuple(None if text is None else float(len(text) % 11) for text in texts))


def fail():
    raise RuntimeError("out of memory")


def make_client(judge=None, token=None, **values):
    return create_app(Settings(**values), judge or RecordingJudge(), token).test_client()


def group(group_id="g", *texts, **fields):
    candidates = [{"candidate_id": f"c{i}", "response": text} for i, text in enumerate(texts or ("one",))]
    base = {"group_id": group_id, "source": "Hallo", "src_lang": "de", "trg_lang": "en", "reference": "Hello"}
    return base | {"candidates": candidates} | fields


def score_body(*groups, request_id="r"):
    return {"request_id": request_id, "groups": list(groups or (group(),))}


def rows_body(n=2, **fields):
    return {"src": ["s"] * n, "tgt": ["t"] * n, "response": ["a"] * n} | fields


# --- POST /v1/score


def test_score_answers_every_group_and_candidate_in_order():
    client = make_client()
    answer = client.post("/v1/score", json=score_body(group("x", "a", "bb"), group("y", "ccc"))).get_json()
    assert answer["request_id"] == "r"
    assert [v["group_id"] for v in answer["verdicts"]] == ["x", "y"]
    assert answer["verdicts"][0]["candidates"] == [
        {"candidate_id": "c0", "status": "scored", "score": 1.0},
        {"candidate_id": "c1", "status": "scored", "score": 2.0},
    ]


def test_score_with_the_embedded_judge():
    client = make_client(build_judge("chrf"))
    verdict = client.post("/v1/score", json=score_body(group("x", "Hello", "Hallo", "Hello"))).get_json()["verdicts"][0]
    assert [c["status"] for c in verdict["candidates"]] == ["scored", "scored", "duplicate"]
    assert [c["score"] for c in verdict["candidates"]][::2] == [10.0, 10.0]
    assert verdict["ranking"] == [["c0", "c2"], ["c1"]]


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
    assert "grrm_replayed_answers_total 1" in client.get("/metrics").text
    client.post("/v1/score", json=score_body(request_id="another"))
    assert len(judge.calls) == 2


def test_request_id_with_another_body_is_a_conflict():
    client = make_client()
    client.post("/v1/score", json=score_body())
    answer = client.post("/v1/score", json=score_body(group("other")))
    assert answer.status_code == 409
    assert answer.get_json()["field"] == "request_id"


def test_concurrent_repeat_waits_for_the_first():
    release, started = threading.Event(), threading.Event()

    def hold():
        started.set()
        assert release.wait(10)

    judge = RecordingJudge(hold)
    app = create_app(Settings(), judge)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(lambda: app.test_client().post("/v1/score", json=score_body()))
        assert started.wait(10)
        repeat = threads.submit(lambda: app.test_client().post("/v1/score", json=score_body()))
        release.set()
        assert first.result(10).data == repeat.result(10).data
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
    ],
)
def test_judge_that_breaks_its_contract_is_a_failure(verdicts):
    class Careless:
        name = "careless"

        def judge(self, groups):
            return verdicts

    assert make_client(Careless()).post("/v1/score", json=score_body()).status_code == 500


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
        ("/v1/score", score_body(group("a", "1", LONG)), 422, "groups[0].candidates[1].response"),
        (
            "/v1/score",
            score_body(group(candidates=[{"candidate_id": "c", "response": "x", "translation": LONG}])),
            422,
            "groups[0].candidates[0].translation",
        ),
        ("/v1/score", score_body(group("a", "x" * 2000)), 413, None),
        ("/", rows_body(2, src=["s", LONG]), 422, "src[1]"),
        ("/", rows_body(2, tgt=["s", LONG]), 422, "tgt[1]"),
        ("/", rows_body(2, response=[LONG, "a"]), 422, "response[0]"),
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


def test_request_just_within_the_limits_is_served():
    body = score_body(group("a", "x" * 10, "b", "c"), group("b"))
    assert make_client(**LIMITS).post("/v1/score", json=body).status_code == 200


def test_full_server_says_come_back_and_still_answers_probes():
    release, started = threading.Event(), threading.Event()

    def hold():
        started.set()
        assert release.wait(10)

    app = create_app(Settings(max_in_flight=1), RecordingJudge(hold))
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(lambda: app.test_client().post("/v1/score", json=score_body()))
        assert started.wait(10)
        refused = app.test_client().post("/v1/score", json=score_body(request_id="second"))
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert app.test_client().post("/", json=rows_body()).status_code == 503
        assert app.test_client().get("/healthz").status_code == 200
        release.set()
        assert first.result(10).status_code == 200
    assert app.test_client().post("/v1/score", json=score_body(request_id="third")).status_code == 200


def test_request_that_waits_too_long_for_the_judge_is_told_to_come_back():
    release, started = threading.Event(), threading.Event()

    def hold():
        started.set()
        assert release.wait(10)

    app = create_app(Settings(judge_wait_s=0.05), RecordingJudge(hold))
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(lambda: app.test_client().post("/v1/score", json=score_body()))
        assert started.wait(10)
        waiting = app.test_client().post("/v1/score", json=score_body(request_id="second"))
        repeat = app.test_client().post("/v1/score", json=score_body())
        assert app.test_client().get("/readyz").status_code == 503
        release.set()
        assert first.result(10).status_code == 200
    assert (waiting.status_code, waiting.headers["Retry-After"]) == (503, "5")
    assert (repeat.status_code, repeat.headers["Retry-After"]) == (503, "5")


# --- POST /


def test_rows_reward_is_the_scaled_score_and_the_default_is_not_scaled():
    client = make_client(extractor_type="codeblock", score_scale_factor=0.01, default_reward=-0.04)
    body = rows_body(2, response=["```\nabc\n```<|im_end|>", "no block<|im_end|>"])
    assert client.post("/", json=body).get_json() == {"error_code": 0, "error_msg": "Success", "score": [0.03, -0.04]}
    assert "grrm_rows_defaulted_total 1" in client.get("/metrics").text


@pytest.mark.parametrize("end", ["", "<|im_end|>", "<|im_end|>\n", "<end_of_turn>"])
def test_rows_carry_the_task_in_tgt_as_our_converter_writes_it(end):
    judge = RecordingJudge()
    task = TranslationTask('Hallo {"Welt"}', "de", "en", 'Hello {"world"}')
    make_client(judge).post("/", json=rows_body(1, tgt=[render_tgt(task) + end]))
    assert judge.calls[0][0].task == task


def test_rows_of_a_stock_dataset_recover_the_task_from_the_prompt():
    judge = RecordingJudge()
    prompt = "Translate the following text from German into English:\nGerman: Hallo\nEnglish:"
    src = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
    make_client(judge).post("/", json=rows_body(1, src=[src], tgt=["Hello<|im_end|>"]))
    seen = judge.calls[0][0].task
    assert (seen.source, seen.src_lang, seen.trg_lang, seen.reference) == ("Hallo", "de", "en", "Hello")


@pytest.mark.parametrize("tgt", ['{"source": "Hallo", "src_la', '{"source": "Hallo"}', "", "<|im_end|>"])
def test_label_that_is_no_reference_is_never_compared_with(tgt):
    judge = RecordingJudge()
    make_client(judge).post("/", json=rows_body(1, tgt=[tgt]))
    assert judge.calls[0][0].task.reference is None


def test_rows_without_a_known_task_are_judged_and_reported(caplog):
    judge = RecordingJudge()
    answer = make_client(judge).post("/", json=rows_body(1, src=["<|im_start|>user\nSay it<|im_end|>\n"]))
    assert answer.get_json()["error_code"] == 0
    task = judge.calls[0][0].task
    assert (task.source, task.src_lang, task.trg_lang, task.reference) == ("Say it", "", "", "t")
    assert "1 of 1 prompts do not tell their task" in caplog.text


def test_rows_of_one_prompt_are_one_group_wherever_they_stand():
    judge = RecordingJudge()
    body = {"src": list("abab"), "tgt": list("tttt"), "response": ["1", "22", "333", "4444"]}
    answer = make_client(judge, score_scale_factor=1.0).post("/", json=body)
    assert answer.get_json()["score"] == [1.0, 2.0, 3.0, 4.0]
    seen = [[candidate.translation for candidate in g.candidates] for g in judge.calls[0]]
    assert seen == [["1", "333"], ["22", "4444"]]


def test_same_prompt_with_another_reference_is_another_group():
    judge = RecordingJudge()
    make_client(judge).post("/", json=rows_body(2, tgt=["one", "two"]))
    assert [g.task.reference for g in judge.calls[0]] == ["one", "two"]


def test_every_post_is_judged_on_its_own():
    judge = RecordingJudge()
    client = make_client(judge)
    for _ in range(2):
        client.post("/", json=rows_body(2))
    assert [[len(g.candidates) for g in call] for call in judge.calls] == [[2], [2]]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from("tu"), st.text("xyz", min_size=1, max_size=12)), max_size=12
    )
)
@settings(max_examples=60, deadline=None)
def test_regrouping_never_mixes_prompts_and_restores_the_order(rows):
    judge = RecordingJudge()
    body = {
        "src": [src for src, _, _ in rows],
        "tgt": [tgt for _, tgt, _ in rows],
        "response": [response for _, _, response in rows],
    }
    answer = make_client(judge, score_scale_factor=1.0).post("/", json=body).get_json()
    assert answer["score"] == [float(len(response) % 11) for _, _, response in rows]
    groups = judge.calls[0] if rows else []
    assert len(groups) == len({(src, tgt) for src, tgt, _ in rows})
    for g in groups:
        members = [rows[int(candidate.candidate_id)] for candidate in g.candidates]
        assert len({(src, tgt) for src, tgt, _ in members}) == 1
        assert [candidate.response for candidate in g.candidates] == [response for _, _, response in members]
    assert sorted(int(c.candidate_id) for g in groups for c in g.candidates) == list(range(len(rows)))


def test_rows_judge_failure_has_the_shape_of_the_protocol():
    answer = make_client(RecordingJudge(fail)).post("/", json=rows_body(3))
    body = answer.get_json()
    assert (answer.status_code, body["error_code"], body["score"]) == (200, 500, [0.0, 0.0, 0.0])
    assert "out of memory" not in body["error_msg"]


def test_rows_of_unequal_length_fail_like_the_stock_server():
    answer = make_client().post("/", json=rows_body(2, response=["a"]))
    assert (answer.status_code, answer.get_json()["error_code"]) == (200, 500)
    assert answer.get_json()["score"] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("body", "field"),
    [({"src": ["s"]}, "tgt"), (rows_body(1, tgt=[None]), "tgt[0]"), (rows_body(1, src="s"), "src"), ([], None)],
)
def test_rows_of_a_wrong_schema_are_422(body, field):
    answer = make_client().post("/", json=body)
    assert (answer.status_code, answer.get_json()["field"]) == (422, field)


def test_unknown_fields_beside_the_rows_are_ignored_like_by_the_stock_server():
    assert make_client().post("/", json=rows_body(2, uid=["1", "1"])).status_code == 200


def test_no_rows_no_scores():
    assert make_client().post("/", json=rows_body(0)).get_json()["score"] == []


# --- everything around


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/score", 405), ("DELETE", "/", 405), ("GET", "/nowhere", 404), ("POST", "/healthz", 405)],
)
def test_wrong_routes_get_json_too(method, path, status):
    answer = make_client().open(path, method=method)
    assert (answer.status_code, answer.get_json()["error_code"]) == (status, status)
    assert ("Allow" in answer.headers) == (status == 405)


def test_browser_forms_are_refused():
    answer = make_client().post("/v1/score", data=json.dumps(score_body()), content_type="text/plain")
    assert answer.status_code == 415


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", "secret", "Basic secret", "Bearer sécret"])
def test_every_route_but_liveness_asks_for_the_token(header):
    judge = RecordingJudge()
    client = make_client(judge, token="secret")
    headers = {} if header is None else {"Authorization": header}
    for method, path in [("POST", "/"), ("POST", "/v1/score"), ("GET", "/readyz"), ("GET", "/metrics"), ("GET", "/x")]:
        answer = client.open(path, method=method, json=score_body(), headers=headers)
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert client.get("/healthz").status_code == 200
    assert judge.calls == []


def test_right_token_is_let_in():
    client = make_client(token="secret")
    headers = {"Authorization": "Bearer secret"}
    assert client.post("/v1/score", json=score_body(), headers=headers).status_code == 200


def test_readiness_follows_the_judge():
    state = {"broken": True}
    judge = RecordingJudge(lambda: fail() if state["broken"] else None)
    client = make_client(judge)
    assert client.get("/readyz").status_code == 503
    state["broken"] = False
    assert client.get("/readyz").status_code == 200
    n_calls = len(judge.calls)
    assert client.get("/readyz").status_code == 200
    assert len(judge.calls) == n_calls, "a judge that answers is not asked again"
    state["broken"] = True
    client.post("/v1/score", json=score_body())
    assert client.get("/readyz").status_code == 503


def test_readiness_probes_do_not_queue_behind_a_judge_that_has_not_answered_yet():
    release, started = threading.Event(), threading.Event()

    def hold():
        started.set()
        assert release.wait(10)

    app = create_app(Settings(), RecordingJudge(hold))
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(lambda: app.test_client().post("/v1/score", json=score_body()))
        assert started.wait(10)
        probe = threads.submit(lambda: app.test_client().get("/readyz").status_code)
        try:
            assert probe.result(5) == 503
        finally:
            release.set()
        assert first.result(10).status_code == 200
    assert app.test_client().get("/readyz").status_code == 200


def test_metrics_count_requests_and_statuses():
    client = make_client()
    client.post(
        "/v1/score", json=score_body(group(candidates=[{"candidate_id": "c", "response": ""}]), group("h", "a"))
    )
    client.post("/v1/score", data=b"{", content_type="application/json")
    text = client.get("/metrics").text
    for line in [
        'grrm_requests_total{route="/v1/score",code="200"} 1',
        'grrm_requests_total{route="/v1/score",code="400"} 1',
        'grrm_candidates_total{status="unparsable_candidate"} 1',
        'grrm_candidates_total{status="scored"} 1',
        "grrm_groups_total 2",
    ]:
        assert line in text.splitlines()


def test_texts_are_not_logged_at_info(caplog):
    caplog.set_level(logging.INFO)
    client = make_client()
    secret = "Streng geheim"
    client.post("/", json=rows_body(1, src=[secret], response=[secret], tgt=[secret]))
    client.post("/v1/score", json=score_body(group("g", secret, source=secret)))
    client.post("/v1/score", json=score_body(group("g", secret, source=[secret])))
    assert "POST /v1/score 200" in caplog.text
    assert secret not in caplog.text


def test_defect_of_the_server_is_a_clean_500(monkeypatch, caplog):
    app = RewardApp(Settings(), RecordingJudge(), None)
    monkeypatch.setattr(app.cache, "get_or_compute", lambda *args: 1 / 0)
    answer = app.flask.test_client().post("/v1/score", json=score_body())
    assert answer.status_code == 500
    assert "ZeroDivisionError" not in answer.text
    assert answer.get_json()["reference_id"] in caplog.text
