"""`grrm eval judge`: a judge's card from test sets, rows and logs of annotation, as users start it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from cli.human_scores import write_scores, write_test_set
from support.command_line import invoke, refusal
from support.rows import write_jsonl

from grrm.errors import UserError
from grrm.evaluation.human_gold.agreement import agreement
from grrm.evaluation.human_gold.card import ANNOTATORS, MEAN
from grrm.evaluation.human_gold.mtme_folder import read_mtme

judge, mistake = partial(invoke, "eval", "judge"), partial(refusal, "eval", "judge")


def card(tmp_path: Path, *arguments: object) -> dict:
    out = tmp_path / "card.json"
    judge(*arguments, "--resamples", 50, "--out", out)
    return json.loads(out.read_text(encoding="utf-8"))


def rows_of(content: dict, domain: str | None = None, pair: str | None = None) -> dict[str, dict]:
    chosen = [row for row in content["rows"] if row["domain"] == domain and pair in (None, row["language_pair"])]
    return {row["name"]: row for row in chosen}


def plain_rows() -> list[dict]:
    """Two sources and three systems, scored by two people."""
    golds = {"ann": [[3, 2, 1], [9, 5, 1]], "bob": [[3, 1, 2], [9, 4, None]]}
    texts = [["eins zwei", "eins zwo", "ein"], ["drei vier", "drei", "vier x"]]
    return [
        {
            "src_text": source,
            "trg_text": texts[row][at],
            "system": f"s{at}",
            "annotator": person,
            "gold": scores[row][at],
            "lp": "en-de",
            "reference": texts[row][0],
            "mine": 10 - at,
        }
        for person, scores in golds.items()
        for row, source in enumerate(("one two", "three four"))
        for at in range(3)
    ]


def test_a_test_set_gives_the_card_of_its_metrics_baselines_sentinels_and_raters(tmp_path):
    folder = tmp_path / "wmt"
    gold = write_test_set(folder)
    raters = ("--annotator", "rater1", "--annotator", "rater2")
    markup = f"<script>={folder}/metric-scores/en-de/noisy-src.seg.score"
    content = card(
        tmp_path, folder, "--scores", "noisy-src", "--scores", markup, *raters, "--html", tmp_path / "card.html"
    )
    rows = rows_of(content)
    sentinels = {"source length", "candidate length", "length ratio"}
    assert rows.keys() == {"noisy-src", "<script>", "chrf", "bleu", "consensus", *sentinels, ANNOTATORS}
    assert content["gold"][0]["systems"] == ["sys0", "sys1", "sys2", "sys3"]
    assert content["gold"][0]["scored_translations"] == (~np.isnan(gold)).sum()
    lines = (folder / "metric-scores/en-de/noisy-src.seg.score").read_text().split()
    judged = np.array(lines[1::2], dtype=float).reshape(4, -1).T
    expected = agreement(gold, judged)
    assert rows["noisy-src"]["tie_calibrated_accuracy"] == pytest.approx(expected.tie_calibrated_accuracy)
    assert rows["noisy-src"]["pearson"] == pytest.approx(expected.pearson)
    assert rows["source length"]["kendall_tau_b_by_source"] is None
    assert rows[ANNOTATORS]["kind"] == "annotators"
    news = agreement(gold[:6], judged[:6]).tie_calibrated_accuracy
    assert rows_of(content, "news")["noisy-src"]["tie_calibrated_accuracy"] == pytest.approx(news)
    page = (tmp_path / "card.html").read_text(encoding="utf-8")
    assert "noisy-src" in page
    assert f'<td class="num">{rows["length ratio"]["tie_threshold"]:.3g}</td>' in page
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_a_judge_of_ours_sees_all_systems_of_a_source_and_equals_its_baseline(tmp_path):
    write_test_set(tmp_path / "wmt")
    rows = rows_of(card(tmp_path, tmp_path / "wmt", "--judge", "consensus", "--name", "ours"))
    same = [{**rows[name], "name": "", "kind": ""} for name in ("ours", "consensus")]
    assert same[0] == same[1]
    assert (rows["ours"]["kind"], rows["consensus"]["kind"]) == ("judge", "baseline")
    assert rows_of(card(tmp_path, tmp_path / "wmt", "--judge", "consensus"))["consensus"]["kind"] == "judge"


def test_several_language_pairs_have_a_mean_and_files_of_scores_are_of_each(tmp_path):
    folder = tmp_path / "wmt"
    for seed, pair in enumerate(("en-de", "en-ru")):
        gold = write_test_set(folder, pair, seed=seed)
        write_scores(tmp_path / f"{pair}.seg.score", [f"sys{at}" for at in range(4)], np.nan_to_num(gold))
    content = card(tmp_path, folder, "--scores", f"perfect={tmp_path}/{{lp}}.seg.score")
    assert [rows_of(content, None, pair)["perfect"]["tie_calibrated_accuracy"] for pair in ("en-de", "en-ru")] == [1, 1]
    chrf = [rows_of(content, None, pair)["chrf"]["pearson"] for pair in ("en-de", "en-ru", MEAN)]
    assert chrf[2] == pytest.approx((chrf[0] + chrf[1]) / 2)


def test_rows_are_grouped_by_source_and_annotators_averaged(tmp_path):
    rows = plain_rows()
    rows[0]["reference"] = None  # those of the other systems have it
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    content = card(tmp_path, path, "--scores", "mine")
    assert "chrf" in rows_of(content)
    assert "gold: 6 translations of 2 sources by 3 systems" in judge(path, "--resamples", 50).output
    gold = np.array([[3, 1.5, 1.5], [9, 4.5, 1]])
    mine = np.array([[10.0, 9, 8]] * 2)
    row = rows_of(content)["mine"]
    assert row["tie_calibrated_accuracy"] == pytest.approx(agreement(gold, mine).tie_calibrated_accuracy)
    assert content["gold"][0]["annotators"] == ["ann", "bob"]
    assert ANNOTATORS in rows_of(content)
    for twice in rows[6:]:
        twice["mine"] = ""
    assert rows_of(card(tmp_path, write_jsonl(path, rows), "--scores", "mine"))["mine"] == row


def test_blanks_around_a_name_make_no_other_system_or_annotator(tmp_path):
    rows = plain_rows()
    expected = card(tmp_path, write_jsonl(tmp_path / "rows.jsonl", rows))["rows"]
    for row in rows[::2]:
        row |= {"system": f" {row['system']}\u00a0", "annotator": f"{row['annotator']} "}
    assert card(tmp_path, write_jsonl(tmp_path / "rows.jsonl", rows))["rows"] == expected


@pytest.mark.parametrize("names", [{"trg_text": "translation"}, {"trg_text": "mt", "src_text": "source"}])
def test_translations_beside_their_references_are_what_is_judged(tmp_path, names):
    """As `grrm translate` writes rows, and as files with WMT's columns lp, source and target have them."""
    rows = plain_rows()
    expected = card(tmp_path, write_jsonl(tmp_path / "rows.jsonl", rows))["rows"]
    reference = "target" if "src_text" in names else "trg_text"
    renamed = [
        {names.get(name, name): value for name, value in row.items() if name != "reference"}
        | {reference: row["reference"]}
        for row in rows
    ]
    assert card(tmp_path, write_jsonl(tmp_path / "rows.jsonl", renamed))["rows"] == expected


