"""`--devices`: shares of the rows in processes of their own make the same file, also after an interruption."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import GRRM, grrm, invoke, refusal
from support.completions_server import CompletionsServer, Refuse
from support.rows import write_jsonl
from support.stopped_clock import eventually
from support.tiny_policy import write_tiny_checkpoint

from grrm.cli import devices, results, shares
from grrm.errors import UserError
from grrm.tracking import console

N_ROWS = 7
RANK = ("--judge", "consensus", "--batch-rows", 2)


def write_rows(folder: Path, samples: bool = True) -> Path:
    path = folder / "rows.jsonl"
    rows = [
        {"src_text": f"Zahl {n}", "src_lang": "de", "trg_lang": "en"}
        | ({"mt_texts": [f"number {n}", "x" * n, "numb"]} if samples else {})
        for n in range(N_ROWS)
    ]
    return write_jsonl(path, rows)


def last_sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The error of a command that ended with status 2, behind its progress."""
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_verdicts_are_those_of_one_process_in_the_order_of_the_rows(tmp_path):
    rows = write_rows(tmp_path)
    for out, shared in (("one.jsonl", []), ("two.jsonl", ["--devices", "cpu:2"])):
        assert f"scored {3 * N_ROWS}" in invoke("rank", rows, *RANK, "--out", tmp_path / out, *shared).stderr
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"rows.jsonl", "one.jsonl", "two.jsonl"}


def test_rows_that_are_done_on_other_devices_are_neither_done_again_nor_in_the_time_left(tmp_path, monkeypatch):
    rows, out = write_rows(tmp_path), tmp_path / "out.jsonl"
    parts = tmp_path / "out.jsonl.parts"
    parts.mkdir()
    words = ["rank", str(rows), *map(str, RANK), "--out", str(out)]
    kept = [[0.5, 0.5, 0.5], ["scored"] * 3, [[0, 1, 2]], "kept", 0, [], 0, None]
    lines = [json.dumps([row, kept]) + "\n" for row in (1, 3)]
    (parts / f"{shares.fingerprint(words, rows)}-0-of-3.jsonl").write_text("".join(lines) + "[4, [[0.1")
    opened = []

    class Progress(console.StepProgress):
        def __init__(self, total, **options):
            super().__init__(total, **options)
            opened.append((total, self.initial))

    monkeypatch.setattr(console, "StepProgress", Progress)
    invoke(*words, "--devices", "cpu:1")
    assert opened == [(N_ROWS, 2)]
    responses = [json.loads(line)["judge_response"] for line in out.read_text().splitlines()]
    assert responses == ["", "kept", "", "kept", "", "", ""]
    assert not parts.exists()


def test_what_is_left_of_another_command_is_not_used(tmp_path):
    rows = write_rows(tmp_path)

    def key(*words: object) -> str:
        return shares.fingerprint(["rank", *map(str, words)], rows)

    first = key(rows, "--devices", "cpu:2")
    assert first == key(rows, "--devices=0-7") == key(rows, "--batch-deadline", 5, "--devices", "cpu:2")
    assert first == key(rows, "--devices", "cpu:2", "--batch_deadline", 9, "--batch-rows", 1), "as failures advise"
    assert first != key(rows, "--devices", "cpu:2", "--seed", "1")
    assert first != key(rows, "--judge-option", f"criteria={'long ' * 99}"), "which no file can be called"
    rows.write_text(rows.read_text() + "{}\n")
    assert first != key(rows, "--devices", "cpu:2")


def test_of_a_row_that_was_computed_again_the_later_result_counts(tmp_path):
    for second, (name, result) in enumerate((("key-0-of-3", "late"), ("key-0-of-1", "scored"))):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(f'[0, "{result}"]\n')
        os.utime(path, (second, second))
    assert shares.read_done(tmp_path, "key") == {0: "scored"}


def test_every_file_of_a_folder_of_rows_counts(tmp_path):
    deep = tmp_path / "wmt/system-outputs/en-de/a.txt"
    deep.parent.mkdir(parents=True)
    deep.write_text("one\n")
    before = shares.fingerprint(["judge", str(tmp_path / "wmt")], tmp_path / "wmt")
    deep.write_text("other\n")
    assert before != shares.fingerprint(["judge", str(tmp_path / "wmt")], tmp_path / "wmt")


@pytest.mark.parametrize(
    ("judge", "options", "message"),
    [
        ("raise SystemExit('no more')", (), r"cpu:0 ended with status 1 \(no more\): see .*/cpu-0.log, mend the cause"),
        ("os.kill(os.getpid(), 9)", (), r"cpu:0 was killed by signal 9 \(it said nothing\): see .*/cpu-0.log"),
        (
            "print('waiting', flush=True); time.sleep(900)",
            ("--batch-deadline", 4),
            r"cpu:0 finished no batch in 4 s \(.+\): see .*/cpu-0.log, raise --batch-deadline",
        ),
    ],
    ids=["ended", "killed", "hangs"],
)
def test_a_process_that_fails_or_hangs_is_one_sentence_with_its_own(tmp_path, judge, options, message):
    (tmp_path / "mine.py").write_text(f"import os, time\n\n\ndef judge(groups):\n    {judge}\n")
    out, name = tmp_path / "out.jsonl", f"{tmp_path}/mine.py:judge"
    said = refusal("rank", write_rows(tmp_path), "--judge", name, "--out", out, "--devices", "cpu:1", *options)
    assert re.search(f"^the process on {message}", said)
    assert not out.exists()
    assert (tmp_path / "out.jsonl.parts/cpu-0.log").exists()


