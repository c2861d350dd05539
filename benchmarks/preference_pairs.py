"""Rows per CPU-second of the stages behind sampling, beside the same stages row by row in pandas.

    python benchmarks/preference_pairs.py [--rows 200000] [--repeats 1] [--out FILE]

Stages: cleaning samples, preference pairs, instruction data. The row-wise form does what scripts of this kind usually
do: read a file into a data frame, loop over its rows in Python, make a data frame of what comes out, shuffle it, write
it.

Both must write the same rows in the same order, which is checked. Every measurement is a process of its own; CPU time
counts all threads from the first read to the last write, imports left out.

Peak memory is the whole process's.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from machine import describe_machine, resident_bytes, write_result

from grrm.data.converters.output import DEFAULT_SEED
from grrm.data.preference.instructions import write_instructions
from grrm.data.preference.pair_files import pair_files
from grrm.data.preference.pairs import PairRules, write_pairs
from grrm.data.preference.samples import clean_sample_files
from grrm.gqm.pair_prompts import fill, pair_template

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks/results/preference_pairs.json"
_LANGUAGES = ("de", "fr", "zh", "ru", "ko", "nl", "es", "it", "pt")
_RULES = PairRules(min_margin=20, valid_score_range=(5, 95), min_winner_score=60, to_percentile=True)
_COLUMNS = {name: name for name in ("src_text", "trg_text", "src_lang", "trg_lang")}
_TIMEOUT_S = 1800.0


def clean(folder: Path, out: Path) -> None:
    """Cleaning in place, of a copy."""
    shutil.copytree(folder, out)
    clean_sample_files(out)


def clean_by_row(folder: Path, out: Path) -> None:
    """`clean`, a row at a time."""
    import pandas

    shutil.copytree(folder, out)
    for path in pair_files(out):
        frame = pandas.read_parquet(path)
        pandas.DataFrame([_cleaned(row) for _, row in frame.iterrows()]).to_parquet(path, index=False)


def _cleaned(row: Any) -> dict[str, Any]:
    first: dict[str, float] = {}
    for text, score in zip(row["mt_texts"], row["scores"], strict=True):
        first.setdefault(text.partition("</s>")[0], score)
    return dict(row) | {"mt_texts": list(first), "scores": list(first.values())}


def pairs(folder: Path, out: Path) -> None:
    """Preference pairs by the rules of the recipe, shuffled."""
    write_pairs(folder, out, mt_texts_key="mt_texts", score_key="scores", rules=_RULES, columns=_COLUMNS)


def pairs_by_row(folder: Path, out: Path) -> None:
    """`pairs`, a row at a time."""
    import pandas

    pairs = [
        pair
        for path in pair_files(folder)
        for _, row in pandas.read_parquet(path).iterrows()
        if (pair := _pair_of_row(row)) is not None
    ]
    pandas.DataFrame(pairs).sample(frac=1, random_state=DEFAULT_SEED).to_parquet(out, index=False)


def _pair_of_row(row: Any) -> dict[str, Any] | None:
    low, high = _RULES.valid_score_range or (0.0, 0.0)
    scored = [(text, score * 100) for text, score in zip(row["mt_texts"], row["scores"], strict=True)]
    scored = [pair for pair in scored if low <= pair[1] <= high]
    winners = [pair for pair in scored if pair[1] >= (_RULES.min_winner_score or 0)]
    if len(scored) < 2 or not winners:
        return None
    loser = min(scored, key=lambda pair: pair[1])
    winner = max(winners, key=lambda pair: pair[1])
    if winner[1] - loser[1] < _RULES.min_margin:
        return None
    sides = {}
    for side, (text, score) in (("winner", winner), ("loser", loser)):
        sides |= {f"{side}_text": text, f"{side}_score": score, f"{side}_raw_score": score, f"{side}_key": "mt_texts"}
    return sides | {name: row[name] for name in _COLUMNS}


def instructions(parquet: Path, out: Path) -> None:
    """Prompt, chosen and rejected of each pair, shuffled."""
    write_instructions(parquet, out)


def instructions_by_row(parquet: Path, out: Path) -> None:
    """`instructions`, a row at a time."""
    import pandas

    rows = [
        {
            "prompt": fill(pair_template(row["src_lang"], row["trg_lang"]), row["src_text"]),
            "chosen": row["winner_text"],
            "rejected": row["loser_text"],
        }
        for _, row in pandas.read_parquet(parquet).iterrows()
    ]
    pandas.DataFrame(rows).sample(frac=1, random_state=DEFAULT_SEED).to_parquet(out, index=False)


STAGES: dict[str, tuple[Callable[[Path, Path], None], Callable[[Path, Path], None]]] = {
    "clean-samples": (clean, clean_by_row),
    "pairs": (pairs, pairs_by_row),
    "pair-instructions": (instructions, instructions_by_row),
}


def write_input(folder: Path, n_rows: int) -> dict[str, Path]:
    """The input of each stage: files by language pair of samples with scores, and a file of as many pairs."""
    samples, rng = folder / "samples", np.random.default_rng(0)
    samples.mkdir()
    for part, language in enumerate(_LANGUAGES):
        rows = [_row(number, language, rng) for number in range(part, n_rows, len(_LANGUAGES))]
        pq.write_table(pa.Table.from_pylist(rows), samples / f"en2{language}.parquet")
    tables = [pq.read_table(path) for path in pair_files(samples)]
    texts = pa.concat_tables(tables)
    first, second = (pa.array([row[at] for row in texts["mt_texts"].to_pylist()]) for at in (0, 1))
    table = texts.select(["src_text", "src_lang", "trg_lang"])
    pq.write_table(table.append_column("winner_text", first).append_column("loser_text", second), folder / "p.parquet")
    return {"clean-samples": samples, "pairs": samples, "pair-instructions": folder / "p.parquet"}


def _row(number: int, language: str, rng: np.random.Generator) -> dict[str, Any]:
    words = [f"word{(number * 7919 + k * 104729) % 50021}" for k in range(25)]
    candidates = [" ".join(words[k:] + words[:k]) for k in range(1, 5)]
    if number % 3 == 0:
        candidates[3] = candidates[1] + "</s>" + candidates[0]  # a copy behind its end token
    return {
        "src_text": " ".join(words),
        "trg_text": candidates[0],
        "src_lang": "en",
        "trg_lang": language,
        "mt_texts": candidates,
        "scores": rng.random(4).tolist(),
    }


def measure_once(stage: str, form: str, source: Path, out: Path) -> dict[str, float]:
    """One run of a stage in a process of its own: CPU seconds and peak memory in MB."""
    command = [sys.executable, __file__, "--one", stage, form, str(source), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _run_form(stage: str, form: str, source: str, out: str) -> None:
    run = STAGES[stage][form == "row"]
    if form == "row":
        import pandas  # noqa: F401  (imports are not what is measured)
    started = time.process_time()
    run(Path(source), Path(out))
    print(json.dumps({"cpu_s": time.process_time() - started, "peak_mb": resident_bytes("VmHWM") / 2**20}))


def measure(n_rows: int, repeats: int) -> dict[str, Any]:
    """Both forms of every stage in turn, medians. Raises ValueError when they do not write the same rows."""
    result: dict[str, Any] = {"machine": describe_machine(), "rows": n_rows, "repeats": repeats}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = write_input(folder, n_rows)
        for stage in STAGES:
            runs: dict[str, list[dict[str, float]]] = {"row": [], "column": []}
            for repeat in range(repeats):
                outs = {form: folder / f"{stage}.{form}.{repeat}" for form in runs}
                if stage != "clean-samples":
                    outs = {form: out.with_suffix(f".{repeat}.parquet") for form, out in outs.items()}
                for form, out in outs.items():
                    runs[form].append(measure_once(stage, form, sources[stage], out))
                require_same_output(*outs.values())
            result[stage] = _compare(n_rows, runs)
    return result


def require_same_rows(expected: Path, actual: Path) -> None:
    """Raises ValueError at the first row in which two parquet files differ."""
    a, b = pq.read_table(expected).to_pylist(), pq.read_table(actual).to_pylist()
    different = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if different is not None or len(a) != len(b):
        raise ValueError(f"{expected.name} and {actual.name} differ in row {different}, {len(a)} and {len(b)} rows")


def require_same_output(expected: Path, actual: Path) -> None:
    if expected.is_file():
        require_same_rows(expected, actual)
        return
    for path in pair_files(expected):
        require_same_rows(path, actual / path.name)


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
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULT, help="JSON file to write (default: %(default)s)")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        _run_form(*options.one)
        return
    if min(options.rows, options.repeats) < 1:
        parser.error("--rows and --repeats must be at least 1")
    result = measure(options.rows, options.repeats)
    write_result(options.out, result)
    for stage in STAGES:
        part = result[stage]
        print(
            f"{stage:<17} {part['column']['rows_per_cpu_s']:,} rows per CPU-second, by row "
            f"{part['row']['rows_per_cpu_s']:,}: {part['speed_up']} times; peak {part['column']['peak_mb']} MB, by row "
            f"{part['row']['peak_mb']} MB"
        )
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
