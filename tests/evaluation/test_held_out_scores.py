"""Held-out translations in numbers: samples apart from greedy ones, and text metrics where there is a reference."""

from __future__ import annotations

import pytest

from grrm.evaluation.held_out_scores import TranslatedPrompt, console_line, held_out_scores
from grrm.evaluation.text_metrics import corpus_bleu, corpus_chrf, duplicate_share
from grrm.gqm.groups import TranslationTask

ENGLISH = TranslationTask("eins", "de", "en", "the first of them all")
CHINESE = TranslationTask("zwei", "de", "zh", "他们中的第二个")
UNKNOWN = TranslationTask("drei", "de", "en")
PROMPTS = [
    TranslatedPrompt(ENGLISH, ("the first of them all", "the first of them", None), (1.0, 0.5, None), (5, 4, 9)),
    TranslatedPrompt(CHINESE, ("他们中的第三个", "他们中的第二个", "他们"), (0.5, 1.0, 0.25), (7, 7, 2)),
    TranslatedPrompt(UNKNOWN, ("x", "x", "x"), (0.0, 0.0, 0.0), (1, 1, 1)),
]


def test_text_metrics_are_those_of_the_corpus_and_means_over_samples_and_languages():
    scores = held_out_scores(PROMPTS, has_greedy=True, has_references=True)
    references = [ENGLISH.reference, CHINESE.reference]
    passes = [[prompt.translations[column] for prompt in PROMPTS[:2]] for column in range(3)]
    chrf = [corpus_chrf(texts, references).score for texts in passes]
    tasks = (ENGLISH, CHINESE)
    bleu = [
        [corpus_bleu([text], [task.reference], task.trg_lang).score for text, task in zip(texts, tasks, strict=True)]
        for texts in passes
    ]
    assert scores["eval_chrf_greedy"] == pytest.approx(chrf[0])
    assert scores["eval_chrf"] == pytest.approx((chrf[1] + chrf[2]) / 2)
    assert scores["eval_bleu_greedy"] == pytest.approx(sum(bleu[0]) / 2)
    assert scores["eval_bleu"] == pytest.approx((sum(bleu[1]) + sum(bleu[2])) / 4)


def test_rewards_lengths_and_copies_are_of_samples_unless_they_say_greedy():
    scores = held_out_scores(PROMPTS, has_greedy=True, has_references=False)
    assert scores == {
        "eval_reward": pytest.approx(1.75 / 5),
        "eval_reward_greedy": pytest.approx(0.5),
        "eval_response_length_mean": pytest.approx(4.0),
        "eval_response_length_mean_greedy": pytest.approx(13 / 3),
        "eval_frac_unrewarded": pytest.approx(1 / 6),
        "eval_frac_duplicate": pytest.approx(2 / 6),
    }


def test_without_greedy_translations_all_are_samples():
    scores = held_out_scores(PROMPTS, has_greedy=False, has_references=True)
    assert scores["eval_reward"] == pytest.approx(3.25 / 8)
    assert not [name for name in scores if "greedy" in name]


def test_rows_without_any_reference_have_no_text_metrics():
    scores = held_out_scores([PROMPTS[2]], has_greedy=True, has_references=True)
    assert not [name for name in scores if "chrf" in name or "bleu" in name]
    with pytest.raises(ValueError, match="no held-out prompts"):
        held_out_scores([], has_greedy=True, has_references=True)


def test_an_evaluation_is_a_line():
    line = console_line(3, held_out_scores(PROMPTS, has_greedy=True, has_references=True))
    assert line.startswith("3 held-out prompts: reward 0.350 (greedy 0.500, 17% have none), chrF ")
    assert line.endswith(", 33% of samples identical, 4.0 tokens")
    alone = console_line(3, held_out_scores(PROMPTS, has_greedy=False, has_references=False))
    assert alone == "3 held-out prompts: reward 0.406 (11% have none), 33% of samples identical, 4.1 tokens"


@pytest.mark.parametrize(
    ("groups", "share"),
    [
        ([["a", "a", "a"]], 1.0),
        ([["a", "b", "c"]], 0.0),
        ([["a", "b", "a"], ["a", "c", "d"]], 0.25),
        ([[None, None, "a"]], 0.0),
        ([["a", "a"], ["b"]], 1.0),
        ([["a"], ["a"]], None),
        ([], None),
    ],
)
def test_copies_are_counted_within_a_group(groups, share):
    assert duplicate_share(groups) == share
