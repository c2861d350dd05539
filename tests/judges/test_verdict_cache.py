import threading

import pytest
from support.judged_groups import ModelOf, by_length, group_of
from support.text_models import TextModel

from grrm.gqm.groups import Status
from grrm.judges.cache import CachedJudge
from grrm.judges.dedup import DistinctJudge
from grrm.judges.generation import JudgeSampling
from grrm.judges.gqm import GQMJudge
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.sqm import SQMJudge


def cached(model, max_entries=8, metrics=None):
    judge = GQMJudge(model, sampling=JudgeSampling(retries=0), metrics=metrics or JudgeMetrics())
    return DistinctJudge(CachedJudge(judge, max_entries))


def test_same_content_under_other_ids_is_not_asked_about_again():
    model, metrics = ModelOf(by_length), JudgeMetrics()
    judge = cached(model, metrics=metrics)
    first = judge.judge([group_of(["a", "bb"])])[0]
    again = judge.judge([group_of(["a", None, "bb", "a", "\0"], "other", id_prefix="z")])[0]
    assert len(model.prompts) == 1
    assert first.scores == (1.0, 2.0)
    assert again.scores == (1.0, None, 2.0, 1.0, None)
    assert again.ranking == (("z2",), ("z0", "z3"))
    assert (first.attempts, again.attempts) == (first.tokens, again.tokens) == (1, 0)
    assert again.analysis == first.analysis
    assert (metrics.values()["cache_hits"], metrics.values()["cache_misses"]) == (1, 1)


@pytest.mark.parametrize(
    "other",
    [group_of(["bb", "a"]), group_of(["a", "bbb"]), group_of(["a", "bb"], source="other"), group_of(["a", "bb", "c"])],
)
def test_other_content_is_asked_about(other):
    model = ModelOf(by_length)
    judge = cached(model)
    judge.judge([group_of(["a", "bb"])])
    judge.judge([other])
    assert len(model.prompts) == 2


def test_the_same_content_twice_in_one_call_is_asked_about_once():
    model, metrics = ModelOf(by_length), JudgeMetrics()
    groups = [group_of(["a", "bb"]), group_of(["x"], "lone"), group_of(["a", "bb", "bb"], "h")]
    verdicts = cached(model, metrics=metrics).judge(groups)
    assert len(model.prompts) == 1
    assert [verdict.scores for verdict in verdicts] == [(1.0, 2.0), (None,), (1.0, 2.0, 2.0)]
    assert metrics.values()["cache_hits"] == 1


def test_failures_are_asked_about_again():
    replies = iter([None, 5])
    model = ModelOf(score_all=lambda texts: [next_score] * 2 if (next_score := next(replies)) else [None])
    judge = cached(model)
    assert set(judge.judge([group_of(["a", "bb"])])[0].statuses) == {Status.JUDGE_UNPARSABLE}
    for _ in range(2):
        assert judge.judge([group_of(["a", "bb"])])[0].scores == (5.0, 5.0)
    assert len(model.prompts) == 2


def test_a_verdict_with_a_hole_that_the_judge_left_is_not_kept():
    replies = iter(["fine\n7", "no idea", "fine\n7", "fine\n5"])
    judge = CachedJudge(SQMJudge(TextModel(lambda prompt: next(replies)), sampling=JudgeSampling(retries=0)), 8)
    assert judge.judge([group_of(["a", "bb"])])[0].scores == (7.0, None)
    for _ in range(2):
        assert judge.judge([group_of(["a", "bb"])])[0].scores == (7.0, 5.0)


def test_the_verdict_used_longest_ago_goes_first():
    model = ModelOf(by_length)
    judge = cached(model, 2)
    first, second, third = (group_of(["a", text]) for text in ("bb", "ccc", "dddd"))
    for group in (first, group_of(["a"]), second, group_of([None]), first, group_of([]), third):
        judge.judge([group])
    assert len(model.prompts) == 3
    judge.judge([first])
    assert len(model.prompts) == 3  # those without any score took no room
    judge.judge([second])
    assert len(model.prompts) == 4


def test_more_groups_than_the_cache_holds_still_get_their_verdicts():
    groups = [group_of(["a", "b" * (i + 2)]) for i in range(5)]
    verdicts = cached(ModelOf(by_length), 1).judge([*groups, *groups])
    assert [verdict.scores[1] for verdict in verdicts] == [2.0, 3.0, 4.0, 5.0, 6.0] * 2


def test_threads_share_a_cache():
    metrics = JudgeMetrics()
    judge = cached(ModelOf(by_length), 3, metrics)
    wrong = []

    def work(offset):
        for i in range(60):
            length = 2 + (i + offset) % 6
            if judge.judge([group_of(["a", "b" * length])])[0].scores != (1.0, float(length)):
                wrong.append(length)

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    values = metrics.values()
    assert wrong == []
    assert values["cache_hits"] + values["cache_misses"] == 240


def test_unknown_counter_is_a_defect():
    with pytest.raises(KeyError):
        JudgeMetrics().add("cache_hit")
