"""`grrm rank` with judges that have no model: the columns of every judge, and what can be made of them."""

from __future__ import annotations

import json

import pytest
from support.command_line import invoke

from grrm.errors import UserError

LANGUAGES = ["--src-lang", "de", "--trg-lang", "en"]
CONSENSUS = [*LANGUAGES, "--judge", "consensus"]
ROW = {"src_text": "Guten Tag", "mt_texts": ["good day", "good bye"]}


@pytest.mark.parametrize("metric", ["chrf", "bleu"])
def test_candidates_are_ranked_by_their_agreement(metric, rank, tmp_path):
    texts = ["good day", None, "good bye to you", "good day"]
    row = {**ROW, "mt_texts": texts, "scores": [9, 0, 1, 9]}
    found, alone = rank([row, {**row, "mt_texts": ["x", *[None] * 3]}], *CONSENSUS, "--metric", metric)
    assert "a group took" in rank.told
    assert found["judge_ranking"] == [[0, 3], [2]]
    assert found["judge_statuses"] == ["scored", "unparsable_candidate", "scored", "duplicate"]
    assert found["judge_scores"][0] == found["judge_scores"][3] > found["judge_scores"][2]
    assert alone["judge_scores"] == [None] * 4
    assert alone["judge_statuses"][0] == "single_candidate"
    invoke("eval", "ranking", tmp_path / "out.jsonl", "--json", tmp_path / "report.json")
    accuracy = json.loads((tmp_path / "report.json").read_text())["results"]["all"]["accuracy"]
    assert accuracy["mean"] == 1.0


def test_scores_against_the_reference_become_the_gold_of_another_judge(rank):
    """Copies stay, unlike in `grrm data groups`: a reward model has to score every sample that a policy draws."""
    row = {**ROW, "trg_text": "good day", "mt_texts": ["good day", "good bye", "good day"]}
    gold = rank([row], *LANGUAGES, "--judge", "text_metric", "--score-key", "scores")
    (judged,) = rank(gold, *CONSENSUS)
    assert judged["scores"][0] == judged["scores"][2] == 10.0 > judged["scores"][1] > 0
    assert judged["judge_scores"][0] == judged["judge_scores"][2] > judged["judge_scores"][1]


def test_a_row_that_cannot_be_judged_keeps_its_place(rank, tmp_path):
    lines = [json.dumps({**ROW, "src_text": " "}), json.dumps(ROW), '{"src_text": ', json.dumps({**ROW, "mt_texts": 3})]
    (tmp_path / "damaged.jsonl").write_text("\n".join(lines))
    done = invoke("rank", tmp_path / "damaged.jsonl", *CONSENSUS, "--out", tmp_path / "out.jsonl")
    assert "3 rows not judged (1 x src_text is not text, 1 x the line is not JSON, 1 x mt_texts is not a" in done.output
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["judge_statuses"] for row in found] == [None, ["scored", "scored"], None, None]
    assert found[0]["src_text"] == " "
    assert found[3]["judge_scores"] is None


def test_a_line_of_text_without_candidates_keeps_its_place(rank):
    found = rank("Guten Tag\tgood day\tgood bye\nHallo\n\nJa\tyes\tyep\n", *CONSENSUS)
    assert "2 rows not judged (1 x the line holds no candidate, 1 x the line is empty)" in rank.told
    assert [row["judge_statuses"] for row in found] == [["scored", "scored"], None, None, ["scored", "scored"]]


def test_languages_of_the_command_line_are_in_rows_that_are_not_judged_too(rank):
    found = rank([ROW, {"src_text": "Hallo"}], *CONSENSUS)
    assert [(row["src_lang"], row["trg_lang"]) for row in found] == [("de", "en")] * 2


def test_a_metric_needs_the_column_of_references(rank):
    with pytest.raises(UserError, match="trg_text"):
        rank([ROW], *LANGUAGES, "--judge", "text_metric")


def test_a_function_of_the_users_own_is_a_judge(rank, tmp_path):
    lines = ["from grrm.gqm.groups import Status, Verdict", "def length(groups):"]
    lines += ["    n = [[float(len(c.translation)) for c in group.candidates] for group in groups]"]
    lines += ["    return [Verdict((Status.SCORED,) * len(of), tuple(of)) for of in n]"]
    (tmp_path / "own.py").write_text("\n".join(lines))
    rows = [{"src_text": "eins", "mt_texts": ["one", "o"], "trg_text": None}]
    assert rank(rows, *LANGUAGES, "--judge", f"{tmp_path}/own.py:length")[0]["judge_scores"] == [3, 1]
    for judge, options, message in (
        ("own.py:width", (), "has no function 'width'"),
        ("other.py:length", (), "there is no file"),
        ("own.py:length", ("--metric", "bleu"), "--metric"),
    ):
        with pytest.raises(UserError, match=message):
            rank(rows, *LANGUAGES, "--judge", f"{tmp_path}/{judge}", *options)
