import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.judged_groups import ModelOf, by_length, group_of, shown_in

from grrm.gqm.groups import Status
from grrm.judges.chunk import ChunkedJudge, align_score, chunks_of
from grrm.judges.dedup import DistinctJudge
from grrm.judges.generation import JudgeSampling
from grrm.judges.gqm import GQMJudge, GQMOptions
from grrm.judges.metrics import JudgeMetrics

ONCE = JudgeSampling(retries=0)
SCORE = st.floats(0, 10)


def chunked(model, max_candidates=3, **options):
    return DistinctJudge(
        ChunkedJudge(GQMJudge(model, sampling=ONCE, options=GQMOptions(max_candidates=26), **options), max_candidates)
    )


@given(st.integers(2, 90), st.integers(2, 26))
def test_chunks_are_few_even_and_share_nothing_but_the_anchor(n_texts, size):
    chunks = chunks_of([f"text {i}" for i in range(n_texts)], size)
    anchors = {chunk[0] for chunk in chunks}
    others = [k for chunk in chunks for k in chunk[1:]]
    assert len(anchors) == 1
    assert sorted([*others, *anchors]) == list(range(n_texts))
    assert all(2 <= len(chunk) <= size for chunk in chunks)
    assert max(map(len, chunks)) - min(map(len, chunks)) <= 1
    assert len(chunks) == -(-(n_texts - 1) // (size - 1))


def test_anchor_is_neither_the_shortest_nor_the_longest():
    assert chunks_of(["x" * 1000, "", "medium", "medium!", "x" * 999], 3)[0][0] == 3


@given(SCORE, st.floats(0.5, 9.5), st.floats(0.5, 9.5))
def test_alignment_keeps_the_range_the_order_and_the_ends(score, here, anchor):
    aligned = align_score(score, here, anchor)
    assert -1e-9 <= aligned <= 10 + 1e-9
    assert (score < here, score > here) == (aligned < anchor, aligned > anchor) or abs(score - here) < 1e-9
    assert align_score(0, here, anchor) == pytest.approx(0)
    assert align_score(10, here, anchor) == pytest.approx(10)
    assert align_score(here, here, anchor) == anchor
    assert align_score(score, here, here) == score


@given(st.lists(SCORE, min_size=2, max_size=2), SCORE, st.floats(0.5, 9.5))
def test_alignment_never_turns_an_order_round(scores, here, anchor):
    low, high = (align_score(score, here, anchor) for score in sorted(scores))
    assert low <= high + 1e-9


@pytest.mark.parametrize(
    ("score", "here", "anchor", "aligned"),
    [(3, 6, 4, 2), (8, 6, 4, 7), (0, 0, 5, 5), (5, 0, 5, 7.5), (10, 10, 5, 5), (4, 10, 5, 2)],
)
def test_alignment_by_hand(score, here, anchor, aligned):
    assert align_score(score, here, anchor) == pytest.approx(aligned)


def test_group_beyond_the_identifiers_is_judged():
    texts = [f"{i:03d}" + "x" * (i % 6) for i in range(60)]
    metrics = JudgeMetrics()
    model = ModelOf(by_length)
    judge = chunked(model, 26, prompt_length=9000, metrics=metrics)
    verdict = judge.judge([group_of([*texts, None, texts[0]])])[0]
    assert verdict.scores == (*(float(len(text)) for text in texts), None, 3.0)
    assert verdict.statuses[60:] == (Status.UNPARSABLE_CANDIDATE, Status.DUPLICATE)
    assert sorted(len(shown_in(prompt)) for prompt in model.prompts) == [20, 21, 21]
    assert len(model.calls) == 1
    assert metrics.values()["chunked_groups"] == 1
    assert len(verdict.ranking) == 6
    assert sum(map(len, verdict.ranking)) == 61


def test_chunks_of_a_severe_and_a_lenient_judge_come_onto_one_scale():
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]
    anchor = "ccc"
    severe = {"a": 0, "bb": 1, anchor: 2}
    lenient = {anchor: 6, "dddd": 8, "eeeee": 9}
    model = ModelOf(score_all=lambda shown: [(severe if "a" in shown else lenient)[text] for text in shown])
    verdict = chunked(model).judge([group_of(texts)])[0]
    # the anchor's common score is (2 + 6) / 2 = 4
    assert verdict.scores == pytest.approx((0, 2, 4, 10 - 6 * 2 / 4, 10 - 6 * 1 / 4))
    assert verdict.ranking == (("c4",), ("c3",), ("c2",), ("c1",), ("c0",))
    assert (verdict.attempts, verdict.tokens) == (2, 2)


def test_unreadable_chunk_costs_only_its_own_candidates():
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]
    model = ModelOf(score_all=lambda shown: [None if "a" in shown else len(text) for text in shown])
    verdict = chunked(model).judge([group_of(texts)])[0]
    assert verdict.scores == (None, None, 3.0, 4.0, 5.0)
    assert verdict.statuses[:2] == (Status.JUDGE_UNPARSABLE,) * 2
    assert verdict.ranking == (("c4",), ("c3",), ("c2",))


@pytest.mark.parametrize("failing", ["a", "eeeee"])
def test_anchor_keeps_the_score_that_one_chunk_gave_it(failing):
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]
    model = ModelOf(score_all=lambda shown: [None if failing in shown else len(text) for text in shown])
    assert chunked(model).judge([group_of(texts)])[0].scores[2] == 3.0


def test_group_none_of_whose_chunks_can_be_read_is_unscored():
    verdict = chunked(ModelOf(lambda place, text: None)).judge([group_of(list("abcde"))])[0]
    assert set(verdict.statuses) == {Status.JUDGE_UNPARSABLE}
    assert verdict.ranking is None


def test_smaller_groups_are_passed_on_as_they_are():
    groups = [group_of(["a", "bb", "ccc", "\0"]), group_of(list("abcd"), "h"), group_of([], "i")]
    model = ModelOf(by_length)
    verdicts = chunked(model).judge(groups)
    assert verdicts[0] == DistinctJudge(GQMJudge(ModelOf(by_length), sampling=ONCE)).judge(groups[:1])[0]
    assert verdicts[1].scores == (1.0,) * 4
    assert verdicts[2].scores == ()
    assert len(model.calls) == 1
