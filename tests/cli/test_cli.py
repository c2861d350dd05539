"""The `grrm` command and how entry points end."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from safetensors import SafetensorError
from support.command_line import ends_with_a_sentence, invoke, refusal, the_sentence

from grrm import cli, entry
from grrm.cli.commands.training import launch
from grrm.config.plan import Machine, count_rows, show_plan
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.rewards.failure_policy import RewardFailure

GRRM = Path(entry.__file__).parent
CONFIGS = Path(__file__).parents[2] / "llm" / "config" / "qwen"
TINY = str(CONFIGS / "grpo_grrm_tiny_argument.yaml")


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (UserError("file 'x' is\n  missing."), 2, "error: file 'x' is missing.\n"),
        (RewardFailure("no judge"), 3, "error: no judge\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (caused(ImportError("initialization failed"), KeyboardInterrupt()), 130, "error: interrupted\n"),
        (OSError("(External) in backward of X\n    KeyboardInterrupt: <EMPTY MESSAGE>\n"), 130, "error: interrupted\n"),
        (
            OSError(errno.ENOSPC, "disk"),
            2,
            "error: cannot write the output (No space left on device): make room, or write to another disk.\n",
        ),
        (
            OSError(errno.EROFS, "disk", "m.jsonl"),
            2,
            "error: cannot use 'm.jsonl' (Read-only file system): name a file that you may read and write.\n",
        ),
        (
            SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
            2,
            "error: cannot write the output (No space left on device): make room, or write to another disk.\n",
        ),
    ],
)
def test_a_users_mistake_is_one_line_and_a_status(capsys, raised, status, message):
    def main():
        raise raised

    with pytest.raises(SystemExit) as caught:
        entry.run_main(main)
    assert caught.value.code == status
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(("returned", "status"), [(None, 0), (0, 0), (4, 4)])
def test_the_status_of_main_is_the_exit_status(returned, status):
    with pytest.raises(SystemExit) as caught:
        entry.run_main(lambda: returned)
    assert caught.value.code == status


def test_text_that_the_terminal_has_no_letters_for_ends_nothing(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="gbk"))
    with pytest.raises(SystemExit) as caught:
        entry.run_main(lambda: print("Fähre 日"))
    assert caught.value.code == 0
    assert written.getvalue().decode("gbk") == "F\\xe4hre 日\n"


@pytest.mark.parametrize(
    "defect",
    [
        ZeroDivisionError(),
        OSError(errno.EBADF, "closed"),
        RuntimeError("no space"),
        caused(ImportError("no symbol"), OSError(errno.ENOSPC, "disk")),
        OSError(errno.EPERM, "no file"),
        FileNotFoundError(2, "", "x"),
        SafetensorError('Error while serializing: I/O error: No such file or directory (os error 2) at path "x"'),
    ],
)
def test_a_defect_keeps_its_traceback(defect):
    def main():
        raise defect

    with pytest.raises(type(defect)) as caught:
        entry.run_main(main)
    assert caught.value is defect


def test_a_file_on_a_full_device_is_one_sentence(capsys):
    def main():
        with open("/dev/full", "w") as metrics:
            metrics.write("{}\n")

    assert "(No space left on device): make room" in ends_with_a_sentence(main, capsys)


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "grrm.cli", "rank", "-", "--judge", "consensus", "--src-lang", "de", "--trg-lang", "en"],
        [GRRM / "run_rl.py", "--help"],
    ],
    ids=["rank", "run_rl"],
)
def test_a_full_standard_output_is_one_sentence(command):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, *map(str, command)],
            input="Hallo\tHi\tHello\n",
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            timeout=600,
            check=False,
        )
    assert done.returncode == 2, done.stderr
    assert "cannot write the output (No space left on device): make room" in the_sentence(done.stderr)


def test_plan_needs_no_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("plan", TINY, "--nproc", "2", "--max_steps", "60", "--rollout_n=4")
    numbers = {line[:35].strip(): line[35:].split()[0] for line in done.stdout.splitlines()}
    assert numbers["rows per rollout"] == "128"
    assert numbers["data ranks"] == "2"
    assert numbers["optimizer steps"] == "60"
    assert numbers["training prompts"] == "unknown:"
    assert "\x1b" not in done.stdout


def test_plan_reads_a_pipe_once_and_processes_do_not_share_one(tmp_path):
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(pipe.write_text, Path(TINY).read_text())
        planned = invoke("plan", pipe)
    assert planned.output == invoke("plan", TINY).output
    with pytest.raises(UserError, match=r"'.*pipe.yaml' is a pipe, which --nproc 2 cannot share"):
        launch("rl", 2, [str(pipe)])


def test_a_mistake_in_a_pipe_is_told_under_its_name(tmp_path):
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(pipe.write_text, "rolout_n: 2\n")
        assert refusal("plan", pipe).startswith(f"{pipe}: ")


def test_plan_counts_prompts_that_are_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rl.jsonl").write_text("{}\n" * 70 + "\n")
    out = io.StringIO()
    words = ["--train_datasets", "rl.jsonl", "--held_out", "0", "--max_steps", "-1", "--num_train_epochs", "2"]
    show_plan(TINY, Machine(1), words, out)
    text = out.getvalue()
    assert "70  (before over-long ones are left out)" in text
    assert "4  (2 epochs)" in text
    Path("rl.jsonl.gz").write_bytes(gzip.compress(Path("rl.jsonl").read_bytes()))
    assert count_rows("rl.jsonl.gz") == 70
    assert count_rows("nowhere.jsonl") is None


def test_plan_on_a_terminal_is_a_table():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out = Terminal()
    show_plan(TINY, Machine(2), out=out)
    assert "rows per rollout" in out.getvalue()
    assert "─" in out.getvalue() or "━" in out.getvalue()


def test_plan_of_a_gpu_recipe_works_on_a_laptop():
    out = io.StringIO()
    show_plan(str(CONFIGS / "grpo_grrm_argument.yaml"), Machine(8), out=out)
    assert "8  (tensor parallel 1, sharding stage1)" in out.getvalue()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["plan", "nowhere.yaml"],
            "error: The argument file 'nowhere.yaml' cannot be read: No such file or directory.",
        ),
        (["plan", TINY, "--lerning_rate", "1"], "did you mean 'learning_rate'?"),
        (["plan", TINY, "--nproc", "3"], "global_batch_size 32 is not a multiple of the 3 data-parallel ranks; use 30"),
        (
            ["plan", TINY, "--write", "x.yaml", "--tokens-per-second", "5"],
            "--tokens-per-second has no effect with --write",
        ),
        (["plan"], "error: Missing argument 'ARGUMENTS_YAML'; see `grrm plan --help`."),
        (["sing"], "error: No such command 'sing'"),
        (["demo", "--seeds", "0"], "error: Invalid value for '--seeds'"),
        (["data", "convert", "nowhere.parquet", "out.jsonl", "--to", "rl"], "nowhere.parquet"),
        (["data", "convert", "x.csv", "y", "--messages", "--prompt-type", "SSR"], "not for --to rows or the prompt"),
    ],
)
def test_bad_command_lines_are_one_sentence_without_traceback(arguments, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["grrm", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    error = capsys.readouterr().err
    assert caught.value.code == 2
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["data"], ["eval"]], ids=" ".join)
def test_a_group_without_a_subcommand_prints_its_help(arguments, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["grrm", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    printed = capsys.readouterr()
    assert caught.value.code == 0
    assert "Usage: " in printed.out
    assert "Commands:" in printed.out
    assert printed.err == ""


def test_demo_passes_its_options_on(monkeypatch):
    seen = {}
    monkeypatch.setattr("grrm.demo.runner.run_demo", lambda **options: seen.update(options) or 1)
    result = invoke("demo", "--seeds", "3", "--fresh")
    assert result.return_value == 1
    assert (seen["n_seeds"], seen["fresh"], seen["out"]) == (3, True, Path("runs/demo"))


def commands_below(group, words=()):
    yield list(words)
    for name, command in getattr(group, "commands", {}).items():
        yield from commands_below(command, (*words, name))


@pytest.mark.parametrize("command", commands_below(cli.grrm), ids=" ".join)
def test_help_is_there_for_every_command(command):
    assert "Usage:" in invoke(*command, "--help").output


@pytest.mark.parametrize("group", [[], ["data"], ["data", "corpus"], ["eval"], ["annotate"], ["model"], ["scorer"]])
def test_the_help_of_a_group_says_whole_sentences_about_its_commands(group):
    commands = invoke(*group, "--help").output.partition("Commands:")[2]
    sentences = re.split(r"\n  (?=\S)", commands)[1:]
    assert len(sentences) > 1
    assert [sentence for sentence in sentences if sentence.rstrip().endswith("...")] == []


@pytest.mark.parametrize(
    ("words", "completed"),
    [("grrm comp", "completion"), ("grrm rl --np", "--nproc"), ("grrm judge-server --drain", "--drain-timeout")],
)
def test_the_shell_completes_commands_and_options(words, completed, monkeypatch, capsys):
    script = invoke("completion", "zsh").output
    assert "_GRRM_COMPLETE=zsh_complete" in script
    for name, value in {
        "_GRRM_COMPLETE": "zsh_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": len(words.split()) - 1,
    }.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(sys, "argv", ["grrm"])
    with pytest.raises(SystemExit):
        cli.main()
    assert completed in capsys.readouterr().out.splitlines()


def test_data_goes_from_corpus_to_training_files(tmp_path):
    pytest.importorskip("babel")
    folder, tokenizer = str(tmp_path / "phrases"), str(tmp_path / "tokenizer")
    rows = ["--train-rows", "60", "--heldout-rows", "20", "--languages", "en,de"]
    result = invoke("data", "corpus", "phrases", folder, *rows)
    train = f"{folder}/train.parquet"
    assert train in result.output
    invoke("data", "tokenizer", train, tokenizer, "--vocab-size", "300")
    assert os.path.isfile(f"{tokenizer}/tokenizer.json")
    for target in ("rl", "sft"):
        out = str(tmp_path / f"{target}.jsonl")
        converted = invoke("data", "convert", train, out, "--to", target, "--prompt-type", "Tower")
        assert "60 rows written" in converted.output
        assert count_rows(out) == 60
    chats = tmp_path / "chats"
    invoke("data", "convert", train, chats, "--prompt-type", "Tower", "--messages")
    for target, is_learned in (("rl", False), ("sft", True)):
        plain, chat = (
            [json.loads(line) for line in path.read_text().splitlines()]
            for path in (tmp_path / f"{target}.jsonl", chats / f"{target}.jsonl")
        )
        said = [[message["content"] for message in row["messages"]] for row in chat]
        assert [render_chatml(texts[0]) for texts in said] == [row["src"] for row in plain]
        assert [texts[1] if is_learned else row["tgt"] for texts, row in zip(said, chat, strict=True)] == [
            row["tgt"] for row in plain
        ]
    both = tmp_path / "both"
    invoke("data", "convert", train, both, "--prompt-type", "Tower")
    for target in ("rl", "sft"):
        assert (both / f"{target}.jsonl").read_bytes() == (tmp_path / f"{target}.jsonl").read_bytes()
