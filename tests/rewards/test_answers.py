"""Rules on answers, and which reward the name of a data source leads to."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grrm.errors import UserError
from grrm.gqm.groups import TranslationTask
from grrm.rewards.answers import ANSWER_RULES, final_answer
from grrm.rewards.routing import RULE_OF, RewardRoutes

BOTH = "Ian is a knight, Zoey is a knave"


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        ("so \\boxed{\\frac{1}{2}} and \\boxed{4}", "4"),
        ("so \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("<answer> a </answer> then <answer>b</answer>", "b"),
        ("1 + 1\n#### 2", "2"),
        ("I think.\n**Final answer:** 12 cm", "12 cm"),
        ("The answer is 7.", "7."),
        ("Answer:\n**7**", "7"),
        ("**Answer: 7 ** \nDone.", "7"),
        ("<answer>a *</answer>", "a *"),
        ("The question is answered by others", None),
        ("no mark", None),
        ("\\boxed{never closed", None),
    ],
)
def test_the_answer_is_what_is_marked_last(solution, answer):
    assert final_answer(solution) == answer


@pytest.mark.parametrize(
    ("rule", "solution", "truth", "correct"),
    [
        ("exact", "\\boxed{x}", "x", True),
        ("exact", "\\boxed{X}", "x", False),
        ("normalised", "\\boxed{1,000.0}", "1000", True),
        ("normalised", "\\boxed{\\$18}", "18", True),
        ("normalised", "\\boxed{18}", "\\$18", True),
        ("normalised", "\\boxed{1{,}000{,}000}", "1,000,000", True),
        ("normalised", "\\boxed{(1{,}2)}", "(12)", False),
        ("gsm8k", "\\boxed{1{,}000}", "1000", True),
        ("gsm8k", "#### \\$1,\\!250", "1250", True),
        ("normalised", "\\boxed{\\dfrac{1}{2}}", "0.5", True),
        ("normalised", "\\boxed{\\frac{-1}{2}}", "-0.5", True),
        ("normalised", "\\boxed{-\\frac{-1}{2}}", "-0.5", False),
        ("normalised", "\\boxed{\\text{Paris}.}", "paris", True),
        ("normalised", "Paris", "paris", True),
        ("normalised", "I say\nParis", "paris", False),
        ("normalised", "\\boxed{1,5}", "15", False),
        ("gsm8k", "3 * 4\n#### $1,200", "1200", True),
        ("gsm8k", "3 * 4\n#### 12", "3 * 4 = 12\n#### 12.0", True),
        ("gsm8k", "#### 12 or 13", "12", False),
        ("gsm8k", "12", "12", False),
        ("exact", "#### 4", "\\boxed{4}", True),
        ("normalised", "\\boxed{4}", "2 + 2\n#### 4.0", True),
        ("gsm8k", "#### 4", "\\boxed{4}", True),
        ("knights_and_knaves", "<answer>(1) Zoey is a knave (2) Ian is a knight</answer>", BOTH, True),
        ("knights_and_knaves", "<answer>Zoey is a knight, Zoey is a knave</answer>", "Zoey is a knave", False),
        ("knights_and_knaves", "<answer>Zoey is a knave</answer>", BOTH, False),
        ("knights_and_knaves", "Zoey is a knave", "Zoey is a knave", False),
    ],
)
def test_a_rule_says_what_is_right(rule, solution, truth, correct):
    assert ANSWER_RULES[rule](solution, truth).correct is correct


@given(st.text(max_size=80), st.sampled_from([name for name in ANSWER_RULES if name != "math"]))
def test_no_solution_raises(text, name):
    for solution in (text, f"\\boxed{{{text}}}", f"#### {text}"):
        result = ANSWER_RULES[name](solution, "12" if name == "gsm8k" else "Ian is a knight")
        assert result.answer is not None or not result.correct


# The plain expressions of what is read faster: quadratic on long texts, equal on short ones.
TAGGED = re.compile("<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
ROLE = re.compile(r"\b([A-Z][\w'’-]*)\s+is\s+an?\s+(knight|knave)\b", re.IGNORECASE)
TAGS = st.lists(st.sampled_from(["<answer>", "</answer>", "</Answer>", "a", "b ", "\n"]), max_size=9).map("".join)
ROLES = st.lists(
    st.sampled_from(
        ["Zoey", "Ian", "-", "'", " ", " is a ", " is an ", "is", "knight", "knave", "7", "_", "é", ",", "\n", "s"]
    ),
    max_size=14,
).map("".join)


@given(TAGS)
def test_the_last_pair_of_tags_is_the_answer(text):
    assert final_answer(text) == (TAGGED.findall(text)[-1].strip() or None if TAGGED.search(text) else None)


@settings(max_examples=1000)
@given(ROLES)
@example("Zoey is a knight-Ian is a knave")
@example("Zoey is a knight is a knave")
@example("7-Zoey is a knight-7Ian is a knave, s-Ian is a knave")
def test_everyone_who_is_called_something_is_read(text):
    said = ROLE.findall(text)
    truth = ", ".join(f"{name} is a {role}" for name, role in said) or BOTH
    roles = {name.casefold(): role for name, role in said}
    contradicts = any(roles[name.casefold()] != role for name, role in said)
    if not contradicts:
        assert ANSWER_RULES["knights_and_knaves"](f"<answer>{text}</answer>", truth).correct is bool(said)


@pytest.mark.parametrize(
    ("rule", "message"), [("knights_and_knaves", "names no knight and no knave"), ("gsm8k", "is no number")]
)
def test_a_truth_by_which_no_answer_is_right_is_an_error(rule, message):
    with pytest.raises(UserError, match=message):
        ANSWER_RULES[rule]("x", "y")


@pytest.mark.parametrize(
    ("source", "reward"),
    [
        ("openai/gsm8k", "gsm8k"),
        ("my openai/gsm8k", "prime_math"),
        (" Grade\n", "grade"),
        ("upgrade", "prime_math"),
        ("polaris_tinyv", "tinyv"),
        ("polaris_mathverify_tinyv", "math_verify"),
        ("HardVerify-Math", "prime_math"),
        ("numina_prime", "prime_math"),
        ("anything", "prime_math"),
    ],
)
def test_data_sources_lead_to_rewards_as_in_the_original(source, reward):
    assert RewardRoutes().route(source) == reward


def test_rewards_without_a_judge_have_a_rule():
    assert set(RULE_OF.values()) <= {*ANSWER_RULES, "grade"}


def test_own_routes_come_first_and_translations_are_theirs():
    routes = RewardRoutes({"flores*": "chrf", "openai/*": "tinyv", "openai/gsm8k": "grade"})

    def route(source, trg_lang=""):
        return routes.of_task(TranslationTask("x", "en", trg_lang, "y", source))

    assert [route(name) for name in ("openai/gsm8k", "a_tinyv", "flores-200", "b")] == [
        "tinyv",
        "tinyv",
        "chrf",
        "prime_math",
    ]
    assert [route(name, "de") for name in ("translation", "flores-200", "a_tinyv")] == [
        "translation",
        "chrf",
        "translation",
    ]
