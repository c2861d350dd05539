"""`grrm probe`: judges by name and of one's own, what is written of them, and what is refused."""

from __future__ import annotations

import json
from functools import partial

import pytest
from support.command_line import invoke, refusal
from support.rows import write_jsonl

COPYIST = """
from grrm.gqm.groups import Status, Verdict

def judge(groups):
    return [
        Verdict((Status.SCORED,) * len(group.candidates), tuple(9.0 if c.translation == group.task.source else 4.0
                for c in group.candidates))
        for group in groups
    ]

def of_four(groups):
    return [
        Verdict((Status.SCORED,) * 4, (5.0,) * 4)
        if len(group.candidates) == 4
        else Verdict.unscored(len(group.candidates), Status.JUDGE_UNPARSABLE)
        for group in groups
    ]

def babbling(groups):
    verdicts = silent(groups)
    reads = [True, *[False] * (len(groups) - 1)] if groups[0].task.trg_lang == "de" else [False] * len(groups)
    return [
        Verdict((Status.SCORED,) * len(v.scores), (5.0,) * len(v.scores)) if read
        else Verdict(v.statuses, v.scores, None, "A" * 500 + " is better, I\\nthink", rejections=("malformed_scores",))
        for v, read in zip(verdicts, reads)
    ]

def cut_off(groups):
    some = [Verdict((Status.SCORED,) * len(group.candidates), (5.0,) * len(group.candidates)) for group in groups[:4]]
    return some + [Verdict.unscored(len(group.candidates), Status.JUDGE_UNREACHABLE) for group in groups[4:]]

def silent(groups):
    return [Verdict.unscored(len(group.candidates), Status.JUDGE_UNPARSABLE) for group in groups]
"""


@pytest.fixture
def rows(tmp_path):
    lines = [
        {"src_text": f"Page {i} is not there", "trg_text": f"Die Seite {i} gibt es nicht", "src_lang": "en"}
        | {"trg_lang": "de", "mt_texts": [f"Seite {i} ist nicht da", f"Die Seite {i} fehlt", None]}
        for i in range(20)
    ]
    write_jsonl(tmp_path / "rows.jsonl", lines)
    (tmp_path / "own.py").write_text(COPYIST)
    return tmp_path / "rows.jsonl"


probe = partial(invoke, "probe")


def test_a_judge_of_ones_own_that_rewards_copies_is_named_in_the_last_line(rows):
    out = rows.with_name("out.json")
    options = ["--rows", 12, "--group-size", 2, "--group-size", 3, "--resamples", 100, "--out", out]
    done = probe(rows, "--judge", f"{rows.with_name('own.py')}:judge", *options)
    assert "a policy would exploit first: source_copy, right in 0.000" in done.output
    assert "may read the reference" in done.output
    record = json.loads(out.read_text())
    assert (record["rows_a_probe"], record["orders"], [*record["group_sizes"]]) == (12, 2, ["2", "3"])
    for report in record["group_sizes"].values():
        assert report["probes"]["source_copy"]["all"]["right"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
        assert report["probes"]["cut_short"]["en-de"]["tied"] == 1.0
        assert report["probes"]["wrong_language"]["all"]["not_applicable"] == 20


def test_a_judge_that_reads_the_reference_is_right_and_said_to_be_trivial(rows):
    out = rows.with_name("out.json")
    chosen = ("--judge", "text_metric", "--metric", "chrf++", "--out", out)
    done = probe(rows, *chosen, "--rows", 10, "--probe", "cut_short", "--probe", "number_changed")
    assert json.loads(out.read_text())["options"] == {"metric": "chrf++"}
    assert "right decisions are trivial" in done.output
    assert "none of these is below chance; the weakest: cut_short, right in 1.000" in done.output
    assert "preamble" not in done.output


def test_consensus_is_probed_among_samples(rows):
    words = ["--judge", "consensus", "--rows", 10, "--samples-key", "mt_texts", "--probe", "other_translation"]
    for options, title in (([], "pairs"), (["--apart"], "each text apart")):
        done = probe(rows, *words, *options)
        assert f"Probes of consensus: 10 rows, {title}" in done.output
        assert "none of these is below chance; the weakest: other_translation" in done.output


def test_a_judge_of_groups_of_four_needs_groups_of_four(rows):
    judge = f"{rows.with_name('own.py')}:of_four"
    done = probe(rows, "--judge", judge, "--rows", 12, "--group-size", 3, "--group-size", 4)
    pairs, fours = done.output.split("groups of 4")
    assert "needs --group-size" in pairs
    assert "needs --group-size" not in fours
    assert "tied: 100.0 %" in fours


def test_replies_that_cannot_be_read_are_counted_and_one_is_shown_with_the_remedy(rows):
    words = ["--judge", f"{rows.with_name('own.py')}:babbling", "--rows", 12, "--probe", "preamble"]
    end = repr("…" + ("A" * 160 + " is better, I\nthink")[-160:])
    sentence = "replies that could not be read: malformed_scores {0}; {0} of 24 groups are without a verdict, one for "
    sentence += f"{end}: see that --judge, --prompt-type and --chat-template are those of the model's training"
    assert sentence.format(23) in probe(rows, *words).stderr
    told = refusal("probe", rows, *words, "--trg-lang", "fr")
    assert (
        told
        == f"judge {rows.with_name('own.py')}:babbling has scored nothing (judge_unparsable 48): {sentence.format(24)}"
    )


def test_probes_that_no_server_answered_are_told_and_not_taken_for_a_wrong_group_size(rows):
    done = probe(rows, "--judge", f"{rows.with_name('own.py')}:cut_off", "--rows", 12, "--probe", "preamble")
    assert "no server answered for 40 of 48 candidates: they count as not scored; start it again" in done.stderr
    assert "needs --group-size" not in done.output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--probe", "sourcecopy"], "source_copy"),
        (["--judge", "answer"], "judges answers"),
        (["--judge", "consensus", "--samples-key", "mt_texts", "--model", "x"], "--model has no effect"),
        (["--group-size", "50"], "--group-size 50 is more than a reference and 15 damages"),
        (["--apart"], "--apart needs samples"),
        (["--judge", "consensus"], "judge consensus needs samples to compare with"),
        (["--apart", "--samples-key", "mt_texts", "--group-size", "4"], "--group-size has no effect with --apart"),
        (["--probe", "wrong_language"], "no probe of wrong_language applies"),
        (["--judge", "OWN:silent"], "has scored nothing (judge_unparsable"),
    ],
)
def test_what_cannot_be_probed_is_a_sentence(rows, options, sentence):
    words = [word.replace("OWN", str(rows.with_name("own.py"))) for word in options]
    judge = [] if "--judge" in words else ["--judge", "chrf"]
    assert sentence in refusal("probe", rows, *judge, *words)