def test_names_and_codes_of_languages_are_one_pair(tmp_path):
    rows = plain_rows()
    for row in rows[6:]:
        del row["lp"]
        row |= {"src_lang": "English", "trg_lang": "German"}
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    for options in ([], ["--language-pair", "en-de"], ["--language-pair", "English-de"]):
        content = card(tmp_path, path, *options)
        assert [(one["language_pair"], one["annotators"]) for one in content["gold"]] == [("en-de", ["ann", "bob"])]


def test_numbers_and_lists_are_names_of_segments_and_domains_and_one_without_scores_has_no_table(tmp_path):
    rows = [{**row, "reference": 7, "segment": [row["src_text"]], "domain": row["src_text"]} for row in plain_rows()]
    unrated = {**rows[0], "src_text": "five", "segment": [5], "domain": 5, "gold": None}
    content = card(tmp_path, write_jsonl(tmp_path / "rows.jsonl", [*rows, unrated]))
    assert {row["domain"] for row in content["rows"]} == {None, "one two", "three four"}
    assert content["gold"][0]["sources"] == 2


def test_half_a_character_in_a_name_is_told_with_its_row(tmp_path):
    rows = [{**row, "system": f"{row['system']}\ud800"} for row in plain_rows()]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    with pytest.raises(UserError, match=r"rows\.json row 1 has '.ud800', half of a character"):
        card(tmp_path, tmp_path / "rows.json")


