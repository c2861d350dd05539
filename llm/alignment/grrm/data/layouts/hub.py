"""A data set by its name on Hugging Face, which the library datasets downloads once and keeps in its cache."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import requests

from grrm.data.layouts.arrow_files import ROWS_PER_BATCH, arrow_row_table
from grrm.data.layouts.table import RowTable
from grrm.errors import UserError, first_line

_NAME = re.compile(r"(?P<path>[\w.-]+/[\w.-]+)(?::(?P<name>[\w.-]+))?(?:@(?P<split>[\w.-]+))?")
_DEFAULT_SPLIT = "train"
_PATIENCE_S = 20.0


def is_data_set_name(path: Path) -> bool:
    """True for `Owner/Name`, with or without `:configuration` and `@split` behind it, in no folder of this name."""
    return _NAME.fullmatch(str(path)) is not None and not path.parent.exists()


def hub_table(name: str) -> RowTable:
    """The rows of the split `train`, or of the one behind `@`; scripts of a data set are never run.

    Raises UserError, one sentence, where the library is missing, and for a data set that cannot be had.
    """
    data_set = _loaded(name)

    def batches(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        chosen = data_set if columns is None else data_set.select_columns(list(columns))
        for part in chosen.with_format("arrow").iter(ROWS_PER_BATCH):
            yield from part.to_batches()

    return arrow_row_table(Path(name), data_set.features.arrow_schema, batches, data_set.num_rows)


@cache
def _loaded(name: str) -> Any:
    try:
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError
        from huggingface_hub import HfApi, constants
    except ImportError:
        raise UserError(
            f"{name} is no file here, and reading it from Hugging Face's hub needs the package datasets; install it "
            'with `pip install "datasets<4"`, or give the path of a file'
        ) from None
    match = _NAME.fullmatch(name)
    assert match is not None
    settings = {"split": _DEFAULT_SPLIT} | {key: value for key, value in match.groupdict().items() if value}
    try:
        if not constants.HF_HUB_OFFLINE:  # without this question the library tries for half a minute
            HfApi().dataset_info(match["path"], timeout=_PATIENCE_S)
        return load_dataset(**settings, trust_remote_code=False)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        raise UserError(
            f"{name} is no file here, and cannot be had from Hugging Face's hub ({_reason(error)}); mend the name, or "
            f"download it where there is a network with `huggingface-cli download {match['path']} --repo-type dataset` "
            "and give its folder"
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, requests.ConnectionError | requests.Timeout):
        return "it cannot be reached; HF_HUB_OFFLINE=1 reads what was downloaded before"
    if isinstance(error, requests.HTTPError):
        status = error.response.status_code
        return "it has no such public data set" if status in (401, 404) else f"it answers with status {status}"
    return first_line(error).partition(". ")[0]
