"""The rule `math`: the library in a process of its own, whose deadline holds in every thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from grrm.entry import run_main
from grrm.errors import UserError
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask
from grrm.judges.registry import open_judge
from grrm.rewards import answers
from grrm.rewards.answers import RuleResult, math_match
from grrm.rewards.rule_rewards import rule_reward_function
from grrm.rewards.worker import Worker

TOWER = "so $\\boxed{9^{9^{9^{9}}}}$"  # the library computes it in one operation, which no signal interrupts


@pytest.fixture(autouse=True)
def library():
    pytest.importorskip("math_verify")


@pytest.fixture
def limit(monkeypatch):
    """A short limit, with the library loaded."""
    assert not math_match("\\boxed{1}", "2").correct
    monkeypatch.setattr(answers, "MATH_LIMIT_S", 0.5)


def pid():
    return answers._math_worker(os.getpid())._process._popen.pid


def in_a_thread(act):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act).result(120)


@pytest.mark.parametrize(
    ("solution", "truth", "found"),
    [
        ("so $\\boxed{\\frac{2}{4}}$", "1/2", RuleResult(True, "\\frac{2}{4}")),
        ("so $\\boxed{3}$", "1/2", RuleResult(False, "3")),
        ("it is $x + 1$", "\\boxed{1 + x}", RuleResult(True, "x + 1")),
        (TOWER, "9^{9^{9^{9}}}", RuleResult(True, "9^{9^{9^{9}}}")),
        ("I do not know", "1", RuleResult(False, None)),
        ("3 + 4\n<answer>{2, 1}</answer>", "\\{1, 2\\}", RuleResult(True, "{2, 1}")),
        ("3 + 4\nThe answer is 7 because of that.", "7.0", RuleResult(True, "7 because of that.")),
        ("Answer: $\\sqrt{18}$", "way\n#### 3\\sqrt{2}", RuleResult(True, "\\sqrt{18}")),
        ("\\boxed{\udc80\n1}", "2", RuleResult(False, "\udc80 1")),
    ],
)
def test_mathematics_is_compared_by_the_library(solution, truth, found):
    assert math_match(solution, truth) == found


@pytest.mark.parametrize("run", [in_a_thread, lambda act: act()])
def test_a_power_tower_costs_the_limit_and_the_next_answer_has_a_new_process(limit, run, monkeypatch):
    before = pid()
    assert run(lambda: math_match(TOWER, "2")) == RuleResult(False, "9^{9^{9^{9}}}", Status.JUDGE_TIMEOUT)
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)
    monkeypatch.setattr(answers, "MATH_LIMIT_S", 60.0)
    assert run(lambda: math_match("\\boxed{1 + 1}", "2")) == RuleResult(True, "1 + 1")


def test_threads_take_turns_at_one_process():
    def right(number):
        return math_match(f"\\boxed{{{number} + 1}}", str(number + 1)).correct

    right(0)
    before = pid()
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(right, range(40)))
    assert pid() == before


def test_a_crash_is_a_failure_and_the_next_answer_has_a_new_process(monkeypatch, caplog):
    class Dying(Worker):
        def ask(self, request, deadline_s):
            os.kill(self._process._popen.pid, signal.SIGKILL)
            return super().ask(request, deadline_s)

    worker = Dying([sys.executable, str(answers.MATH_PROGRAM)])
    monkeypatch.setattr(answers, "_math_worker", lambda process_id: worker)
    assert math_match("\\boxed{1 + 1}", "2") == RuleResult(False, "1 + 1", Status.JUDGE_UNREACHABLE)
    assert "it ended with status -9" in caplog.text
    monkeypatch.undo()
    assert math_match("\\boxed{1 + 1}", "2").correct


def test_text_that_is_the_truth_is_right_without_the_library(monkeypatch):
    monkeypatch.setattr(answers, "_math_worker", lambda process_id: Worker(["false"]))
    assert math_match("<answer>Paris</answer>", "paris") == RuleResult(True, "Paris")


def test_an_undecided_answer_has_a_status_and_no_score(limit):
    found = rule_reward_function("math")(TOWER, "2")
    assert (found.valid_answer, found.status) == (False, Status.JUDGE_TIMEOUT)
    texts = [TOWER, "\\boxed{2}", "\\boxed{3}", None]
    candidates = tuple(Candidate(str(i), text or "", text) for i, text in enumerate(texts))
    group = Group("g", TranslationTask("1 + 1?", "", "", "2"), candidates)
    (verdict,) = in_a_thread(lambda: open_judge("answer", {"rule": "math"}).judge([group]))
    assert verdict.scores == (None, 10.0, 0.0, None)
    assert verdict.statuses == (
        Status.JUDGE_TIMEOUT,
        Status.SCORED,
        Status.SCORED,
        Status.UNPARSABLE_CANDIDATE,
    )


def test_the_program_ends_by_itself_where_nobody_is_left_to_kill_it():
    program = answers.MATH_PROGRAM.read_text().replace("GRACE_S = 5", "GRACE_S = 0")
    started = [sys.executable, "-c", program]
    request = f'{{"id": 1, "solutions": ["{TOWER}"], "truth": "2", "limit_s": 1}}'.replace("\\", "\\\\")
    done = subprocess.run(started, input=request, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ('{"ready": true}\n', -signal.SIGALRM)


def test_without_the_library_the_command_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(SystemExit):
        run_main(lambda: math_match("4", "4"))
    assert "pip install 'paddle-grrm[math]'" in capsys.readouterr().err


def test_a_library_that_cannot_be_loaded_is_one_sentence(monkeypatch):
    program = 'print(\'{"error": "ImportError: no antlr4"}\')'
    monkeypatch.setattr(answers, "_math_worker", lambda process_id: Worker([sys.executable, "-c", program]))
    with pytest.raises(UserError, match=r"cannot load math-verify \(ImportError: no antlr4\): install it"):
        math_match("4", "4")
