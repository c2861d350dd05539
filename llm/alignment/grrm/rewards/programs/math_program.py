"""The library math-verify in a process of its own, so that a comparison without end can be killed: `math_program.py`.

Once the library is loaded it writes the line `{"ready": true}`, then for each line `{"id": …, "solutions": …,
"truth": …, "limit_s": …}` the line `{"id": …, "correct": …, "answer": …}`; where that fails, one with `error` instead.
The solutions are the same answer in several forms, any of which may be right.

It ends with its input, and by an alarm some time after a comparison's limit: nobody may be left to kill it.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from typing import Any

GRACE_S = 5


def main() -> int:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the system ends the process, even in the middle of an operation

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        import math_verify  # noqa: F401
    except ImportError as error:
        say({"error": _sentence(error)})
        return 1
    say({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        signal.alarm(math.ceil(request["limit_s"]) + GRACE_S)
        try:
            say({"id": request["id"], **_compared(request["solutions"], request["truth"])})
        except Exception as error:  # noqa: BLE001 - of this request; the next one may be fine
            say({"id": request["id"], "error": _sentence(error)})
        signal.alarm(0)
    return 0


def _compared(solutions: list[str], truth: str) -> dict[str, Any]:
    from math_verify import parse, verify

    # The library's own limits do not interrupt an operation.
    answers = [answer for solution in solutions if (answer := parse(solution, parsing_timeout=None))]
    if not answers:
        return {"correct": False, "answer": None}
    expected = parse(truth, parsing_timeout=None)
    correct = any(verify(expected, answer, timeout_seconds=None) for answer in answers)
    return {"correct": correct, "answer": str(answers[0][-1])}


def _sentence(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


if __name__ == "__main__":
    sys.exit(main())
