"""A key is declared in one place: reading, help and both tables follow. Tried with a stage that does not exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import pytest
from pydantic import ValidationError
from support.argument_files import typed_values

from grrm.config.document import help_text, key_tables, support_table, with_tables
from grrm.config.key import OURS, By, Section, Support, key, keys_of, refused, switch
from grrm.config.stage_config import StageConfig
from grrm.config.stages import STAGES, Stage
from grrm.errors import UserError


class KettleConfig(Section):
    """Keys that no stage has."""

    title: ClassVar[str] = "Kettle"

    water_l: float = key(1.5, "how much is boiled", unit="litres", gt=0, le=2, also=(-1,), aliases=("water",))
    until_c: int = key(None, "when it is switched off", means="100 at sea level")
    whistle: bool = key(True, "sound at the end", by=switch("it is an electric one"))
    spout: str | None = key(None, "form of the spout", by=refused("there is one form; remove the key", "round"))
    lid: list[str] = key(["steel"], "layers of the lid")


class TeaConfig(KettleConfig, StageConfig):
    """A stage with one section of its own."""

    support: ClassVar[Mapping[str, Support]] = {"run_name": refused("tea has no name; remove the key")}


TEA = Stage("run_tea.py", "Boils water.", TeaConfig, lambda config, given, problems: None)


SCOPES = ("rl", "supervised", "common")


def row_of(table: str, name: str) -> str:
    (row,) = [line for line in table.splitlines() if line.startswith(f"| `{name}` |")]
    return row


def test_declared_key_is_in_the_help():
    lines = help_text(TEA).splitlines()
    assert lines[0] == "usage: run_tea.py ARGUMENTS.yaml [--key value ...]"
    at = lines.index("  --water_l  number > 0, ≤ 2, or -1 (litres); default 1.5")
    assert lines[at - 1 : at + 2 : 2] == ["Kettle:", "      how much is boiled; older name water"]
    assert "  --until_c  whole number; default 100 at sea level" in lines
    at = lines.index("  --spout  form of the spout")
    assert lines[at + 1] == "      refused unless none or round: there is one form; remove the key"


def test_declared_key_is_in_the_table_of_keys():
    table = "\n".join(key_tables(scope, (*STAGES, TEA)) for scope in SCOPES)
    assert row_of(table, "water_l") == (
        "| `water_l` | `1.5` | number > 0, ≤ 2, or -1 (litres) | this package | how much is boiled; older name water |"
    )
    assert "## Kettle\n\nFor `run_tea.py`." in table
    assert "refused in `run_tea.py`" in row_of(table, "run_name")
    assert "`spout`" not in table


def test_declared_key_is_in_the_table_of_support():
    table = support_table("supervised", (*STAGES, TEA))
    assert row_of(table, "whistle").endswith("| no effect here | `true` | it is an electric one | `run_tea.py` |")
    assert "| refused | `none or round` | there is one form; remove the key |" in row_of(table, "spout")
    assert "`water_l`" not in table


def test_declared_key_is_read():
    assert typed_values(TeaConfig, {"water": "0.5", "until_c": None}) == {"water_l": 0.5, "until_c": None}
    assert typed_values(TeaConfig, {"water_l": -1})["water_l"] == -1
    for value, sentence in (("much", "give a number"), (3, "it must be above 0 and at most 2, or -1")):
        with pytest.raises(UserError, match=sentence):
            typed_values(TeaConfig, {"water_l": value})
    with pytest.raises(UserError, match="spout: square is not supported: there is one form"):
        typed_values(TeaConfig, {"spout": "square"})


def test_section_alone_has_typed_values_that_do_not_change():
    config = KettleConfig(water_l="0.5")
    assert (config.water_l, config.lid) == (0.5, ["steel"])
    with pytest.raises(UserError, match="water_l is 9"):
        KettleConfig(water_l=9)
    with pytest.raises(ValidationError):
        config.water_l = 1.0
    config.lid.append("glass")
    assert KettleConfig().lid == ["steel"]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.script)
def test_every_key_is_explained_on_one_line(stage):
    shown = help_text(stage)
    for name, one in keys_of(stage.config).items():
        assert one.help, name
        assert "\n" not in one.help
        assert len(one.help) < 120
        assert f"  --{name}  " in shown
        assert one.section.title
        assert replace(one.support, on_cpu="") == OURS or one.support.by is not By.OURS


def test_page_without_markers_is_a_sentence():
    with pytest.raises(UserError, match="the page has no markers <!-- algorithms"):
        with_tables("# Argument files\n", "docs/arguments.md")


def test_every_key_is_on_the_page_of_its_stages():
    pages = {scope: key_tables(scope) + support_table(scope) for scope in SCOPES}
    for stage in STAGES:
        for name in keys_of(stage.config):
            having = {other.name for other in STAGES if name in keys_of(other.config)}
            expected = (
                {"rl"} if having == {"rl"} else {"common", "supervised", "rl"} if "rl" in having else {"supervised"}
            )
            shown = {scope for scope, page in pages.items() if f"\n| `{name}` |" in page}
            assert shown, name
            assert shown <= expected, name
