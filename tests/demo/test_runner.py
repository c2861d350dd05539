"""`run_demo` from outside: exit status, lock, starting over, what it refuses."""

import errno
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from grrm.demo import runner
from grrm.demo.real_runner import run_real
from grrm.demo.results import scores_file
from grrm.demo.settings import BASE, SFT, DemoSettings
from grrm.demo.stages import Stage
from grrm.errors import UserError

COPY = "import pathlib, shutil, sys; shutil.copy(sys.argv[1], sys.argv[2]); print('copied')"


@pytest.fixture
def small_demo(monkeypatch, tmp_path, finished_demo):
    """A demo whose only stages copy invented scores into place."""
    invented, _ = finished_demo

    class CopyPlan:
        def __init__(self, settings, root, out):
            self.out = out

        def stages(self):
            for policy in (BASE, SFT, *DemoSettings().rl_runs):
                target = scores_file(self.out, 1, policy)
                command = [sys.executable, "-c", COPY, str(scores_file(invented, 1, policy)), str(target)]
                yield Stage(f"eval-{policy}", policy, command, target.parent, outputs=[target])

    monkeypatch.setattr(
        runner, "Plan", lambda *arguments: type("P", (), {"stages": lambda self: list(CopyPlan(*arguments).stages())})()
    )
    return tmp_path / "runs" / "demo"


def test_demo_ends_with_a_table_and_the_report_and_is_reused(small_demo, capsys):
    assert runner.run_demo(out=small_demo) == 0
    printed = capsys.readouterr().out
    assert "GRPO, ranker" in printed
    assert "exact, greedy" in printed
    assert re.search(r"GRPO, metric: sampled chrF \+4.50 \(\S+ to \S+\) against SFT, one seed", printed)
    assert "4 stages, seed 1; logs in " in printed
    assert str(small_demo / "report.html") in printed
    assert f" --language en --logdir {shlex.quote(str(small_demo))}\n" in printed
    first = json.loads((small_demo / "summary.json").read_text())
    assert first["chrf"]["sft"]["mean"] == pytest.approx(59.2)

    assert runner.run_demo(out=small_demo) == 0
    assert capsys.readouterr().out.count("finished earlier") == 4
    assert json.loads((small_demo / "summary.json").read_text())["seconds"] == first["seconds"]


@pytest.mark.parametrize(
    ("judged", "line"),
    [
        (
            {
                "gain": 3.1,
                "interval": [2.8, 3.4],
                "sd": None,
                "above_spread": None,
                "greedy_gain": -0.05,
                "greedy_interval": [-0.33, 0.24],
                "greedy_not_below": False,
            },
            "GRPO: sampled chrF +3.10 (+2.80 to +3.40) against SFT, one seed, so the spread over seeds is not known; "
            "greedy -0.05 (-0.33 to +0.24), BELOW SFT",
        ),
        (
            {
                "gain": 0.2,
                "interval": [-0.1, 0.5],
                "sd": 0.5,
                "above_spread": False,
                "greedy_gain": 0.31,
                "greedy_interval": [0.04, 0.57],
                "greedy_not_below": True,
            },
            "GRPO: sampled chrF +0.20 (-0.10 to +0.50) against SFT, NOT more than twice the standard deviation over "
            "seeds, 0.50; greedy +0.31 (+0.04 to +0.57), not below SFT",
        ),
    ],
)
def test_verdict_is_a_sentence_that_does_not_flatter(judged, line):
    assert runner.verdict_line("GRPO", judged) == line


def test_fresh_starts_over_and_leaves_other_files_alone(small_demo, capsys):
    runner.run_demo(out=small_demo)
    (small_demo / "notes.txt").write_text("mine")
    capsys.readouterr()
    assert runner.run_demo(out=small_demo, fresh=True) == 0
    assert "finished earlier" not in capsys.readouterr().out
    assert (small_demo / "notes.txt").read_text() == "mine"


def test_failed_stage_is_one_sentence_with_the_last_words_before_it(monkeypatch, tmp_path, capsys):
    stage = Stage(
        "sft", "SFT", [sys.executable, "-c", "import sys; sys.exit('error: no such key')"], tmp_path / "o" / "sft"
    )
    monkeypatch.setattr(runner, "Plan", lambda *arguments: type("P", (), {"stages": lambda self: [stage]})())
    assert runner.run_demo(out=tmp_path / "o") == 1
    printed = capsys.readouterr()
    assert "  | error: no such key" in printed.out
    assert printed.err.startswith("error: stage 'sft' ended with status 1: read ")
    assert len(printed.err.splitlines()) == 1


def test_interruption_ends_with_130_and_stops_the_server(monkeypatch, tmp_path, capsys):
    stopped = []

    def interrupted(self, stages):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner.StageRunner, "run", interrupted)
    monkeypatch.setattr(runner.RewardService, "stop", lambda self: stopped.append(1))
    assert runner.run_demo(out=tmp_path / "o") == 130
    assert "run the same command again to resume" in capsys.readouterr().err
    assert stopped == [1]


def test_folder_with_other_things_in_it_is_refused_and_untouched(tmp_path):
    (tmp_path / "thesis.tex").write_text("work of years")
    with pytest.raises(UserError, match="not a demo's output"):
        runner.run_demo(out=tmp_path, fresh=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_two_demos_cannot_share_a_folder(tmp_path):
    with (
        runner.only_run_in(tmp_path / "o", "model"),
        pytest.raises(UserError, match="another run has"),
        runner.only_run_in(tmp_path / "o", "model"),
    ):
        pass


@pytest.mark.parametrize(("other", "run"), [("model", runner.run_demo), ("tokenizer", run_real)])
def test_the_results_of_another_command_are_refused_and_untouched(tmp_path, other, run):
    mark = tmp_path / "stages" / f"{other}.started.json"
    mark.parent.mkdir()
    mark.write_text("{}")
    with pytest.raises(UserError, match=f"has results of another command \\(stage {other}\\): give another folder"):
        run(out=tmp_path, fresh=True)
    assert mark.exists()


def test_a_file_system_without_locks_keeps_nobody_out(tmp_path, monkeypatch):
    def no_locks(file, how):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(runner.fcntl, "flock", no_locks)
    with runner.only_run_in(tmp_path / "o", "model"):
        assert (tmp_path / "o" / "stages").is_dir()


def test_missing_package_and_missing_checkout_are_named(monkeypatch):
    monkeypatch.setattr(runner, "NEEDED", ("json", "no_such_package"))
    with pytest.raises(UserError, match=r"needs no_such_package: install"):
        runner.checkout()
    monkeypatch.setattr(runner, "NEEDED", ())
    monkeypatch.setattr(runner.grrm, "__file__", str(Path("/usr/lib/python3/site-packages/grrm/__init__.py")))
    with pytest.raises(UserError, match="needs the recipes of a checkout"):
        runner.checkout()
