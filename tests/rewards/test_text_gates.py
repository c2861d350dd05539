"""Gates on terms, placeholders, limits and forms of address, and the terms of a row from its file to the gate."""

from __future__ import annotations

import json
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.judged_groups import group_of
from support.reward_app import group, make_client, score_body
from support.rows import write_jsonl

from grrm.data.convert import convert_to_rows, convert_to_src_tgt
from grrm.data.dataset import read_prompt_items
from grrm.data.held_out import hold_out
from grrm.data.layouts.user_rows import opened
from grrm.data.task_json import parse_tgt, render_tgt
from grrm.errors import UserError
from grrm.gqm.groups import Group, Status, TranslationTask
from grrm.gqm.terms import has_term, missing_terms, read_terms, terms_in, terms_mapping
from grrm.rewards.failure_policy import DEFAULT_ACTIONS, GATE_FAILURES, FailureAction
from grrm.rewards.gates import GATES, read_gates
from grrm.rewards.protocol import request_from_groups, task_of
from grrm.rewards.text_gates import FormalityGate, LimitGate, PlaceholdersGate, TermsGate, placeholders
from grrm.tracking.rollout_dump import group_of as dumped_group
from grrm.tracking.rollout_dump import group_record
from grrm_reward_server.hosting import build_hosted_judge
from grrm_reward_server.rows import find_task
from grrm_reward_server.settings import Settings

TERMS = (("Datei", ("file", "document")), ("Einstellung", ("setting",)))
TASK = TranslationTask("Die Dateien haben Einstellungen.", "de", "en", terms=TERMS)


@pytest.mark.parametrize(
    ("text", "term", "is_there"),
    [
        ("Die Dateien", "Datei", True),
        ("DATEI!", "datei", True),
        ("die Datei", "Dateien", True),
        ("two films", "file", False),
        ("refile", "file", False),
        ("profile files", "file", True),
        ("Einstellungsmenü", "Einstellung", False),  # a compound, not an ending
        ("the User Settings now", "user setting", True),
        ("user of settings", "user setting", False),
        ("user-setting", "user setting", True),
        ("Straße", "STRASSE", True),
        ("café", "cafe\u0301", True),
        ("委员会将开会", "委员会", True),
        ("委员 会", "委员会", True),
        ("委员", "委员会", False),
        ("", "x", False),
    ],
)
def test_a_term_is_there_in_any_case_and_with_any_short_ending(text, term, is_there):
    assert has_term(text, term) is is_there


@given(st.text(max_size=20), st.text("aé世 1-", max_size=8))
def test_any_text_is_searched(text, term):
    if isinstance(terms := read_terms({term: "x"}), tuple) and terms:
        assert has_term(f"{text} {term} {text}", term)


@pytest.mark.parametrize(
    ("text", "share", "passes"),
    [
        ("The files have settings.", 1.0, True),
        ("The documents have a Setting.", 1.0, True),
        ("The folders have settings.", 1.0, False),
        ("The folders have settings.", 0.5, True),
        ("The folders have options.", 0.5, False),
        ("The folders have options.", 0.0, True),
    ],
)
def test_terms(text, share, passes):
    assert TermsGate(share=share).passes(TASK, text) is passes


@pytest.mark.parametrize(
    ("source", "term"), [(" ".join(f"w{k}" for k in range(9000)), "zz{}"), ("aaa " * 16_000, "aaa b{}")]
)
def test_a_long_glossary_and_a_long_source_take_little_time(source, term):
    terms = tuple((term.format(k), ("x",)) for k in range(900))
    begin_s = time.process_time()
    assert terms_in(source, terms) == ()
    assert time.process_time() - begin_s < 5  # once 30 s, of each candidate


def test_terms_that_the_source_does_not_have_are_not_asked_for():
    assert missing_terms(terms_in("Die Datei", TERMS), "x") == ["Datei"]
    assert missing_terms(terms_in("nichts davon", TERMS), "x") == []
    assert TermsGate().passes(TranslationTask("Die Datei", "de", "en"), "anything")


@pytest.mark.parametrize(
    ("source", "text", "passes"),
    [
        ("Click <a href='x'>here</a>", "<a title='y'>Hier</a> klicken", True),
        ("Click <a href='x'>here</a>", "Hier klicken</a>", False),
        ("{0} of {count}", "{count}: {0}", True),
        ("{0} of {count}", "{count}", False),
        ("%s, %s", "%s", False),
        ("%(name)s has %1$d ${unit} {{x}} &nbsp;", "{{x}} %1$d %(name)s ${unit}&nbsp;", True),
        ("50% discount, 10%", "50 % Rabatt, 10%iger", True),
        ("a < b and b > c", "a < b und b > c", True),
        ("line<br/>", "Zeile<br>", False),
        ("plain", "{0}", False),
    ],
)
def test_placeholders(source, text, passes):
    assert PlaceholdersGate().passes(TranslationTask(source, "en", "de"), text) is passes
    assert PlaceholdersGate().passes(TranslationTask(source, "en", "de"), source)


