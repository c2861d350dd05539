"""The pairwise judge over a model with known strengths, and a preference for a position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.judged_groups import group_of, judge_over
from support.rows import converted
from support.rows import group as group_row
from support.text_models import TIMEOUT, TextModel

from grrm.data.converters.gqm_pairs import convert_sft_pairwise
from grrm.gqm.groups import Group, Status
from grrm.gqm.prompts import pairwise_prompt
from grrm.judges.interface import GeneratedText, TokenChoices
from grrm.judges.registry import spec_of

STRENGTHS = st.lists(st.floats(-3, 3), min_size=2, max_size=5)


class BradleyTerryModel(TextModel):
    """Prefers A to B by the difference of their strengths, and A for its place by `bias`."""

    def __init__(self, strengths: dict[str, float], bias: float = 0.0, failing: Sequence[str] = ()) -> None:
        super().__init__(self._choice)
        self.strengths, self.bias, self.failing = strengths, bias, failing

    def generate_text(self, prompts: Sequence[str], **sampling: Any) -> list[GeneratedText]:
        assert (sampling["max_new_tokens"], sampling["top_logprobs"]) == (1, 20)
        return super().generate_text(prompts, **sampling)

    def _choice(self, prompt: str) -> GeneratedText:
        shown = sorted((prompt.index(f"\n{text}\n"), text) for text in self.strengths if f"\n{text}\n" in prompt)
        (_, first), (_, second) = shown
        if {first, second} & set(self.failing):
            return TIMEOUT
        odds = self.strengths[first] - self.strengths[second] + self.bias
        of_a = -math.log1p(math.exp(-odds))
        choices = (("A", of_a - 0.5), (" B", of_a - odds - 0.5), ("The", -9.0))
        return GeneratedText("A", "length", 1, (TokenChoices("A", choices),))


def judged(model: BradleyTerryModel, *groups: Group, **options: Any) -> Any:
    return judge_over(model, spec_of("pairwise").read(options)).judge(groups)


@given(STRENGTHS, st.floats(-5, 5))
def test_scores_are_the_strengths_whatever_the_place(values: list[float], bias: float) -> None:
    strengths = {f"text {number}": value for number, value in enumerate(values)}
    model = BradleyTerryModel(strengths, bias)
    (verdict,) = judged(model, group_of(list(strengths)))
    mean = sum(values) / len(values)
    assert verdict.scores == pytest.approx([10 / (1 + math.exp(mean - value)) for value in values])
    assert len(model.prompts) == verdict.attempts == len(values) * (len(values) - 1)


def test_ranking_follows_and_copies_share_it() -> None:
    model = BradleyTerryModel({"one": 0.0, "two": 1.0})
    first, second = judged(
        model, group_of(["one", "two", None, "one"]), group_of(["two", "one"]), max_new_tokens=99, retries=6
    )
    assert first.ranking == (("c1",), ("c0", "c3"))
    assert (first.statuses[2], first.scores[0]) == (Status.UNPARSABLE_CANDIDATE, first.scores[3])
    assert second.scores == pytest.approx((first.scores[1], first.scores[0]))
    assert "c1 over c0: +1.000" in first.analysis


def test_candidates_that_are_not_answered_about_leave_the_others_their_scores() -> None:
    strengths = {"one": 0.0, "two": 1.0, "three": -1.0}
    (verdict,) = judged(BradleyTerryModel(strengths, failing=["three"]), group_of(list(strengths)))
    assert verdict.statuses == (Status.SCORED, Status.SCORED, Status.JUDGE_TIMEOUT)
    assert verdict.scores[:2] == pytest.approx([10 / (1 + math.exp(0.5)), 10 / (1 + math.exp(-0.5))])
    (verdict,) = judged(BradleyTerryModel(strengths, failing=["one", "three"]), group_of(list(strengths)))
    assert set(verdict.statuses) == {Status.JUDGE_TIMEOUT}


def test_a_candidate_too_long_for_the_prompt_is_left_out() -> None:
    strengths = {"one": 0.0, "two": 1.0, "x" * 900: 2.0}
    (verdict,) = judged(BradleyTerryModel(strengths), group_of(list(strengths)), prompt_length=600)
    assert verdict.statuses == (Status.SCORED, Status.SCORED, Status.TOO_LONG)


def test_nothing_is_asked_where_there_is_no_pair_or_the_source_is_unsafe() -> None:
    model = BradleyTerryModel({"one": 0.0, "two": 1.0})
    single, unsafe = judged(model, group_of(["one", "one"]), group_of(["one", "two"], source="x\u202ey"))
    assert set(single.statuses) == {Status.SINGLE_CANDIDATE}
    assert set(unsafe.statuses) == {Status.UNSAFE_SOURCE}
    assert model.prompts == []


def test_a_letter_that_is_not_among_the_choices_counts_as_the_least() -> None:
    class Sure(BradleyTerryModel):
        def _choice(self, prompt: str) -> GeneratedText:
            shown_first = prompt.index("\none\n") < prompt.index("\ntwo\n")
            choices = (("A" if shown_first else "B", -0.1), ("x", -4.1))
            return GeneratedText("A", "length", 1, (TokenChoices("A", choices),))

    (verdict,) = judged(Sure({"one": 0.0, "two": 0.0}), group_of(["one", "two"]))
    assert verdict.scores == pytest.approx((10 / (1 + math.exp(-2)), 10 / (1 + math.exp(2))))

    class Mute(BradleyTerryModel):
        def _choice(self, prompt: str) -> GeneratedText:
            return GeneratedText("?", "length", 1, (TokenChoices("?", (("?", -0.1),)),))

    (verdict,) = judged(Mute({"one": 0.0, "two": 0.0}), group_of(["one", "two"]))
    assert set(verdict.statuses) == {Status.JUDGE_UNPARSABLE}


@pytest.mark.parametrize("rest", [[("B", -9999.0)], [("x", -9999.0)], [("B", -math.inf), ("x", -2000.0)]])
def test_a_letter_that_a_server_has_ruled_out_is_no_error(rest: list[tuple[str, float]]) -> None:
    """vLLM writes -9999 for what sampling leaves out; a low temperature gives numbers like it."""

    class Certain(BradleyTerryModel):
        def _choice(self, prompt: str) -> GeneratedText:
            if prompt.index("\none\n") < prompt.index("\ntwo\n"):
                choices = [("A", 0.0), *rest]
            else:
                choices = [("B", 0.0), *((piece.replace("B", "A"), logprob) for piece, logprob in rest)]
            return GeneratedText("A", "length", 1, (TokenChoices("A", tuple(choices)),))

    (verdict,) = judged(Certain({"one": 0.0, "two": 0.0}), group_of(["one", "two"]))
    assert verdict.scores == (10, 0)


def test_taught_rows_are_the_judges_questions(tmp_path: Path) -> None:
    rows = [group_row(src_text=f"text {number}", scores=[1, 5, 5]) for number in range(30)]
    taught = [row["messages"] for row in converted(convert_sft_pairwise, rows, tmp_path, pairs=5)]
    assert len(taught) == 60
    letters = {user["content"]: assistant["content"] for user, assistant in taught}
    for number in range(30):
        for other in "bc":
            asked = [pairwise_prompt(f"text {number}", both, "en", "de") for both in (("a", other), (other, "a"))]
            assert [letters[prompt] for prompt in asked if prompt in letters] in (["A"], ["B"])
            assert letters.get(asked[0], "B") == "B"
            assert letters.get(asked[1], "A") == "A"
    assert set(letters.values()) == {"A", "B"}
