"""Documents and positions of rows: carried along by converters, and turned into the context of each row."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.rows import converted, group, pair, write_parquet

from grrm.data.annotation.groups import annotate_groups
from grrm.data.annotation.relative import relative_groups
from grrm.data.convert import convert_to_rows, convert_to_sft, convert_to_src_tgt
from grrm.data.converters.gqm import convert_rl_gqm, convert_sft_gqm
from grrm.data.converters.gqm_pairs import convert_pairs_gqm, convert_sft_pairwise
from grrm.data.converters.mt import convert_rl_mt
from grrm.data.converters.sqm import convert_rl_sqm, convert_sft_sqm, question_and_criteria, rubric_judge
from grrm.data.dataset import read_prompt_items
from grrm.data.documents import LocatedRow, contexts_of, file_contexts
from grrm.data.held_out import hold_out
from grrm.data.layouts.user_rows import UserRows
from grrm.errors import UserError
from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.gqm.prompts import gqm_prompt
from grrm.judges.gqm import GQMJudge, GQMOptions
from grrm.judges.pairwise import PairwiseJudge
from grrm.judges.rubric import RubricJudge
from grrm.judges.sqm import SQMJudge

RUBRIC = rubric_judge()
WORDS = ["eins", "zwei", "drei", "vier"]


def segments(*positions: int | None, document: str | None = "a", **changed: Any) -> list[dict[str, Any]]:
    return [
        pair(src_text=f"{document} {position}", trg_text=f"T{position}", document=document, position=position) | changed
        for position in positions
    ]


def located(rows: list[dict[str, Any]], n_segments: int = 2) -> list[list[tuple[str, str | None]]]:
    contexts = contexts_of([LocatedRow.of_row(row) for row in rows], n_segments, lambda index: f"row {index + 1}")
    return [[tuple(segment) for segment in context] for context in contexts]


def test_context_is_what_stands_before_in_the_same_document_and_languages():
    rows = segments(2, 0, 5) + segments(1, document="b") + segments(1, 3, trg_lang="fr")
    assert located(rows) == [
        [("a 0", "T0")],
        [],
        [("a 0", "T0"), ("a 2", "T2")],
        [],
        [],
        [("a 1", "T1")],
    ]


def test_rows_of_one_segment_are_one_and_a_row_without_a_document_has_no_context():
    rows = segments(0, trg_text=None) + segments(0) + segments(1) + segments(7, document=None)
    assert located(rows) == [[], [], [("a 0", "T0")], []]


def test_positions_of_text_and_of_pandas_are_numbers():
    assert located([*segments(0), *segments(1) * 1, segments(9)[0] | {"position": "10"}])[-1][-1] == ("a 1", "T1")
    assert located([*segments(0), segments(1)[0] | {"position": 1.0}])[-1] == [("a 0", "T0")]
    assert located([*segments(0), segments(1)[0] | {"position": "1.0"}])[-1] == [("a 0", "T0")]
    assert located([*segments(0), segments(1)[0] | {"document": math.nan, "position": math.nan}])[-1] == []


@pytest.mark.parametrize("position", [None, "first", "--5", 1.5, "1.5", True, math.nan, 1 << 63, "9" * 5000])
def test_a_document_without_a_position_is_a_sentence(position):
    rows = [*segments(0), segments(1)[0] | {"position": position}]
    with pytest.raises(UserError, match=r"^row 2: (no|a) position .*in document 'a'; give every row"):
        located(rows)


def test_two_sources_in_one_position_are_a_sentence():
    rows = [*segments(0), segments(0)[0] | {"src_text": "other"}]
    with pytest.raises(UserError, match=r"^row 2: document 'a' has another source at position 0 already"):
        located(rows)


def test_a_file_without_documents_has_no_context_to_show(tmp_path):
    with pytest.raises(UserError, match="have no document, which context_segments needs"):
        file_contexts(write_parquet(tmp_path / "rows.parquet", [pair()]), 1)


def test_pages_of_the_help_are_documents(tmp_path):
    rows = [{("page" if name == "document" else name): value for name, value in row.items()} for row in segments(4, 6)]
    assert file_contexts(write_parquet(tmp_path / "rows.parquet", rows), 1)[1] == (("a 4", "T4"),)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_lines_for_rl_carry_the_place_of_their_row(tmp_path):
    source = write_parquet(tmp_path / "rows.parquet", segments(3) + segments(7, document=None))
    first, second = lines(convert_to_src_tgt(source, tmp_path / "rl.jsonl").path)
    assert (first["document"], first["position"]) == ("a", 3)
    assert second.keys() == {"src", "tgt"}
    assert lines(convert_to_sft(source, tmp_path / "sft.jsonl").path)[0].keys() == {"src", "tgt"}


def test_a_row_without_a_position_is_left_out_of_lines(tmp_path):
    rows = segments(3, None, document="1") + segments(None, document="2")
    texts = (json.dumps(row | {"document": int(row["document"])}) + "\n" for row in rows)
    (tmp_path / "in.jsonl").write_text("".join(texts))
    report = convert_to_src_tgt(tmp_path / "in.jsonl", tmp_path / "rl.jsonl")
    assert [row.reason for row in report.rejected] == [
        f"no position in document '{number}'; give every row of a document a whole number in the column position, in "
        "the order of the text"
        for number in (1, 2)
    ]
    assert report.summary().endswith("2 left out (2 x no position in document)")


def test_files_of_rows_carry_the_place_of_their_row(tmp_path):
    source = write_parquet(tmp_path / "rows.parquet", segments(3, 4))
    as_csv = tmp_path / "rows.csv"
    as_csv.write_text("src_text,trg_text,src_lang,trg_lang,doc,position\nHi,Hallo,en,de,a,3\n", encoding="utf-8")
    held = hold_out(UserRows(source), tmp_path / "held.parquet", 1, "Tower")
    for path in (
        convert_to_rows(UserRows(as_csv, columns={"document": "doc"}), tmp_path / "out.parquet").path,
        held.path,
        convert_rl_mt(source, tmp_path / "mt.parquet", seed=1).path,
    ):
        row = pq.read_table(path).to_pylist()[0]
        assert row["document"] == "a"
        assert row["position"] in (3, 4)
        assert pq.read_schema(path).field("position").type == pa.int64()
    line = lines(convert_rl_mt(source, tmp_path / "mt.jsonl").path)[0]
    assert (line["document"], line["position"]) in (("a", 3), ("a", 4))


def test_without_documents_files_have_the_columns_of_before(tmp_path):
    source = write_parquet(tmp_path / "rows.parquet", [pair(), pair(src_text="Ho")])
    assert pq.read_schema(convert_to_rows(source, tmp_path / "out.parquet").path).names == [
        "src_text",
        "trg_text",
        "src_lang",
        "trg_lang",
    ]
    names = pq.read_schema(convert_rl_mt(source, tmp_path / "mt.parquet").path).names
    assert names == ["prompt", "ability", "data_source", "extra_info"]


def test_groups_carry_the_place_of_their_row(tmp_path):
    rows = [row | {"mt_texts": ["T", "Tx", "Txx"], "trg_text": "Tx"} for row in segments(3, 5)]
    groups = annotate_groups(
        write_parquet(tmp_path / "sampled.parquet", rows), tmp_path / "groups.parquet", group_size=3
    )
    relative = relative_groups(groups.path, tmp_path / "relative.parquet", orders=2)
    for path in (groups.path, relative.path):
        assert {(row["document"], row["position"]) for row in pq.read_table(path).to_pylist()} == {("a", 3), ("a", 5)}


def judged_segments() -> list[dict[str, Any]]:
    rows = [
        group(src_text=word, trg_text=word.upper(), document="a", position=number, analyses=["x"] * 3)
        for number, word in enumerate(WORDS)
    ]
    rows[1]["src_text"] = "A: 0, B: 10\n```"
    return rows


def prompts_shown(
    judge: type[Any], row: dict[str, Any], context: Any, reference: str | None = None, **settings: Any
) -> set[str]:
    shown: set[str] = set()

    class Model:
        def generate_text(self, prompts, **sampling):
            from grrm.judges.interface import GeneratedText

            shown.update(prompts)
            return [GeneratedText("", "stop", 0) for _ in prompts]

        def count_tokens(self, prompt):
            return 0

    task = TranslationTask(row["src_text"], row["src_lang"], row["trg_lang"], reference, context=context)
    candidates = tuple(Candidate(text, text, text) for text in row["mt_texts"])
    judge(Model(), render=lambda prompt: prompt, **settings).judge([Group("g", task, candidates)])
    return shown


@pytest.mark.parametrize("n_segments", [0, 2])
@pytest.mark.parametrize("convert", [convert_sft_gqm, convert_rl_gqm, convert_pairs_gqm])
def test_a_group_judge_is_taught_with_the_prompts_that_it_is_asked_with(tmp_path, convert, n_segments):
    rows = judged_segments()
    contexts = file_contexts(write_parquet(tmp_path / "in.parquet", rows), 2)
    taught = set()
    for row in converted(convert, rows, tmp_path, context_segments=n_segments):
        messages = row["prompt"] if "prompt" in row else row["messages"]
        taught.add(messages if isinstance(messages, str) else messages[0]["content"])
    options, pairs = GQMOptions(context_segments=n_segments), zip(rows, contexts, strict=True)
    assert taught == set().union(*(prompts_shown(GQMJudge, *pair, options=options) for pair in pairs))


def test_rows_of_the_original_have_its_prompts(tmp_path):
    row = judged_segments()[1]
    (converted_row,) = converted(convert_rl_gqm, [row], tmp_path, compat=True)
    languages = (row["src_lang"], row["trg_lang"], "ranking_score")
    assert converted_row["prompt"][0]["content"] == gqm_prompt(row["src_text"], row["mt_texts"], *languages)


@pytest.mark.parametrize("n_segments", [0, 2])
@pytest.mark.parametrize("convert", [convert_sft_sqm, convert_rl_sqm])
def test_a_single_judge_is_taught_with_the_prompts_that_it_is_asked_with(tmp_path, convert, n_segments):
    rows = judged_segments()
    contexts = file_contexts(write_parquet(tmp_path / "in.parquet", rows), 2)
    taught = {
        (row["prompt"] if "prompt" in row else row["messages"])[0]["content"]
        for row in converted(convert, rows, tmp_path, context_segments=n_segments)
    }
    asked = [
        prompts_shown(SQMJudge, row, context, context_segments=n_segments)
        for row, context in zip(rows, contexts, strict=True)
    ]
    assert taught == set().union(*asked)


def test_a_pairwise_judge_is_taught_with_prompts_that_it_is_asked_with(tmp_path):
    rows = judged_segments()
    taught = {row["messages"][0]["content"] for row in converted(convert_sft_pairwise, rows, tmp_path, pairs=9)}
    assert taught < set().union(*(prompts_shown(PairwiseJudge, row, None) for row in rows))


def test_a_rubric_judge_is_taught_with_the_prompts_that_it_is_asked_with(tmp_path):
    row = judged_segments()[0] | {"src_text": "eins</s>", "mt_texts": ["one", "one <s>", "1"]}
    taught = {line["messages"][0]["content"] for line in converted(convert_sft_sqm, [row], tmp_path, judge=RUBRIC)}
    question, criteria = question_and_criteria(TranslationTask(row["src_text"], row["src_lang"], row["trg_lang"]))
    assert taught == prompts_shown(RubricJudge, row | {"src_text": question}, None, reference=criteria)


def test_a_row_whose_context_cannot_be_shown_is_left_out(tmp_path):
    rows = judged_segments()
    rows[0]["src_text"] = "hidden\u202etext"
    report = convert_sft_gqm(write_parquet(tmp_path / "in.parquet", rows), tmp_path / "out.parquet", context_segments=1)
    reasons = [f"{what} cannot be shown to a judge: hidden_text" for what in ("a text of it", "a segment before it")]
    assert [(row.row, row.reason) for row in report.rejected] == [*enumerate(reasons, 1)]


@pytest.mark.parametrize(
    "convert", [convert_sft_gqm, convert_rl_gqm, convert_pairs_gqm, convert_sft_sqm, convert_rl_sqm]
)
def test_rows_none_of_whose_contexts_can_be_shown_are_an_error(tmp_path, convert):
    rows = judged_segments()[:2]
    rows[0] |= {"src_text": "hidden\u202etext", "scores": None}
    rows = write_parquet(tmp_path / "in.parquet", rows)
    with pytest.raises(UserError, match="no usable row, the first is left out because of: scores is not a list"):
        convert(rows, tmp_path / "out.parquet", context_segments=1)


def encode(text: str) -> list[int]:
    return list(text.encode())


def test_prompts_of_rl_bring_earlier_sources_with_their_references(tmp_path):
    rows = [*segments(0, 1, 2), *segments(0, document=None)]
    rows[1]["src_text"] = "long " * 50
    report = convert_to_src_tgt(write_parquet(tmp_path / "in.parquet", rows), tmp_path / "rl.jsonl", "Tower")
    limit = 200  # leaves the second row out as a prompt, not as context
    items = read_prompt_items(report.path, encode, limit, context_segments=2)
    assert [item.task.context for item in items] == [(), (("a 0", "T0"), ("long " * 50, "T1")), ()]
    assert all(item.task.context is None for item in read_prompt_items(report.path, encode, limit))


def test_prompts_of_rl_without_documents_are_a_sentence(tmp_path):
    report = convert_to_src_tgt(write_parquet(tmp_path / "in.parquet", [pair()]), tmp_path / "rl.jsonl", "Tower")
    with pytest.raises(UserError, match=r"rl.jsonl line 1 and all others have no document"):
        read_prompt_items(report.path, encode, 200, context_segments=1)
