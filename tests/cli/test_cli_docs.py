"""The tables of docs/use.md list the columns and statuses that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import grrm
from grrm.cli import options
from grrm.cli.commands import translate
from grrm.cli.verdict_columns import verdict_types
from grrm.inference.rank import RankResult
from grrm.inference.translate import TranslateResult, TranslateSettings, TranslationStatus

TEXT = (Path(__file__).parents[2] / "docs" / "use.md").read_text(encoding="utf-8")
SEVERAL = "new column | with `--sampling-n` above 1"


def table(heading: str, column: int = 0) -> list[str]:
    """The inline code in one column of the table that starts with this heading, a row each."""
    _, found, rest = TEXT.partition(f"| {heading} |")
    assert found, heading
    rows = rest.partition("\n\n")[0].splitlines()[2:]
    return [code for row in rows for code in re.findall(r"`([^`]+)`", row.split("|")[column + 1])]


def test_columns_are_those_that_are_written():
    assert table("new column | holds") == list(verdict_types())
    assert table(f"{SEVERAL} | holds") == list(translate.column_types(TranslateSettings()))
    assert table(f"{SEVERAL} | holds", 1) == list(translate.column_types(TranslateSettings(sampling_n=2)))


def test_statuses_are_those_there_are():
    assert table("status | meaning") == [status.value for status in TranslationStatus]


def test_options_are_those_that_open_a_model():
    shown = {name.removeprefix("--").replace("-", "_") for name in table("option | meaning")}
    fields = set(options.ModelOptions.__dataclass_fields__) - {"urls", "fastdeploy_options"}
    assert shown == fields | {"url", "fastdeploy_option", "chat_template"}


@pytest.mark.parametrize(("name", "result"), [("judged", RankResult), ("translated", TranslateResult)])
def test_results_are_those_of_the_functions(name, result):
    assert set(re.findall(rf'{name}\["(\w+)"\]', TEXT)) == set(result.__annotations__)


def test_functions_of_the_page_exist():
    names = set(re.findall(r"= grrm\.(\w+)\(", TEXT))
    assert names == {"rank", "translate"}
    assert all(callable(getattr(grrm, name)) for name in names)
