"""The preference pipeline: prompts, cleaning, seed files, pairs and instruction data."""

import contextlib
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from grrm.data.preference.instructions import PairColumns, write_instructions
from grrm.data.preference.pairs import COPIED, PairRules, write_pairs
from grrm.data.preference.samples import clean_sample_files
from grrm.data.preference.seeds import write_rm_seed, write_x2x_seed
from grrm.gqm.pair_prompts import anchored_template, diverse_templates, pair_template

RULES = PairRules.__dataclass_fields__


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def pairs(row):
    arguments = dict(row["args"])
    with folder() as path:
        for name, rows in row["files"].items():
            pq.write_table(pa.Table.from_pylist(rows), path / name)
        settings = {name: arguments.pop(name) for name in list(arguments) if name in RULES}
        if "valid_score_range" in settings:
            settings["valid_score_range"] = tuple(settings["valid_score_range"])
        columns = {name: arguments.pop(f"{name}_key") for name in COPIED if f"{name}_key" in arguments}
        names = {"mt_texts_key": "mts", "score_key": "sc"} | arguments
        report = write_pairs(path, path / "pairs.parquet", **names, rules=PairRules(**settings), columns=columns)
        table = pq.read_table(path / "pairs.parquet")
    printed = f"all sample: {report.n_rows}\n{report.matrices}\n"
    return {"rows": table.to_pylist(), "columns": table.column_names, "stdout": printed}


def cleaned(texts, **settings):
    with folder() as path:
        file = path / "de2en.parquet"
        pq.write_table(pa.table({"mt_texts": pa.array([texts], pa.list_(pa.string()))}), file)
        clean_sample_files(path, **settings)
        return [text for row in pq.read_table(file)["mt_texts"].to_pylist() for text in row]


def seeds(write):
    def call(row):
        with folder() as path:
            pq.write_table(pa.Table.from_pylist(row["rows"]), path / "in.parquet")
            write(path / "in.parquet", path / "out")
            found = {file.name: pq.read_table(file).to_pylist() for file in sorted((path / "out").iterdir())}
        return {
            "files": {name: rows for name, rows in found.items() if rows},
            "empty_files": [name for name, rows in found.items() if not rows],
        }

    return call


def instructions(row, context):
    arguments = dict(row["args"])
    arguments.pop("data_path", None), arguments.pop("output_path", None)
    counts = {}
    if arguments.pop("tokenizer_path", None):  # rows do not say which: a low limit is one of words, else of characters
        size = (lambda text: len(text.split())) if arguments.get("max_len", 1024) < 60 else len
        counts["count_tokens"] = lambda texts: list(map(size, texts))
    keys = {name: arguments.pop(name) for name in PairColumns.__dataclass_fields__ if name in arguments}
    with folder() as path:
        pq.write_table(pa.Table.from_pylist(row["rows"]), path / "in.parquet")
        out = path / "out.parquet"
        write_instructions(path / "in.parquet", out, columns=PairColumns(**keys), **counts, **arguments)
        table = pq.read_table(out)
    return {"rows": table.to_pylist(), "columns": table.column_names}


FIXED = {
    "eax.construct_preference_data": pairs,
    "eax.post_clean": lambda row: cleaned([row["text"]], single_line=True)[0],
    "eax.post_clean_sampling": lambda row: cleaned(row["texts"]),
    "eax.get_eval_prompt": lambda row: pair_template(row["src"], row["trg"]),
    "eax.get_eaxt_prompt": lambda row: anchored_template(row["src"], row["trg"], row["ref"]),
    "eax.diverse_prompts": lambda row: diverse_templates(row["src"], row["trg"]),
    "eax.prepare_rm_seed_data": seeds(write_rm_seed),
    "eax.prepare_x2x_seed_data": seeds(write_x2x_seed),
    "eax.prepare_pair_instruction_data": instructions,
}
