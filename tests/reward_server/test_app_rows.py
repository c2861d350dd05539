"""`POST /`, PaddleNLP's protocol, in process: tasks, grouping, failures."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reward_app import RecordingJudge, fail, make_client, rows_body

from grrm.data.task_json import render_tgt
from grrm.gqm.groups import TranslationTask


def test_rows_reward_is_the_scaled_score_and_the_default_is_not_scaled():
    client = make_client(extractor_type="codeblock", score_scale_factor=0.01, default_reward=-0.04)
    body = rows_body(2, response=["```\nabc\n```<|im_end|>", "no block<|im_end|>"])
    assert client.post("/", json=body).get_json() == {"error_code": 0, "error_msg": "Success", "score": [0.03, -0.04]}
    assert "grrm_rows_defaulted_total 1.0" in client.get("/metrics").text


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


def test_the_task_of_a_conversation_is_in_its_last_user_turn():
    judge = RecordingJudge()
    turns = ["Hello.", "Translate the following text from German into English:\nGerman: Danke.\nEnglish:"]
    src = "".join(f"<|im_start|>user\n{turn}<|im_end|>\n<|im_start|>assistant\n" for turn in turns)
    make_client(judge).post("/", json=rows_body(1, src=[src], tgt=["Thanks."]))
    assert judge.calls[0][0].task == TranslationTask("Danke.", "de", "en", "Thanks.")
