"""Is an answer right? Rules that compare what a solution ends in with the true answer, without a model.

Every rule takes the solution and the truth, both text, and says whether the answer is right and what it is. A solution
in which no answer can be found is wrong, and told apart by `answer` being None. No rule raises because of a solution:
where one cannot tell, the result says why.
"""

from __future__ import annotations

import logging
import os
import re
import string
import sys
import threading
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from grrm.errors import UserError
from grrm.gqm.groups import Status
from grrm.gqm.marks import cap_marks
from grrm.rewards.worker import Worker, WorkerFailure

logger = logging.getLogger(__name__)
MATH_PROGRAM = Path(__file__).parent / "programs" / "math_program.py"
MATH_LIMIT_S = 5.0  # of a comparison, in any thread
MATH_START_S = 60.0  # for loading the library
_MATH_TURN = threading.Lock()  # one comparison at a time
_ANSWER_TAG = re.compile(r"<(?P<closing>/?)answer>", re.IGNORECASE)
_ANSWER_LINE = re.compile(
    r"^[^\w\n]*(?:the\s+)?(?:final\s+)?answer(?:\s+is\b|[^\w\n]*:)[\s*_`:]*(\S.*)$", re.IGNORECASE | re.MULTILINE
)
_BOLD = string.whitespace + "*"  # what ends an answer in bold text
_HASHES = re.compile(r"####[ \t]*([^\n]+)")
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:/\d+)?")
_WRAPPER = re.compile(r"\\(?:text|mathrm|mathbf|textbf|operatorname)\s*\{([^{}]*)\}")
_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,\\!|\\,)(?=\d{3}(?!\d))")  # LaTeX's signs between the digits of a number
_SPACING = re.compile(r"\\[,;:! $]|\\(?:left|right|quad|displaystyle)\b|[$\s]+")
# A match starts only at the beginning of a run of name characters, or after a role: linear time on runs of hyphens.
_ROLE = re.compile(
    r"(?:(?<![\w'’-])|(?<=\sknight)|(?<=\sknave))(?:(?!\b[A-Z])[\w'’-])*"
    r"\b([A-Z][\w'’-]*)\s+is\s+an?\s+(knight|knave)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class RuleResult:
    """A rule's result on a solution: right or not, and the extracted answer, None if there is none.

    With a `failure` the rule could not tell, and `correct` means nothing.
    """

    correct: bool
    answer: str | None
    failure: Status | None = None


AnswerRule = Callable[[str, str], RuleResult]
RuleName = Literal["exact", "normalised", "gsm8k", "knights_and_knaves", "math"]


def final_answer(solution: str) -> str | None:
    """Return the answer that a solution marks; None without a mark.

    The last `\\boxed{…}`, else the last `<answer>…</answer>`, else the text after the last `####`, else the last line
    `Answer: …`.
    """
    boxed = _last_boxed(solution)
    if boxed is not None:
        return boxed.strip() or None
    tagged = _last_tagged(solution)
    if tagged is not None:
        return tagged.strip() or None
    for pattern, behind in ((_HASHES, None), (_ANSWER_LINE, _BOLD)):
        matches = pattern.findall(solution)
        if matches:
            return matches[-1].strip().rstrip(behind) or None
    return None


def exact_match(solution: str, truth: str) -> RuleResult:
    """The final answer, or a solution of one line without any mark, equals the truth but for surrounding blanks.

    The truth may be marked as a solution is, `\\boxed{4}`, in this rule and those below.
    """
    answer = _answer_or_line(solution)
    return RuleResult(answer is not None and answer in _readings(truth), answer)


def normalised_match(solution: str, truth: str) -> RuleResult:
    """As `exact_match` after `normalised`, numbers compared by value: `1,000`, `1000.0` and `$1000$` are the same."""
    answer = _answer_or_line(solution)
    return RuleResult(answer is not None and _is_same(answer, truth), answer)


def gsm8k(solution: str, truth: str) -> RuleResult:
    """The number after the last `####`, or the final answer's last number, has the truth's value (GSM8K).

    The truth is the number, or a whole GSM8K solution that ends in `#### NUMBER`. Raises UserError for another one.
    """
    if all(_value(normalised(reading)) is None for reading in _readings(truth)):
        raise UserError(
            f"The ground truth {truth[:200]!r} is no number, as gsm8k needs; use the rule math or normalised."
        )
    marked = _HASHES.findall(solution)
    numbers = _NUMBER.findall(_THOUSANDS.sub("", marked[-1] if marked else (final_answer(solution) or "")))
    return RuleResult(_is_same(numbers[-1], truth), numbers[-1]) if numbers else RuleResult(False, None)


def knights_and_knaves(solution: str, truth: str) -> RuleResult:
    """The answer calls everyone of the puzzle what the truth calls them, once each: `Zoey is a knight, …`.

    Raises UserError for a truth that calls nobody anything.
    """
    roles = _roles(truth)
    if not roles:
        raise UserError(
            f"The ground truth {truth[:200]!r} names no knight and no knave; write like 'Zoey is a knight'."
        )
    answer = final_answer(solution)
    if answer is None or (answered := _roles(answer)) is None:
        return RuleResult(False, answer)
    return RuleResult(answered == roles, answer)


def math_match(solution: str, truth: str) -> RuleResult:
    """The final answer is the truth by `normalised_match`, or equals it by the library math-verify (the extra `math`).

    In a solution without a mark the library takes the last mathematical expression. It works in a process of its own. A
    comparison that takes longer than MATH_LIMIT_S, such as that of a power tower, fails with JUDGE_TIMEOUT; one in
    which the process crashes, with JUDGE_UNREACHABLE. Raises ModuleNotFoundError without the library, and UserError
    where it cannot be loaded.
    """
    if find_spec("math_verify") is None:
        raise ModuleNotFoundError("No module named 'math_verify'", name="math_verify")
    answer = final_answer(solution)
    if answer is not None and _is_same(answer, truth):
        return RuleResult(True, answer)
    if not solution.strip():
        return RuleResult(False, None)
    is_plain = answer is None or _last_boxed(solution) is not None
    request = {
        "solutions": [solution] if is_plain else [f"\\boxed{{{answer}}}", answer],
        "truth": truth if _last_boxed(truth) is not None else f"\\boxed{{{final_answer(truth) or truth}}}",
        "limit_s": MATH_LIMIT_S,
    }
    try:
        with _MATH_TURN:
            worker = _math_worker(os.getpid())
            _load(worker)
            result = worker.ask(request, MATH_LIMIT_S)
    except WorkerFailure as failure:
        if failure.is_late:
            return RuleResult(False, answer, Status.JUDGE_TIMEOUT)
        logger.warning("math-verify failed on an answer: %s", failure)
        return RuleResult(False, answer, Status.JUDGE_UNREACHABLE)
    return RuleResult(result["correct"], result["answer"] or answer)


@cache
def _math_worker(process_id: int) -> Worker:
    """The worker of this process: a forked one has its own."""
    return Worker([sys.executable, str(MATH_PROGRAM)])


def _load(worker: Worker) -> None:
    try:
        worker.start(MATH_START_S)
    except WorkerFailure as failure:
        if failure.is_late:
            raise
        raise UserError(
            f"the rule math cannot load math-verify ({failure}): install it with `pip install 'paddle-grrm[math]'`"
        ) from failure


ANSWER_RULES: Mapping[RuleName, AnswerRule] = {
    "exact": exact_match,
    "normalised": normalised_match,
    "gsm8k": gsm8k,
    "knights_and_knaves": knights_and_knaves,
    "math": math_match,
}


def normalised(answer: str) -> str:
    """The answer without what does not change it: case, blanks, dollar signs, LaTeX's spacing, a full stop."""
    text = _THOUSANDS.sub("", _WRAPPER.sub(r"\1", unicodedata.normalize("NFKC", cap_marks(answer))))
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").replace("\\%", "%").replace("−", "-")
    return _SPACING.sub("", text).rstrip(".").casefold()


def _readings(truth: str) -> tuple[str, str]:
    """The truth as it is, and the answer that it marks if it is written like a solution."""
    return truth.strip(), final_answer(truth) or truth.strip()


def _is_same(answer: str, truth: str) -> bool:
    first, others = normalised(answer), [normalised(reading) for reading in _readings(truth)]
    value = _value(first)
    return first in others or (value is not None and value in map(_value, others))


def _value(text: str) -> Fraction | None:
    plain = re.sub(r"(?<=\d),(?=\d{3}(?:\D|$))", "", text)
    plain = re.sub(r"\\frac\{(-?\d+)\}\{(\d+)\}", r"\1/\2", plain)
    if len(plain) > 64 or not re.fullmatch(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:/\d+)?", plain):
        return None
    try:
        top, _, bottom = plain.partition("/")
        return Fraction(top) / Fraction(bottom or "1")
    except (ValueError, ZeroDivisionError):
        return None


def _answer_or_line(solution: str) -> str | None:
    answer = final_answer(solution)
    if answer is None and solution.strip() and "\n" not in solution.strip():
        return solution.strip()
    return answer


def _last_boxed(text: str) -> str | None:
    """Return the content of the last `\\boxed{…}`, braces inside balanced; None without one that is closed."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for end in range(start + len("\\boxed"), len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[start + len("\\boxed{") : end]
    return None


def _last_tagged(text: str) -> str | None:
    """Return the content of the last `<answer>…</answer>`, from its first opening tag; None without a closed one."""
    start, content = None, None
    for tag in _ANSWER_TAG.finditer(text):
        if not tag["closing"]:
            start = tag.end() if start is None else start
        elif start is not None:
            start, content = None, text[start : tag.start()]
    return content


def _roles(text: str) -> dict[str, str] | None:
    """Return the role of everyone named; None if someone is called both."""
    roles: dict[str, str] = {}
    for name, role in _ROLE.findall(text):
        if roles.setdefault(name.casefold(), role.lower()) != role.lower():
            return None
    return roles
