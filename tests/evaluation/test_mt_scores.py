"""Scores of translations per language pair."""

from __future__ import annotations

import pytest
import sacrebleu

from grrm.evaluation import mt_scores
from grrm.evaluation.mt_scores import score_translations
from grrm.gqm.groups import TranslationTask

TASKS = [
    TranslationTask("one", "en", "de", "eins zwei drei vier"),
    TranslationTask("two", "en", "zh", "今天天气很好啊"),
    TranslationTask("three", "en", "de", "fünf sechs sieben acht"),
]
TEXTS = ["eins zwei drei fünf", "今天天气很好啊", None]


def test_each_language_pair_has_the_scores_sacrebleu_gives_it():
    scores = score_translations(TASKS, TEXTS)
    assert list(scores) == ["en-de", "en-zh", "all"]
    german = [task.reference for task in TASKS if task.trg_lang == "de"]
    assert scores["en-de"].chrf.score == pytest.approx(sacrebleu.corpus_chrf([TEXTS[0], ""], [german]).score)
    assert scores["en-de"].bleu.score == pytest.approx(sacrebleu.corpus_bleu([TEXTS[0], ""], [german]).score)
    assert "tok:zh" in scores["en-zh"].bleu.signature
    assert (scores["en-de"].n_rows, scores["en-de"].n_missing) == (2, 1)


def test_languages_by_code_and_by_name_are_one_pair():
    tasks = [*TASKS, TranslationTask("four", "English", "German", "neun zehn")]
    assert list(score_translations(tasks, [*TEXTS, "neun"])) == ["en-de", "en-zh", "all"]


def test_the_only_language_pair_is_scored_once(monkeypatch):
    calls = []
    corpus_chrf = mt_scores.corpus_chrf
    monkeypatch.setattr(mt_scores, "corpus_chrf", lambda *texts: calls.append(len(texts[0])) or corpus_chrf(*texts))
    tasks = [TranslationTask("Hallo", "de", "en", "Hello"), TranslationTask("Tschüss", "de", "en", "Bye")]
    scores = score_translations(tasks, ["Hello", "Bye bye"])
    assert list(scores) == ["de-en", "all"]
    assert scores["de-en"] == scores["all"]
    assert calls == [2]


def test_no_bleu_is_given_over_languages_that_are_tokenised_differently():
    scores = score_translations(TASKS, TEXTS)
    assert scores["all"].bleu is None
    assert scores["all"].n_rows == 3
    assert score_translations(TASKS[::2], TEXTS[::2])["all"].bleu is not None


def test_neural_scores_are_averaged_over_the_rows_they_belong_to():
    scores = score_translations(TASKS, TEXTS, {"comet": [0.2, 0.9, 0.4]})
    assert scores["en-de"].neural["comet"].mean == pytest.approx(0.3)
    assert scores["all"].neural["comet"].mean == pytest.approx(0.5)


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match="for each of 3 rows"):
        score_translations(TASKS, TEXTS[:2])
    with pytest.raises(ValueError, match="without a reference"):
        score_translations([TranslationTask("a", "en", "de")], ["b"])
