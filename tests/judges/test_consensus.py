"""The judge `consensus`: the formula written as loops, copies, order, and groups without anything to agree with."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.judged_groups import group_of

from grrm.errors import UserError
from grrm.gqm.groups import Status
from grrm.judges import consensus
from grrm.judges.consensus import ConsensusJudge, chrf_table
from grrm.judges.registry import open_judge
from grrm.judges.text_metric import METRICS, sentence_metric

TEXT = st.text("ab c,.é世", max_size=12)
GROUPS = st.lists(st.none() | TEXT, min_size=2, max_size=7)


def judged(texts, metric="chrf"):
    return ConsensusJudge(metric).judge([group_of(texts)])[0]


def by_loops(texts, metric):
    """Each sample's mean metric to the other samples, over 10; None without a translation or without others."""
    score = sentence_metric(metric, "en")
    usable = [i for i, text in enumerate(texts) if text is not None]
    return [
        statistics.fmean(score(texts[i], texts[j]) for j in usable if j != i) / 10
        if i in usable and len(usable) > 1
        else None
        for i in range(len(texts))
    ]


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=60, deadline=None)
@given(texts=GROUPS)
def test_a_score_is_the_mean_metric_to_the_other_samples(metric, texts):
    for score, expected in zip(judged(texts, metric).scores, by_loops(texts, metric), strict=True):
        assert score == (None if expected is None else pytest.approx(expected, abs=1e-9))


@settings(max_examples=60, deadline=None)
@given(texts=GROUPS, data=st.data())
def test_the_order_of_the_samples_does_not_matter(texts, data):
    order = data.draw(st.permutations(range(len(texts))))
    scores, permuted = judged(texts).scores, judged([texts[i] for i in order]).scores
    for i, score in zip(order, permuted, strict=True):
        assert score == (None if scores[i] is None else pytest.approx(scores[i], abs=1e-9))


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.text(max_size=15), min_size=1, max_size=4, unique=True))
def test_the_table_of_chrf_is_sacrebleus(texts):
    score = sentence_metric("chrf", "en")
    for text, row in zip(texts, chrf_table(texts), strict=True):
        assert row == pytest.approx([score(text, other) for other in texts], abs=1e-9)


def test_a_text_drawn_twice_agrees_with_itself():
    alone, twice = judged(["guten Tag", "gute Nacht", "hallo"]), judged(["guten Tag", "guten Tag", "hallo"])
    assert twice.scores[0] > alone.scores[0]
    assert twice.statuses == (Status.SCORED, Status.DUPLICATE, Status.SCORED)
    assert twice.scores[0] == twice.scores[1]
    assert twice.ranking == (("c0", "c1"), ("c2",))


def test_copies_of_a_single_text_agree_wholly():
    assert judged(["guten Tag", "guten Tag"]).scores == (10.0, 10.0)


def test_one_usable_candidate_has_a_status_and_no_score():
    verdict = judged(["guten Tag", None])
    assert verdict.scores == (None, None)
    assert verdict.statuses == (Status.SINGLE_CANDIDATE, Status.UNPARSABLE_CANDIDATE)
    assert judged([None, None]).statuses == (Status.UNPARSABLE_CANDIDATE,) * 2


def test_it_is_built_by_name_with_a_metric_as_its_option():
    assert open_judge("consensus", {"metric": "bleu"}).judge([group_of(["a b c d", "a b c d"])])[0].scores[0] == 10.0
    with pytest.raises(UserError, match="unknown metric 'chrff': did you mean 'chrf'"):
        open_judge("consensus", {"metric": "chrff"})
    with pytest.raises(UserError, match="unknown option of judge 'consensus' 'metrik': did you mean 'metric'"):
        open_judge("consensus", {"metrik": "chrf"})


@pytest.mark.parametrize("columns", [1, 3, 7])
def test_the_table_does_not_depend_on_how_many_n_grams_are_compared_at_a_time(monkeypatch, columns):
    texts = ["the cat sat", "the cat sat on", "a cat", "", "that dog"]
    whole = chrf_table(texts)
    monkeypatch.setattr(consensus, "COLUMNS", columns)
    assert chrf_table(texts) == whole
