"""Damages of the probes, the rows they are made of, and what is measured of judges whose habits are known."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.evaluation.probes.measure import MIN_ROWS, REFERENCE, measure, probe_groups
from grrm.evaluation.probes.perturb import PROBES, ProbeRow, damaged
from grrm.evaluation.probes.rows import choose_rows, shuffled_rows
from grrm.gqm.groups import Status, TranslationTask, Verdict

ROW = ProbeRow(
    "Do not open {name} in 15 minutes, Maria said.",
    *("en", "de", "Öffnen Sie {name} nicht in 15 Minuten, sagte Maria.", "Das Wetter in Hamburg ist schön."),
    "No abra {name} en 15 minutos, dijo María.",
)
TEXT = st.text("ab cÀé世界,.{}<>%s1 NOTnot\n", max_size=40)


@st.composite
def rows(draw):
    reference = draw(TEXT.filter(str.strip))
    language = draw(st.sampled_from(["de", "fr", "zh", "Klingon"]))
    return ProbeRow(draw(TEXT), "en", language, reference, draw(st.none() | TEXT), draw(st.none() | TEXT))


@pytest.mark.parametrize("name", PROBES)
@given(row=rows(), seed=st.integers(0, 3))
def test_a_damage_is_another_text_or_none_and_the_same_with_the_same_seed(name, row, seed):
    text = damaged(name, row, seed)
    assert text is None or (text.strip() and text.strip() != row.reference.strip())
    assert damaged(name, row, seed) == text


@pytest.mark.parametrize("name", PROBES)
def test_every_probe_applies_to_a_row_with_everything(name):
    assert damaged(name, ROW) is not None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("source_copy", ROW.source),
        ("wrong_language", ROW.foreign),
        ("other_translation", ROW.other),
        ("cut_short", "Öffnen Sie {name} nicht in 15 Minute"),
        ("last_words_repeated", f"{ROW.reference} sagte Maria. sagte Maria. sagte Maria."),
        ("negation_dropped", "Öffnen Sie {name} in 15 Minuten, sagte Maria."),
        ("broken_placeholder", "Öffnen Sie name} nicht in 15 Minuten, sagte Maria."),
    ],
)
def test_damages_without_chance(name, text):
    assert damaged(name, ROW) == text


def test_damages_by_chance_change_what_they_say():
    digits = "".join(filter(str.isdigit, damaged("number_changed", ROW)))
    assert len(digits) == 2
    assert digits != "15"
    assert damaged("name_changed", ROW) in {
        ROW.reference.replace(own, other) for own in ("Sie", "Minuten", "Maria") for other in ("Wetter", "Hamburg")
    }
    foreign = {*damaged("untranslated_word", ROW).replace(",", "").replace(".", "").split()}
    assert foreign & {"open", "minutes", "said"}
    latin = str.maketrans("асеорхуАВСЕНКМОРТХ", "aceopxyABCEHKMOPTX")
    assert damaged("look_alikes", ROW) != ROW.reference
    assert damaged("look_alikes", ROW).translate(latin) == ROW.reference
    assert damaged("zero_width", ROW).replace("\u200b", "") == ROW.reference


@pytest.mark.parametrize(
    ("language", "reference", "text"),
    [
        ("de", "Es gibt keine Geräte.", "Es gibt eine Geräte."),
        ("German", "Das geht nicht.", "Das geht."),
        ("en", "You can't and cannot go.", "You can and can go."),
        ("en", "It isn't.", "It is."),
        ("fr", "Il n’existe pas.", "Il existe."),
        ("es", "No se puede.", "Se puede."),
        ("zh", "我不知道。", "我知道。"),
        ("de", "Das geht.", None),
        ("Klingon", "not", None),
    ],
)
def test_a_negation_is_dropped_in_languages_whose_words_are_listed(language, reference, text):
    assert damaged("negation_dropped", ProbeRow("x", "en", language, reference)) == text


@pytest.mark.parametrize("reference", ["Das Haus " * 40_000, "a" + " " * 300_000 + "b", "<" * 300_000, "7 " * 150_000])
def test_a_long_reference_is_damaged_at_once(reference):
    row = replace(ROW, reference=reference)
    start_s = time.process_time()
    for name in PROBES:
        damaged(name, row)
    assert time.process_time() - start_s < 5


def test_what_a_row_lacks_does_not_apply():
    row = ProbeRow("Guten Tag", "de", "zh", "你好")
    assert {name for name in PROBES if damaged(name, row) is None} == {
        *("wrong_language", "other_translation", "last_words_repeated", "number_changed", "name_changed"),
        *("negation_dropped", "untranslated_word", "broken_placeholder", "look_alikes"),
    }


def tasks(n=40, language="de"):
    return [TranslationTask(f"source {i}", "en", language, f"Quelle der Wahl {i}") for i in range(n)]


def test_rows_borrow_from_others_of_their_language_and_from_their_own_source():
    spanish = TranslationTask("source 3", "en", "es", "fuente 3")
    translations = {"de": "fuente 3", "es": "Quelle der Wahl 3"}
    for row in shuffled_rows([*tasks(), spanish]):
        assert row.foreign == (translations[row.trg_lang] if row.source == "source 3" else None)
        assert row.other != row.reference
        assert (row.other is None) == (row.trg_lang == "es")


def test_rows_are_looked_for_until_each_probe_has_as_many():
    numbered = [TranslationTask("a b", "en", "de", f"Wort um Wort{' 7' * (i % 10 == 0)}") for i in range(200)]
    chosen = choose_rows(shuffled_rows(numbered), ["cut_short", "number_changed", "wrong_language"], 5)
    assert sum("number_changed" in texts for _, texts in chosen.rows) == 5
    assert sum("cut_short" in texts for _, texts in chosen.rows) == 5
    assert chosen.not_applicable["wrong_language"] == {"en-de": 200}
    assert len(chosen.rows) <= 10


def measured(score, size=2, n_rows=12, status=None, probes=("source_copy", "cut_short", "preamble"), **options):
    """The report on a judge that gives `score(candidate, position)`, or no score and `status`."""
    chosen = choose_rows(shuffled_rows(tasks()), probes, n_rows)
    groups = probe_groups(chosen, size=size, **options)
    verdicts = []
    for probed in groups:
        scores = tuple(score(c, position) for position, c in enumerate(probed.group.candidates))
        statuses = tuple(Status.SCORED if s is not None else status for s in scores)
        verdicts.append(Verdict(statuses, scores))
    return measure(chosen, groups, verdicts, n_resamples=100)


def by_id(**scores):
    return lambda candidate, position: scores.get(candidate.candidate_id, scores.get("other"))


def test_groups_hold_the_reference_and_come_in_both_orders():
    chosen = choose_rows(shuffled_rows(tasks()), n_rows=4)
    groups = probe_groups(chosen, size=4)
    ids = [[candidate.candidate_id for candidate in probed.group.candidates] for probed in groups]
    assert all(REFERENCE in of_group and len(of_group) == 4 for of_group in ids)
    counted = [name for of_group in ids[::2] for name in of_group if name in PROBES]
    assert Counter(counted) == {name: 4 for name in PROBES if any(name in texts for _, texts in chosen.rows)}
    assert all(first[::-1] == second for first, second in zip(ids[::2], ids[1::2], strict=True))
    assert {len({probed.group.group_id for probed in groups}), len(groups)} == {len(groups)}
    assert len({of_group.index(REFERENCE) for of_group in ids}) > 1
    assert not any(probed.group.task.reference for probed in groups)
    assert len(probe_groups(chosen, size=4, both_orders=False)) == len(groups) // 2


def test_texts_apart_are_compared_over_their_groups():
    samples = [["one sample", "another", None, f"Quelle der Wahl {i}"] for i in range(40)]
    chosen = choose_rows(shuffled_rows(tasks(), samples), ["source_copy", "preamble"], 12)
    groups = probe_groups(chosen, apart=True)
    assert Counter(len(probed.group.candidates) for probed in groups) == {4: 72}
    scores = {"source_copy": 9.0, "preamble": 1.0, REFERENCE: 5.0}
    ids = [[candidate.candidate_id for candidate in probed.group.candidates] for probed in groups]
    verdicts = [
        Verdict((Status.SCORED,) * len(of_group), tuple(scores.get(name, 0.0) for name in of_group)) for of_group in ids
    ]
    report = measure(chosen, groups, verdicts, n_resamples=100)
    assert report.probes["source_copy"]["all"].margin.mean == -4.0
    assert report.probes["preamble"]["all"].margin.mean == 4.0
    assert report.first_wins is None
    assert report.order_consistency.mean == 1.0


@pytest.mark.parametrize("size", [2, 4])
def test_a_judge_that_rewards_copies_is_told_by_name(size):
    report = measured(by_id(reference=6.0, source_copy=8.5, other=2.0), size)
    copy, cut = report.probes["source_copy"]["all"], report.probes["cut_short"]["en-de"]
    assert (copy.right.mean, copy.margin.mean, copy.decided) == (0.0, -2.5, 12)
    assert (cut.right.mean, cut.margin.mean) == (1.0, 4.0)
    assert report.verdict().startswith("a policy would exploit first: source_copy, right in 0.000")
    assert (report.first_wins.mean, report.order_consistency.mean, report.tied) == (0.5, 1.0, 0.0)


def test_a_judge_without_weakness_is_said_to_have_none_below_chance():
    assert measured(by_id(reference=6.0, other=5.0)).verdict().startswith("none of these is below chance")
    assert measured(by_id(other=5.0)).verdict().startswith("none of these is below chance")


def test_ties_are_half_right():
    report = measured(by_id(other=5.0))
    scores = report.probes["preamble"]["all"]
    assert (scores.right.mean, scores.tied, report.tied, scores.margin.mean) == (0.5, 1.0, 1.0, 0.0)


def test_a_judge_that_prefers_what_comes_first_is_half_right_and_never_consistent():
    report = measured(lambda candidate, position: 5.0 - position)
    assert report.probes["preamble"]["all"].right.mean == 0.5
    assert (report.first_wins.mean, report.order_consistency.mean) == (1.0, 0.0)


def test_scores_that_follow_length_are_seen():
    assert measured(lambda candidate, position: len(candidate.response) / 10).length_correlation.mean == pytest.approx(
        1
    )


def test_a_row_in_both_orders_makes_nothing_surer_than_in_one():
    score = lambda candidate, position: float(sum(map(ord, candidate.response)) % 11)  # noqa: E731
    both, one = (measured(score, both_orders=both) for both in (True, False))
    assert both.length_correlation.mean == pytest.approx(one.length_correlation.mean)
    assert both.length_correlation.low == pytest.approx(one.length_correlation.low)
    assert both.length_correlation.high == pytest.approx(one.length_correlation.high)


def test_a_pair_without_scores_is_no_decision():
    of_reference = lambda candidate, position: 5.0 if candidate.candidate_id == REFERENCE else None  # noqa: E731
    refused, unread = (measured(of_reference, status=s) for s in (Status.UNSAFE_CANDIDATE, Status.JUDGE_UNPARSABLE))
    for report, counts in ((refused, (0, 12, 0)), (unread, (0, 0, 12))):
        scores = report.probes["source_copy"]["all"]
        assert scores.right is None
        assert (scores.decided, scores.refused, scores.unscored) == counts
        assert "too few" in report.verdict()
    assert unread.statuses == {"judge_unparsable": 72, "scored": 72}


def test_a_refused_reference_is_no_refused_damage():
    of_copy = lambda candidate, position: None if candidate.candidate_id == REFERENCE else 5.0  # noqa: E731
    scores = measured(of_copy, status=Status.UNSAFE_CANDIDATE).probes["source_copy"]["all"]
    assert (scores.decided, scores.refused, scores.unscored) == (0, 0, 12)


def test_half_a_character_can_be_damaged():
    assert damaged("preamble", ProbeRow("\ud800", "en", "de", "Wort \udfff")).endswith("Wort \udfff")


def test_few_rows_are_no_verdict():
    assert "too few" in measured(by_id(reference=1.0, other=9.0), n_rows=MIN_ROWS - 1).verdict()
    assert "exploit first" in measured(by_id(reference=1.0, other=9.0), n_rows=MIN_ROWS).verdict()


def test_the_page_has_every_probe():
    page = (Path(__file__).parents[2] / "docs/probe.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \| [^*\d]", page, re.MULTILINE)[: len(PROBES)] == [*PROBES]