def test_csv_under_the_names_of_others_and_a_source_that_comes_twice(tmp_path):
    path = tmp_path / "rows.csv"
    lines = ["lp,src,mt,ref,score,system"]
    lines += [f"en-de,hello,{text},hallo,{score},{system}" for text, score, system in
              (("a", "-1", "x"), ("b", "", "y"), ("c", "-2.5", "x"), ("d", "0", "y"))]  # fmt: skip
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    content = card(tmp_path, path)
    assert (content["gold"][0]["sources"], content["gold"][0]["scored_translations"]) == (2, 3)


def test_the_log_of_a_pearmut_campaign(tmp_path):
    """Entries as its server writes them: tutorials, skipped items and what was reset do not count."""

    def entry(user, number, *scores):
        item = {"item_id": f"doc{number}", "src": f"text {number}", "tgt": {"A": "x y z", "B": "u"}}
        judged = {name: {"score": score, "error_spans": []} for name, score in zip("AB", scores, strict=True)}
        return {"user_id": user, "item_i": number, "item": [item], "annotation": [judged], "actions": []}

    entries = [
        entry("eve", "welcome_0", 0, 99),
        entry("eve", 0, 10, 90),
        {"user_id": "eve", "item_i": 0, "annotation": "__RESET__", "item": []},
        entry("eve", 0, 80, 40),
        entry("eve", 1, 70, None),
        entry("dan", 0, 60, 50),
        {**entry("dan", 1, 1, 2), "annotation": [None]},
    ]
    log, pair = tmp_path / "log.jsonl", ("--src-lang", "en", "--trg-lang", "es")
    content = card(tmp_path, write_jsonl(log, entries), *pair)
    described = content["gold"][0]
    assert (described["language_pair"], described["sources"], described["scored_translations"]) == ("en-es", 2, 3)
    assert "has no scores mine; give their file, as --scores NAME=FILE" in mistake(log, *pair, "--scores", "mine")
    length = rows_of(content)["candidate length"]
    assert (length["tie_calibrated_accuracy"], length["pearson_by_source"]) == (0.0, pytest.approx(-1.0))
    for at, entry_of in enumerate(entries[3:6]):
        entry_of["item"][0] |= {"src_lang": "de", "trg_lang": ("fr", "it", "fr")[at]}  # as `grrm annotate` exports them
    assert [one["language_pair"] for one in card(tmp_path, write_jsonl(log, entries))["gold"]] == ["de-fr", "de-it"]
    for part, key in ((entries[3]["item"][0]["tgt"], "B"), (entries[3], "annotation")):
        del part[key]
        assert "has an entry of eve for item 0 without the texts or scores" in mistake(write_jsonl(log, entries), *pair)


APPRAISE = [  # as ExportSystemScoresToCSV of Appraise prints them: of documents, then of single segments
    "ann,A,7,TGT,eng,deu,80,doc1,False,[],1.0,2.0",
    "ann,A,7,TGT,eng,deu,90,doc1,False,[],3.0,4.0",
    "ann,B,7,TGT,eng,deu,40,doc1,False,[],1.0,2.0",
    "bob,B,7,TGT,eng,deu,20,doc1,False,[],1.0,2.0",
    "bob,B,7,BAD,eng,deu,0,doc1#bad,False,[],1.0,2.0",
    "bob,A,9,TGT,eng,deu,99,doc1,True,[],1.0,2.0",
]


@pytest.mark.parametrize("has_documents", [True, False])
def test_the_scores_of_an_appraise_campaign_with_its_batches(tmp_path, has_documents):
    lines = APPRAISE if has_documents else [line.replace(",doc1,False,[]", "") for line in APPRAISE[:4]]
    scores, batches = tmp_path / "scores.csv", tmp_path / "batches.json"
    scores.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    items = [
        {"targetID": system, "itemID": item, "itemType": kind, "documentID": document, "sourceText": "one, two"}
        for system, item, kind, document in (
            *(("A", 7, "TGT", "doc1"), ("B", 7, "TGT", "doc1"), ("B", 7, "BAD", "doc1#bad"), ("A", 9, "TGT", "doc1")),
        )
    ]
    items = [{**item, "targetText": f"{item['targetID']} says"} for item in items]
    batches.write_text(json.dumps([{"task": {}, "items": items}]), encoding="utf-8")
    content = card(tmp_path, scores, "--batches", batches)
    described = content["gold"][0]
    assert (described["language_pair"], described["systems"]) == ("eng-deu", ["A", "B"])
    assert (described["scored_translations"], described["annotators"]) == (2, ["ann", "bob"])
    repeated = [line.replace("TGT", "CHK") for line in lines if line.startswith("ann,A")]
    scores.write_text("".join(f"{line}\n" for line in [*lines, *repeated]), encoding="utf-8")
    checks = [{**items[0], "itemType": "CHK"}]
    batches.write_text(json.dumps([{"task": {}, "items": [*items, *checks]}]), encoding="utf-8")
    again = card(tmp_path, scores, "--batches", batches)["gold"][0]
    assert (again["sources"], again["scored_translations"]) == (1, 2), "a check repeats a translation"
    batches.write_text(json.dumps([{"task": {}, "items": items[1:]}]), encoding="utf-8")
    assert "row 1 has no text in the batches" in mistake(scores, "--batches", batches)
    batches.write_text(json.dumps([{"items": ["text"]}]), encoding="utf-8")
    assert "give the JSON of this Appraise campaign" in mistake(scores, "--batches", batches)


