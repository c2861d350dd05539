"""The parsers' table counts what it says, is the one that is shown, and can be made again."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULT = json.loads((ROOT / "benchmarks/results/parser_table.json").read_text(encoding="utf-8"))


@pytest.fixture
def table(import_benchmark):
    return import_benchmark("parser_table")


def counts(result):
    return {**result["golden"], **result["mutated"], **result["mutations"]}


def test_a_small_run_has_the_structure_of_the_result_and_counts_every_reply(table, tmp_path, capsys):
    table.main(["--repeats", "1", "--seed", "7", "--out", str(tmp_path / "new/result.json")])
    small = json.loads((tmp_path / "new/result.json").read_text())
    assert small.keys() == RESULT.keys()
    assert counts(small).keys() == counts(RESULT).keys()
    printed = capsys.readouterr().out
    for name, row in counts(small).items():
        assert row.keys() == counts(RESULT)[name].keys()
        assert name in printed
        for parser in table.PARSERS:
            assert sum(row[parser].values()) == row["replies"] > 0
    assert small["golden"] == RESULT["golden"]


def test_the_result_in_the_repository_is_what_its_arguments_give(table):
    workload = RESULT["workload"]
    assert table.measure(workload["repeats"], workload["seed"]) == RESULT


def test_the_page_shows_the_result():
    page = (ROOT / "docs/parser.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|`]+) \| (\d+) \|(.*)\|$", page, re.MULTILINE)
    titles = {"well-formed golden outputs": "well_formed", "malformed golden outputs": "malformed"}
    titles |= {f"{kind} mutations": kind for kind in RESULT["mutated"]}
    shown = {titles.get(title, title): (int(number), cells) for title, number, cells in rows}
    assert shown.keys() == counts(RESULT).keys()
    for name, (number, cells) in shown.items():
        row = counts(RESULT)[name]
        parsers = ("reference_inference", "reference_trainer", "exact", "tolerant")
        expected = [[row[parser][key] for key in ("accepted", "rejected", "wrong")] for parser in parsers]
        assert number == row["replies"]
        assert [[int(count) for count in re.findall(r"\d+", cell)] for cell in cells.split("|")] == expected, name


def test_truth_is_what_both_original_parsers_read_in_the_golden_file(table):
    for reply in table.golden_replies()["well_formed"]:
        assert table.inference_tool(reply) == table.trainer(reply) == reply.truth


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A: 7, B: 2", "accepted"),
        ("A: 2, B: 7", "wrong"),
        ("A: 7", "rejected"),
    ],
)
def test_outcomes_are_told_by_the_truth(table, text, expected):
    reply = table.Reply(text, "ranking_score", 2, (7.0, 2.0))
    assert {table.outcome(parse(reply), reply.truth) for parse in table.PARSERS.values()} == {expected}


def test_a_reply_that_ranks_against_its_scores_is_no_truth(table):
    for line, against in (("B > A", True), ("A > B", False), ("fine", False)):
        reply = table.Reply(f"{line}\n\nScores:\nA: 7, B: 2", "ranking_score", 2)
        assert table.contradicts_itself(reply, [7, 2]) is against


def test_mutations_change_the_last_line_and_nothing_else(table):
    reply = table.Reply("Said.\nA: 7, B: 2, C: 10", "score", 3, (7.0, 2.0, 10.0))
    for name, mutation in table.MUTATIONS.items():
        changed = table.mutated(reply, mutation, random.Random(3))
        assert changed.text.startswith("Said.\n"), name
        assert (changed.truth, changed.n_candidates) == (reply.truth, 3)
        assert changed.text != reply.text
