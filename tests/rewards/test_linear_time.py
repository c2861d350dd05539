"""Reading what a model wrote takes CPU time in proportion to its length, whatever a degenerate policy repeats."""

from __future__ import annotations

import sys
import time
import unicodedata
from functools import partial
from inspect import getmembers, isfunction, signature

import pytest

from grrm.data.held_out import comparable
from grrm.gqm import compat, error_lines, extraction, fences, grammar, groups, marks, rubric, terms, verification
from grrm.gqm.extraction import EXTRACTOR_TYPES
from grrm.gqm.fences import Guard
from grrm.rewards import answers, ranking_accuracy

LENGTH = 40_000  # characters
FLOOR_S = 0.04  # of CPU time: what takes less is not worth a question
GROWTH = 8.0  # of CPU time where the text is four times as long: 4 for linear, 16 for quadratic
TRUTH = "Zoey is a knight, Ian is a knave"
GOLD = {"A": 3, "B": 2}

SHAPES = {
    "hyphens": "a-",
    "role": "Zoey is a knight-",
    "half a role": "Zoey is a ",
    "errors": 'major: "is"\n',
    "quotes": 'minor: "',
    "open tags": "<answer>",
    "combining marks": "\u0301\u0323",
    "half-width marks": "\uff9e\u0301",
    "Tibetan vowels": "\u0f73",
    "blanks": " ",
    "newlines": "\n",
    "hashes": "#### ",
    "digits": "9",
    "fractions": "1/",
    "answer lines": "The final answer:*\n",
    "answer": "answer is ",
    "boxed": "\\boxed{\\frac{",
    "wrappers": "\\text {",
    "scores": "A: 1, B: 2, ",
    "ranking": "A > B = ",
    "bold": "**_`1",
    "totals": "Total Score: [",
    "total": "total score is out of ",
    "backticks and a name": "```text\n",
    "negations": "not at all true never ",
    "n't": "n't don't ",
    "control tokens": "<|im_end|>",
    "tags": "</model_answer ",
    "translation lines": "Translation A:",
    "tied": "A: 0 | B - 10 ",
    "half a token": "<|",
    "snakes": "<a_",
    "gaps": "Translation\t*",
    "one long line": "A 1\u2028",
    "articles": "a  ",
    "question lines": "**Question::\n",
    "zero width": "\u200ba\u00ad",
    "parted": "A\\1",
    "parted fractions": "\\½A",
    "parted look-alikes": "А\\①",
    "parted compounds": "\\ﷺ",
    "a label a line": "A\n1\\",
    "ordinals": "1st_0 / 2nd_10 ",
    "without spaces": "A最后得到了0分",
}
# Read as they are, and where a reader looks for an answer, a line of scores, or the rest of a text.
PLACES = ("{}", "Total Score: \\boxed{{{}}}", "Answer: true\n<answer>{}x</answer>\nA: 1, B: 2")


def unsafe_reason(text):
    """Ask a guard that has not seen the text before: it has a token of its own."""
    return Guard(frozenset([f"<{time.perf_counter_ns()}>"]), by_position=True).unsafe_reason(text)