def test_ratings_by_rater_are_the_annotators_of_a_test_set(tmp_path):
    folder = tmp_path / "wmt"
    write_test_set(folder, n_sources=3, n_systems=2, seed=1)
    errors = {
        "rater1": [["major Accuracy/Non-translation!"], ["minor Fluency/Punctuation"], [], ["minor Style"], None, None],
        "rater2": [["major Style"], [], ["minor Style", "neutral Style"], ["minor Style"], [], []],
        "merged": [[]] * 6,
    }
    for name, rated in errors.items():
        lines = []
        for at, found in enumerate(rated):
            spans = [dict(zip(("severity", "category"), error.split(), strict=True)) for error in found or ()]
            rating = "None" if found is None else json.dumps({"errors": spans})
            lines.append(f"sys{at // 3}\t{rating}\t{name}\n")
        (folder / f"human-scores/en-de.mqm.{name}.seg.rating").write_text("".join(lines), encoding="utf-8")
    gold = read_mtme(folder, "en-de")
    expected = {"mqm.rater1": [[-25, -1], [-0.1, np.nan], [0, np.nan]], "mqm.rater2": [[-5, -1], [0, 0], [-1, 0]]}
    assert gold.annotators.keys() == expected.keys()
    for name, scores in expected.items():
        np.testing.assert_allclose(gold.annotators[name], scores)
    assert rows_of(card(tmp_path, folder))[ANNOTATORS]["coverage"] == pytest.approx(
        (4 / 6 + 4 / 4) / 2
    )  # either as gold


def test_saved_scores_give_the_same_card_again_also_of_systems_with_spaces(tmp_path):
    folder, saved = tmp_path / "wmt", tmp_path / "{lp}.seg.score"
    write_test_set(folder)
    spaced = [{**row, "system": row["system"].replace("s", "system ")} for row in plain_rows()]
    for gold in (folder, write_jsonl(tmp_path / "rows.jsonl", spaced)):
        first = rows_of(card(tmp_path, gold, "--judge", "chrf++", "--save-scores", saved))["chrf++"]
        assert rows_of(card(tmp_path, gold, "--scores", f"chrf++={saved}"))["chrf++"] == first


def test_scores_are_not_saved_outside_their_folder_nor_over_one_another_nor_judged_in_vain(tmp_path):
    rows, folder = plain_rows(), tmp_path / "scores"
    path = write_jsonl(tmp_path / "rows.jsonl", [{**row, "lp": "../../evil-de"} for row in rows])
    words = (path, "--judge", "chrf", "--save-scores")
    assert "'../../evil-de' of rows.jsonl cannot stand in" in mistake(*words, folder / "{lp}.seg.score")
    write_jsonl(path, [*rows, *({**row, "lp": "en-fr"} for row in rows)])
    assert "is one file for 2 language pairs; write {lp} into its name" in mistake(*words, folder / "all.seg.score")
    (folder / "en-fr.seg.score").mkdir(parents=True)
    assert "en-fr.seg.score is a folder" in mistake(*words, folder / "{lp}.seg.score")
    assert [*folder.iterdir()] == [folder / "en-fr.seg.score"]


