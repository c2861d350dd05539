import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.errors import UserError
from grrm.gqm.groups import ranking_line
from grrm.gqm.languages import CANDIDATE_IDS
from grrm.rewards.ranking_accuracy import (
    INVALID,
    RankingReward,
    gold_ranking,
    gold_scores,
    is_ranking_of,
    margin_agreement,
    ordering_agreement,
    ranking_reward,
    ranking_reward_no_cot,
    ranking_reward_zero,
    ranking_score_reward,
    ranking_score_reward_no_cot,
    score_ordering_reward,
    score_reward,
)
from grrm.rewards.rule_rewards import RULE_REWARDS

RANKING_REWARDS = [reward for name, reward in RULE_REWARDS.items() if "ranking" in name or name == "score"]
GOLD = {"A": 8, "B": 3}
ALL_AND_A = " > ".join((*CANDIDATE_IDS, "A"))


def scores_of(n):
    return st.lists(st.integers(0, 10), min_size=n, max_size=n).map(lambda s: dict(zip(CANDIDATE_IDS, s, strict=False)))


score_maps = st.integers(2, 8).flatmap(scores_of)
score_map_pairs = st.integers(2, 8).flatmap(lambda n: st.tuples(scores_of(n), scores_of(n)))


def score_line(scores):
    return ", ".join(f"{candidate_id}: {score}" for candidate_id, score in scores.items())


def answer(scores, ranking=None):
    ranking = ranking or ranking_line(scores)
    return f"Some analysis.\n\n### Final Ranking:\n\n{ranking}\n\n### Scores:\n\n{score_line(scores)}\n"


@given(score_maps)
def test_answer_that_equals_the_gold_scores_earns_two(gold):
    assert ranking_score_reward(answer(gold), gold) == RankingReward(2.0, True, 1.0, 1.0)
    two_lines = f"{ranking_line(gold)}\n{score_line(gold)}"
    assert ranking_score_reward_no_cot(two_lines, gold) == RankingReward(2.0, True, 1.0, 1.0)


@given(score_map_pairs)
def test_reward_is_the_sum_of_two_parts_in_zero_to_one_and_only_the_gold_relations_earn_both(pair):
    written, gold = pair
    reward = ranking_score_reward(answer(written), gold)
    assert reward.valid_answer
    assert 0 <= reward.ranking_reward <= 1
    assert 0 <= reward.score_reward <= 1
    assert reward.score == pytest.approx(reward.ranking_reward + reward.score_reward)
    shift = {gold[candidate_id] - score for candidate_id, score in written.items()}
    assert (reward.score == pytest.approx(2.0)) == (len(shift) == 1)


@given(score_map_pairs)
def test_scores_alone_earn_what_they_earn_below_their_own_ranking(pair):
    written, gold = pair
    for text in (score_line(written), f"\n\n{score_line(written)}\n", f"Some analysis.\n\n{score_line(written)}"):
        assert score_reward(text, gold) == ranking_score_reward(answer(written), gold)
    assert not score_reward(f"{score_line(written)}\nA is the best.", gold).valid_answer
    assert not score_reward(score_line({**written, "J": 3}), gold).valid_answer


@given(score_map_pairs, st.randoms(use_true_random=False))
def test_reward_does_not_depend_on_which_candidate_is_called_what(pair, random):
    written, gold = pair
    names = list(gold)
    random.shuffle(names)
    new_name = dict(zip(gold, names, strict=True))
    renamed = [{new_name[old]: score for old, score in scores.items()} for scores in (written, gold)]
    before, after = ranking_score_reward(answer(written), gold), ranking_score_reward(answer(renamed[0]), renamed[1])
    assert after.valid_answer
    assert after.score == pytest.approx(before.score)
    assert after.ranking_reward == pytest.approx(before.ranking_reward)


@given(score_map_pairs, st.randoms(use_true_random=False))
def test_order_within_a_tie_and_of_the_score_list_is_free(pair, random):
    written, gold = pair
    shuffled = list(written)
    random.shuffle(shuffled)
    tiers = [[name for name in shuffled if written[name] == score] for score in sorted(set(written.values()))]
    ranking = " > ".join(" = ".join(tier) for tier in reversed(tiers))
    text = answer({name: written[name] for name in shuffled}, ranking)
    assert ranking_score_reward(text, gold) == ranking_score_reward(answer(written), gold)


