"""The dump of rollout groups: nothing lost, nothing twice, in either format."""

import json
import math
from dataclasses import replace

import pytest

from grrm.errors import UserError
from grrm.gqm.groups import Candidate, ContextSegment, Group, PartVerdict, Status, TranslationTask, Verdict
from grrm.rewards.mixing import counted, mix
from grrm.tracking.report.selection import read_opinions, write_opinions
from grrm.tracking.rollout_dump import RolloutDump, group_of, group_record, last_arguments, part_of, read_rollouts


def a_group(name: str) -> Group:
    candidates = (Candidate("A", "[eins]", "eins", 5), Candidate("B", "zwei", None, 4))
    return Group(name, TranslationTask("one\u2028two", "en", "de", None), candidates)


VERDICT = Verdict((Status.SCORED, Status.UNPARSABLE_CANDIDATE), (7.5, None), (("A",),), "A reads well", 1)


def a_record(step: int, name: str = "g0"):
    return group_record(
        step, a_group(name), VERDICT, [0.75, None], [0.5, 0.0], token_ids_GT=[[3, 1, 4, 1, 5], [9, 2, 6, 5]]
    )


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_everything_about_a_group_comes_back(tmp_path, file_format):
    dump = RolloutDump(tmp_path, file_format)
    dump.write(1, [a_record(1), a_record(1, "g1")])
    dump.write(2, [])
    dump.write(3, [a_record(3)])
    records = list(read_rollouts(tmp_path))
    assert [(record["step"], record["group_id"]) for record in records] == [(1, "g0"), (1, "g1"), (3, "g0")]
    assert records[0] == a_record(1)
    assert records[0]["candidates"][1] == {
        "id": "B",
        "response": "zwei",
        "translation": None,
        "n_tokens": 4,
        "token_ids": [9, 2, 6, 5],
        "status": "unparsable_candidate",
        "score": None,
        "reward": None,
        "advantage": 0.0,
        "kl": None,
        "values": None,
        "spans": None,
        "severities": None,
    }
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
@pytest.mark.parametrize("context", [None, (), (ContextSegment("zero", "null"), ContextSegment("half", None))])
def test_a_judge_can_be_shown_the_same_context_again(tmp_path, file_format, context):
    group = replace(a_group("g0"), task=replace(a_group("g0").task, context=context))
    RolloutDump(tmp_path, file_format).write(1, [group_record(1, group, VERDICT, [0.75, None], [0.5, 0.0])])
    assert group_of(next(iter(read_rollouts(tmp_path)))) == group


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_parts_of_a_mixture_come_back_and_give_the_same_verdict(tmp_path, file_format):
    scored, failed = (Status.SCORED, Status.SCORED), (Status.SCORED, Status.JUDGE_TIMEOUT)
    parts = [
        PartVerdict("chrf", 0.3, "std", scored, (2.0, 7.5), fell_back=True),
        PartVerdict("grrm", 0.7, "rank", scored, (9.0, 1.0), "A reads well"),
        counted(PartVerdict("comet", 1.0, "none", failed, (3.0, None)), required=False),
    ]
    verdict = mix(parts)
    RolloutDump(tmp_path, file_format).write(1, [group_record(1, a_group("g"), verdict, [0.1, 0.2], [0.5, 0.0])])
    (record,) = read_rollouts(tmp_path)
    found = [part_of(part) for part in record["verdict"]["parts"]]
    assert found == parts
    assert mix(found) == verdict
    assert [candidate["score"] for candidate in record["candidates"]] == list(verdict.scores)


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_resumed_run_does_not_leave_its_repeated_steps_twice(tmp_path, file_format):
    dump = RolloutDump(tmp_path, file_format)
    for step in (1, 2, 3):
        dump.write(step, [a_record(step, "old")])
    resumed = RolloutDump(tmp_path, file_format, first_step=2)
    resumed.write(2, [a_record(2, "new")])
    assert [(record["step"], record["group_id"]) for record in read_rollouts(tmp_path)] == [(1, "old"), (2, "new")]


@pytest.mark.parametrize(("before", "after"), [("jsonl", "parquet"), ("parquet", "jsonl")])
def test_steps_repeated_in_another_format_are_there_once(tmp_path, before, after):
    dump = RolloutDump(tmp_path, before)
    for step in (1, 2):
        dump.write(step, [a_record(step, "old")])
    RolloutDump(tmp_path, after, first_step=2).write(2, [a_record(2, "new")])
    RolloutDump(tmp_path, before, first_step=3).write(3, [a_record(3, "newest")])
    steps = [(record["step"], record["group_id"]) for record in read_rollouts(tmp_path)]
    assert steps == [(1, "old"), (2, "new"), (3, "newest")]


