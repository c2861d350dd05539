"""What `make mutants` changes, how it names a change, and that a child's fate is told from its parent's."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from mutants.__main__ import HERE, files_in, of_others, sampled, stale, table, unexplained
from mutants.changes import mutants_of
from mutants.forked import run_forked
from mutants.overlay import PACKAGE, ROOT
from mutants.selection import Touched


def changes(source: str) -> set[str]:
    """The changes of a source, as `before -> after`."""
    return {f"{mutant.before} -> {mutant.after}" for mutant in mutants_of("m.py", textwrap.dedent(source))}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a + b", {"a + b -> a - b", "a + b -> a", "a + b -> b"}),
        ("x = logits / t", {"logits / t -> logits * t", "logits / t -> logits"}),
        ("x = a < b", {"a < b -> a <= b"}),
        ("x = 3", {"3 -> 4"}),
        ("x = True", {"True -> False"}),
        ("x = a and b", {"a and b -> a or b", "a and b -> a", "a and b -> b"}),
        ("x = config.clip_low", {"config.clip_low -> config.clip_high"}),
        ("x = inputs.old_logprobs_R", {"inputs.old_logprobs_R -> inputs.logprobs_R"}),
        ("x = f(a, b)", {"f(a, b) -> f(b, a)"}),
        ("x = f(a, key=b)", {"f(a, key=b) -> f(a)"}),
        ("x = min(a, b)", {"min(a, b) -> max(a, b)"}),
        ("x = [a for a in b if a]", {"a -> True"}),
        ("def f(n=1): pass", {"1 -> 2"}),
        ("if a:\n    f()", {"a -> not a", "f() -> pass"}),
        ("def f():\n    if a == b:\n        return", {"a == b -> a != b", "a == b -> False"}),
        ("x.y = a", {"x.y = a -> pass"}),
        ("x -= a", {"x -= a -> pass", "x -= a -> x += a"}),
        ("for a in b:\n    break", {"break -> continue"}),
    ],
)
def test_every_sort_of_change(source, expected):
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""1 + 1"""',
        "raise ValueError(f(a, b))",
        "x: Annotated[int, 1 + 1]",
        "logger.warning(a, b)",
        'x = f"{a + b}"',
        "if TYPE_CHECKING:\n    import a",
        "@f(a, b)\ndef g(): ...",
        "zip(a, b, strict=True)[c]",
    ],
)
def test_messages_and_annotations_are_left_alone(source):
    assert not changes(source)


def test_a_mutant_differs_from_its_source_in_one_place_and_keeps_its_name_when_lines_move():
    source = "def f(ä, b):\n    c = ä < b  # über\n    return ä < b\n"
    first, second = mutants_of("m.py", source)
    assert first.source == "def f(ä, b):\n    c = (ä <= b)  # über\n    return ä < b\n"
    assert second.source == "def f(ä, b):\n    c = ä < b  # über\n    return (ä <= b)\n"
    assert (first.name, second.name) == ("m.py f: ä < b -> ä <= b", "m.py f: ä < b -> ä <= b #2")
    moved = [mutant.name for mutant in mutants_of("m.py", "import os\n\n" + source)]
    assert moved == [first.name, second.name]


def test_the_sample_of_a_seed_stays_when_other_mutants_come():
    some = list(mutants_of("m.py", "x = a + b + c + d + e + f"))
    more = [*some, *(replace(mutant, module="n.py") for mutant in some)]
    assert sampled(some, 5, seed=1) != sampled(some, 5, seed=2)
    assert [mutant for mutant in sampled(more, 0, seed=1) if mutant.module == "m.py"] == sampled(some, 0, seed=1)


def test_tests_are_those_that_touch_the_statement_and_pass():
    tests = {name: {"seconds": 1.0, "passed": name != "t::c"} for name in ("t::a", "t::b", "t::c")}
    touched = {"m.py": {"1": [""], "3": ["t::a", "t::c"], "4": ["t::b"]}}
    selection = Touched({"t": {"tests": tests, "lines": touched, "outside": {"m.py": [1, 4]}}})
    source = "def f(n=1):\n    a = (\n        n - b)\n    return a / c\n"
    by_line = {mutant.lines[0]: selection.tests_for(mutant) for mutant in mutants_of("m.py", source)}
    assert by_line[2] == ["t::a"]  # the statement begins a line above its operator
    assert by_line[4] == ["t::b"]
    assert by_line[1] == ["t::a", "t::b"]  # only importing runs that line: whoever uses the module
    by_line = {mutant.lines[0]: selection.tests_of_processes(mutant) for mutant in mutants_of("m.py", source)}
    assert by_line == {1: ["t::a", "t::b"], 2: [], 4: ["t::a", "t::b"]}  # a file's processes are those of all its tests


def test_a_child_that_raises_dies_or_hangs_did_not_end(tmp_path):
    def hang(folder: Path) -> None:
        (folder / "started").touch()
        time.sleep(600)

    def fail(folder: Path) -> None:
        raise ValueError("of the child")

    assert run_forked(lambda folder: (folder / "result").write_text("done"), tmp_path, 60, 600)
    assert (tmp_path / "result").read_text() == "done"
    assert not run_forked(fail, tmp_path, 60, 600)
    assert "of the child" in (tmp_path / "log").read_text()
    assert not run_forked(lambda folder: os.kill(os.getpid(), signal.SIGKILL), tmp_path, 60, 600)
    assert not run_forked(hang, tmp_path, 60, 0.2)


def test_a_survivor_without_a_reason_counts_against_the_budget():
    survivors = [{"name": "a", "reason": "equivalent"}, {"name": "b", "reason": None}]
    result = {"mutants": 9, "sampled": 5, "killed": 2, "timeout": 1, "survivors": survivors}
    assert unexplained(result) == 1
    assert table({"gqm": result}, {"gqm": 0}).splitlines()[-1] == "| gqm | 9 | 5 | 3 | 2 | 1 | 1 | 0 |"


def test_reasons_of_mutants_that_are_gone_are_told():
    mutants = list(mutants_of("m.py", "x = a < b"))
    kept = {"m.py : a < b -> a <= b": "equal", "m.py f: a < b -> a <= b": "gone", "n.py : a -> b": "of another room"}
    assert stale(kept, mutants) == ["m.py f: a < b -> a <= b"]


def test_only_what_does_not_import_the_package_is_imported_before_the_children_start():
    own = ["grrm.rl", "grrm_reward_server.app", "tests.rl", "oracle.rl", "support.rolled", "conftest", "test_losses"]
    assert of_others([*own, "numpy", "paddle.nn"]) == ["numpy", "paddle.nn"]


def test_every_room_has_sources_and_tests():
    rooms = yaml.safe_load((HERE / "rooms.yaml").read_text())
    for room in rooms.values():
        assert all(files_in([path], PACKAGE, "*.py") for path in room["source"])
        assert files_in(room["tests"], ROOT, "test_*.py")