@given(score_map_pairs)
def test_swapping_answer_and_gold_changes_neither_agreement(pair):
    written, gold = pair
    assert ordering_agreement(written, gold) == pytest.approx(ordering_agreement(gold, written))
    assert margin_agreement(written, gold) == pytest.approx(margin_agreement(gold, written))


@given(st.text(alphabet="AB>=:,<\n 0189x", max_size=60))
def test_no_text_raises_or_leaves_the_range(text):
    for reward in RANKING_REWARDS:
        assert 0 <= reward(text, GOLD).score <= 2


@pytest.mark.parametrize(
    ("written", "ranking", "margin"),
    [
        ({"A": 9, "B": 3}, 1.0, 0.6),
        ({"A": 10, "B": 3}, 1.0, 0.2),
        ({"A": 10, "B": 2}, 1.0, 0.0),
        ({"A": 9, "B": 4}, 1.0, 1.0),  # a shift of both
        ({"A": 5, "B": 5}, 0.0, 0.0),  # a tie against a strict order
        ({"A": 3, "B": 8}, 0.0, 0.0),
    ],
)
def test_margins_earn_less_the_further_they_are_off(written, ranking, margin):
    reward = ranking_score_reward(answer(written), GOLD)
    assert reward == RankingReward(pytest.approx(ranking + margin), True, ranking, margin)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A > B\nA: 8, B: 3",  # neither analysis nor headers
        "\n\n### Final Ranking:\n\nA > B\n\n### Scores:\n\nA: 8, B: 3",  # no analysis
        "c\nh\nB > A\nh\nA: 8, B: 3",  # the ranking contradicts the scores
        "c\nh\nA = B\nh\nA: 8, B: 3",
        "c\nh\nA > C\nh\nA: 8, C: 3",  # another candidate
        "c\nh\nA > B > C\nh\nA: 8, B: 3, C: 1",  # one too many
        "c\nh\nA\nh\nA: 8",
        "c\nh\nA > B\nh\nA: 8, C: 3",  # the ranking and the scores name different candidates
        "c\nh\nA>B\nh\nA: 8, B: 3",
        "c\nh\nA > B\nh\nA: 8, B: 3,",
        "c\nh\nA > B\nh\nA: 8, B: 3.",
        "c\nh\nA > B\nh\nA: 8, B: 3\nDone.",
        "c\nh\nthe ranking\nh\nA: 8, B: 3",
        "c\nh\nA > B\nh\nA: 8, A: 8, B: 3",
        "c\nh\nA > B\nh\nA: 18, B: 13",
        "c\nh\nA > B\nh\nA: +8, B: 3",
        "c\nh\nA\t>\tB\nh\nA: 8, B: 3",
    ],
)
def test_answer_that_breaks_the_format_earns_nothing(text):
    assert ranking_score_reward(text, GOLD) == INVALID


def test_two_line_reward_wants_exactly_two_lines():
    assert ranking_score_reward_no_cot("\nA > B\nA: 8, B: 3\n", GOLD).score == 2.0
    assert ranking_score_reward_no_cot("A > B\n\nA: 8, B: 3", GOLD) == INVALID
    assert ranking_score_reward_no_cot("A > B\nA: 8, B: 3\nDone.", GOLD) == INVALID
    assert ranking_score_reward_no_cot(answer(GOLD), GOLD) == INVALID


def test_ranking_after_an_analysis_is_rewarded():
    """The original handed the whole response to the check of one line, so every real answer earned 0."""
    text = "Some analysis.\n\nB > A = C\n"
    assert ranking_reward(text, "B > A > C") == RankingReward(pytest.approx(2 / 3), True, pytest.approx(2 / 3), 0.0)
    assert ranking_reward_no_cot(text, "B > A > C") == INVALID


@pytest.mark.parametrize("ground_truth", ["A > B", GOLD, json.dumps(GOLD), {"A": 8.0, "B": 3.0}])
def test_gold_order_may_be_a_ranking_or_scores(ground_truth):
    assert ranking_reward_no_cot("A > B", ground_truth).score == 1.0
    assert ranking_reward_no_cot("B > A", ground_truth) == RankingReward(0.0, True, 0.0, 0.0)


def test_reward_without_first_stage_wants_fifty_characters_per_candidate_and_the_ranking_once():
    assert ranking_reward_zero("x" * 100 + "\nA > B", "A > B").score == 1.0
    assert ranking_reward_zero("x" * 99 + "\nA > B", "A > B") == INVALID
    assert ranking_reward_zero("x" * 100 + " A > B\nA > B", "A > B") == INVALID
    assert ranking_reward_zero("", "A > B") == INVALID


