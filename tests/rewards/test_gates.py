"""Gates: what is no translation beyond doubt fails, what could be one passes."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.errors import UserError
from grrm.gqm.groups import Status, TranslationTask
from grrm.rewards.gates import CopyGate, LanguageGate, LengthGate, RepetitionGate, read_gates

SOURCE = "The committee will meet again on Tuesday to discuss the budget for the coming year."
GERMAN = "Der Ausschuss tritt am Dienstag wieder zusammen, um den Haushalt des kommenden Jahres zu beraten."
CHINESE = "委员会将于星期二再次开会，讨论来年的预算。"
TASK = TranslationTask(SOURCE, "en", "de")


def task_of(source, src_lang="en", trg_lang="de"):
    return TranslationTask(source, src_lang, trg_lang)


@pytest.mark.slow  # loads the models of seventeen languages
@pytest.mark.parametrize(
    ("trg_lang", "text", "passes"),
    [
        ("de", GERMAN, True),
        ("de", f"{GERMAN} \ud83d", True),
        ("German", GERMAN, True),
        ("de", SOURCE, False),
        ("de", CHINESE, False),
        ("zh", CHINESE, True),
        ("zh", GERMAN, False),
        ("nl", GERMAN, False),
        ("pt_BR", GERMAN, False),
        ("fr_CA", GERMAN, False),
        ("en_US", GERMAN, False),
        ("zh_TW", GERMAN, False),
        ("zho_Hant", CHINESE, True),
        ("de_AT", GERMAN, True),
        ("Polish", "Komisja zbierze się ponownie we wtorek, aby omówić budżet na przyszły rok.", True),
        ("Polish", GERMAN, False),
        ("Klingon", GERMAN, True),  # nothing is known of it
        ("de", "OK, New York", True),  # too short to tell
        ("de", "12.03.2021, 18:30", True),
        ("de", "", True),
    ],
)
def test_language(trg_lang, text, passes):
    assert LanguageGate().passes(task_of(SOURCE, trg_lang=trg_lang), text) is passes


@pytest.mark.parametrize(
    ("source", "text", "passes"),
    [
        (SOURCE, GERMAN, True),
        (SOURCE, CHINESE, True),
        (CHINESE, SOURCE, True),
        (SOURCE, "", False),
        (SOURCE, GERMAN * 4, False),
        ("Ja", "Yes, of course I will", True),  # short texts differ by more
        ("Ja", "Yes, of course I will, and gladly so, whenever you may ask me to", False),
    ],
)
def test_length(source, text, passes):
    assert LengthGate().passes(task_of(source), text) is passes


@pytest.mark.parametrize(
    ("task", "text", "passes"),
    [
        (TASK, GERMAN, True),
        (TASK, SOURCE, False),
        (TASK, SOURCE.upper().replace(" ", "  ") + "!", False),
        (TASK, "So: " + SOURCE, False),
        (task_of("Anna Maria Schmidt, Sao Paulo"), "Anna Maria Schmidt, Rio de Janeiro", True),
        (task_of("ACME GmbH"), "ACME GmbH", True),  # a name
        (task_of("1.234,56"), "1.234,56", True),
        (task_of(SOURCE, "en", "English"), SOURCE, True),
    ],
)
def test_copy(task, text, passes):
    assert CopyGate().passes(task, text) is passes


@pytest.mark.parametrize(
    ("source", "text", "passes"),
    [
        (SOURCE, GERMAN, True),
        (SOURCE, "Der Ausschuss " * 12, False),
        (SOURCE, "预算预算预算" * 10, False),
        ("ha " * 40, "ha " * 40, True),  # so does its source
        (SOURCE, "ja ja ja ja ja", True),  # short
    ],
)
def test_repetition(source, text, passes):
    assert RepetitionGate().passes(task_of(source), text) is passes


def test_the_first_gate_that_fails_names_the_status():
    gates = read_gates({"length": None, "copy": {}, "repetition": {"share": 0.3}})
    assert gates.fault(TASK, GERMAN) is None
    assert gates.fault(TASK, SOURCE) is Status.SOURCE_COPY
    assert gates.fault(TASK, SOURCE * 4) is Status.WRONG_LENGTH
    assert read_gates({}).fault(TASK, "") is None


@given(st.text(), st.text())
def test_any_text_gets_an_answer(source, text):
    gates = read_gates({"length": {}, "copy": {}, "repetition": {}})
    assert gates.fault(task_of(source), text) in {None, *(gate.status for gate in gates.gates)}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"languages": None}, "unknown gate 'languages': did you mean 'language'"),
        ({"length": {"hihg": 4}}, "option of gate 'length' 'hihg': did you mean 'high'"),
        ({"length": 4}, "Gate 'length' has the options 4; give a mapping"),
        ({"length": {"high": 0.1}}, "Option 'high' of a gate is 0.1; give a number at least 0.3"),
        ({"copy": {"share": 2}}, "Option 'share' of a gate is 2; give a number from 0 to 1"),
        ({"copy": {"share": True}}, "Option 'share' of a gate is True"),
        ({"copy": {"share": float("nan")}}, "Option 'share' of a gate is nan"),
    ],
)
def test_a_mistake_is_one_sentence(values, message):
    with pytest.raises(UserError, match=message):
        read_gates(values)


def test_a_missing_library_is_told_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "lingua", None)
    with pytest.raises(UserError, match=r"the package lingua; install it with `pip install 'paddle-grrm\[gates\]'"):
        read_gates({"language": None})
