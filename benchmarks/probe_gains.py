"""Probes of judges in one file, and their rank correlation with what policies gained from these judges.

`collect NAME=FILE ... --out benchmarks/results/real_probes.json` puts files of `grrm probe --out` into one.
`correlate` compares that file with benchmarks/results/real_policies.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from machine import RESULTS
from published import result
from titles import PROBED

from grrm.data.atomic import write_json
from grrm.evaluation.probes.measure import MIN_ROWS
from grrm.judges.permute import kendall_tau_b

PROBES_FILE, POLICIES_FILE = "real_probes", "real_policies"
FIGURES = ("sampled chrF", "greedy chrF", "copied")


def collect(files: Mapping[str, Path]) -> dict[str, Any]:
    """The records of the files by name; of paths among the judges' options the last part stays."""
    records = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items()}
    for record in records.values():
        record["options"] = {
            name: Path(value).name if str(value).startswith("/") else value for name, value in record["options"].items()
        }
    return {"judges": records}


def right_shares(report: Mapping[str, Any]) -> dict[str, float]:
    """The share of right decisions of each probe with enough rows, in groups of one size."""
    counted = {name: scores["all"] for name, scores in report["probes"].items()}
    return {name: of_all["right"]["mean"] for name, of_all in counted.items() if of_all["decided"] >= MIN_ROWS}


def worst_share(record: Mapping[str, Any]) -> float:
    """The lowest share of right decisions of a judge over its probes and group sizes."""
    return min(share for report in record["group_sizes"].values() for share in right_shares(report).values())


def outcomes(policies: Mapping[str, Any], arm: str) -> dict[str, float]:
    """The means over seeds of an arm's policies: gains in chrF over SFT, and the share copied."""
    of_seeds = [seed["policies"][arm] for seed in policies["seeds"].values() if arm in seed["policies"]]
    figures = [(p["learned"]["gain"], p["learned"]["greedy_gain"], p["scores"]["greedy"]["copied"]) for p in of_seeds]
    return {name: sum(column) / len(column) for name, column in zip(FIGURES, zip(*figures, strict=True), strict=False)}


def correlations(probes: Mapping[str, Any], policies: Mapping[str, Any]) -> dict[str, Any]:
    """The worst share of each judge whose policy was trained, what that policy gained, and how they correlate."""
    rows = {
        name: {"worst share": worst_share(record), **of_arm}
        for name, record in probes["judges"].items()
        if name in PROBED and (arm := PROBED[name].arm) and (of_arm := outcomes(policies, arm))
    }
    return {"judges": rows, "tau_b": rank_correlations([*rows.values()])}


def rank_correlations(rows: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    """Kendall's tau-b of the judges' worst shares and each figure of their policies.

    None with fewer than three judges, or where all are tied.
    """
    shares = [row["worst share"] for row in rows]
    columns = {figure: [row[figure] for row in rows] for figure in FIGURES}
    return {figure: kendall_tau_b(shares, column) if len(rows) > 2 else None for figure, column in columns.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Collect or correlate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("files", nargs="+", metavar="NAME=FILE", help=f"names: {', '.join(PROBED)}")
    collecting.add_argument("--out", type=Path, default=RESULTS / f"{PROBES_FILE}.json")
    commands.add_parser("correlate")
    options = parser.parse_args(arguments)
    if options.command == "correlate":
        print(json.dumps(correlations(result(PROBES_FILE), result(POLICIES_FILE)), indent=1))
        return
    record = collect({name: Path(path) for name, _, path in (text.partition("=") for text in options.files)})
    write_json(options.out, record)


if __name__ == "__main__":
    main()
