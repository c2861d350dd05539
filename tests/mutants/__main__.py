"""Change the source of each room in one spot after another, and see whether the room's quick tests notice.

    PYTHONPATH=tests python -m mutants [--rooms rl rewards] [--sample 40] [--seed 1] [--again results.json]

A mutant that no test notices survives: a behaviour that nothing checks, or one that cannot be seen; the reasons of
those are in kept.yaml. The exit status is 1 where more survive without one than rooms.yaml allows.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from mutants.changes import Mutant, mutants_of
from mutants.forked import run_forked, scratch_folder
from mutants.overlay import PACKAGE, ROOT, Overlay
from mutants.pytest_runs import load_tests, run_tests
from mutants.selection import Touched, measure

HERE = Path(__file__).parent
CACHE = ROOT / "build/mutants"


def sampled(mutants: Sequence[Mutant], n: int, seed: int) -> list[Mutant]:
    """Pick mutants by a hash of their names: a change of other lines leaves the choice as it is."""
    chosen = sorted(mutants, key=lambda mutant: hashlib.sha256(f"{seed} {mutant.name}".encode()).digest())
    return chosen[:n] if n else chosen


def files_in(paths: Sequence[str], root: Path, pattern: str) -> list[str]:
    """Files of that name among and below some paths, relative to `root`; a path that is not there has none."""
    every = [file for path in paths for file in [root / path, *sorted((root / path).rglob(pattern))]]
    return [str(file.relative_to(root)) for file in every if file.is_file()]


def mutants_in(sources: Sequence[str]) -> list[Mutant]:
    """Make every mutant of some files and folders of the package."""
    return [m for file in files_in(sources, PACKAGE, "*.py") for m in mutants_of(file, (PACKAGE / file).read_text())]


def files_of_tests(paths: Sequence[str]) -> list[str]:
    """Test files among and below some paths."""
    return files_in(paths, ROOT, "test_*.py")


def stages_of(room: dict[str, Any], overlay: Overlay) -> list[Touched]:
    """Measure the tests of a room, in the order in which its mutants go through them."""
    return [measure(files_of_tests([path]), overlay.package, CACHE) for path in room["tests"]]


def import_what_tests_import(files: Sequence[str]) -> None:
    """Import what is neither the package's nor the tests' own, once for all children.

    Its names are kept in the cache. Where they are out of date, children import the rest themselves.
    """
    known = CACHE / f"imports-{hashlib.sha256(' '.join(files).encode()).hexdigest()[:16]}.json"
    if not known.exists():
        with scratch_folder() as folder:
            run_forked(partial(load_tests, files=files), folder, 600, 1800)
            CACHE.mkdir(parents=True, exist_ok=True)
            known.write_text((folder / "result.json").read_text())
    for name in of_others(json.loads(known.read_text())):
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    loaded = {name for name in sys.modules if name.startswith("grrm.")} - {"grrm.startup", "grrm.deferred_imports"}
    if loaded:
        raise RuntimeError(f"no child would see a mutant of {', '.join(sorted(loaded))}")
    gc.collect()
    gc.freeze()  # what a child's garbage collector looks through, the child copies


def of_others(modules: Sequence[str]) -> list[str]:
    """Those that are neither the package's nor the tests' own, which import the package."""
    own = {"tests", *(path.stem for path in (ROOT / "tests").iterdir())}
    return [name for name in modules if name.split(".")[0] not in own and not name.startswith(("grrm", "test_"))]


def outcome_of(mutant: Mutant, overlay: Overlay, stages: Sequence[Touched]) -> tuple[str, str]:
    """Tell what becomes of a mutant: "killed", with the test that did it, "timeout", "survived" or "untested"."""
    selected = [(stage, stage.tests_for(mutant)) for stage in stages]
    selected += [(stage, stage.tests_of_processes(mutant)) for stage in stages]
    if not any(tests for _, tests in selected):
        return "untested", ""
    with overlay.mutated(mutant.module, mutant.source):
        for stage, tests in selected:
            if not tests:
                continue
            usual_s = stage.seconds(tests)
            with scratch_folder() as folder:
                ended = run_forked(partial(run_tests, tests=tests), folder, 20 + 3 * usual_s, 60 + 5 * usual_s)
                if not ended:
                    return "timeout", tests[0]
                if failed := json.loads((folder / "result.json").read_text()):
                    return "killed", failed
    return "survived", ""


def examine(name: str, room: dict[str, Any], overlay: Overlay, options: argparse.Namespace) -> dict[str, Any]:
    """Let the tests of a room decide about its mutants."""
    mutants = mutants_in(room["source"])
    if options.again:
        again = {entry["name"] for entry in json.loads(options.again.read_text())["rooms"].get(name, {})["survivors"]}
        chosen = [mutant for mutant in mutants if mutant.name in again]
    else:
        chosen = sampled(mutants, options.sample, options.seed)
    started = time.monotonic()
    stages = stages_of(room, overlay)
    measured_s = time.monotonic() - started
    outcomes: dict[str, str] = {}
    killers: dict[str, str] = {}
    for number, mutant in enumerate(chosen, 1):
        before = time.monotonic()
        outcomes[mutant.name], killers[mutant.name] = outcome_of(mutant, overlay, stages)
        spent = time.monotonic() - before
        print(f"{name} {number}/{len(chosen)} {outcomes[mutant.name]} {spent:.1f} s  {mutant.name}", flush=True)
    kept = yaml.safe_load((HERE / "kept.yaml").read_text()) or {}
    for gone in stale(kept, mutants):
        print(f"kept.yaml has a mutant that there is no more: {gone}")
    survivors = [
        {"name": mutant.name, "line": mutant.lines[0], "kind": mutant.kind, "reason": kept.get(mutant.name)}
        for mutant in chosen
        if outcomes[mutant.name] in {"survived", "untested"}
    ]
    counts = {key: list(outcomes.values()).count(key) for key in ("killed", "timeout", "survived", "untested")}
    seconds = {"measuring": round(measured_s), "deciding": round(time.monotonic() - started - measured_s)}
    caught = {name: killer for name, killer in killers.items() if killer}
    head = {"mutants": len(mutants), "sampled": len(chosen), **counts, "seconds": seconds}
    return {**head, "survivors": survivors, "killed_by": caught}


def stale(kept: Collection[str], mutants: Sequence[Mutant]) -> list[str]:
    """Names with a reason, of modules of these mutants, that no mutant has any more."""
    modules, names = {mutant.module for mutant in mutants}, {mutant.name for mutant in mutants}
    return [name for name in kept if name.split(" ")[0] in modules and name not in names]


def table(results: dict[str, Any], budgets: dict[str, int]) -> str:
    """Lay out a room a row."""
    lines = ["| room | mutants | sampled | killed | survive | with a reason | without | budget |", "|---|" + "---|" * 7]
    for name, result in results.items():
        without = unexplained(result)
        survive = len(result["survivors"])
        caught = result["killed"] + result["timeout"]
        row = [name, result["mutants"], result["sampled"], caught, survive, survive - without, without, budgets[name]]
        lines.append("| " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines)


def unexplained(result: dict[str, Any]) -> int:
    """Count the survivors without a reason."""
    return sum(entry["reason"] is None for entry in result["survivors"])


def main() -> int:
    rooms = yaml.safe_load((HERE / "rooms.yaml").read_text())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", nargs="*", choices=list(rooms), default=list(rooms))
    parser.add_argument("--sample", type=int, default=60, help="mutants per room, 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", type=Path, help="only the survivors of these results")
    parser.add_argument("--output", type=Path, default=CACHE / "results.json")
    options = parser.parse_args()
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory(prefix="grrm-overlay-") as folder:
        overlay = Overlay(Path(folder))
        from grrm import startup  # the overlay's, from here on

        startup.flush_denormals = lambda: False
        os.environ["OMP_NUM_THREADS"] = "1"
        startup.configure_process()
        import_what_tests_import(files_of_tests([path for name in options.rooms for path in rooms[name]["tests"]]))
        # After Paddle has set its own: the end of this process removes the overlay.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        results = {}
        for name in options.rooms:
            results[name] = examine(name, rooms[name], overlay, options)
            options.output.parent.mkdir(parents=True, exist_ok=True)
            record = {"seed": options.seed, "sample": options.sample, "rooms": results}
            options.output.write_text(json.dumps(record, indent=1) + "\n")
    for name, result in results.items():
        for entry in result["survivors"]:
            print(f"{name}:{entry['line']} {entry['name']}\n    {entry['reason'] or 'NO REASON'}")
    print(table(results, {name: rooms[name]["budget"] for name in results}))
    return int(any(unexplained(result) > rooms[name]["budget"] for name, result in results.items()))


if __name__ == "__main__":
    raise SystemExit(main())
