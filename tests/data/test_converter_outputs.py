import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.command_line import invoke
from support.rows import Converter, Row, group, pair, rows_of, write_parquet

from grrm.data.convert import ConversionReport
from grrm.data.converters.gqm import convert_rl_gqm, convert_sft_gqm
from grrm.data.converters.mt import convert_rl_mt, convert_sft_mt
from grrm.data.converters.output import enter_dataset
from grrm.data.dataset import read_rows
from grrm.data.task_json import parse_tgt
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.groups import TranslationTask
from grrm.gqm.mt_prompts import mt_prompt
from grrm.gqm.prompts import gqm_prompt

STORED = Path(__file__).parents[1] / "golden/data/parquet"


def lines_of(convert: Converter, rows: list[Row], folder: Path, **settings: Any) -> list[Row]:
    report = convert(write_parquet(folder / "in.parquet", rows), folder / "out.jsonl", **settings)
    return [json.loads(line) for line in report.path.read_text(encoding="utf-8").split("\n")[:-1]]


def test_jsonl_output_holds_the_templated_prompt_and_what_training_needs(tmp_path: Path) -> None:
    (sft,) = lines_of(convert_sft_mt, [pair(trg_lang="zh", response=" 你好\n")], tmp_path)
    assert sft == {"src": render_chatml(mt_prompt("Hi", "en", "zh")), "tgt": "你好"}
    assert "你好" in (tmp_path / "out.jsonl").read_text(encoding="utf-8")
    (ranked,) = lines_of(convert_rl_gqm, [group()], tmp_path)
    assert ranked["tgt"] == '{"A": 3, "B": 9, "C": 9}'
    assert ranked["src"] == render_chatml(gqm_prompt("Hi", ["a", "b", "c"], "en", "de"))


def test_jsonl_tasks_can_be_read_back_with_and_without_reference(tmp_path: Path) -> None:
    lines = lines_of(convert_rl_mt, [pair()], tmp_path, cross_lingual=True)
    tasks = [parse_tgt(line["tgt"]) for line in lines]
    assert TranslationTask("Hi", "en", "de", "Hallo") in tasks
    assert sorted(task is not None and task.reference is None for task in tasks) == [False, True]


@pytest.mark.parametrize("convert", [convert_sft_gqm, convert_rl_gqm])
def test_lines_that_training_would_refuse_are_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, convert: Converter
) -> None:
    for module in ("data.convert", "data.converters.output", "data.layouts.text_files"):
        monkeypatch.setattr(f"grrm.{module}.MAX_TEXT", 4000)
    long = group(mt_texts=["한" * 2000, "b", "c"])  # three bytes a character
    source = write_parquet(tmp_path / "in.parquet", [long, group(), long])
    report = convert(source, tmp_path / "out.jsonl")
    assert len([*read_rows(report.path)]) == report.written == 1
    assert "out.jsonl: 2 of 3 rows have lines of more than 4000 bytes" in caplog.text
    with pytest.raises(UserError, match=r"1 of 1 rows have lines of more .* write to a \.parquet file"):
        convert(write_parquet(tmp_path / "in.parquet", [long]), tmp_path / "out.jsonl")


@pytest.mark.parametrize(
    ("values", "end"), [([["a", "b"], None, "a"], "look at row 3"), ([["a"], [1]], "mend it"), ([[10**30]], "mend it")]
)
def test_a_row_of_json_whose_value_is_of_another_kind_is_named(tmp_path: Path, values: list[Any], end: str) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(group(mt_texts=value)) + "\n" for value in values))
    with pytest.raises(UserError, match=rf"in.jsonl has no one type in column mt_texts \(.*\); {end}$"):
        convert_sft_gqm(source, tmp_path / "out.jsonl")


def test_an_output_of_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"out.json ends neither with .parquet nor with .jsonl"):
        convert_sft_mt(write_parquet(tmp_path / "in.parquet", [pair()]), tmp_path / "out.json")


def test_dataset_info_keeps_the_other_entries(tmp_path: Path) -> None:
    (tmp_path / "dataset_info.json").write_text('{"other": {"file_name": "x.json"}}')
    source = write_parquet(tmp_path / "in.parquet", [pair()])
    arguments = ["data", "sft-mt", str(source), str(tmp_path / "cot.parquet"), "--llama-factory"]
    invoke(*arguments)
    entries = json.loads((tmp_path / "dataset_info.json").read_text())
    assert entries["other"] == {"file_name": "x.json"}
    assert entries["cot"]["file_name"] == "cot.parquet"
    assert entries["cot"]["formatting"] == "sharegpt"
    (message, _) = rows_of(ConversionReport(tmp_path / "cot.parquet", 1, ()))[0]["messages"]
    tags = entries["cot"]["tags"]
    assert message[tags["role_tag"]] == tags["user_tag"]
    assert message[tags["content_tag"]].startswith("Translate")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.parquet", "{", "cannot be read as JSON"),
        ("a.parquet", "[]", "does not hold a JSON object"),
        ("a.jsonl", "{}", "cannot be entered into dataset_info.json"),
    ],
)
def test_a_dataset_info_that_cannot_be_extended_is_left_as_it_is(
    tmp_path: Path, name: str, content: str, sentence: str
) -> None:
    (tmp_path / "dataset_info.json").write_text(content)
    with pytest.raises(UserError, match=sentence):
        enter_dataset(tmp_path / name)
    assert (tmp_path / "dataset_info.json").read_text() == content


COMMANDS = {
    "sft-gqm": (group(), ["--prompt-type", "score", "--add-example", "--llama-factory"], 1),
    "rl-gqm": (group(), ["--subgroup-augment", "1", "--shuffle-augment", "1"], 4),
    "sft-sqm": (group(analyses=["a", "b", "c"]), [], 3),
    "rl-sqm": (group(), [], 3),
    "sft-mt": (pair(), ["--response-key", "trg_text"], 1),
    "rl-mt": (pair(), ["--cross-lingual", "--testset"], 2),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_convert_and_say_what_they_wrote(tmp_path: Path, command: str) -> None:
    row, options, count = COMMANDS[command]
    source, out = write_parquet(tmp_path / "in.parquet", [row]), tmp_path / "new" / "out.parquet"
    result = invoke("data", command, source, out, *options)
    assert f"{out}: {count} rows written, 0 left out" in result.output
    assert pq.read_metadata(out).num_rows == count
