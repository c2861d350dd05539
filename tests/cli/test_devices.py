"""`--devices`: shares of the rows in processes of their own make the same file, also after an interruption."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.command_line import grrm
from support.tiny_checkpoint import write_tiny_checkpoint

from grrm.cli import devices
from grrm.cli import grrm as commands
from grrm.errors import UserError

N_ROWS = 7
RANK = ("--judge", "consensus", "--batch-rows", 2)


def write_rows(folder: Path, samples: bool = True) -> Path:
    path = folder / "rows.jsonl"
    rows = [
        {"src_text": f"Zahl {n}", "src_lang": "de", "trg_lang": "en"}
        | ({"mt_texts": [f"number {n}", "x" * n, "numb"]} if samples else {})
        for n in range(N_ROWS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rank(rows: Path, out: Path, *options: object) -> None:
    done = grrm("rank", rows, *RANK, "--out", out, *options)
    assert done.returncode == 0, done.stderr
    assert f"scored {3 * N_ROWS}" in done.stderr


def test_verdicts_are_those_of_one_process_in_the_order_of_the_rows(tmp_path):
    rows = write_rows(tmp_path)
    rank(rows, tmp_path / "one.jsonl")
    rank(rows, tmp_path / "two.jsonl", "--devices", "cpu:2")
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"rows.jsonl", "one.jsonl", "two.jsonl"}


def test_rows_that_are_done_are_not_done_again_on_other_devices_either(tmp_path):
    rows, out = write_rows(tmp_path), tmp_path / "out.jsonl"
    words = ["rank", str(rows), *map(str, RANK), "--out", str(out)]
    parts = tmp_path / "out.jsonl.parts"
    parts.mkdir()
    kept = [[0.5, 0.5, 0.5], ["scored"] * 3, [[0, 1, 2]], "kept", 0, [], 0, None]
    (parts / f"{devices._fingerprint(words)}-0-of-3.jsonl").write_text(json.dumps([1, kept]) + "\n" + "[4, [[0.1")
    rank(rows, out, "--devices", "cpu:2")
    responses = [json.loads(line)["judge_response"] for line in out.read_text().splitlines()]
    assert responses == ["", "kept", *[""] * (N_ROWS - 2)]
    assert not parts.exists()


def test_what_is_left_of_another_command_is_not_used(tmp_path):
    rows = write_rows(tmp_path)
    first = devices._fingerprint(["rank", str(rows), "--devices", "cpu:2"])
    assert first == devices._fingerprint(["rank", str(rows), "--devices=0-7"])
    assert first != devices._fingerprint(["rank", str(rows), "--devices", "cpu:2", "--seed", "1"])
    rows.write_text(rows.read_text() + "{}\n")
    assert first != devices._fingerprint(["rank", str(rows), "--devices", "cpu:2"])


def test_a_process_that_fails_is_one_sentence_with_its_own(tmp_path):
    (tmp_path / "mine.py").write_text("def judge(groups):\n    raise SystemExit(5)\n")
    out = tmp_path / "out.jsonl"
    done = grrm(
        "rank", write_rows(tmp_path), "--judge", f"{tmp_path}/mine.py:judge", "--out", out, "--devices", "cpu:1"
    )
    assert done.returncode == 2
    assert "error: the process on cpu:0 ended with status 5" in done.stderr
    assert "Traceback" not in done.stderr
    assert not out.exists()
    assert (tmp_path / "out.jsonl.parts/cpu-0.log").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-", "--out", "out.jsonl", "--devices", "0"), "--devices needs files"),
        (("rows.jsonl", "--devices", "0"), "--devices needs files"),
        (("rows.jsonl", "--out", "out.jsonl", "--devices", "0,0"), "give different GPUs"),
        (("rows.jsonl", "--out", "out.jsonl", "--devices", "3-1"), "give different GPUs"),
        (("rows.jsonl", "--out", "out.jsonl", "--devices", "cpu:0"), "or processes as cpu:2"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    rows = write_rows(tmp_path)
    words = ["rank", *words, *map(str, RANK), "--src-lang", "de", "--trg-lang", "en"]
    with pytest.raises(UserError, match=re.escape(message)):
        CliRunner().invoke(commands, words, input="a\tb\tc\n", standalone_mode=False, catch_exceptions=False)
    assert {path.name for path in tmp_path.iterdir()} == {rows.name}


def test_every_gpu_is_seen_by_one_process():
    found = devices.environments("0-2,7")
    assert {name: one["CUDA_VISIBLE_DEVICES"] for name, one in found.items()} == {
        f"gpu:{number}": str(number) for number in (0, 1, 2, 7)
    }


@pytest.mark.slow
def test_samples_are_those_of_one_process(tmp_path):
    model, rows = write_tiny_checkpoint(tmp_path / "tiny"), write_rows(tmp_path, samples=False)
    options = ["--model", model, "-n", 2, "--temperature", 1, "--max-new-tokens", 6, "--retry", 1, "--batch-rows", 2]
    for out, shared in (("one.jsonl", []), ("two.jsonl", ["--devices", "cpu:2"])):
        done = grrm("translate", rows, *options, "--prompt-type", "Tower", "--out", tmp_path / out, *shared)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "two.jsonl").read_text() == (tmp_path / "one.jsonl").read_text()
