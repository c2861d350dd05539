"""`grrm rank` with judges that have no model: the columns of every judge, and what can be made of them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from grrm import cli

LANGUAGES = ["--src-lang", "de", "--trg-lang", "en"]


@pytest.mark.parametrize("metric", ["chrf", "bleu"])
def test_candidates_are_ranked_by_their_agreement(metric, tmp_path):
    out = tmp_path / "out.jsonl"
    row = {
        "src_text": "Guten Tag",
        "mt_texts": ["good day", None, "good bye to you", "good day"],
        "scores": [9, 0, 1, 9],
    }
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n" + json.dumps({**row, "mt_texts": ["x", *[None] * 3]}))
    arguments = ["rank", tmp_path / "rows.jsonl", *LANGUAGES, "--judge", "consensus", "--metric", metric, "--out", out]
    done = CliRunner().invoke(cli.grrm, [*map(str, arguments)])
    assert done.exit_code == 0, done.output
    assert "a group took" in done.output
    found, alone = map(json.loads, out.read_text().splitlines())
    assert found["judge_ranking"] == [[0, 3], [2]]
    assert found["judge_statuses"] == ["scored", "unparsable_candidate", "scored", "duplicate"]
    assert found["judge_scores"][0] == found["judge_scores"][3] > found["judge_scores"][2]
    assert alone["judge_scores"] == [None] * 4
    assert alone["judge_statuses"][0] == "single_candidate"
    report = CliRunner().invoke(cli.grrm, ["eval", "ranking", str(out), "--json", str(tmp_path / "report.json")])
    assert report.exit_code == 0, report.output
    accuracy = json.loads((tmp_path / "report.json").read_text())["results"]["all"]["accuracy"]
    assert accuracy["mean"] == 1.0


def test_scores_against_the_reference_become_the_gold_of_another_judge(tmp_path):
    """Copies stay, unlike in `grrm data groups`: a reward model has to score every sample that a policy draws."""
    row = {"src_text": "Guten Tag", "trg_text": "good day", "mt_texts": ["good day", "good bye", "good day"]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    ranked = [tmp_path / "gold.jsonl", tmp_path / "judged.jsonl"]
    for rows, judge, key, out in (
        (tmp_path / "rows.jsonl", "text_metric", "scores", ranked[0]),
        (ranked[0], "consensus", "judge_scores", ranked[1]),
    ):
        arguments = ["rank", rows, *LANGUAGES, "--judge", judge, "--score-key", key, "--out", out]
        done = CliRunner().invoke(cli.grrm, [*map(str, arguments)])
        assert done.exit_code == 0, done.output
    judged = json.loads(ranked[1].read_text())
    assert judged["scores"][0] == judged["scores"][2] == 10.0 > judged["scores"][1] > 0
    assert judged["judge_scores"][0] == judged["judge_scores"][2] > judged["judge_scores"][1]


def test_a_row_that_cannot_be_judged_keeps_its_place(tmp_path):
    row = {"src_text": "Guten Tag", "mt_texts": ["good day", "good bye"]}
    lines = [json.dumps({**row, "src_text": " "}), json.dumps(row), '{"src_text": ', json.dumps({**row, "mt_texts": 3})]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    out = tmp_path / "out.jsonl"
    arguments = ["rank", tmp_path / "rows.jsonl", *LANGUAGES, "--judge", "consensus", "--out", out]
    done = CliRunner().invoke(cli.grrm, [*map(str, arguments)])
    assert done.exit_code == 0, done.output
    assert "3 rows not judged (1 x src_text is not text, 1 x the line is not JSON, 1 x mt_texts is not a" in done.output
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["judge_statuses"] for row in found] == [None, ["scored", "scored"], None, None]
    assert found[0]["src_text"] == " "
    assert found[3]["judge_scores"] is None


def test_a_line_of_text_without_candidates_keeps_its_place(tmp_path):
    (tmp_path / "rows.txt").write_text("Guten Tag\tgood day\tgood bye\nHallo\n\nJa\tyes\tyep\n")
    out = tmp_path / "out.jsonl"
    arguments = ["rank", tmp_path / "rows.txt", *LANGUAGES, "--judge", "consensus", "--out", out]
    done = CliRunner().invoke(cli.grrm, [*map(str, arguments)])
    assert done.exit_code == 0, done.output
    assert "2 rows not judged (1 x the line holds no candidate, 1 x the line is empty)" in done.output
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["judge_statuses"] for row in found] == [["scored", "scored"], None, None, ["scored", "scored"]]


def test_languages_of_the_command_line_are_in_rows_that_are_not_judged_too(tmp_path):
    rows = [{"src_text": "Guten Tag", "mt_texts": ["good day", "good bye"]}, {"src_text": "Hallo"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    out = tmp_path / "out.jsonl"
    arguments = ["rank", tmp_path / "rows.jsonl", *LANGUAGES, "--judge", "consensus", "--out", out]
    assert CliRunner().invoke(cli.grrm, [*map(str, arguments)]).exit_code == 0
    languages = [(row["src_lang"], row["trg_lang"]) for row in map(json.loads, out.read_text().splitlines())]
    assert languages == [("de", "en")] * 2


def test_a_metric_needs_the_column_of_references(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"src_text": "Guten Tag", "mt_texts": ["good day"]}))
    arguments = ["rank", tmp_path / "rows.jsonl", *LANGUAGES, "--judge", "text_metric"]
    done = CliRunner().invoke(cli.grrm, [*map(str, arguments)], standalone_mode=False)
    assert "trg_text" in str(done.exception)


def test_a_function_of_the_users_own_is_a_judge(tmp_path):
    lines = ["from grrm.gqm.groups import Status, Verdict", "def length(groups):"]
    lines += ["    n = [[float(len(c.translation)) for c in group.candidates] for group in groups]"]
    lines += ["    return [Verdict((Status.SCORED,) * len(of), tuple(of)) for of in n]"]
    (tmp_path / "own.py").write_text("\n".join(lines))
    (tmp_path / "rows.jsonl").write_text(json.dumps({"src_text": "eins", "mt_texts": ["one", "o"], "trg_text": None}))
    rank = ["rank", tmp_path / "rows.jsonl", *LANGUAGES, "--out", tmp_path / "out.jsonl", "--judge"]

    def said(*words):
        done = CliRunner().invoke(cli.grrm, list(map(str, [*rank, *words])))
        return done.exit_code, str(done.exception or "") + done.output

    assert said(f"{tmp_path}/own.py:length")[0] == 0
    assert json.loads((tmp_path / "out.jsonl").read_text())["judge_scores"] == [3, 1]
    assert "has no function 'width'" in said(f"{tmp_path}/own.py:width")[1]
    assert "there is no file" in said(f"{tmp_path}/other.py:length")[1]
    assert "--metric" in said(f"{tmp_path}/own.py:length", "--metric", "bleu")[1]