READERS = {
    **{
        rule.__name__: partial(rule, truth="12" if name == "gsm8k" else TRUTH)
        for name, rule in answers.ANSWER_RULES.items()
        if name != "math"  # the library works in a process of its own, which has a limit of time
    },
    "final_answer": answers.final_answer,
    "normalised": answers.normalised,
    **{
        f"parse_verdict {mode} {kind}": partial(grammar.parse_verdict, n_candidates=2, prompt_type=kind, mode=mode)
        for mode in ("exact", "tolerant", "compat")
        for kind in ("score", "ranking", "ranking_score")
    },
    **{f"parse_sqm {mode}": partial(grammar.parse_sqm, mode=mode) for mode in ("exact", "tolerant", "compat")},
    "behind_thoughts": grammar.behind_thoughts,
    "reads_as_positions": grammar.reads_as_positions,
    **{
        f"extract_translation {kind}": partial(extraction.extract_translation, extractor_type=kind)
        for kind in EXTRACTOR_TYPES
    },
    "ranking_to_scores": groups.ranking_to_scores,
    **{f"parse_total {mode}": partial(rubric.parse_total, mode=mode) for mode in ("exact", "tolerant", "compat")},
    "parse_errors": partial(error_lines.parse_errors, translation=TRUTH),
    "imitates_rubric": rubric.imitates_rubric,
    **{
        f"{read.__name__} {think}": partial(read, think=think)
        for read in (verification.parse_verification, verification.contains_true)
        for think in (False, True)
    },
    "leaves_its_tag": verification.leaves_its_tag,
    "cap_marks": marks.cap_marks,
    "comparable": comparable,
    "skeleton": fences.skeleton,
    "has_term": partial(terms.has_term, term=TRUTH),
    "terms_in": partial(terms.terms_in, terms=((TRUTH, ("世",)), ("世", (TRUTH,)))),
    "read_terms": lambda text: terms.read_terms({"a": text}),
    "unsafe_reason": unsafe_reason,  # all that the guard does with a text
    **{
        f"{read.__name__} {kind}": partial(read, prompt_type=kind, n_candidates=2)
        for read in (compat.gqm_extract_score, compat.group_extract_scores)
        for kind in ("score", "ranking", "ranking_score")
    },
    **{name: getattr(compat, name) for name in ("last_line", "parse_score_text", "sqm_extract_score")},
    **{
        name: partial(getattr(ranking_accuracy, name), ground_truth=GOLD)
        for name in (
            "ranking_reward",
            "ranking_reward_no_cot",
            "ranking_reward_zero",
            "ranking_score_reward",
            "ranking_score_reward_no_cot",
            "score_ordering_reward",
            "score_reward",
        )
    },
    "is_ranking_of": partial(ranking_accuracy.is_ranking_of, n_candidates=2),
}
# They take text that is not a model's: a name out of a list, the parts of a prompt.
OTHERS = {"math_match", "rubric_prompt", "verifier_prompt"}


@pytest.fixture(autouse=True)
def untraced():
    """Coverage's tracer would take most of the time that is measured; `no_cover` leaves one of a worker's two."""
    tracer = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(tracer)


def cpu_seconds(read, text):
    start = time.process_time()
    read(text)
    return time.process_time() - start


def text_of(shape, place, length):
    """Text of `length` characters once readers have normalised it: a ligature may become twenty."""
    unit = SHAPES[shape]
    length = length * len(unit) // len(unicodedata.normalize("NFKC", unit))
    return place.format((unit * (length // len(unit) + 1))[:length])


@pytest.mark.parametrize("shape", SHAPES)
def test_four_times_the_text_takes_no_sixteen_times_the_time(shape):
    slow = {}
    for place in PLACES:
        short, long = (text_of(shape, place, length) for length in (LENGTH // 4, LENGTH))
        for name, read in READERS.items():
            if name == "unsafe_reason" and place != PLACES[0]:
                continue  # the guard looks for no answer
            if cpu_seconds(read, long) > FLOOR_S:
                least = [min(cpu_seconds(read, text) for _ in range(2)) for text in (short, long)]
                if least[1] > max(FLOOR_S, GROWTH * least[0]):
                    slow[name, place] = least
    assert not slow


def test_every_reader_of_text_is_measured():
    modules = (
        answers,
        compat,
        error_lines,
        extraction,
        grammar,
        fences,
        ranking_accuracy,
        groups,
        marks,
        rubric,
        terms,
        verification,
    )
    public = {
        name
        for module in modules
        for name, member in getmembers(module, isfunction)
        if member.__module__ == module.__name__ and not name.startswith("_")
        if next(iter(signature(member).parameters.values()), None) is not None
        and next(iter(signature(member).parameters.values())).annotation == "str"
    }
    others = {"unsafe_reason", "read_terms", "comparable"}
    assert public | others == {name.partition(" ")[0] for name in READERS} | OTHERS


def test_the_measure_tells_what_is_quadratic():
    def quadratic(text):
        return sum(text.count("b", start) for start in range(0, len(text), 10))

    short, long = (min(cpu_seconds(quadratic, "a" * n) for _ in range(2)) for n in (LENGTH, 4 * LENGTH))
    assert long > GROWTH * short
