"""Expected scores, over a model whose distribution over scores is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.judged_groups import group_of, judge_over
from support.text_models import TIMEOUT, TextModel

from grrm.errors import UserError
from grrm.judges.interface import GeneratedText, TokenChoices
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.registry import spec_of
from grrm.judges.score_reading import TOP_LOGPROBS, WrittenScores, expected_scores, group_spans, single_span

Odds = dict[int, float]  # of scores 0 to 10
WEIGHTS = st.lists(st.floats(0, 1), min_size=11, max_size=11).filter(lambda weights: sum(weights) > 0.1)


def logs(probabilities: dict[str, float]) -> tuple[tuple[str, float], ...]:
    return tuple((piece, math.log(p)) for piece, p in probabilities.items() if p > 0)


def mean(odds: Odds) -> float:
    return sum(score * p for score, p in odds.items()) / sum(odds.values())


class DigitModel(TextModel):
    """Writes one score per candidate, the most probable; a token is a character, a digit may have its space.

    `odds[text]` are the probabilities of the scores of a translation. Prompts name their candidates as the judge's do;
    without names the reply is a single score.
    """

    def __init__(self, odds: dict[str, Odds], *, with_space: bool = False) -> None:
        super().__init__(self._scores)
        self.odds, self.with_space, self._behind = odds, with_space, None

    def generate_text(self, prompts: Sequence[str], **sampling: Any) -> list[GeneratedText]:
        self.reply = self._followed if sampling["max_new_tokens"] == 1 else self._scores
        return super().generate_text(prompts, **sampling)

    def _scores(self, prompt: str) -> GeneratedText:
        shown = sorted(
            (prompt.index(f"\n{text}\n"), odds) for text, odds in self.odds.items() if f"\n{text}\n" in prompt
        )
        tokens: list[TokenChoices] = []
        for number, (_, odds) in enumerate(shown):
            if "Translation A:" in prompt:
                label = f"{chr(ord('A') + number)}:{'' if self.with_space else ' '}"
                self._write(tokens, (", " if number else "Fine. 7 > 5\n\n") + label)
            tokens += self._score(odds, " " if self.with_space else "")
            self._behind = self._behind_one(odds) if tokens[-1].text.strip() == "1" else None
        self._write(tokens, ["<end>"])
        return GeneratedText("".join(token.text for token in tokens[:-1]), "stop", len(tokens), tuple(tokens))

    def _write(self, tokens: list[TokenChoices], pieces: Sequence[str]) -> None:
        """Tokens without an alternative, except to one behind a `1`."""
        for piece in pieces:
            tokens.append(TokenChoices(piece, self._behind or logs({piece: 1.0})))
            self._behind = None

    def _score(self, odds: Odds, space: str) -> list[TokenChoices]:
        first = {f"{space}{score}": odds[score] for score in range(10)} | {"x": 0.2}
        first[f"{space}1"] += odds[10]
        best = max(odds, key=lambda score: odds[score])
        tokens = [TokenChoices(f"{space}{str(best)[0]}", logs(first))]
        return [*tokens, TokenChoices("0", self._behind_one(odds))] if best == 10 else tokens

    def _behind_one(self, odds: Odds) -> tuple[tuple[str, float], ...]:
        both = odds[1] + odds[10]
        return logs({"0": 0.9 * odds[10] / both, ",": 0.4 * odds[1] / both, "\n": 0.5 * odds[1] / both, "5": 0.1})

    def _followed(self, prefix: str) -> GeneratedText:
        """The token behind a `1` in the place of the last score that the prefix begins."""
        assert prefix.endswith("1")
        texts = sorted(self.odds, key=lambda text: prefix.index(f"\n{text}\n"))
        letters = [letter for letter in "ABCD" if f"{letter}:" in prefix.rpartition("\n\n")[2]]
        text = texts[len(letters) - 1] if letters else next(one for one in texts if f"\n{one}\n" in prefix)
        return GeneratedText("", "length", 1, (TokenChoices("0", self._behind_one(self.odds[text])),))


def judged(judge: str, model: DigitModel, *texts: str, metrics: JudgeMetrics | None = None, **options: Any) -> Any:
    chosen = spec_of(judge).read({"score_reading": "expected", "retries": 0, **options})
    return judge_over(model, chosen, metrics=metrics).judge([group_of(texts)])[0]


def is_near(odds: Odds, score: float) -> bool:
    """`10` and `1` are not told apart where both are next to impossible: 9 times 1 %."""
    return abs(score - mean(odds)) <= (1e-6 if odds[1] + odds[10] >= 0.01 * sum(odds.values()) else 0.09)


@given(st.lists(WEIGHTS, min_size=2, max_size=4), st.booleans())
def test_a_score_is_the_mean_over_all_scores(weights: list[list[float]], with_space: bool) -> None:
    odds = [dict(enumerate(one)) for one in weights]
    texts = [f"text {number}" for number in range(len(odds))]
    model = DigitModel(dict(zip(texts, odds, strict=True)), with_space=with_space)
    verdict = judged("gqm", model, *texts, prompt_type="score")
    assert all(map(is_near, odds, verdict.scores))
    by_rank = [verdict.scores[int(name[1:])] for tier in verdict.ranking for name in tier]
    assert by_rank == sorted(verdict.scores, reverse=True)
    assert len(model.calls) <= 2
    assert {call["top_logprobs"] for call in model.calls} == {TOP_LOGPROBS}


@given(WEIGHTS)
def test_a_single_judges_score_is_one_too(weights: list[float]) -> None:
    odds = dict(enumerate(weights))
    assert is_near(odds, judged("sqm", DigitModel({"text": odds}), "text").scores[0])


@given(WEIGHTS)
def test_a_judge_of_single_digits_is_not_asked_for_tens(weights: list[float]) -> None:
    odds = {**dict(enumerate(weights[:10])), 10: 0.0}
    model = DigitModel({"text": odds, "other": odds})
    verdict = judged("gqm", model, "text", "other", prompt_type="score", score_reading="expected_digit")
    assert verdict.scores == (pytest.approx(mean(odds)),) * 2
    assert len(model.calls) == 1


def test_a_ten_of_such_a_judge_is_read_as_it_is_written() -> None:
    ten, metrics = {**dict.fromkeys(range(11), 0.0), 10: 1.0}, JudgeMetrics()
    verdict = judged(
        "gqm",
        DigitModel({"text": ten, "other": SURE}),
        "text",
        "other",
        metrics=metrics,
        prompt_type="score",
        score_reading="expected_digit",
    )
    assert verdict.scores == (10.0, pytest.approx(8.0))
    assert metrics.values()["scores_as_written"] == 1


SURE, UNSURE = {**dict.fromkeys(range(11), 0.0), 8: 1.0}, {**dict.fromkeys(range(11), 0.01), 8: 0.6, 9: 0.3}


def test_ties_of_the_text_are_broken_and_copies_share_a_score() -> None:
    model = DigitModel({"one": SURE, "two": UNSURE})
    assert judged("gqm", model, "one", "two", prompt_type="score", score_reading="text").ranking == (("c0", "c1"),)
    verdict = judged("gqm", model, "one", "two", "one", prompt_type="score")
    assert verdict.scores[0] == verdict.scores[2] == pytest.approx(8.0)
    assert verdict.ranking == (("c0", "c2"), ("c1",))  # 8.0 and 7.96


def test_permutations_average_expected_scores() -> None:
    model = DigitModel({"one": SURE, "two": UNSURE})
    verdict = judged("gqm", model, "one", "two", prompt_type="score", permutations=2, cache_size=8)
    assert verdict.scores == pytest.approx((8.0, mean(UNSURE)))
    assert len(verdict.order_scores) == 2


def test_large_groups_are_read_in_chunks() -> None:
    odds = {
        f"text {number}": {**dict.fromkeys(range(11), 0.0), 5: 0.9 - number / 10, 6: number / 10} for number in range(5)
    }
    verdict = judged("gqm", DigitModel(odds), *odds, prompt_type="score", max_candidates=3)
    assert [name for tier in verdict.ranking for name in tier] == ["c4", "c3", "c2", "c1", "c0"]


def test_without_probabilities_a_score_is_the_written_one_and_counted() -> None:
    blind, metrics = TextModel(lambda prompt: "**A**: 7, B: 2."), JudgeMetrics()
    assert judged("gqm", blind, "one", "two", prompt_type="score", metrics=metrics).scores == (7.0, 2.0)
    assert metrics.values()["scores_as_written"] == 2


def test_no_score_among_the_most_probable_tokens_is_none() -> None:
    tokens = [TokenChoices("7", logs({"x": 0.5, "12": 0.2, "05": 0.1}))]
    assert expected_scores(DigitModel({}), [WrittenScores("p", "7", tokens, (7.0,), [(0, 1)])]) == [(None,)]


def test_a_score_that_begins_with_a_zero_is_not_read_as_zero() -> None:
    tokens = [TokenChoices("0", logs({"0": 0.9, "1": 0.1})), TokenChoices("8", logs({"8": 1.0}))]
    assert expected_scores(DigitModel({}), [WrittenScores("p", "08", tokens, (8.0,), [(0, 2)])]) == [(None,)]


def test_a_one_that_nobody_follows_up_is_none() -> None:
    tokens = [TokenChoices("7", logs({"7": 0.5, "1": 0.4}))]
    assert expected_scores(TextModel(lambda prompt: TIMEOUT), [WrittenScores("p", "7", tokens, (7.0,), [(0, 1)])]) == [
        (None,)
    ]


def test_tokens_of_whole_numbers_need_no_further_digit() -> None:
    tokens = [TokenChoices("10", logs({"10": 0.5, "8": 0.25, "9,": 0.25})), TokenChoices("", logs({"": 1.0}))]
    (scores,) = expected_scores(DigitModel({}), [WrittenScores("p", "10", tokens, (10.0,), [(0, 2)])])
    assert scores == (pytest.approx(5 + 2 + 2.25),)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("B: 9, A: 10", ["10", "9", None]),
        ("A: 3\n\n### Scores:\n\n**A**: 4, `B`: **5**, C:6.\n\n---\n", ["4", "5", "6"]),
        ("A: 7.5, B: 7.0, C: 7/10", [None, None, "7"]),
        ("A：4，B：5，C： 6。", ["4", "5", "6"]),
        ("none", [None, None, None]),
        ("", [None, None, None]),
    ],
)
def test_scores_are_located_by_their_candidates(text: str, numbers: list[str | None]) -> None:
    spans = group_spans(text, 3)
    assert [span and text[slice(*span)] for span in spans] == numbers


@pytest.mark.parametrize(("text", "number"), [("It has 3.\n\n10\n", "10"), ("**7**", "7"), ("7.5", None), ("", None)])
def test_a_single_score_is_located(text: str, number: str | None) -> None:
    span = single_span(text)
    assert (span and text[slice(*span)]) == number


def test_replies_without_scores_have_no_expected_ones() -> None:
    with pytest.raises(UserError, match=r"'score_reading' is 'expected', but replies of prompt_type 'ranking' have no"):
        spec_of("gqm").read({"score_reading": "expected", "prompt_type": "ranking"})
    with pytest.raises(UserError, match=r"unknown judge option 'score_reading'"):
        spec_of("rubric").read({"score_reading": "expected"})
