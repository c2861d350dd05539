"""Paired differences of corpus chrF: sacrebleu's numbers, and intervals that know what sentences can tell."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.evaluation.text_metrics import chrf_difference, corpus_chrf

TEXT = st.text("ab ü界", max_size=8)
ROWS = st.lists(st.tuples(st.none() | TEXT, st.none() | TEXT, TEXT), min_size=1, max_size=8)


@given(ROWS)
def test_it_is_the_difference_of_sacrebleus_corpus_scores(rows):
    before, after, references = map(list, zip(*rows, strict=True))
    wanted = corpus_chrf(after, references).score - corpus_chrf(before, references).score
    found = chrf_difference([before], [after], references, n_resamples=2)
    assert found.mean == pytest.approx(wanted, abs=1e-9)


def with_errors(texts, share, seed):
    rng = random.Random(seed)
    return ["".join("x" if rng.random() < share else letter for letter in text) for text in texts]


REFERENCES = ["".join(random.Random(n).choices("abcdefgh ", k=20)) for n in range(150)]


def test_runs_are_averaged_and_a_loss_in_all_of_them_shows():
    good, bad = ([with_errors(REFERENCES, share, seed) for seed in (1, 2)] for share in (0.1, 0.3))
    alone = [chrf_difference([before], [after], REFERENCES).mean for before, after in zip(good, bad, strict=True)]
    both = chrf_difference(good, bad, REFERENCES)
    assert both.mean == pytest.approx(sum(alone) / 2)
    assert both.low < both.mean < both.high < 0
    back = chrf_difference(bad, good, REFERENCES)
    assert (back.low, back.mean, back.high) == pytest.approx((-both.high, -both.mean, -both.low), abs=1e-9)


def test_as_many_errors_in_other_places_is_no_difference():
    before, after = (with_errors(REFERENCES, 0.2, seed) for seed in (1, 2))
    interval = chrf_difference([before], [after], REFERENCES)
    assert interval.low < 0 < interval.high
    assert interval == chrf_difference([before], [after], REFERENCES)
    assert chrf_difference([before], [before], REFERENCES).high == 0


def test_it_is_paired_what_is_hard_for_both_does_not_widen_the_interval():
    hard = [text if n % 2 else "?" for n, text in enumerate(REFERENCES)]
    worse = [text[:-1] for text in hard]
    paired = chrf_difference([hard], [worse], REFERENCES)
    assert paired.high - paired.low < 3  # either score alone moves by 16


@pytest.mark.parametrize(
    ("before", "after", "references"),
    [([], [], ["a"]), ([["a"]], [], ["a"]), ([[]], [[]], []), ([["a"]], [["a", "b"]], ["a"])],
)
def test_outputs_that_do_not_belong_together_are_refused(before, after, references):
    with pytest.raises(ValueError, match="need"):
        chrf_difference(before, after, references)
