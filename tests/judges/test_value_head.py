"""A reward model's numbers as verdicts: differences kept, what falls outside clipped, failures without a number."""

from __future__ import annotations

import logging
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.judged_groups import group_of

from grrm.cli.judge_options import ChosenJudge
from grrm.cli.verdict_columns import judged as columns_of
from grrm.gqm.groups import Status, TranslationTask
from grrm.inference.rank import group_of as ranked_group
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.value_head import RewardModelJudge

NUMBERS = st.floats(-50, 50, width=32)


class Numbers:
    """A reward model that gives each text the number it spells, or TOO_LONG for "long"; keeps what it was shown."""

    def __init__(self):
        self.shown = []

    def score(self, groups):
        self.shown += [list(texts) for _, texts in groups]
        return [[Status.TOO_LONG if text == "long" else float(text) for text in texts] for _, texts in groups]


def judged(texts, **options):
    return RewardModelJudge(Numbers(), **options).judge([group_of(texts)])[0]


def test_scores_keep_the_differences_and_the_mean_is_in_the_middle():
    verdict = judged(["101", "99", "100.5", "99.5"])
    assert verdict.scores == (6.0, 4.0, 5.5, 4.5)
    assert verdict.ranking == (("c0",), ("c2",), ("c3",), ("c1",))
    assert verdict.attempts == 0


def test_what_is_clipped_is_counted_and_still_ranked():
    metrics = JudgeMetrics()
    verdict = judged(["-20", "-10", "0", "20", "10"], metrics=metrics)
    assert verdict.scores == (0.0, 0.0, 5.0, 10.0, 10.0)
    assert verdict.ranking == (("c3",), ("c4",), ("c2",), ("c1",), ("c0",))
    assert metrics.values()["clipped_scores"] == 4
    assert metrics.values()["scored_groups"] == 1


def test_a_scale_keeps_large_differences_apart():
    verdict = judged(["-20", "-10", "0", "20", "10"], score_scale=0.25)
    assert verdict.scores == (0.0, 2.5, 5.0, 10.0, 7.5)


def test_a_notable_share_of_clipped_scores_is_warned_of_once(caplog):
    judge, quiet = RewardModelJudge(Numbers(), "rm"), RewardModelJudge(Numbers(), warns=False)
    with caplog.at_level(logging.WARNING):
        for _ in range(200):
            judge.judge([group_of(["-20", "20"])])
            quiet.judge([group_of(["-20", "20"])])
    (message,) = caplog.messages
    assert "judge rm: 100 of 100 scores were clipped" in message
    assert "score_scale to less than 1" in message


def test_few_clipped_scores_are_not_warned_of(caplog):
    judge = RewardModelJudge(Numbers())
    judge.judge([group_of(["1", "2"])] * 100 + [group_of(["-20", "20"])])
    assert caplog.messages == []
    assert judge.metrics.values()["clipped_scores"] == 2


def test_the_summary_of_a_ranking_counts_clipped_scores_with_the_remedy(capsys):
    metrics, group = JudgeMetrics(), ranked_group(0, TranslationTask("x", "de", "en"), ["-20", "20"])
    for scale, told in ((1.0, True), (0.1, False)):
        judge = RewardModelJudge(Numbers(), "rm", score_scale=scale, metrics=metrics)
        columns_of(ChosenJudge(lambda judge=judge: judge, {}), [group], 8, metrics, {})
        assert ("2 of 2 scores were clipped" in capsys.readouterr().err) == told


@settings(max_examples=60, deadline=None)
@given(numbers=st.lists(NUMBERS, min_size=2, max_size=6), data=st.data(), show_copies=st.booleans())
def test_order_does_not_matter_and_a_copy_scores_as_its_original(numbers, data, show_copies):
    texts = [repr(number) for number in numbers]
    order = data.draw(st.permutations(range(len(texts))))
    scores = judged(texts, show_copies=show_copies).scores
    permuted = judged([texts[i] for i in order], show_copies=show_copies).scores
    for place, i in enumerate(order):
        assert permuted[place] == (None if scores[i] is None else pytest.approx(scores[i], abs=1e-9))
        assert scores[i] == scores[texts.index(texts[i])]


def test_copies_count_in_the_mean_and_are_shown_on_request():
    for show_copies, shown in ((False, ["3", "0"]), (True, ["3", "3", "0"])):
        judge = RewardModelJudge(Numbers(), show_copies=show_copies)
        (verdict,) = judge.judge([group_of(["3", "0", "3"])])
        assert verdict.scores == (6.0, 3.0, 6.0)
        assert verdict.statuses == (Status.SCORED, Status.SCORED, Status.DUPLICATE)
        assert sorted(judge.scorer.shown[0]) == sorted(shown)


def test_a_candidate_without_a_number_has_a_status_and_does_not_move_the_others():
    verdict = judged(["4", None, "long", " \n", "2", "nan", "long"])
    assert verdict.scores == (6.0, None, None, None, 4.0, None, None)
    assert [status.value for status in verdict.statuses] == [
        "scored",
        "unparsable_candidate",
        "too_long",
        "unparsable_candidate",
        "scored",
        "judge_unparsable",
        "too_long",
    ]
    assert verdict.ranking == (("c0",), ("c4",))


@pytest.mark.parametrize("texts", [["1"], ["1", "1"], ["1", None], ["1", "inf"], ["1", "long"]])
def test_a_single_number_compares_nothing(texts):
    verdict = judged(texts)
    assert set(verdict.scores) == {None}
    assert verdict.statuses[0] is Status.SINGLE_CANDIDATE
    assert verdict.ranking is None


def test_groups_without_anything_to_compare_are_not_asked_about():
    judge = RewardModelJudge(Numbers())
    verdicts = judge.judge([group_of(["1"]), group_of(["2", "4"]), group_of([None, " "])])
    assert judge.scorer.shown == [["2", "4"]]
    assert verdicts[1].scores == (4.0, 6.0)
    assert verdicts[2].statuses == (Status.UNPARSABLE_CANDIDATE,) * 2
    assert math.isclose(judge.metrics.values()["scored_groups"], 1)