@pytest.mark.parametrize(
    ("reward", "text"),
    [
        (ranking_score_reward, answer({"A": 8})),
        (ranking_score_reward_no_cot, "A\nA: 8"),
        (score_reward, "A: 8"),
        (score_ordering_reward, "A: 8"),
        (ranking_reward, "A"),
        (ranking_reward_zero, "x" * 60 + "\nA"),
    ],
)
def test_a_ranking_of_a_single_candidate_is_a_valid_answer_that_earns_nothing(reward, text):
    assert reward(text, {"A": 8}) == RankingReward(0.0, True, 0.0, 0.0)
    assert not reward("B", {"A": 8}).valid_answer


def test_order_of_the_scores_is_rewarded_whatever_their_margins():
    gold = {"A": 8, "B": 7, "C": 7}
    for line, ordering in (("A: 9, B: 1, C: 1", 1.0), ("A: 8, B: 8, C: 7", 1 / 3), ("A: 8, B: 7, C: 6", 2 / 3)):
        assert score_ordering_reward(f"Why.\n{line}", gold) == RankingReward(ordering, True, ordering, 0.0)
        assert score_ordering_reward(line, "A > B = C").score == ordering
    assert score_ordering_reward("A: 8, B: 7", gold) == INVALID


def test_agreement_of_different_candidates_is_nothing():
    assert margin_agreement({"A": 1}, {"A": 1, "B": 2}) == 0.0
    assert ordering_agreement({"A": 1, "C": 0}, {"A": 1, "B": 0}) == 0.0
    assert ordering_agreement({"A": 1}, {"A": 1}) == 0.0


@pytest.mark.parametrize("line", ["A > B < C", "A > =B > C", "A > B > B", "A > B", "A > B > C (end)", " A > B > C", ""])
def test_line_that_is_no_ranking_of_all_candidates(line):
    assert is_ranking_of("B > A = C", 3)
    assert not is_ranking_of("B\t>\tA\t=\tC", 3)
    assert not is_ranking_of(line, 3)


@pytest.mark.parametrize(
    ("ground_truth", "said"),
    [
        ("not json", "JSON"),
        ("", "JSON"),
        ("A > B", "JSON"),
        ('{"A": ' + "9" * 5000 + "}", "JSON"),
        ("[" * 100_000, "JSON"),
        ("[8, 3]", "holds no scores"),
        (None, "holds no scores"),
        ({}, "without a gap"),
        ("{}", "without a gap"),
        ({"A": 8, "C": 3}, "without a gap"),
        ({"A": 8, 1: 3}, "without a gap"),
        ('{"A": 8, "A": 3}', "each once"),
        ({"scores": GOLD}, "without a gap"),
        ({"A": 8, "B": "3"}, "'3'"),
        ({"A": 8, "B": None}, "None"),
        ({"A": 8, "B": True}, "True"),
        ({"A": 8, "B": 7.5}, "7.5"),
        ({"A": 8, "B": 11}, "11"),
        ('{"A": 8, "B": NaN}', "nan"),
        ({"A": 8, "B": -1}, "-1"),
    ],
)
def test_bad_gold_scores_stop_with_one_sentence_even_if_the_answer_is_bad_too(ground_truth, said):
    with pytest.raises(UserError, match=r"^The ground truth .*; give scores like") as raised:
        ranking_score_reward("", ground_truth)
    assert said in str(raised.value)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("ground_truth", ["", "A >", "A < B", "A > C", "A > A", "good", '{"A": 8, "C": 3}', ALL_AND_A])
def test_bad_gold_ranking_stops_with_one_sentence(ground_truth):
    for reward in (ranking_reward, ranking_reward_no_cot, ranking_reward_zero):
        with pytest.raises(UserError, match=r"The ground truth .* without a gap"):
            reward("A > B", ground_truth)


def test_gold_is_read_as_whole_scores_and_heights():
    assert gold_scores('{"B": 3.0, "A": 8}') == {"A": 8, "B": 3}
    assert gold_ranking("B > A = C") == {"B": 1, "A": 0, "C": 0}
    assert gold_ranking(' {"A": 8, "B": 3}') == {"A": 8, "B": 3}