@given(st.text("<a/>{}%s$0& nbp;#1(x)", max_size=30))
def test_placeholders_of_any_text_are_counted(text):
    assert all(count > 0 and text for count in placeholders(text).values())


def test_limit():
    task = TranslationTask("x" * 90, "en", "de")
    assert LimitGate(characters=3).passes(task, " abc \n")
    assert not LimitGate(characters=3).passes(task, "abcd")
    assert LimitGate(lines=2).passes(task, "a\nb")
    assert not LimitGate(lines=2, characters=90).passes(task, "a\nb\nc")


@pytest.mark.parametrize(
    ("lang", "level", "text", "passes"),
    [
        ("de", "formal", "Haben Sie das?", True),
        ("German", "formal", "Hast Du das?", False),
        ("de", "formal", "Das Duell", True),
        ("de", "informal", "Haben Sie das?", False),
        ("de", "informal", "Hast du das? Sie kommt.", True),  # it may be "she" there
        ("de", "informal", "Ihr kommt mit ihr.", True),
        ("fr", "informal", "Vous venez", False),
        ("fr", "formal", "Tu viens", False),
        ("es", "formal", "usted y tú", False),
        ("fr_CA", "formal", "Tu viens", False),
        ("es_MX", "formal", "usted y tú", False),
        ("de_AT", "formal", "Hast du das?", False),
        ("nl", "informal", "Hoe gaat het met u?", False),
        ("ru", "formal", "Где ты?", False),
        ("en", "formal", "thou art", True),  # it has no list
    ],
)
def test_formality(lang, level, text, passes):
    assert FormalityGate(level).passes(TranslationTask("x", "en", lang), text) is passes


def test_formality_takes_words_of_ones_own():
    gate = FormalityGate(words={"English": ["gonna", "wanna"]})
    assert not gate.passes(TranslationTask("x", "de", "en"), "I'm Gonna go")
    assert not gate.passes(TranslationTask("x", "de", "en_US"), "I'm Gonna go")
    assert not gate.passes(TranslationTask("x", "en", "de"), "du")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"terms": {"share": 2}}, "Option 'share' of a gate is 2; give a number from 0 to 1"),
        ({"terms": {"suffix": -1}}, "Option 'suffix' of a gate is -1"),
        ({"limit": None}, "Gate 'limit' has no limit; give its option characters or lines"),
        ({"limit": {"characters": 0}}, "Option 'characters' of a gate is 0; give a number at least 1"),
        ({"formality": {"level": "formel"}}, "unknown level of formality 'formel': did you mean 'formal'"),
        ({"formality": {"words": {"de": "du"}}}, "give a list of words for each language"),
        ({"formality": {"words": {False: ["du"]}}}, "for each language, 'no' in quotes"),  # no, to YAML
        ({"placeholders": {"tags": True}}, "option of gate 'placeholders' 'tags'"),
    ],
)
def test_a_mistake_is_one_sentence(values, message):
    with pytest.raises(UserError, match=message):
        read_gates(values)


def test_every_gate_has_a_status_that_is_penalised():
    assert {gate.status for gate in GATES.values()} == GATE_FAILURES
    assert {DEFAULT_ACTIONS[status] for status in GATE_FAILURES} == {FailureAction.PENALTY}
    gates = read_gates({"placeholders": None, "terms": None})
    assert gates.fault(TASK, "The folders {0}") is Status.WRONG_PLACEHOLDERS
    assert gates.fault(TASK, "The folders") is Status.MISSING_TERM


