"""The same four pairs in every layout that a user may have them in."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
from support.rows import write_jsonl

from grrm.data.layouts.user_rows import COLUMNS, UserRows

PAIRS = [('Good day, "you"', "Guten Tag, „du“"), ("1 < 2 & 3", "1 < 2 & 3\u2028"), ("a, b", "ä"), ("東京", "Tokio")]
ROWS = [(*pair, "en", "de") for pair in PAIRS]
DICTS = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
TABLE = pa.Table.from_pylist(DICTS)
NESTED = [{"id": str(at), "translation": {"de": de, "en": en}} for at, (en, de) in enumerate(PAIRS)]


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def parquet(folder: Path) -> UserRows:
    pq.write_table(TABLE, folder / "rows.parquet")
    return UserRows(folder / "rows.parquet")


def json_lines(folder: Path) -> UserRows:
    write_jsonl(folder / "rows.jsonl", DICTS)
    return UserRows(folder / "rows.jsonl")


def json_lines_with_another_ending(folder: Path) -> UserRows:
    return UserRows(json_lines(folder).path.rename(folder / "rows.json"))


def json_list(folder: Path) -> UserRows:
    (folder / "rows.json").write_text(json.dumps(DICTS, indent=1))
    return UserRows(folder / "rows.json")


def json_of_a_list(folder: Path) -> UserRows:
    (folder / "rows.json").write_text(json.dumps({"version": 1, "data": DICTS}))
    return UserRows(folder / "rows.json")


def comma_separated(folder: Path) -> UserRows:
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([COLUMNS, *ROWS])
    return UserRows(folder / "rows.csv")


def semicolon_separated(folder: Path) -> UserRows:
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter=";").writerows([COLUMNS, *ROWS])
    return UserRows(folder / "rows.csv")


def delimiter_in_the_first_line(folder: Path) -> UserRows:
    rows = semicolon_separated(folder)
    (folder / "rows.csv").write_bytes(b"sep=;\n" + (folder / "rows.csv").read_bytes().removeprefix(codecs.BOM_UTF8))
    return rows


def comma_separated_by_language(folder: Path) -> UserRows:
    with gzip.open(folder / "rows.csv.gz", "wt", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("de", "en"), *((de, en) for en, de in PAIRS)])
    return UserRows(folder / "rows.csv.gz", src_lang="en", trg_lang="de")


def tab_separated(folder: Path) -> UserRows:
    with (folder / "rows.tsv").open("w", newline="", encoding="utf-8") as file:
        file.writelines(f"{one}\t{other}\n" for one, other in [("quelle", "ziel"), *PAIRS])
    columns = {"src_text": "quelle", "trg_text": "ziel"}
    return UserRows(folder / "rows.tsv", columns=columns, src_lang="en", trg_lang="de")


def feather(folder: Path) -> UserRows:
    pyarrow.feather.write_feather(TABLE, folder / "rows.feather")
    return UserRows(folder / "rows.feather")


def shards(folder: Path) -> UserRows:
    for at in range(2):
        pq.write_table(TABLE.slice(2 * at, 2), folder / f"train-0000{at}-of-00002.parquet")
    return UserRows(folder)


def saved_data_set(folder: Path) -> UserRows:
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for at, name in enumerate(names):
        part = pa.Table.from_pylist(NESTED[2 * at : 2 * at + 2])
        with pa.ipc.new_stream(folder / name, part.schema) as writer:
            writer.write_table(part)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text("{}")
    return UserRows(folder, src_lang="en", trg_lang="de")


def nested_column(folder: Path) -> UserRows:
    write_jsonl(folder / "rows.jsonl", NESTED)
    return UserRows(folder / "rows.jsonl", src_lang="en", trg_lang="de")


def part_of_a_column(folder: Path) -> UserRows:
    pq.write_table(pa.Table.from_pylist(NESTED), folder / "rows.parquet")
    columns = {"src_text": "translation.en", "trg_text": "translation.de"}
    return UserRows(folder / "rows.parquet", columns=columns, src_lang="en", trg_lang="de")


def lines_of_two_files(folder: Path) -> UserRows:
    for at, lang in enumerate(("en", "de")):
        (folder / f"train.{lang}").write_text("".join(f"{pair[at]}\n" for pair in PAIRS), encoding="utf-8")
    return UserRows(folder / "train.en", target=folder / "train.de")


def memory(folder: Path) -> UserRows:
    units = "".join(
        f"<tu><tuv xml:lang='en'><seg><bpt i='1'>&lt;b&gt;</bpt>{escaped(en)}<ept i='1'/></seg></tuv>"
        f"<tuv xml:lang='de'><seg><hi>{escaped(de)}</hi></seg></tuv></tu>"
        for en, de in PAIRS
    )
    head = '<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx version="1.4"><header srclang="en"/><body>'
    (folder / "rows.tmx").write_text(f"{head}{units}</body></tmx>", encoding="utf-8")
    return UserRows(folder / "rows.tmx")


def xliff_1(folder: Path) -> UserRows:
    units = "".join(
        f"<trans-unit id='1'><source><g id='1'>{escaped(en)}</g><x id='2'/></source><target>{escaped(de)}</target>"
        "<alt-trans><target>another</target></alt-trans></trans-unit>"
        for en, de in PAIRS
    )
    head = "<xliff version='1.2' xmlns='urn:oasis:names:tc:xliff:document:1.2'>"
    file = f"<file source-language='en' target-language='de'><body>{units}</body></file>"
    (folder / "rows.xlf").write_text(f"{head}{file}</xliff>", encoding="utf-8")
    return UserRows(folder / "rows.xlf")


def xliff_2(folder: Path) -> UserRows:
    units = "".join(
        f"<unit id='1'><segment><source>{escaped(en)}</source><target>{escaped(de)}</target></segment></unit>"
        for en, de in PAIRS
    )
    head = "<xliff version='2.0' srcLang='en' trgLang='de' xmlns='urn:oasis:names:tc:xliff:document:2.0'>"
    (folder / "rows.xliff").write_text(f"{head}<file id='f'>{units}</file></xliff>", encoding="utf-8")
    return UserRows(folder / "rows.xliff")


LAYOUTS: list[Callable[[Path], UserRows]] = [
    *(parquet, feather, shards, saved_data_set, nested_column, part_of_a_column),
    *(json_lines, json_lines_with_another_ending, json_list, json_of_a_list),
    *(comma_separated, semicolon_separated, delimiter_in_the_first_line, comma_separated_by_language, tab_separated),
    *(lines_of_two_files, memory, xliff_1, xliff_2),
]
