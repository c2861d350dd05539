"""A judge that sees a translation as often as it was sampled: what it sees, and one outcome for all copies."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.judged_groups import ModelOf, group_of, judge_over, shown_in

from grrm.gqm.groups import Status
from grrm.judges.gqm import GQMOptions
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.permute import candidate_orders
from grrm.judges.spec import read_options


def judged(model, texts, metrics=None, **options):
    values = {"show_copies": True, "max_candidates": 8, "retries": 0, **options}
    return judge_over(model, read_options(GQMOptions, values), metrics=metrics).judge([group_of(texts)])[0]


def by_place(place, text):
    return place


def how_often(texts):
    """A judge that goes by how many say the same, which it could not if it saw every translation once."""
    return [texts.count(text) for text in texts]


def test_copies_are_shown_in_the_order_they_came_and_share_the_mean_of_their_scores():
    model = ModelOf(by_place)
    verdict = judged(model, ["a", "bb", None, "a", "c"])
    assert shown_in(model.prompts[0]) == ["a", "bb", "a", "c"]
    assert verdict.scores == (1.0, 1.0, None, 1.0, 3.0)
    kinds = [Status.SCORED, Status.SCORED, Status.UNPARSABLE_CANDIDATE, Status.DUPLICATE, Status.SCORED]
    assert list(verdict.statuses) == kinds
    assert verdict.ranking == (("c4",), ("c0", "c1", "c3"))


@pytest.mark.parametrize("options", [{}, {"permutations": 3}, {"shuffle": True}, {"cache_size": 4}])
def test_how_often_a_translation_was_sampled_can_count(options):
    assert judged(ModelOf(score_all=how_often), ["a", "b", "a", "a"], **options).scores == (3.0, 1.0, 3.0, 3.0)
    assert judged(ModelOf(score_all=how_often), ["a", "b", "a"], show_copies=False).scores == (1.0, 1.0, 1.0)


def test_where_copies_do_not_fit_every_translation_is_shown_once():
    model = ModelOf(by_place)
    assert judged(model, ["a", "b", "a", "b", "c"], max_candidates=4).scores == (0.0, 1.0, 0.0, 1.0, 2.0)
    assert shown_in(model.prompts[0]) == ["a", "b", "c"]


def test_copies_of_one_translation_have_nothing_to_be_compared_with():
    model = ModelOf(by_place)
    assert set(judged(model, ["a", "a", None]).statuses) == {Status.SINGLE_CANDIDATE, Status.UNPARSABLE_CANDIDATE}
    assert model.calls == []


def prompt_size(texts, **options):
    """Characters of the judge's prompt, which are the tokens of these models."""
    model = ModelOf(by_place)
    judged(model, texts, **options)
    return len(model.prompts[0])


@pytest.mark.parametrize("too_long", ["drop_longest", "refuse"])
def test_where_a_prompt_with_copies_is_too_long_one_without_is_asked_before_anything_is_lost(too_long):
    texts = ["a", "x" * 300, "b", "x" * 300]
    room = prompt_size(texts, show_copies=False)
    verdict = judged(ModelOf(by_place), texts, prompt_length=room, too_long=too_long)
    assert verdict.scores == (0.0, 1.0, 2.0, 1.0)


def test_where_that_is_too_long_as_well_all_copies_of_the_longest_are_left_out():
    texts = ["a", "x" * 300, "b", "x" * 300]
    verdict = judged(ModelOf(by_place), texts, prompt_length=prompt_size(["a", "b"]) + 20)
    assert [verdict.statuses[k] for k in (1, 3)] == [Status.TOO_LONG] * 2
    assert verdict.scores == (0.0, None, 1.0, None)


def test_an_order_with_an_unreadable_reply_counts_for_no_copy():
    metrics = JudgeMetrics()
    model = ModelOf(score_all=lambda texts: [None if texts[0] == "b" else 5 - 3 * (text == "b") for text in texts])
    assert judged(model, ["a", "b", "a"], metrics, permutations=3).scores == (5.0, 2.0, 5.0)
    assert metrics.values()["order_failures"] == 1


def test_the_cache_tells_apart_how_often_a_translation_was_sampled():
    model = ModelOf(score_all=how_often)
    judge = judge_over(model, GQMOptions(show_copies=True, cache_size=8, retries=0))
    verdicts = judge.judge([group_of(["a", "b", "a"], "x"), group_of(["a", "b"], "y"), group_of(["a", "b", "a"], "z")])
    assert [verdict.scores for verdict in verdicts] == [(2.0, 1.0, 2.0), (1.0, 1.0), (2.0, 1.0, 2.0)]
    assert len(model.prompts) == 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=8), st.integers(1, 5), st.integers(0, 3))
def test_copies_have_one_outcome_whatever_the_judge_thinks_of_places(texts, permutations, seed):
    verdict = judged(ModelOf(by_place), texts, permutations=permutations, seed=seed)
    for text in set(texts):
        assert len({score for score, other in zip(verdict.scores, texts, strict=True) if other == text}) == 1


@pytest.mark.parametrize(
    ("texts", "n_different"),
    [(["a", "a", "b"], 3), (["foo", "foo", "1/foo"], 3), (["foo", "foo", "1/foo", "x"], 12), (["a", "a"], 1)],
)
def test_orders_that_differ_only_in_which_copy_stands_where_are_asked_once(texts, n_different):
    """A text that looks like the name of another one's copy once made the search for more orders endless."""
    orders = candidate_orders(group_of(["a"]).task, texts, 64)
    assert len({tuple(texts[k] for k in order) for order in orders}) == len(orders) == n_different


def test_orders_of_distinct_candidates_are_what_they_were_before_copies_could_be_shown():
    assert candidate_orders(group_of(["a"]).task, ["a", "bb", "c"], 2, seed=1) == [(0, 2, 1), (1, 2, 0)]