def test_line_cut_short_by_a_kill_does_not_spoil_the_file(tmp_path):
    dump = RolloutDump(tmp_path)
    dump.write(1, [a_record(1)])
    path = tmp_path / "rollouts-rank000.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write('{"step": 2, "group_id": "g')
    assert [record["step"] for record in read_rollouts(tmp_path)] == [1]
    RolloutDump(tmp_path, first_step=2).write(2, [a_record(2)])
    assert [json.loads(line)["step"] for line in path.read_text(encoding="utf-8").split("\n") if line] == [1, 2]


def test_nan_is_written_as_null_and_said_aloud(tmp_path, caplog):
    record = group_record(4, a_group("g"), VERDICT, [math.nan, None], [0.0, math.inf])
    RolloutDump(tmp_path).write(4, [record])
    candidates = next(read_rollouts(tmp_path))["candidates"]
    assert [candidate["reward"] for candidate in candidates] == [None, None]
    assert candidates[1]["advantage"] is None
    assert "candidates.reward is nan" in caplog.text


@pytest.mark.parametrize(("file_format", "shown"), [("jsonl", "half \ud83d"), ("parquet", "half \ufffd")])
def test_half_a_character_of_a_reply_does_not_end_a_run(tmp_path, file_format, shown):
    record = group_record(1, a_group("g"), replace(VERDICT, analysis="half \ud83d"), [0.75, None], [0.5, 0.0])
    RolloutDump(tmp_path, file_format).write(1, [record])
    (read,) = read_rollouts(tmp_path)
    assert read["verdict"]["analysis"] == shown
    assert {**read, "verdict": None} == {**record, "verdict": None}


def test_wrong_use_is_refused(tmp_path):
    with pytest.raises(ValueError, match="lengths"):
        group_record(1, a_group("g"), VERDICT, [1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"steps \[2\] given for step 1"):
        RolloutDump(tmp_path).write(1, [a_record(2)])


@pytest.mark.parametrize("judge", ["folder/own.py:judge", "../50%2F/own.py:judge"])
def test_opinions_of_a_judge_in_a_folder_are_kept_and_completed(tmp_path, judge):
    for name, text in (("g0", "half \ud83d"), ("g1", "old"), ("g1", "new")):
        verdict = replace(VERDICT, analysis=text)
        path = write_opinions(tmp_path, judge, [(a_record(1, name), verdict)])
    lines = map(json.loads, path.read_text().splitlines())
    assert {(line["group_id"], line["analysis"]) for line in lines} == {("g0", "half \ud83d"), ("g1", "new")}
    assert path.parent == tmp_path / "rejudged"
    assert {name: {*opinions} for name, opinions in read_opinions(tmp_path).items()} == {
        judge: {(1, "g0"), (1, "g1")},
    }


def test_the_name_of_a_folder_is_no_column(tmp_path):
    RolloutDump(tmp_path / "step=3", "parquet").write(1, [a_record(1)])
    assert list(read_rollouts(tmp_path / "step=3")) == [a_record(1)]


def test_a_damaged_page_of_parquet_is_named(tmp_path):
    RolloutDump(tmp_path, "parquet").write(1, [a_record(1)])
    (path,) = tmp_path.glob("*.parquet")
    whole = path.read_bytes()
    for start, end in ((4, 400), (len(whole) // 2, len(whole) - 9)):
        path.write_bytes(whole[:start] + b"\xff" * (end - start) + whole[end:])
        with pytest.raises(UserError, match=r"step00000001.parquet' is not parquet .*: copy it again, or remove it"):
            list(read_rollouts(tmp_path))


def test_a_file_that_was_copied_in_part_is_named(tmp_path):
    dump = RolloutDump(tmp_path, "parquet")
    dump.write(1, [a_record(1)])
    dump.write_arguments({"rollout_n": 2})
    write_opinions(tmp_path, "other", [(a_record(1), VERDICT), (a_record(2), VERDICT)])
    for pattern, part in (("*.parquet", slice(-9)), ("*.json", slice(-9)), ("rejudged/*.jsonl", slice(9, None))):
        (path,) = tmp_path.glob(pattern)
        path.write_bytes(path.read_bytes()[part])
    with pytest.raises(UserError, match=r"step00000001.parquet' is not parquet .*: copy it again, or remove it"):
        list(read_rollouts(tmp_path))
    with pytest.raises(UserError, match=r"arguments-step00000000.json' holds no settings of a run .*: copy it again"):
        last_arguments(tmp_path)
    with pytest.raises(UserError, match=r"other.jsonl:1 is not JSON .*: remove the line"):
        read_opinions(tmp_path)
