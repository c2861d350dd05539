"""What is shown on the console, on a terminal and off it."""

import io
import sys

import pytest
from rich.console import Console
from support.stopped_clock import stop_clock

from grrm.tracking.console import StepProgress, format_seconds, show_groups

RECORD = {
    "step": 3,
    "group_id": "g",
    "source": "three [bold]euros[/bold]\x1b[31m",
    "src_lang": "en",
    "trg_lang": "de",
    "reference": "drei Euro",
    "candidates": [
        {
            "id": "A",
            "response": "x",
            "translation": "drei Euro",
            "status": "scored",
            "score": 10.0,
            "reward": 1.0,
            "advantage": 0.5,
        },
        {
            "id": "B",
            "response": "no [/fence]",
            "translation": None,
            "status": "unparsable_candidate",
            "score": None,
            "reward": None,
            "advantage": None,
        },
    ],
}


@pytest.fixture
def shown(monkeypatch):
    """What is shown of records, on a terminal or off it."""

    def show(records, terminal=False, width=140):
        console = Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system=None)
        monkeypatch.setattr("grrm.tracking.console.Console", lambda: console)
        show_groups(records, max_groups=2)
        return console.file.getvalue()

    return show


@pytest.mark.parametrize("terminal", [True, False])
def test_groups_show_every_candidate_and_text_cannot_act_as_markup(shown, terminal):
    text = shown([RECORD, RECORD, RECORD], terminal)
    assert text.count("drei Euro") == 4
    assert text.count("no [/fence]") == 2
    assert "[bold]euros[/bold] [31m" in text
    assert "\x1b[31m" not in text
    assert "10.000" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_a_prompt_that_is_not_between_languages_has_no_arrow(shown, terminal):
    text = shown([{**RECORD, "src_lang": "", "trg_lang": "", "source": "What is 2 + 2?"}], terminal)
    (line,) = [line for line in text.splitlines() if "2 + 2" in line]
    assert " ".join(line.split()) == "step 3 What is 2 + 2?"


def test_text_that_nobody_reads_in_passing_is_cut(shown):
    source = shown([{**RECORD, "source": "long " * 1000}], width=10_000).splitlines()[0]
    assert source.endswith("long …")
    assert len(source) < 500


def test_off_a_terminal_lines_are_few_and_tell_the_time_left(monkeypatch, capsys):
    clock = stop_clock(monkeypatch, "grrm.tracking.console")
    progress = StepProgress(100, initial=0, description="grpo")
    for step in range(1, 101):
        clock.sleep(2)
        progress.update(step, loss=0.5, reward=None)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "grpo: step 1/100 loss 0.5, 3 min 18 s left"
    assert lines[1].startswith("grpo: step 11/100")
    assert lines[-1] == "grpo: step 100/100 loss 0.5"
    assert len(lines) == 11


def test_slow_steps_are_not_silent_for_longer_than_a_minute(monkeypatch, capsys):
    clock = stop_clock(monkeypatch, "grrm.tracking.console")
    progress = StepProgress(1000, initial=500, description="training")
    for step in (501, 502, 503):
        clock.sleep(45)
        progress.update(step)
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "training: step 501/1000",
        "training: step 503/1000",
    ]


def test_on_a_terminal_there_is_one_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress = StepProgress(4, initial=1, description="sft")
    progress.update(4, loss=0.25)
    progress.close()
    bar = capsys.readouterr().err
    assert "4/4" in bar
    assert "loss=0.25" in bar


@pytest.mark.parametrize(("seconds", "text"), [(41.6, "42 s"), (185, "3 min 05 s"), (7620, "2 h 07 min")])
def test_durations_read_naturally(seconds, text):
    assert format_seconds(seconds) == text
