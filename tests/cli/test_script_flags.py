"""Command lines of GRRM's and EAX's scripts, with their options as they are there."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support.completions_server import CompletionsServer

from grrm.cli import grrm

PAIRS = """--data_path seed --output_path {out} --mt_texts_key rm_sampling_text --score_key rm_sampling_bleurt_score
--min_margin 20 --valid_score_range [20,95] --min_winner_score 70 --src_text_key src_text --trg_text_key trg_text
--src_lang_key src_lang --trg_lang_key trg_lang --to_percentile True"""
OURS = """seed {out} --mt-key rm_sampling_text --score-key rm_sampling_bleurt_score --min-margin 20
--valid-score-range 20,95 --min-winner-score 70 --trg-text-key trg_text --to-percentile"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command, by default of `grrm data`, in an empty folder; the result."""
    monkeypatch.chdir(tmp_path)
    return lambda line, group=("data",): CliRunner().invoke(grrm, [*group, *line.split()])


def write(path, **columns):
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_the_published_line_for_preference_pairs(run, tmp_path):
    texts, scores = [["gut", "schlecht", "mittel"]] * 2, [[0.9, 0.3, 0.6], [0.96, 0.6, 0.69]]
    pair = {"src_text": ["good", "fine"], "trg_text": ["gut"] * 2, "src_lang": ["en"] * 2, "trg_lang": ["de"] * 2}
    write(tmp_path / "seed/en2de.parquet", **pair, rm_sampling_text=texts, rm_sampling_bleurt_score=scores)
    for line, out in ((PAIRS, "theirs.parquet"), (OURS, "ours.parquet")):
        done = run(f"pairs {line.format(out=out)}")
        assert done.exit_code == 0, done.output
        assert "Total samples: 1" in done.output
    theirs, ours = (pq.read_table(name).to_pylist() for name in ("theirs.parquet", "ours.parquet"))
    assert theirs == ours
    assert (theirs[0]["winner_text"], theirs[0]["winner_score"]) == ("gut", 90.0)


@pytest.mark.parametrize(
    ("flag", "n_wordings"), [("--diverse_prompt", 2), ("--diverse_prompt=True", 2), ("--diverse_prompt False", 1)]
)
def test_a_flag_is_alone_or_has_its_value_behind_it(run, tmp_path, flag, n_wordings):
    one = ["x"] * 40
    write(
        tmp_path / "p/a.parquet", src_text=one, winner_text=["a"] * 40, loser_text=["b"] * 40, src_lang=["en"] * 40,
        trg_lang=["de"] * 40,
    )  # fmt: skip
    done = run(f"pair-instructions --data_path p/a.parquet --output_path=out.parquet {flag}")
    assert done.exit_code == 0, done.output
    prompts = {row["prompt"] for row in pq.read_table("out.parquet").to_pylist()}
    assert min(len(prompts), 2) == n_wordings


def test_the_published_lines_of_both_cold_starts(run, tmp_path):
    pair = {"src_text": ["good"], "trg_text": ["gut"], "src_lang": ["en"], "trg_lang": ["de"]}
    write(tmp_path / "data/train.parquet", **pair)
    done = run("sft-instructions --data_path data/train.parquet --output_path sft_towerblocks_mt.parquet")
    assert done.exit_code == 0, done.output
    assert pq.read_table("sft_towerblocks_mt.parquet").column_names == ["prompt", "response"]
    write(tmp_path / "old.parquet", x=[1])
    done = run("sft-instructions data/train.parquet --output_path old.parquet")  # the input as ours, first
    assert done.exit_code == 0, done.output
    assert pq.read_table("old.parquet").column_names == ["prompt", "response"]
    assert pq.read_table("data/train.parquet").column_names == list(pair)
    scored = {"mt_texts": [["gut", "x"]], "scores": [[8, 1]], "analysis": ["B says nothing."]}
    write(tmp_path / "rank/train.parquet", **pair, **scored)
    keys = "--mt_key mt_texts --score_key scores --analysis_key analysis"
    done = run(f"rl-gqm --data_path rank/train.parquet --output_path rl.jsonl {keys} --subgroup_augment 4")
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "rl.jsonl").read_text())["rule_reward"] == "ranking_score"


