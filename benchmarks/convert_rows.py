"""Rows per CPU-second of the converters, beside the same conversion row by row in pandas.

    python benchmarks/convert_rows.py [--rows 200000] [--repeats 3] [--out FILE]

The row-wise form does what converters of this kind usually do: read the file into a data frame, build one dict per row
in Python, make a data frame of them, shuffle it, write it. Both write the same rows in the same order, which is
checked.

Every measurement is a process of its own, the two forms in turn; CPU time counts all threads from the first read to the
last write, imports left out. Peak memory is the whole process's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
from machine import describe_machine

from grrm.data.atomic import atomic_path
from grrm.data.converters.gqm import convert_sft_gqm
from grrm.data.converters.mt import convert_rl_mt
from grrm.data.converters.output import DEFAULT_SEED
from grrm.gqm.mt_prompts import mt_prompt
from grrm.gqm.prompts import gqm_prompt, render_response, without_verdict

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks/results/convert_rows.json"
_LANGUAGES = ("de", "fr", "zh", "ru", "ko", "nl", "es", "it", "pt")
_TIMEOUT_S = 1800.0


def rl_mt_by_row(parquet: Path, out: Path) -> None:
    """`convert_rl_mt`, a row at a time."""
    _convert_by_row(parquet, out, _rl_mt_row)


def sft_gqm_by_row(parquet: Path, out: Path) -> None:
    """`convert_sft_gqm`, a row at a time."""
    _convert_by_row(parquet, out, _sft_gqm_row)


def _convert_by_row(parquet: Path, out: Path, make: Callable[[Any], dict[str, Any]]) -> None:
    import pandas

    rows = [make(row) for _, row in pandas.read_parquet(parquet).iterrows()]
    pandas.DataFrame(rows).sample(frac=1, random_state=DEFAULT_SEED).to_parquet(out, index=False)


def _rl_mt_row(row: Any) -> dict[str, Any]:
    prompt = mt_prompt(row["src_text"], row["src_lang"], row["trg_lang"], "codeblock-think")
    return {
        "prompt": [{"role": "user", "content": prompt}],
        "ability": "translation",
        "data_source": "towerblocks",
        "extra_info": {name: row[name] for name in ("src_lang", "trg_lang", "src_text", "trg_text")},
    }


def _sft_gqm_row(row: Any) -> dict[str, Any]:
    prompt = gqm_prompt(row["src_text"], list(row["mt_texts"]), row["src_lang"], row["trg_lang"], "ranking_score")
    response = render_response(without_verdict(row["analysis"]), [int(score) for score in row["scores"]])
    return {"messages": [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]}


CONVERTERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "rl-mt": (convert_rl_mt, rl_mt_by_row),
    "sft-gqm": (convert_sft_gqm, sft_gqm_by_row),
}


def write_input(path: Path, n_rows: int) -> None:
    """Translation rows of about 25 words with four candidates, scores and an analysis, as fits both converters."""
    import pyarrow as pa

    def rows() -> Iterator[dict[str, Any]]:
        for i in range(n_rows):
            words = [f"word{(i * 7919 + k * 104729) % 50021}" for k in range(25)]
            source, candidates = " ".join(words), [" ".join(words[k:] + words[:k]) for k in range(1, 5)]
            yield {
                "src_text": source,
                "trg_text": candidates[0],
                "src_lang": "en",
                "trg_lang": _LANGUAGES[i % len(_LANGUAGES)],
                "mt_texts": candidates,
                "scores": [(i + 3 * k) % 11 for k in range(4)],
                "analysis": f"{source}\n\nAll four keep the meaning.\nScores: A 1, B 2",
            }

    pq.write_table(pa.Table.from_pylist(list(rows())), path)


def measure_once(converter: str, by_row: bool, parquet: Path, out: Path) -> dict[str, float]:
    """One conversion in a process of its own: CPU seconds and peak memory in MB."""
    command = [sys.executable, __file__, "--one", converter, "row" if by_row else "column", str(parquet), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _run_form(converter: str, form: str, parquet: str, out: str) -> None:
    convert = CONVERTERS[converter][form == "row"]
    if form == "row":
        import pandas  # noqa: F401  (imports are not what is measured)
    started = time.process_time()
    convert(Path(parquet), Path(out))
    cpu_s = time.process_time() - started
    print(json.dumps({"cpu_s": cpu_s, "peak_mb": peak_mb()}))


def peak_mb() -> float:
    """The most memory of this program so far; `ru_maxrss` would count what its parent held when it was started."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def measure(n_rows: int, repeats: int) -> dict[str, Any]:
    """Both forms of every converter in turn, medians. Raises ValueError when they do not write the same rows."""
    result: dict[str, Any] = {"machine": describe_machine(), "rows": n_rows, "repeats": repeats}
    with tempfile.TemporaryDirectory() as folder:
        parquet = Path(folder) / "input.parquet"
        write_input(parquet, n_rows)
        for converter in CONVERTERS:
            outs = {form: Path(folder) / f"{converter}.{form}.parquet" for form in ("row", "column")}
            runs: dict[str, list[dict[str, float]]] = {"row": [], "column": []}
            for _ in range(repeats):
                for form, out in outs.items():
                    runs[form].append(measure_once(converter, form == "row", parquet, out))
            require_same_rows(*outs.values())
            result[converter] = _compare(n_rows, runs)
    return result


def require_same_rows(expected: Path, actual: Path) -> None:
    """Raises ValueError at the first row in which two parquet files differ."""
    a, b = pq.read_table(expected).to_pylist(), pq.read_table(actual).to_pylist()
    different = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if different is not None or len(a) != len(b):
        raise ValueError(f"{expected.name} and {actual.name} differ in row {different}, {len(a)} and {len(b)} rows")


def _compare(n_rows: int, runs: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    forms = {
        form: {
            "rows_per_cpu_s": round(n_rows / median(run["cpu_s"] for run in measured)),
            "peak_mb": round(median(run["peak_mb"] for run in measured)),
        }
        for form, measured in runs.items()
    }
    ratios = [row["cpu_s"] / column["cpu_s"] for row, column in zip(runs["row"], runs["column"], strict=True)]
    return forms | {"speed_up": round(median(ratios), 2)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULT, help="JSON file to write (default: %(default)s)")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        _run_form(*options.one)
        return
    if min(options.rows, options.repeats) < 1:
        parser.error("--rows and --repeats must be at least 1")
    result = measure(options.rows, options.repeats)
    with atomic_path(options.out) as temporary:
        temporary.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for converter in CONVERTERS:
        part = result[converter]
        print(
            f"{converter:<8} {part['column']['rows_per_cpu_s']:,} rows per CPU-second, by row "
            f"{part['row']['rows_per_cpu_s']:,}: {part['speed_up']} times; peak {part['column']['peak_mb']} MB, by row "
            f"{part['row']['peak_mb']} MB"
        )
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
