import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.judged_groups import ModelOf, by_length, group_of, shown_in

from grrm.gqm.groups import Status, Verdict
from grrm.judges.dedup import DistinctJudge
from grrm.judges.generation import JudgeSampling
from grrm.judges.gqm import GQMJudge
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.permute import PermutingJudge

ONCE = JudgeSampling(retries=0)
TEXTS = ["a", "bb", "cccc", "dddddd"]


def favours_first(place, text):
    """A judge with a position bias that outweighs the quality."""
    return max(0, 8 - 2 * place) + len(text) // 6


def reordered(model, permutations=1, metrics=None, **options):
    judge = GQMJudge(model, sampling=ONCE, metrics=metrics or JudgeMetrics())
    return DistinctJudge(PermutingJudge(judge, permutations, **options))


def test_shuffled_candidates_get_their_own_scores_back():
    model = ModelOf(by_length)
    verdict = reordered(model, seed=1).judge([group_of(["bb", None, "a", "bb", "\0", "cccc"])])[0]
    assert sorted(shown_in(model.prompts[0])) == ["a", "bb", "cccc"]
    assert verdict.scores == (2.0, None, 1.0, 2.0, None, 4.0)
    assert [status.value for status in verdict.statuses] == [
        "scored",
        "unparsable_candidate",
        "scored",
        "duplicate",
        "unsafe_candidate",
        "scored",
    ]
    assert verdict.ranking == (("c5",), ("c0", "c3"), ("c2",))


def test_analysis_says_in_which_order_its_letters_are_meant():
    model = ModelOf(by_length)
    verdict = reordered(model, 2).judge([group_of(TEXTS)])[0]
    ids = {text: f"c{i}" for i, text in enumerate(TEXTS)}
    for prompt, part in zip(model.prompts, verdict.analysis.split("[candidates shown: ")[1:], strict=True):
        assert part.startswith(", ".join(ids[text] for text in shown_in(prompt)) + "]\nRead.")


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from([None, "a", "bb", "cccc", "dddddd", "\0"]), max_size=7),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_scores_do_not_depend_on_the_order_of_the_samples_even_for_a_biased_judge(texts, permutations, random):
    judge = reordered(ModelOf(favours_first), permutations)
    order = random.sample(range(len(texts)), len(texts))
    scores = judge.judge([group_of(texts)])[0].scores
    assert judge.judge([group_of([texts[i] for i in order])])[0].scores == tuple(scores[i] for i in order)


def test_two_orders_cancel_a_bias_that_grows_with_the_position():
    def biased(place, text):
        return len(text) + 3 - place

    verdict = reordered(ModelOf(biased), 2).judge([group_of(TEXTS)])[0]
    assert verdict.scores == tuple(len(text) + 1.5 for text in TEXTS)
    assert verdict.ranking == (("c3",), ("c2",), ("c1",), ("c0",))
    assert (verdict.attempts, verdict.tokens) == (2, 2)


def test_all_orders_of_all_groups_are_one_batch_with_seeds_of_their_own():
    model = ModelOf(by_length)
    reordered(model, 3).judge([group_of(TEXTS), group_of(["a", "bb"], "h")])
    assert (len(model.calls), len(model.prompts)) == (1, 3 + 2)  # two candidates have two orders
    assert len(set(model.seeds)) == 5


class FailsWhere:
    """A model by length whose reply is unreadable when `fails(texts shown)`."""

    def __new__(cls, fails):
        return ModelOf(score_all=lambda texts: [None] if fails(texts) else [len(text) for text in texts])


def orders_that(permutations):
    model = ModelOf(by_length)
    reordered(model, permutations).judge([group_of(TEXTS)])
    return [shown_in(prompt) for prompt in model.prompts]


def test_the_scores_of_each_order_come_along_where_there_are_several():
    model = ModelOf(favours_first)
    verdict = reordered(model, 2).judge([group_of(["a", None, "bb", "a"])])[0]
    places = [shown_in(prompt) for prompt in model.prompts]
    assert verdict.order_scores == tuple(
        tuple(
            None if text is None else float(favours_first(shown.index(text), text)) for text in ["a", None, "bb", "a"]
        )
        for shown in places
    )
    assert reordered(model, 1).judge([group_of(TEXTS)])[0].order_scores == ()


def test_half_of_the_orders_are_enough():
    metrics = JudgeMetrics()
    failing = orders_that(4)[:2]
    verdict = reordered(FailsWhere(failing.__contains__), 4, metrics=metrics).judge([group_of(TEXTS)])[0]
    assert verdict.scores == (1.0, 2.0, 4.0, 6.0)
    assert metrics.values()["order_failures"] == 2