# As published, with `grrm translate`, `grrm data` and `grrm rank` in the place of the scripts; ours is what follows.
SAMPLE = """--data_path seed --output_path seed --src_text_key src_text --src_lang_key src_lang --trg_lang_key trg_lang
--temperature 1.0 --top_p 1.0 --out_key rm_sampling_text --model_path policy --max_new_tokens 768 --sampling_n 4
--part_id {part} --device_num 2"""
CLEAN = "clean-samples --data_path seed --text_key rm_sampling_text"
SCORE = """--data_path seed --bleurt_path BLEURT-20 --ref_key trg_text --mt_key rm_sampling_text
--out_key rm_sampling_bleurt_score --inplace True --part_id {part} --device_num 2"""


def test_the_published_lines_of_sampling_and_scoring_in_one_folder(run, tmp_path):
    pair = {"src_text": ["good", "bad", None], "trg_text": ["gut"] * 3, "src_lang": ["en"] * 3, "trg_lang": ["de"] * 3}
    write(tmp_path / "seed/en2de.parquet", **pair)
    write(tmp_path / "seed/de2en.parquet", **pair)
    server = CompletionsServer(lambda body, _: "gut" if "good" in body["prompt"] else "schlecht")
    try:
        for part in (0, 1, 0):
            line = f"translate {SAMPLE.format(part=part)} --prompt-type Tower --chat-template chatml --url {server.url}"
            done = run(line, group=())
            assert done.exit_code == 0, done.output
        assert "de2en.parquet: has column rm_sampling_text already" in done.stderr
        assert {body["max_tokens"] for body in server.requests} == {768}
    finally:
        server.close()
    table = pq.read_table("seed/en2de.parquet")
    assert table.column_names == [*pair, "rm_sampling_text"]
    assert table["src_text"].to_pylist() == pair["src_text"]  # a row that cannot be used stays, with a null
    assert table["rm_sampling_text"].to_pylist() == [["gut"] * 4, ["schlecht"] * 4, None]
    done = run(CLEAN)
    assert done.exit_code == 0, done.output
    assert pq.read_table("seed/en2de.parquet")["rm_sampling_text"].to_pylist() == [["gut"], ["schlecht"]]
    for part in (0, 1, 1):
        done = run(f"rank {SCORE.format(part=part).replace('--bleurt_path BLEURT-20', '')} --judge chrf", group=())
        assert done.exit_code == 0, done.output
    assert "en2de.parquet: has column rm_sampling_bleurt_score already" in done.stderr
    scored = pq.read_table("seed/en2de.parquet")
    assert scored.column_names == [*pair, "rm_sampling_text", "rm_sampling_bleurt_score"]
    assert scored["rm_sampling_bleurt_score"].to_pylist()[0] == [10.0]


def test_one_sample_is_a_list_in_a_column_of_ones_own(run, tmp_path):
    write(tmp_path / "p/a.parquet", src_text=["good"], src_lang=["en"], trg_lang=["de"])
    with CompletionsServer(lambda *_: "gut") as server:
        line = f"translate p/a.parquet --inplace --out_key mt_text --prompt-type Tower --url {server.url}"
        done = run(f"{line} --model m --chat_template True --force_overwrite False", group=())
    assert done.exit_code == 0, done.output
    assert pq.read_table("p/a.parquet").to_pylist() == [
        {"src_text": "good", "src_lang": "en", "trg_lang": "de", "mt_text": ["gut"]}
    ]


def test_scores_of_ten_are_not_taken_for_scores_of_one(run, tmp_path):
    pair = {"src_text": ["a"], "trg_text": ["b"], "src_lang": ["en"], "trg_lang": ["de"]}
    scores = {"rm_sampling_text": [["c", "d"]], "rm_sampling_bleurt_score": [[9.0, 0.5]]}
    write(tmp_path / "seed/en2de.parquet", **pair, **scores)
    done = run(f"pairs {PAIRS.format(out='out.parquet')}")
    assert done.exit_code == 1
    assert "has the score 9 in rm_sampling_bleurt_score, and to_percentile is for scores of 0 to 1" in str(
        done.exception
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("pairs --data_path a --output_path", "'--output_path' requires an argument"),
        ("pairs a b --min_margins 2", "No such option"),
        ("clean-samples --data_path a --output_path b", "unexpected extra argument"),
        ("pair-instructions a b --ref_key x", "'--ref_key' is always trg_text here, not x: leave it out and rename"),
        ("pairs a b --force_overwrite", "'--force_overwrite' is not here: remove the file or column to make it again"),
    ],
)
def test_what_no_command_has_is_told_in_the_words_that_were_typed(run, line, message):
    done = run(line)
    assert done.exit_code == 2
    assert message in done.output