def test_what_the_others_have_done_is_there_when_one_has_failed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(_FAILS_ONCE)
    rows, out = write_rows(tmp_path), tmp_path / "out.jsonl"
    words = ["rank", rows, "--judge", f"{tmp_path}/mine.py:judge", "--out", out, "--batch-rows", 1]
    failed = grrm(*words, "--devices", "cpu:2")
    assert "the process on cpu:1 ended with status 1" in last_sentence(failed)
    invoke(*words, "--devices", "cpu:1")
    assert [json.loads(line)["judge_scores"][0] for line in out.read_text().splitlines()] == [1.0] * N_ROWS
    judged = (tmp_path / "judged").read_text().split("\n")[:-1]
    assert len(judged) == len({*judged}) == N_ROWS


def test_what_is_done_stays_until_the_output_is_written(tmp_path, monkeypatch):
    rows, out = write_rows(tmp_path), tmp_path / "out.jsonl"
    words = ["rank", rows, *RANK, "--out", out, "--devices", "cpu:1"]

    def on_a_full_disk(row):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(results, "json_line", on_a_full_disk)
        with pytest.raises(OSError, match="No space left"):
            invoke(*words)
    assert not out.exists()
    monkeypatch.setattr(devices.sys, "executable", "/no/python")
    invoke(*words)
    assert len(out.read_text().splitlines()) == N_ROWS
    assert not (tmp_path / "out.jsonl.parts").exists()


def test_translations_by_servers_that_went_away_are_not_asked_for_again(tmp_path):
    n_before = 4

    def until_it_fails(body, number):
        return "number" if number < n_before or server.is_back else Refuse(500)

    rows, out = write_rows(tmp_path, samples=False), tmp_path / "out.jsonl"
    with CompletionsServer(until_it_fails) as server:
        server.is_back = False
        words = ["translate", rows, "--url", server.url, "--model", "m", "--prompt-type", "Tower", "--out", out]
        done = grrm(*words, "--batch-rows", 2)
        assert f"{n_before} of {N_ROWS} rows are in {out}.parts: the same command goes on from there" in done.stderr
        assert (done.returncode, out.exists()) == (2, False)
        assert "did not answer" in last_sentence(done)
        server.is_back = True
        server.requests.clear()
        invoke(*words, "--batch-rows", 5, "--deadline", 60)
        assert len(server.requests) == N_ROWS - n_before
    assert [json.loads(line)["translation"] for line in out.read_text().splitlines()] == ["number"] * N_ROWS
    assert {path.name for path in tmp_path.iterdir()} == {"rows.jsonl", "out.jsonl"}


def test_verdicts_that_were_there_when_a_judge_failed_are_kept_but_not_those_of_a_judge_changed_since(tmp_path):
    judge, rows, out = tmp_path / "mine.py", write_rows(tmp_path), tmp_path / "out.jsonl"
    words = ["rank", rows, "--judge", f"{judge}:judge", "--out", out, "--batch-rows", 1]

    def judged() -> list[str]:
        return (tmp_path / "judged").read_text().split("\n")[:-1]

    judge.write_text(_FAILS_ONCE)
    failed = grrm(*words, cwd=tmp_path)
    assert f"3 of {N_ROWS} rows are in {out}.parts: the same command goes on from there" in failed.stderr
    assert "a group took" in grrm(*words, cwd=tmp_path).stderr
    assert judged() == [f"Zahl {row}" for row in range(N_ROWS)]
    assert not (tmp_path / "out.jsonl.parts").exists()

    for file in ("judged", "failed"):
        (tmp_path / file).unlink()
    grrm(*words, cwd=tmp_path)
    judge.write_text(f"{_FAILS_ONCE}# other\n")
    grrm(*words, cwd=tmp_path)
    assert len(judged()) == 3 + N_ROWS


def test_rows_that_no_server_judged_are_judged_by_the_same_command(tmp_path):
    rows, out = write_rows(tmp_path), tmp_path / "out.jsonl"
    with CompletionsServer(lambda body, _: Refuse(503) if server.model_status == 503 else "A: 9, B: 7") as server:
        server.model_status = 503
        words = ["rank", rows, "--url", server.url, "--model", "m", "--prompt-type", "score", "--out", out]
        assert "no server answered for any of the" in refusal(*words, "--deadline", 1)
        server.model_status = 200
        invoke(*words, "--deadline", 60)
    assert len(out.read_text().splitlines()) == N_ROWS
    assert "judge_unreachable" not in out.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell processes that their parent is gone")
