from hypothesis import given
from hypothesis import strategies as st

from grrm.gqm.languages import CANDIDATE_IDS
from grrm.gqm.rankings import ranking_line, ranking_to_scores, tiers_of


def test_ties_share_a_tier_and_stay_in_order():
    assert tiers_of([7, 9, 2, 7]) == ((1,), (0, 3), (2,))
    assert ranking_line({"D": 7, "B": 9, "C": 2, "A": 7}) == "B > A = D > C"


def test_nothing_ranked_has_no_tiers():
    assert tiers_of([]) == ()
    assert ranking_line({}) == ""


@given(st.lists(st.integers(0, 10), min_size=1, max_size=26))
def test_ranking_line_keeps_the_order_of_the_scores(scores):
    ordinal = ranking_to_scores(ranking_line(dict(zip(CANDIDATE_IDS, scores, strict=False))))
    heights = [ordinal[candidate_id] for candidate_id in CANDIDATE_IDS[: len(scores)]]
    assert tiers_of(heights) == tiers_of(scores)
    assert min(heights) == 0
