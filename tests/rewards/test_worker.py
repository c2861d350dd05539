"""A program in a process of its own: its answers, and what is said of one that fails."""

from __future__ import annotations

import sys

import pytest

from grrm.rewards.worker import Worker, WorkerFailure

READY = "import json, sys; print(json.dumps({'ready': True}), flush=True); "
ANSWER = READY + "r = json.loads(sys.stdin.readline()); "
PATIENCE_S = 60.0


def worker(program: str) -> Worker:
    return Worker([sys.executable, "-c", program])


def test_a_request_has_the_answer_to_it_and_each_its_own_number():
    asked = worker(READY + "[print(line, end='', flush=True) for line in sys.stdin]")
    asked.start(PATIENCE_S)
    assert asked.ask({"text": "ä"}, PATIENCE_S) == {"id": 1, "text": "ä"}
    asked.start(PATIENCE_S)  # which leaves it running
    assert asked.ask({"text": "b"}, PATIENCE_S) == {"id": 2, "text": "b"}
    asked.close()


@pytest.mark.parametrize(
    ("program", "cause"),
    [
        ("import sys; sys.exit('boom')", r"^it ended with status 1 \(boom\)$"),
        ("import os; os._exit(3)", "^it ended with status 3$"),
        ("print('{}')", "^it does not say that it is ready$"),
        ('print(\'{"error": "no library"}\')', "^no library$"),
        ("print('[]')", "^it answered what is no JSON object$"),
        ("print('{')", "^it answered what is no JSON object$"),
    ],
)
def test_a_program_that_does_not_start_says_why(program, cause):
    with pytest.raises(WorkerFailure, match=cause) as caught:
        worker(program).start(PATIENCE_S)
    assert not caught.value.is_late


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        ("print(json.dumps({'id': r['id'], 'error': 'too deep'}))", "^too deep$"),
        ("print(json.dumps({'id': r['id'] + 1}))", "^it answered another request$"),
        ("sys.exit('first\\n\\nlast ')", r"^it ended with status 1 \(last\)$"),
    ],
)
def test_a_request_that_fails_says_why(answer, cause):
    asked = worker(ANSWER + answer)
    asked.start(PATIENCE_S)
    with pytest.raises(WorkerFailure, match=cause):
        asked.ask({}, PATIENCE_S)
    asked.close()


def test_a_late_answer_ends_the_process_and_the_next_start_makes_another():
    asked = worker(ANSWER + "import time; time.sleep(600)")
    asked.start(PATIENCE_S)
    with pytest.raises(WorkerFailure, match="it did not answer within") as caught:
        asked.ask({}, 0.01)
    assert caught.value.is_late
    asked.start(PATIENCE_S)
    asked.close()


def test_a_program_that_does_not_read_a_long_request_is_late_too():
    asked = worker(READY + "import time; time.sleep(20)")
    asked.start(PATIENCE_S)
    with pytest.raises(WorkerFailure, match="it did not answer within") as caught:
        asked.ask({"text": "x" * 2**20}, 0.01)
    assert caught.value.is_late