def test_what_a_server_did_not_answer_is_told_with_a_remedy_that_this_command_has(tmp_path):
    own = tmp_path / "own.py"
    own.write_text(
        "from grrm.gqm.groups import Status, Verdict\n"
        "def judge(groups):\n"
        "    return [Verdict.unscored(3, Status.JUDGE_TIMEOUT) if group.task.source == 'one two'\n"
        "            else Verdict((Status.SCORED,) * 3, (1.0, 2.0, 3.0)) for group in groups]\n"
    )
    output = judge(write_jsonl(tmp_path / "rows.jsonl", plain_rows()), "--judge", f"{own}:judge").output
    assert "no server answered for 1 of 2 rows: they count as not scored; start it again" in output
    assert "--resume" not in output


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (lambda rows: [{**rows[0], "gold": "good"}], (), "row 1 has 'good' as gold; write a number"),
        (lambda rows: [{**rows[0], "gold": 10**400}], (), "as gold; write a number"),
        (lambda rows: [{**row, "gold": ""} for row in rows], (), "has no human scores of en-de"),
        (lambda rows: [{**row, "src_text": None} for row in rows], (), "row 1 lacks the source, the system or its"),
        (
            lambda rows: rows,
            ("--scores", "mine", "--judge", "chrf", "--name", "mine"),
            "two judges have one name (mine, ",
        ),
        (lambda rows: rows[:1], (), "has one system of en-de, s0; a card compares two or more"),
        (lambda rows: [{k: v for k, v in rows[0].items() if k != "gold"}], (), "has no column gold among"),
        (lambda rows: [*rows, {**rows[0], "annotator": "cy", "trg_text": "other"}], (), "in a column segment"),
        (
            lambda rows: [*rows, {**rows[0], "annotator": "cy", "mine": 3}],
            ("--scores", "mine"),
            "row 13 has another mine",
        ),
        (lambda rows: [{k: v for k, v in row.items() if k != "lp"} for row in rows], (), "does not say its languages"),
        (lambda rows: rows, ("--without", "s2", "--without", "S3"), "rows.jsonl 'S3': give one of s0, s1, s2"),
        (lambda rows: rows, ("--language-pair", "en-fr"), "has no rows of en-fr"),
        (lambda rows: rows, ("--temperature", "1"), "--temperature has no effect without --judge or --model"),
        (lambda rows: rows, ("--batch-rows", "1"), "--batch-rows has no effect without --judge or --model"),
        (lambda rows: rows, ("--scores", "theirs"), "has no column theirs among"),
        (lambda rows: rows, ("--judge", "answer"), "--judge answer judges answers, and these are translations"),
        (lambda rows: [{**row, "reference": ""} for row in rows], ("--judge", "chrf"), "chrf needs a reference for"),
        (
            lambda rows: [{**row, "reference": np.nan} for row in rows],
            ("--judge", "chrf"),
            "chrf needs a reference for",
        ),
    ],
)
def test_mistakes_are_named_with_their_remedy(tmp_path, change, arguments, message):
    path = write_jsonl(tmp_path / "rows.jsonl", change(plain_rows()))
    assert message in mistake(path, *arguments)


def test_mistakes_in_a_test_set(tmp_path):
    folder = tmp_path / "wmt"
    write_test_set(folder)
    assert f"{tmp_path} has the test sets wmt; give one of them" in mistake(tmp_path)
    assert "wmt 'da': give one of mqm, rater1, rater2" in mistake(folder, "--gold-key", "da")
    assert "unknown metric of en-de" in mistake(folder, "--scores", "COMET-refA")
    assert "wmt 'sys9': did you mean 'sys" in mistake(folder, "--without", "sys9")
    for pair in ("/x", "**", "en-*"):
        assert f"--language-pair {pair} is none; write its languages" in mistake(folder, "--language-pair", pair)
    write_scores(tmp_path / "other.seg.score", ["x"], np.zeros((12, 1)))
    named = f"name={tmp_path}/other.seg.score"
    assert f"--scores {named} has scores of x and none of sys0, sys1" in mistake(folder, "--scores", named)
    rating = folder / "human-scores/en-de.mqm.rater3.seg.rating"
    rating.write_text('sys0\t{"errors": [{"severity": "critical", "category": "Style"}]}\n')
    assert "rater3.seg.rating line 1 is no rating" in mistake(folder)
    rating.unlink()
    other = folder / "system-outputs/en-de/other.jsonl"
    other.write_text('{"text": "ein Wort"}\n')
    assert "other.jsonl row 1 has no text 'hypothesis'" in mistake(folder)
    other.unlink()
    (folder / "human-scores/en-de.mqm.seg.score").write_text("sys0 1\n\n")
    assert "en-de.mqm.seg.score line 2 is ''; write a system and a score" in mistake(folder)
    (folder / "human-scores/en-de.mqm.seg.score").write_text("sys0 1\nsys0 one\n")
    assert "en-de.mqm.seg.score line 2 is 'sys0 one'; write a system and a score" in mistake(folder)
    (folder / "human-scores/en-de.mqm.seg.score").write_text("sys0 1\nsys1 2\n")
    assert "has 1 scores of sys0 for 12 segments" in mistake(folder)