def test_no_process_outlives_a_command_that_is_killed(tmp_path):
    (tmp_path / "mine.py").write_text(_SAYS_ITS_ID)
    words = ["rank", write_rows(tmp_path), "--judge", f"{tmp_path}/mine.py:judge", "--out", tmp_path / "out.jsonl"]
    with subprocess.Popen([*GRRM, *map(str, words), "--devices", "cpu:1"], cwd=tmp_path) as command:
        eventually((tmp_path / "id").exists)
        command.kill()
    process = int((tmp_path / "id").read_text())
    eventually(lambda: not Path(f"/proc/{process}").exists() or ") Z " in Path(f"/proc/{process}/stat").read_text())


_SAYS_ITS_ID = """
import os, pathlib, time


def judge(groups):
    pathlib.Path("written").write_text(str(os.getpid()))
    pathlib.Path("written").rename("id")
    time.sleep(900)
"""
_FAILS_ONCE = """
import pathlib

from grrm.gqm.groups import Status, Verdict


def judge(groups):
    (source,) = [group.task.source for group in groups]
    judged, failed = pathlib.Path("judged"), pathlib.Path("failed")
    if source == "Zahl 3" and not failed.exists():
        failed.touch()
        raise SystemExit("no more")
    with judged.open("a") as file:
        print(source, file=file)
    return [Verdict((Status.SCORED,) * 3, (1.0,) * 3) for group in groups]
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-", "--out", "out.jsonl", "--devices", "0"), "--devices needs files"),
        (("rows.jsonl", "--devices", "0"), "--devices needs files"),
        (("rows.jsonl", "--out", "out.jsonl", "--devices", "0,0"), "give different GPUs"),
        (("rows.jsonl", "--out", "out.jsonl", "--devices", "3-1"), "give different GPUs"),
        (("rows.jsonl", "--out", "out.jsonl", "--devices", "cpu:0"), "or processes as cpu:2"),
        (("rows.jsonl", "--out", "out.jsonl", "--batch-deadline", "5"), "no effect without --devices"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    rows = write_rows(tmp_path)
    words = ["rank", *words, *map(str, RANK), "--src-lang", "de", "--trg-lang", "en"]
    with pytest.raises(UserError, match=re.escape(message)):
        invoke(*words, stdin="a\tb\tc\n")
    assert {path.name for path in tmp_path.iterdir()} == {rows.name}


def test_every_gpu_is_seen_by_one_process():
    found = devices.environments("0-2,7")
    assert {name: one["CUDA_VISIBLE_DEVICES"] for name, one in found.items()} == {
        f"gpu:{number}": str(number) for number in (0, 1, 2, 7)
    }


def test_a_card_of_two_processes_is_that_of_one(tmp_path):
    gold = tmp_path / "gold.jsonl"
    rows = [
        {"src_text": f"Zahl {n}", "trg_text": text, "system": f"s{at}", "gold": at, "lp": "de-en"}
        for n in range(N_ROWS)
        for at, text in enumerate((f"number {n}", "x" * (n + 1), "numb"))
    ]
    write_jsonl(gold, rows)
    for number, shared in ((1, []), (2, ["--devices", "cpu:2"])):
        outputs = ["--out", tmp_path / f"{number}.json", "--save-scores", tmp_path / f"{number}.score"]
        invoke("eval", "judge", gold, *RANK, "--resamples", 20, *outputs, *shared)
    assert (tmp_path / "2.json").read_bytes() == (tmp_path / "1.json").read_bytes()
    assert (tmp_path / "2.score").read_bytes() == (tmp_path / "1.score").read_bytes()
    assert not (tmp_path / "2.json.parts").exists()
    without = ["eval", "judge", gold, "--scores", f"mine={tmp_path / '1.score'}", "--devices", "cpu:2"]
    assert "--devices has no effect without --judge or --model" in refusal(*without)


TRANSLATE = ("translate", "-n", 2, "--prompt-type", "Tower")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "temperature"),
    [(TRANSLATE, 0), (TRANSLATE, 1), (("rank",), 1)],
    ids=["greedy", "sampled", "judge"],
)
def test_replies_are_those_of_one_process(tmp_path, command, temperature):
    model, rows = write_tiny_checkpoint(tmp_path / "tiny"), write_rows(tmp_path, samples=command[0] == "rank")
    options = ["--model", model, "--temperature", temperature, "--max-new-tokens", 6, "--retry", 1, "--batch-rows", 2]
    for out, shared in (("one.jsonl", []), ("two.jsonl", ["--devices", "cpu:2"])):
        done = grrm(*command, rows, *options, "--out", tmp_path / out, *shared)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    column = "judge_response" if command[0] == "rank" else "raw_outputs"
    assert all(json.loads(line)[column] for line in (tmp_path / "one.jsonl").read_text().splitlines())
