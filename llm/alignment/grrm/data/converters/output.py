"""Output files of the converters: rows in a seeded order, as parquet or as the `src`/`tgt` lines PaddleNLP trains on.

Also the entry of such a file in `dataset_info.json`, LLaMA-Factory's list of data sets.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from grrm.data.atomic import atomic_path, write_json
from grrm.data.convert import ConversionReport, RejectedRow, encoded_line
from grrm.data.documents import location_fields
from grrm.data.layouts.arrow_files import ROWS_PER_BATCH
from grrm.data.layouts.table import MAX_TEXT
from grrm.data.layouts.user_rows import DOCUMENT, POSITION
from grrm.data.task_json import render_tgt
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.groups import TranslationTask
from grrm.gqm.prompts import Span, without_verdict

logger = logging.getLogger(__name__)
DEFAULT_SEED = 114514
Order = npt.NDArray[np.int64]
DATASET_INFO = "dataset_info.json"
MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
SFT_SCHEMA = pa.schema([("messages", MESSAGES)])
JUDGE_RL_SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", MESSAGES),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("ground_truth", pa.string())])),
    ]
)


def shuffled_order(n_rows: int, seed: int = DEFAULT_SEED) -> Order:
    """A permutation of `n_rows` rows, the same as pandas' `sample(frac=1, random_state=seed)` gives.

    Zero rows give an empty order. Raises ValueError for a seed that is not from 0 to 2**32 - 1.
    """
    return np.random.RandomState(seed).permutation(n_rows).astype(np.int64)


def write_in_order(
    path: Path,
    schema: pa.Schema,
    order: Order,
    build: Callable[[Order], pa.Table],
    rejected: Iterable[RejectedRow],
) -> ConversionReport:
    """Write rows in the given order to `path` in one atomic step; `build` makes the table of one batch of them.

    A `.parquet` file gets the columns of the schema, a `.jsonl` file one line per row with `src` and `tgt` (see
    `src_tgt`), unless training could not read so long a line, which is logged. The report has those that were
    `rejected` before. Raises UserError for another suffix, when the folder cannot be written to, and where no row is
    left.
    """
    if path.suffix not in (".parquet", ".jsonl"):
        raise UserError(f"{path} ends neither with .parquet nor with .jsonl; choose one of these")
    lines, n_written = path.suffix == ".jsonl", 0
    with (
        atomic_path(path) as temporary,
        _line_writer(temporary) if lines else _table_writer(temporary, schema) as write,
        tqdm(total=len(order), desc=f"write {path.name}", unit="row", disable=None) as progress,
    ):
        for start in range(0, len(order), ROWS_PER_BATCH):
            rows = order[start : start + ROWS_PER_BATCH]
            n_written += write(build(rows))
            progress.update(len(rows))
        if n_too_long := len(order) - n_written:
            sentence = f"{path}: {n_too_long} of {len(order)} rows have lines of more than {MAX_TEXT} bytes"
            if not n_written:
                raise UserError(f"{sentence}, which training cannot read; write to a .parquet file, or shorten texts")
            logger.warning("%s, which training could not read, and were left out", sentence)
    return ConversionReport(path, n_written, tuple(rejected))


@contextmanager
def _table_writer(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], int]]:
    def write(table: pa.Table) -> int:
        writer.write_table(table.select(schema.names).cast(schema))
        return int(table.num_rows)

    with pq.ParquetWriter(path, schema) as writer:
        yield write


@contextmanager
def _line_writer(path: Path) -> Iterator[Callable[[pa.Table], int]]:
    def write(table: pa.Table) -> int:
        lines = [line for row in table.to_pylist() if (line := encoded_line(src_tgt(row)))]
        out.writelines(lines)
        return len(lines)

    with path.open("wb") as out:
        yield write


def conversation(*texts: str) -> list[dict[str, str]]:
    """A row's messages from the text of each turn: user first, then assistant."""
    return [{"role": role, "content": text} for role, text in zip(("user", "assistant"), texts, strict=False)]


def taught(prompts: Iterable[str], replies: Iterable[str], decisive: Iterable[Sequence[Span]]) -> pa.Table:
    """Conversations that teach a judge to reply, and where in each reply its judgement is."""
    messages = [conversation(*turns) for turns in zip(prompts, replies, strict=True)]
    return pa.table({"messages": pa.array(messages, MESSAGES), "decisive": pa.array(list(decisive))})


def src_tgt(row: dict[str, Any]) -> dict[str, Any]:
    """`src` is the chat-templated prompt. `tgt` is the response to learn, the true ranking, or the task as JSON.

    A judge's reply to learn has `decisive` too: the [start, end) of the characters of `tgt` that carry its judgement.
    A prompt for training a judge names the rule as well: the `rule_reward` that gives a reply as taught full marks.
    """
    if "messages" in row:
        user, assistant = row["messages"]
        lines = {"src": render_chatml(user["content"]), "tgt": assistant["content"]}
        return lines | ({"decisive": row["decisive"]} if "decisive" in row else {})
    if "response" in row:
        return {"src": render_chatml(row["prompt"]), "tgt": row["response"]}
    (user,) = row["prompt"]
    line = {"src": render_chatml(user["content"]), "tgt": _truth(row)}
    line |= location_fields(row.get(DOCUMENT), row.get(POSITION))
    return line | {"rule_reward": _rule(row)} if row["ability"] == "ranking" else line


def _rule(row: dict[str, Any]) -> str:
    """The last part of the data source; for a ranking whose reply is taught without an analysis, its `_no_cot`."""
    name = str(row["data_source"]).rpartition(".")[2]
    is_bare = "ranking" in name and not without_verdict(row["extra_info"]["analysis"])
    return f"{name}_no_cot" if is_bare else name


def _truth(row: dict[str, Any]) -> str:
    if row["ability"] == "ranking":
        return str(row["reward_model"]["ground_truth"])
    info = row["extra_info"]
    return render_tgt(TranslationTask(info["src_text"], info["src_lang"], info["trg_lang"], info["trg_text"]))


def enter_dataset(conversations: Path) -> Path:
    """Enter a parquet file of `messages` into the list beside it, under its name without suffix; returns the list.

    Other entries stay, one of the same name is replaced. Raises UserError when the file is not parquet or the list
    that is there cannot be read.
    """
    if conversations.suffix != ".parquet":
        raise UserError(f"{conversations} cannot be entered into {DATASET_INFO}; convert to a .parquet file instead")
    path = conversations.with_name(DATASET_INFO)
    entries = _read_entries(path) if path.exists() else {}
    entries[conversations.stem] = {
        "file_name": conversations.name,
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"},
    }
    write_json(path, entries, indent=2)
    return path


def _read_entries(path: Path) -> dict[str, Any]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error}); mend it or move it away") from error
    if not isinstance(entries, dict):
        raise UserError(f"{path} does not hold a JSON object of data sets; mend it or move it away")
    return entries