def test_fewer_than_half_leave_the_group_unscored():
    failing = orders_that(4)[1:]
    verdict = reordered(FailsWhere(failing.__contains__), 4).judge([group_of([*TEXTS, None])])[0]
    assert verdict.statuses == (Status.JUDGE_UNPARSABLE,) * 4 + (Status.UNPARSABLE_CANDIDATE,)
    assert verdict.scores == (None,) * 5
    assert verdict.ranking is None


class Scripted:
    """Gives one prepared verdict per group shown, by candidate id."""

    name = "scripted"

    def __init__(self, scores):
        self.scores, self.metrics = list(scores), JudgeMetrics()

    def judge(self, groups):
        return [self._verdict(group, self.scores.pop(0)) for group in groups]

    def _verdict(self, group, scores):
        found = [scores.get(candidate.candidate_id, Status.JUDGE_TIMEOUT) for candidate in group.candidates]
        return Verdict(
            tuple(outcome if isinstance(outcome, Status) else Status.SCORED for outcome in found),
            tuple(None if isinstance(outcome, Status) else outcome for outcome in found),
        )


def test_an_order_with_a_hole_is_left_out_for_all_candidates():
    whole, hole = {"c0": 2.0, "c1": 6.0}, {"c0": 10.0}
    verdict = PermutingJudge(Scripted([whole, hole]), 2).judge([group_of(["a", "b"])])[0]
    assert verdict.scores == (2.0, 6.0)


def test_candidates_scored_in_turn_but_never_together_have_no_mean():
    verdict = PermutingJudge(Scripted([{"c0": 2.0}, {"c1": 6.0}]), 2).judge([group_of(["a", "b"])])[0]
    assert verdict.statuses == (Status.JUDGE_TIMEOUT, Status.JUDGE_TIMEOUT)


def test_candidates_of_an_unscored_group_have_the_first_status_of_their_own():
    orders = [{"c0": 2.0, "c1": Status.TOO_LONG}, {"c0": Status.JUDGE_UNREACHABLE, "c1": 3.0}]
    verdict = PermutingJudge(Scripted(orders), 2).judge([group_of(["a", "b"])])[0]
    assert verdict.statuses == (Status.JUDGE_UNREACHABLE, Status.TOO_LONG)


def test_one_order_takes_over_what_the_judge_says():
    orders = [{"c0": 2.0, "c1": 3.0}, {"c0": 2.0}, {}]
    judge = PermutingJudge(Scripted(orders))
    ranked, partial, failed = judge.judge([group_of(["a", "b"])] * 3)
    assert (ranked.scores, ranked.ranking) == ((2.0, 3.0), None)  # this judge ranks nothing
    assert (partial.scores, partial.statuses[1]) == ((2.0, None), Status.JUDGE_TIMEOUT)
    assert failed.statuses == (Status.JUDGE_TIMEOUT,) * 2
    assert set(judge.metrics.values().values()) == {0.0}


def test_a_candidate_that_no_order_scores_keeps_its_status_and_the_others_their_mean():
    verdict = PermutingJudge(Scripted([{"c0": 2.0}, {"c0": 5.0}]), 2).judge([group_of(["a", "b"])])[0]
    assert (verdict.scores, verdict.statuses[1]) == ((3.5, None), Status.JUDGE_TIMEOUT)
    assert verdict.ranking == (("c0",),)


@pytest.mark.parametrize(("model", "agreement"), [(ModelOf(by_length), 1.0), (ModelOf(lambda place, _: place), -1.0)])
def test_agreement_of_the_orders_is_counted(model, agreement):
    metrics = JudgeMetrics()
    judge = reordered(model, 2, metrics=metrics)
    judge.judge([group_of(TEXTS), group_of(["a", "bb", "cccc"], "h")])
    assert metrics.values()["agreement_groups"] == 2
    assert metrics.mean_agreement() == pytest.approx(agreement)


@pytest.mark.parametrize("permutations", [1, 2])
def test_no_agreement_is_claimed_where_none_was_measured(permutations):
    metrics = JudgeMetrics()
    reordered(ModelOf(lambda place, text: 5), permutations, metrics=metrics).judge([group_of(TEXTS), group_of(["a"])])
    assert metrics.mean_agreement() is None


def test_groups_with_nothing_to_compare_pass_through():
    verdicts = reordered(ModelOf(by_length), 2).judge([group_of(["a", "a"]), group_of([None]), group_of([])])
    assert [verdict.statuses for verdict in verdicts] == [
        (Status.SINGLE_CANDIDATE,) * 2,
        (Status.UNPARSABLE_CANDIDATE,),
        (),
    ]
