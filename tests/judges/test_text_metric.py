import gc
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.chrf import CHRF

from grrm.errors import UserError
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask
from grrm.judges.registry import open_judge
from grrm.judges.text_metric import TextMetricJudge

JUDGE = TextMetricJudge()


def group_of(texts, reference="the cat sat on the mat", trg_lang="en"):
    candidates = tuple(Candidate(f"c{i}", text or "?", text, 5) for i, text in enumerate(texts))
    return Group("g", TranslationTask("die Katze", "de", trg_lang, reference), candidates)


def judge_one(texts, judge=JUDGE, **kwargs):
    return judge.judge([group_of(texts, **kwargs)])[0]


def test_the_reference_itself_scores_ten_and_ranks_first():
    verdict = judge_one(["a dog", "the cat sat on the mat", "the cat sat"])
    assert verdict.scores[1] == 10.0
    assert verdict.ranking == (("c1",), ("c2",), ("c0",))
    assert verdict.attempts == 0


def test_score_is_a_tenth_of_sacrebleus_sentence_chrf():
    from sacrebleu import sentence_bleu, sentence_chrf

    hypothesis, reference = "the cat is on the mat", "the cat sat on the mat"
    assert judge_one([hypothesis]).scores[0] == pytest.approx(sentence_chrf(hypothesis, [reference]).score / 10)
    bleu = judge_one([hypothesis], TextMetricJudge("bleu"))
    assert bleu.scores[0] == pytest.approx(sentence_bleu(hypothesis, [reference]).score / 10)


def test_chrf_plus_plus_looks_at_words_too():
    from sacrebleu import sentence_chrf

    hypothesis, reference = "mat the on sat cat the", "the cat sat on the mat"
    score = judge_one([hypothesis], TextMetricJudge("chrf++")).scores[0]
    assert score == pytest.approx(sentence_chrf(hypothesis, [reference], word_order=2).score / 10)
    assert score != judge_one([hypothesis]).scores[0]


@pytest.mark.parametrize(
    ("trg_lang", "reference"), [("zh", "今天天气很好"), ("Japanese", "今日はいい天気です"), ("th", "วันนี้อากาศดี")]
)
def test_bleu_compares_characters_in_languages_without_spaces(trg_lang, reference):
    nearly = reference[:-1] + "x"
    score = judge_one([nearly], TextMetricJudge("bleu"), reference=reference, trg_lang=trg_lang).scores[0]
    as_english = judge_one([nearly], TextMetricJudge("bleu"), reference=reference, trg_lang="en").scores[0]
    assert as_english == 0.0
    assert 0.0 < score < 10.0


def test_copies_share_a_score_and_a_tier():
    verdict = judge_one(["the cat", "the cat", "a dog"])
    assert verdict.statuses == (Status.SCORED, Status.DUPLICATE, Status.SCORED)
    assert verdict.scores[0] == verdict.scores[1]
    assert verdict.ranking == (("c0", "c1"), ("c2",))
    assert judge_one(["xx", "yy", "xx"]).ranking == (("c0", "c1", "c2"),)  # in the order of the samples


def test_candidate_without_extraction_is_unparsable_not_zero():
    verdict = judge_one([None, "the cat"])
    assert verdict.statuses == (Status.UNPARSABLE_CANDIDATE, Status.SCORED)
    assert verdict.scores[0] is None
    assert verdict.ranking == (("c1",),)


@pytest.mark.parametrize("reference", [None, "", " \n"])
def test_missing_reference_is_reported_not_scored_as_zero(reference):
    verdict = judge_one(["the cat", None], reference=reference)
    assert verdict.statuses == (Status.MISSING_REFERENCE, Status.UNPARSABLE_CANDIDATE)
    assert verdict.scores == (None, None)


def test_group_without_any_translation_has_no_ranking():
    assert judge_one([None, None]).ranking is None


def test_rounding_gives_whole_scores():
    score = judge_one(["the cat is on the mat"], TextMetricJudge(round_to_integer=True)).scores[0]
    assert score == round(judge_one(["the cat is on the mat"]).scores[0])
    assert score.is_integer()


def test_verdicts_come_back_in_the_order_of_the_groups():
    groups = [group_of(["a dog"]), group_of(["the cat sat on the mat"]), group_of(["the cat"])]
    assert [v.scores for v in JUDGE.judge(groups)] == [JUDGE.judge([group])[0].scores for group in groups]
    assert JUDGE.judge([]) == []


@settings(max_examples=50)
@given(st.lists(st.one_of(st.none(), st.text(max_size=12)), min_size=1, max_size=6), st.text(max_size=12))
@pytest.mark.parametrize("metric", ["chrf", "bleu"])
def test_any_text_gets_a_score_from_0_to_10_or_a_status_and_order_does_not_matter(metric, texts, reference):
    judge = TextMetricJudge(metric)
    forward = judge_one(texts, judge, reference=reference)  # Verdict itself refuses scores outside 0 to 10
    backward = judge_one(texts[::-1], judge, reference=reference)
    assert forward.scores == backward.scores[::-1]
    assert [score is None for score in forward.scores] == [t is None or not reference.strip() for t in texts]


def test_not_every_language_that_a_client_names_stays_in_memory():
    judge = TextMetricJudge("chrf")
    judge.judge(
        [
            Group("g", TranslationTask("s", "de", f"language {number}", "ref"), (Candidate("0", "a", "a"),))
            for number in range(200)
        ]
    )
    assert sum(type(thing) is CHRF for thing in gc.get_objects()) < 100


def test_build_by_name():
    assert open_judge("text_metric").name == "chrf"
    assert open_judge("bleu", {"round_to_integer": True}).name == "bleu"
    assert open_judge("text_metric", {"metric": "chrf++"}).name == "chrf++"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("chrff", {}, r"unknown judge 'chrff': did you mean 'chrf'\?"),
        ("chrf", {"round": True}, r"option of judge 'chrf' 'round': did you mean 'round_to_integer'\?"),
        ("text_metric", {"metric": "ter"}, "unknown metric 'ter'"),
        ("text_metric", {"round_to_integer": "no"}, "give true or false"),
        ("chrf", {"metric": "bleu"}, "cannot take metric 'bleu'"),
    ],
)
def test_wrong_name_or_option_is_one_sentence(name, options, message):
    with pytest.raises(UserError, match=message):
        open_judge(name, options)


def test_missing_package_is_reported_when_the_judge_is_built(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.chrf", None)
    with pytest.raises(UserError, match="needs the package sacrebleu"):
        open_judge("text_metric")
