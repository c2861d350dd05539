"""The stages around the pairs: seed files, cleaning in place, instruction data, and the commands that run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from random import Random

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.command_line import invoke

from grrm.data.bpe import train_bpe
from grrm.data.preference.instructions import write_instructions, write_sft_instructions
from grrm.data.preference.pair_files import pair_files
from grrm.data.preference.samples import clean_sample_files
from grrm.data.preference.seeds import write_rm_seed, write_x2x_seed
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.pair_prompts import HOLE, diverse_templates, fill


def sentence(src_text, trg_text, src_lang, trg_lang):
    return {"src_text": src_text, "trg_text": trg_text, "src_lang": src_lang, "trg_lang": trg_lang}


CORPUS = [
    sentence("Guten Tag", "Good day", "de", "en"),
    sentence("Guten Tag", "Hello", "de", "en"),
    sentence("Thanks", "Danke", "en", "de"),
    sentence("Bonjour", "Hello", "fr", "en"),
    sentence(None, "Hello", "fr", "en"),
    sentence("こんにちは", "Hello", "ja", "en"),
    sentence("Hi", "xx", "en", "qq"),
]


def write(path, rows):
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def read(path):
    return pq.read_table(path).to_pylist()


def test_seed_files_hold_each_source_once_and_bad_rows_are_counted(tmp_path):
    report = write_rm_seed(write(tmp_path / "in.parquet", CORPUS), tmp_path / "seed")
    assert len(list((tmp_path / "seed").iterdir())) == 18
    assert read(tmp_path / "seed/de2en.parquet") == CORPUS[:1]
    assert [(row.row, row.reason.split(":")[0]) for row in report.rejected] == [
        (5, "src_text is not text"),
        (7, "trg_lang"),
    ]
    assert report.n_other_pairs == 1  # Japanese is none of the ten languages
    assert report.written[tmp_path / "seed/fr2en.parquet"] == 1


def test_languages_of_seed_data_may_be_names(tmp_path):
    path = write(tmp_path / "rows.parquet", [sentence("Guten Tag", "Good day", "German", "English"), CORPUS[2]])
    assert write_rm_seed(path, tmp_path / "seed").n_other_pairs == 0
    assert read(tmp_path / "seed" / "de2en.parquet") == [sentence("Guten Tag", "Good day", "de", "en")]
    write_x2x_seed(path, tmp_path / "x2x")
    assert [row["src_text"] for row in read(tmp_path / "x2x" / "de2fr.parquet")] == ["Guten Tag", "Danke"]


def test_a_seed_file_that_was_sampled_already_is_kept(tmp_path):
    source = write(tmp_path / "in.parquet", CORPUS)
    sampled = [CORPUS[0] | {"mt_texts": ["Good day"]}]
    (tmp_path / "seed").mkdir()
    write(tmp_path / "seed/de2en.parquet", sampled)
    report = write_rm_seed(source, tmp_path / "seed")
    assert (read(tmp_path / "seed/de2en.parquet"), len(report.existing), len(report.written)) == (sampled, 1, 17)


def test_x2x_sources_are_both_sides_of_the_pairs_with_english(tmp_path):
    write_x2x_seed(write(tmp_path / "in.parquet", CORPUS), tmp_path / "seed")
    assert len(list((tmp_path / "seed").iterdir())) == 72
    assert read(tmp_path / "seed/de2fr.parquet") == [
        {"src_text": "Guten Tag", "ref_text": "Good day", "src_lang": "de", "trg_lang": "fr", "ref_lang": "en"},
        {"src_text": "Danke", "ref_text": "Thanks", "src_lang": "de", "trg_lang": "fr", "ref_lang": "en"},
    ]


SAMPLED = [
    {"src_text": "1", "mt_texts": ["b", "a", "b", "a</s>x\ny", ""], "mt_statuses": ["1", "2", "3", "4", "5"], "n": [1]},
    {"src_text": "2", "mt_texts": ["a", None], "mt_statuses": ["1", "2"], "n": [1, 2]},
    {"src_text": "3", "mt_texts": None, "mt_statuses": None, "n": None},
    {"src_text": "4", "mt_texts": [None], "mt_statuses": ["1"], "n": [4]},
]


def test_samples_are_cleaned_with_what_is_said_of_each_and_only_once(tmp_path):
    path = write(tmp_path / "de2en.parquet", SAMPLED)
    (report,) = clean_sample_files(tmp_path)
    cleaned = read(path)
    assert [row["mt_texts"] for row in cleaned] == [["b", "a", ""], ["a"]]
    assert [row["mt_statuses"] for row in cleaned] == [["1", "2", "5"], ["1"]]
    assert [row["n"] for row in cleaned] == [[1], [1, 2]]
    assert [row.row for row in report.rejected] == [3, 4]
    assert report.summary() == "file: de2en.parquet, removed item: 4/8, rows left out: 2"
    (again,) = clean_sample_files(tmp_path)
    assert (read(path), again.n_removed) == (cleaned, 0)


def test_scores_in_large_lists_stay_beside_their_samples(tmp_path):
    scores = pa.array([[1.0, 2.0, 3.0]], pa.large_list(pa.float64()))
    pq.write_table(pa.table({"mt_texts": [["a", "a", "b"]], "scores": scores}), tmp_path / "de2en.parquet")
    clean_sample_files(tmp_path)
    assert read(tmp_path / "de2en.parquet") == [{"mt_texts": ["a", "b"], "scores": [1.0, 3.0]}]


def test_a_file_of_which_no_row_was_sampled_has_no_row_left(tmp_path):
    path = write(tmp_path / "de2en.parquet", [{"src_text": "a", "mt_texts": [None]}, {"src_text": "b", "mt_texts": []}])
    (report,) = clean_sample_files(tmp_path)
    assert ([row.row for row in report.rejected], read(path)) == ([1, 2], [])


def test_samples_of_several_lines_can_be_put_on_one(tmp_path):
    texts = ["\n a\nb \n", "a; b</s>", "c\td"]
    path = write(tmp_path / "de2en.parquet", [{"mt_texts": texts}])
    clean_sample_files(tmp_path, single_line=True)
    assert read(path)[0]["mt_texts"] == ["a; b", "c\td"]


def test_parts_share_the_files_out(tmp_path):
    for name in ("de2en", "en2de", "en2fr", "notes"):
        write(tmp_path / f"{name}.parquet", SAMPLED)
    parts = [[path.stem for path in pair_files(tmp_path, part, 2)] for part in (0, 1)]
    assert parts == [["de2en", "en2fr"], ["en2de"]]
    with pytest.raises(UserError, match="part 2 of 2"):
        pair_files(tmp_path, 2, 2)
    with pytest.raises(UserError, match="holds no files named like"):
        pair_files(tmp_path / "nowhere")


PAIR = {"src_text": "Hi {}", "src_lang": "en", "trg_lang": "xx", "winner_text": "one two", "loser_text": "three"}


def test_token_limits_count_both_texts(tmp_path):
    rows = [PAIR, PAIR | {"loser_text": "four " * 9}, PAIR | {"winner_text": "two " * 9}, PAIR | {"loser_text": None}]
    source, out = write(tmp_path / "pairs.parquet", rows), tmp_path / "out.parquet"
    report = write_instructions(
        source, out, count_tokens=lambda texts: [len(text.split()) for text in texts], max_len=16
    )
    prompt = "Translate the following text from English into xx:\nEnglish: Hi {}\nxx:"
    assert read(out) == [{"prompt": prompt, "chosen": "one two", "rejected": "three"}]
    assert sorted((row.row, row.reason) for row in report.rejected) == [
        (2, "more than 16 tokens"),
        (3, "more than 16 tokens"),
        (4, "loser_text is not text"),
    ]


def test_sentence_pairs_become_prompts_and_responses_as_the_original_draws_and_shuffles_them(tmp_path):
    usable = [sentence(f"Guten {n}", f"Good {n}", "de", "en") for n in range(30)]
    rows = [*usable, sentence("long", "word " * 20, "de", "en"), sentence("Hi", None, "en", "de")]
    source, out = write(tmp_path / "in.parquet", rows), tmp_path / "sft.parquet"
    report = write_sft_instructions(
        source, out, count_tokens=lambda texts: [len(text.split()) for text in texts], max_len=22
    )
    assert (report.written, [row.row for row in report.rejected]) == (30, [32, 31])
    draw = Random(114514)
    prompts = [draw.choice(diverse_templates("de", "en")).replace(HOLE, row["src_text"]) for row in usable]
    expected = [
        {"prompt": prompts[at], "response": f"Good {at}"} for at in np.random.RandomState(114514).permutation(30)
    ]
    assert read(out) == expected
    write_sft_instructions(write(tmp_path / "a.parquet", usable), tmp_path / "sft.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "sft.jsonl").read_text().splitlines()]
    assert lines == [{"src": render_chatml(row["prompt"]), "tgt": row["response"]} for row in expected]


def test_columns_of_sentence_pairs_are_named_by_what_they_begin_with(tmp_path):
    row = {"a_text": "Hallo", "b_text": "Hi", "a_lang": "de", "b_lang": "en"}
    source = write(tmp_path / "in.parquet", [row])
    write_sft_instructions(source, tmp_path / "out.parquet", src_key="a", trg_key="b")
    assert read(tmp_path / "out.parquet")[0]["response"] == "Hi"
    with pytest.raises(UserError, match="give two prefixes"):
        write_sft_instructions(source, tmp_path / "out.parquet", src_key="a", trg_key="a")


@pytest.mark.parametrize("lang", ["d\0e", "{}", "en\nfr", "", "x" * 65])
@pytest.mark.parametrize("diverse_prompt", [False, True])
def test_a_language_that_cannot_be_a_name_is_left_out_with_its_row(tmp_path, lang, diverse_prompt):
    source = write(tmp_path / "pairs.parquet", [PAIR, PAIR | {"trg_lang": lang}, PAIR | {"src_lang": lang}])
    report = write_instructions(source, tmp_path / "out.parquet", diverse_prompt=diverse_prompt)
    assert (report.written, [row.row for row in report.rejected]) == (1, [2, 3])
    assert report.rejected[0].reason in ("trg_lang is empty", "trg_lang is not the name of a language")


def test_wordings_are_drawn_by_the_seed(tmp_path):
    source = write(tmp_path / "pairs.parquet", [PAIR] * 40)
    prompts = []
    for seed in (1, 1, 2):
        write_instructions(source, tmp_path / "out.parquet", diverse_prompt=True, seed=seed)
        prompts.append([row["prompt"] for row in read(tmp_path / "out.parquet")])
    assert prompts[0] == prompts[1] != prompts[2]
    assert all("Hi {}" in prompt for prompt in prompts[0])
    assert len(set(prompts[0])) > 5


def test_a_template_is_filled_once():
    assert fill("{} and {}", "{}", "b") == "{} and b"
    with pytest.raises(ValueError, match="1 texts for 2 places"):
        fill("{} and {}", "a")


run = partial(invoke, "data")


def test_the_commands_lead_from_sentences_to_instructions(tmp_path):
    source, seed = write(tmp_path / "in.parquet", CORPUS), tmp_path / "seed"
    run("rm-seed", source, seed)
    path = seed / "de2en.parquet"
    write(path, [row | {"mt_texts": ["Hello", "Bye", "Hello"]} for row in read(path)])
    assert "removed item: 1/3" in run("clean-samples", seed, "--part-id", 0, "--device-num", 18).output
    for other in ("en2de", "fr2en"):  # the files without rows need not be sampled
        (seed / f"{other}.parquet").unlink()
    write(path, [row | {"scores": [0.9, 0.1]} for row in read(path)])
    scored = run(
        "pairs", seed, tmp_path / "pairs.parquet", "--min-margin", 20, "--valid-score-range", "[5,95]",
        "--min-winner-score", 70, "--to-percentile",
    )  # fmt: skip
    assert "Total samples: 1" in scored.output
    run("pair-instructions", tmp_path / "pairs.parquet", tmp_path / "rm.parquet")
    assert read(tmp_path / "rm.parquet")[0]["chosen"] == "Hello"


@pytest.mark.parametrize("text", ["20", "20,x", "[20;95]", "1,2,3"])
def test_a_range_is_two_numbers(tmp_path, text):
    with pytest.raises(click.BadParameter):
        run("pairs", tmp_path, tmp_path / "o.parquet", "--valid-score-range", text)


@pytest.mark.parametrize("stage", [clean_sample_files, lambda folder: write_rm_seed(folder / "in.parquet", folder)])
def test_a_stage_that_was_killed_goes_on_without_a_lost_or_doubled_row(tmp_path, monkeypatch, stage):
    folders = [tmp_path / "killed", tmp_path / "whole"]
    for folder in folders:
        folder.mkdir()
        write(folder / "in.parquet", CORPUS)
        for name in ("aa2en", "ab2en", "ac2en"):
            write(folder / f"{name}.parquet", SAMPLED)
    replaced = []

    def killed_at_the_second(temporary, path):
        replaced.append(path)
        if len(replaced) == 2:
            raise KeyboardInterrupt
        return rename(temporary, path)

    rename = os.replace
    monkeypatch.setattr(os, "replace", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        stage(folders[0])
    monkeypatch.undo()
    for folder in folders:
        stage(folder)
    names = [sorted(path.name for path in folder.iterdir()) for folder in folders]
    assert names[0] == names[1]
    assert all(read(folders[0] / name) == read(folders[1] / name) for name in names[0])


@pytest.mark.slow
def test_pairs_are_counted_in_tokens_without_a_word_of_what_that_imports(tmp_path):
    pair = {
        "src_text": "Guten Morgen",
        "src_lang": "de",
        "trg_lang": "en",
        "winner_text": "Good morning",
        "loser_text": "x",
    }
    pq.write_table(pa.Table.from_pylist([pair]), tmp_path / "pairs.parquet")
    folder = train_bpe(["Guten Morgen", "Good morning"], tmp_path / "tokenizer", 300)
    words = ["data", "pair-instructions", "pairs.parquet", "out.parquet", "--tokenizer", folder, "--max-len", "1024"]
    done = subprocess.run(
        [sys.executable, "-m", "grrm.cli", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "out.parquet: 1 rows written, 0 left out\n"), done.stderr
    assert done.stderr == ""