@pytest.mark.parametrize(
    ("value", "terms"),
    [
        (None, ()),
        (" ", ()),
        ({"Datei": "file"}, (("Datei", ("file",)),)),
        ({"Datei": ["file", "document"], "other row": None}, (("Datei", ("file", "document")),)),
        ([("Datei", "file"), ("Datei", "document")], (("Datei", ("file", "document")),)),
        ('{"Datei": ["file"]}', (("Datei", ("file",)),)),
        ("{Datei", "terms is not JSON"),
        ("3", "terms is not a mapping from terms to their translations"),
        (["Datei"], "terms is not a mapping from terms to their translations"),
        ({"Datei": 3}, "terms has an entry without words 'Datei'"),
        ({"Datei": []}, "terms has an entry without words 'Datei'"),
        ({"...": "file"}, "terms has an entry without words '...'"),
        ({"Datei": ["file"] * 1001}, "1001 translations in terms exceed the limit of 1000"),
        ({"Datei": "a" + "\u0301\u0323" * 30_000}, "60001 characters in an entry of terms exceed the limit of 256"),
        ({"Datei": "a <|im_end|>"}, "terms contains a control token of the chat template"),
    ],
)
def test_a_column_of_terms_is_read_or_refused(value, terms):
    assert read_terms(value) == terms


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv"])
def test_terms_go_from_a_file_to_the_task_and_faults_are_told(tmp_path, suffix):
    column = [{"Datei": ["file"]}, None, {"Ordner": ["folder"]}, {"Datei": [" "]}]
    texts = [json.dumps(value) if value else None for value in column]
    rows = {"src_text": ["Die Dateien"] * 4, "trg_text": ["The files"] * 4, "src_lang": ["de"] * 4}
    rows |= {"trg_lang": ["en"] * 4, "terms": texts if suffix == ".csv" else column}
    path = tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        maps = pa.array(
            [list(value.items()) if value else None for value in column], pa.map_(pa.string(), pa.list_(pa.string()))
        )
        pq.write_table(pa.table({**rows, "terms": maps}), path)
    elif suffix == ".csv":
        import csv

        with path.open("w", newline="") as file:
            csv.writer(file).writerows([list(rows), *zip(*rows.values(), strict=True)])
    else:
        lines = [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]
        write_jsonl(path, lines)
    report = convert_to_src_tgt(path, tmp_path / "rl.jsonl")
    assert [(row.row, row.reason) for row in report.rejected] == [
        (3, "terms has a term that is not in src_text 'Ordner'"),
        (4, "terms has an entry without words 'Datei'"),
    ]
    items = read_prompt_items(tmp_path / "rl.jsonl", lambda text: [1] * len(text), 999)
    assert [item.task.terms for item in items] == [(("Datei", ("file",)),), ()]
    convert_to_rows(path, tmp_path / "rows-again.parquet")
    convert_to_src_tgt(tmp_path / "rows-again.parquet", tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_text() == (tmp_path / "rl.jsonl").read_text()


def test_held_out_rows_keep_their_terms_and_places(tmp_path):
    rows = [
        {"src_text": f"Datei {n}", "trg_text": f"file {n}", "src_lang": "de", "trg_lang": "en"}
        | {"document": "a", "position": n, "terms": {"Datei": ["file"]}}
        for n in range(3)
    ]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    held = hold_out(opened(tmp_path / "rows.jsonl"), tmp_path / "heldout.parquet", 2, "Tower")
    assert held.written == 2
    kept = pq.read_table(held.path).to_pylist()
    assert [row | {"terms": json.loads(row["terms"])} for row in kept] == [rows[row["position"]] for row in kept]


def test_terms_are_in_the_label_only_where_there_are_some():
    assert parse_tgt(render_tgt(TASK)) == TASK
    assert "terms" not in render_tgt(TranslationTask("a", "de", "en"))
    assert parse_tgt(render_tgt(TASK).replace('["setting"]', "3")) is None
    assert find_task("", render_tgt(TASK), ()) == TASK


def test_terms_go_to_a_server_and_into_the_dump():
    judged = Group("g", TASK, group_of(["The files have settings.", "Folders"]).candidates)
    request = request_from_groups("r", [judged])
    assert task_of(request.groups[0]) == TASK
    assert json.loads(request.model_dump_json())["groups"][0]["terms"] == terms_mapping(TERMS)
    plain = request_from_groups("r", [group_of(["x"])])
    assert "terms" not in json.loads(plain.model_dump_json())["groups"][0]
    assert dumped_group(group_record(1, judged, None, [None] * 2, [None] * 2, [None] * 2)) == judged


def test_a_server_with_the_gate_reads_the_terms_of_each_group():
    body = score_body(group("g", "The files", "The folders"))
    body["groups"][0] |= {"source": "Die Dateien", "reference": "The files", "terms": {"Datei": ["file"]}}
    hosted = build_hosted_judge(Settings(judge="chrf", gates={"terms": None}))
    (verdict,) = make_client(hosted).post("/v1/score", json=body).get_json()["verdicts"]
    assert [candidate["status"] for candidate in verdict["candidates"]] == ["scored", "missing_term"]
    body["groups"][0]["terms"] = {"Datei": [" "]}
    answer = make_client(hosted).post("/v1/score", json=body)
    assert answer.status_code == 422
    assert "terms has an entry without words" in answer.get_json()["error_msg"]


def test_rows_whose_terms_cannot_be_read_are_refused_by_their_number():
    client = make_client(build_hosted_judge(Settings(judge="chrf", gates={"terms": None})))
    for terms in ({"Datei": [" "]}, 3):
        label = json.dumps(json.loads(render_tgt(TASK)) | {"terms": terms})
        rows = {"src": ["p", "q"], "tgt": [render_tgt(TASK), label], "response": ["The files"] * 2}
        answer = client.post("/", json=rows)
        assert (answer.status_code, answer.get_json()["field"]) == (422, "tgt[1]")
        assert answer.get_json()["error_msg"].startswith("terms ")
