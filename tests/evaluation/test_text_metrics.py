"""Text metrics: values worked out by hand or by sacrebleu's own functions, and the degenerate cases."""

import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF

from grrm.evaluation import text_metrics
from grrm.evaluation.text_metrics import (
    bleu_by_language,
    corpus_bleu,
    corpus_chrf,
    exact_match_rate,
    sentence_chrfs,
)
from grrm.gqm.groups import TranslationTask

HYPOTHESES = ["der 3. Mai 2021", "zwölf Euro und zehn Cent", "Berlin, Paris und Rom"]
REFERENCES = ["der 3. Mai 2021", "zwölf Euro und zwanzig Cent", "Berlin, Paris und Rom"]


def test_corpus_scores_equal_sacrebleu_and_carry_its_signature():
    chrf = corpus_chrf(HYPOTHESES, REFERENCES)
    assert chrf.score == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score)
    assert "nc:6" in chrf.signature
    assert "version:" in chrf.signature
    bleu = corpus_bleu(HYPOTHESES, REFERENCES, "de")
    assert bleu.score == pytest.approx(sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score)
    assert "tok:13a" in bleu.signature


@pytest.mark.parametrize(
    ("metric", "score"),
    [(CHRF, corpus_chrf), (BLEU, lambda *texts: corpus_bleu(*texts, "en"))],
    ids=["chrf", "bleu"],
)
def test_a_corpus_score_keeps_the_ngrams_of_a_few_references_at_a_time(metric, score, monkeypatch):
    n_held, cache_references = [], metric._cache_references
    monkeypatch.setattr(text_metrics, "ROWS_AT_A_TIME", 7)
    monkeypatch.setattr(
        metric, "_cache_references", lambda self, refs: n_held.append(len(refs[0])) or cache_references(self, refs)
    )
    references = [f"the cat number {n} sat on mat {n % 5}" for n in range(40)]
    hypotheses = [f"a cat number {n} sat on the mat" for n in range(40)]
    assert score(hypotheses, references).score == metric().corpus_score(hypotheses, [references]).score
    assert max(n_held[:-1]) == 7


def test_chinese_is_not_scored_as_one_long_word():
    hypothesis, reference = ["我们今天去北京参观博物馆。"], ["我们明天去北京参观博物馆。"]
    assert "tok:zh" in corpus_bleu(hypothesis, reference, "zh").signature
    assert corpus_bleu(hypothesis, reference, "zh").score > 50
    assert corpus_bleu(hypothesis, reference, "de").score == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        *((tag, "zh") for tag in ("zh", "ZH-CN", "zh_TW", "cmn", "zho_Hant", "Chinese", "Traditional Chinese")),
        *((tag, "char") for tag in ("ko", "kor_Hang", "jpn_Jpan", "Japanese", "tha_Thai", "khm_Khmr")),
        *((tag, "13a") for tag in ("de", "de_AT", "Swiss High German", "xx", "")),
    ],
)
def test_tokenizer_follows_the_target_language_given_as_code_or_as_name(language, tokenizer):
    assert f"tok:{tokenizer}|" in corpus_bleu(["eins"], ["eins"], language).signature


def test_bleu_by_language_scores_each_language_with_its_own_rows():
    tasks = [TranslationTask("s", "en", language) for language in ("zh", "de", "zh")]
    references = ["今天天气很好啊", "zwei drei vier fünf", "明天去北京玩吧"]
    scores = bleu_by_language([references[0], "eins", references[2]], tasks, references)
    assert list(scores) == ["de", "zh"]
    assert scores["zh"].score == pytest.approx(100.0)
    assert scores["de"].score < 20


def test_a_language_by_its_code_and_by_its_name_is_one():
    tasks = [TranslationTask("s", "en", language) for language in ("de", "German", "zh", "Chinese")]
    references = ["zwei drei vier fünf", "sechs sieben acht neun", "今天天气很好啊", "明天去北京玩吧"]
    assert list(bleu_by_language(references, tasks, references)) == ["de", "zh"]


def test_a_missing_translation_scores_zero_and_never_matches():
    assert sentence_chrfs([None, "Rom"], ["Rom", "Rom"]) == pytest.approx([0.0, 100.0])
    assert exact_match_rate([None, " Rom "], ["Rom", "Rom"]) == 0.5


@pytest.mark.parametrize("function", [corpus_chrf, sentence_chrfs, exact_match_rate])
def test_nothing_to_score_is_an_error_not_a_zero(function):
    with pytest.raises(ValueError, match="at least one"):
        function([], [])
    with pytest.raises(ValueError, match="as many hypotheses"):
        function(["a"], ["a", "b"])
