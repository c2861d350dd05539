"""Bodies are counted before they are parsed: the counts are those of an independent reader, and bound what passes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.reward_app import RecordingJudge, group, make_client, rows_body, score_body

from grrm.gqm.context import MAX_CONTEXT_SEGMENTS
from grrm.judges.sources import mixture_sources
from grrm_reward_server.bodies import SMALL_BODY_BYTES, BodyLimits, check_structure
from grrm_reward_server.hosting import HostedJudge
from grrm_reward_server.problems import RequestProblem

ODD_TEXT = st.text(alphabet='"\\{}[],:/ \nxé\U0001f600', max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | ODD_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ODD_TEXT, inner, max_size=4),
    max_leaves=20,
)


def counted(value):
    """(strings, containers, commas) of `value` as JSON."""
    if isinstance(value, str):
        return 1, 0, 0
    if not isinstance(value, list | dict):
        return 0, 0, 0
    inner = list(value) if isinstance(value, list) else [part for item in value.items() for part in item]
    parts = [counted(part) for part in inner]
    strings, containers, commas = (sum(column) for column in zip(*parts, strict=True)) if parts else (0, 0, 0)
    return strings, containers + 1, commas + max(len(value) - 1, 0)


def passes(body, limits):
    try:
        check_structure(body, limits)
    except RequestProblem:
        return False
    return True


@given(value=JSON, ascii_only=st.booleans(), indent=st.none() | st.just(1))
def test_counts_are_exact_whatever_the_texts_hold(value, ascii_only, indent):
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    exact = counted(value)
    assert passes(body, BodyLimits(*exact))
    for place, count in enumerate(exact):
        if count:
            tighter = list(exact)
            tighter[place] -= 1
            assert not passes(body, BodyLimits(*tighter))


MANY = 2000
BEGIN = '{"request_id":"r","groups":['


TOO_MUCH = pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/score", BEGIN + "{}," * MANY + "{}]}"),
        ("/v1/score", BEGIN + "[]," * MANY + "[]]}"),
        ("/v1/score", BEGIN + "0," * MANY + "0]}"),
        ("/v1/score", "[" * MANY),
        ("/v1/score", '"' * 2 * MANY),
        ("/v1/score", "{" + ",".join(f'"{i}":0' for i in range(100)) + "}"),
        ("/", '{"tgt":[],"response":[],"src":[' + '"",' * MANY + '""]}'),
        ("/", '{"tgt":[],"response":[],"src":[' + "0," * MANY + "0]}"),
        ("/", '{"tgt":[],"response":[],"src":[],"more":' + "[" * MANY + "]" * MANY + "}"),
    ],
)


@TOO_MUCH
def test_body_with_more_than_a_full_request_holds_is_422_before_it_is_parsed(path, body, monkeypatch):
    monkeypatch.setattr("pydantic.BaseModel.model_validate_json", None)
    client = make_client(max_groups=2, max_rows=8)
    answer = client.post(path, data=body + " " * SMALL_BODY_BYTES, content_type="application/json")
    assert answer.status_code == 422
    assert answer.get_json()["error_msg"].startswith(("the body has", "an object of the body"))


@TOO_MUCH
def test_small_body_with_more_than_a_full_request_holds_is_refused(path, body):
    judge = RecordingJudge()
    answer = make_client(judge, max_groups=2, max_rows=8).post(path, data=body, content_type="application/json")
    assert answer.get_json()["error_code"] in (400, 422, 500)  # PaddleNLP's lists of different lengths are a 200
    assert judge.calls == []


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [("/v1/score", score_body(group("a", *"12345"), group("b", *"1234")), "groups"), ("/", rows_body(9), "src")],
)
def test_candidates_of_all_groups_together_are_bounded(path, body, field):
    judge = RecordingJudge()
    answer = make_client(judge, max_rows=8).post(path, json=body)
    assert (answer.status_code, answer.get_json()["field"]) == (422, field)
    assert judge.calls == []


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/score", score_body(group("a", *"1123"), group("b", *"12")), "groups"),
        ("/v1/prompts", score_body(group("a", *"1123"), group("b", *"12")), "groups"),
        ("/", rows_body(4, response=[*"1123"], src=["Hallo"] * 4), "src"),
    ],
)
def test_pairs_of_different_candidates_are_bounded_where_a_judge_asks_about_each(path, body, field):
    n_pairs = 6 if path == "/" else 8
    judge = RecordingJudge()
    pairwise = HostedJudge(judge, compares_pairs=True)
    answer = make_client(pairwise, max_pairs=n_pairs - 1).post(path, json=body)
    message = f"{n_pairs} pairs of candidates exceed the limit of {n_pairs - 1}"
    found = answer.get_json()
    assert (answer.status_code, found["field"], found["error_msg"]) == (422, field, message)
    assert judge.calls == []
    assert make_client(pairwise, max_pairs=n_pairs).post(path, json=body).status_code == 200
    assert make_client(judge, max_pairs=1).post(path, json=body).status_code == 200


def test_a_mixture_asks_about_pairs_where_one_of_its_judges_or_a_fallback_does():
    def asks(*sources):
        return [source.compares_pairs for source in mixture_sources({"sources": [*sources]})]

    pairwise = {"judge": "pairwise", "model": "m"}
    assert asks("chrf", pairwise, {"judge": "sqm", "model": "m", "fallback": pairwise}) == [False, True, True]


def test_first_of_many_mistakes_is_told_with_its_place():
    wrong = [group("a"), *({"group_id": str(i)} for i in range(50))]
    answer = make_client().post("/v1/score", json=score_body(*wrong))
    assert answer.get_json()["field"] == "groups[1].source"


def test_full_request_passes_whatever_its_texts_hold():
    text = '","[{:\\'
    fields = {"source": text, "context": [{"source": text * 30, "translation": text}] * MAX_CONTEXT_SEGMENTS}
    full = [group(f"{text}{i}", *[text] * 4, **fields) for i in range(64)]
    client = make_client(max_groups=64, max_rows=256)
    assert len(json.dumps(full)) > SMALL_BODY_BYTES
    assert client.post("/v1/score", json=score_body(*full)).status_code == 200
    assert client.post("/", json=rows_body(256, response=[text] * 256)).status_code == 200
