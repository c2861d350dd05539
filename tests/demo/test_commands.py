"""The commands behind the small stages."""

import json
import os
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from grrm.data.parquet import TranslationRow, read_rows, write_rows
from grrm.demo.evaluate_checkpoint import Pass, scores_record
from grrm.demo.prepare import main as prepare
from grrm.engine.api import Completion, Engine
from grrm.evaluation.text_metrics import corpus_chrf, sentence_chrfs
from grrm.gqm.groups import TranslationTask
from grrm.gqm.mt_prompts import mt_prompt

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments):
    result = CliRunner().invoke(prepare, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_rows_to_watch_are_the_first_of_a_file(tmp_path):
    write_rows(tmp_path / "dev.parquet", [TranslationRow(f"Rom {number}", "Rome", "de", "en") for number in range(4)])
    options = ("--rows", 2, "--prompt-type", "Tower", "--out", tmp_path / "out")
    assert "2 rows written" in run("held-out", "--data", tmp_path / "dev.parquet", *options)
    lines = (tmp_path / "out" / "rl.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(json.loads(line)["tgt"])["source"] for line in lines] == ["Rom 0", "Rom 1"]


def test_the_first_rows_of_files_keep_their_names(tmp_path):
    for name, n_rows in (("train", 5), ("dev", 3)):
        rows = [TranslationRow(f"{name} {number}", "x", "en", "de") for number in range(n_rows)]
        write_rows(tmp_path / f"{name}.parquet", rows)
    parts = ("--part", tmp_path / "train.parquet", 2, "--part", tmp_path / "dev.parquet", 9)
    run("rows", *parts, "--out", tmp_path / "out")
    found = {path.stem: [row.src_text for row in read_rows(path)] for path in (tmp_path / "out").iterdir()}
    assert found == {"train": ["train 0", "train 1"], "dev": ["dev 0", "dev 1", "dev 2"]}


def test_exact_scores_are_chrf_and_the_rest_stays(tmp_path):
    kinds = {"mt_texts": pa.list_(pa.string()), "scores": pa.list_(pa.int64())}
    names = ("src_text", "trg_text", "src_lang", "trg_lang")
    schema = pa.schema([*((name, pa.string()) for name in names), *kinds.items()])
    write_rows(tmp_path / "groups.parquet", [("Rom", "Rome", "de", "en", ["Rome", "Room"], [9, 0])], schema)
    run("exact", "--groups", tmp_path / "groups.parquet", "--out", tmp_path / "exact.parquet")
    (row,) = pq.read_table(tmp_path / "exact.parquet").to_pylist()
    assert (row["src_text"], row["mt_texts"]) == ("Rom", ["Rome", "Room"])
    assert row["scores"][0] == 10.0
    assert row["scores"][1] == sentence_chrfs(["Room"], ["Rome"])[0] / 10
    assert 0 < row["scores"][1] < 10


class EchoEngine(Engine):
    """Repeats its prompt and the stop token; remembers what it was asked."""

    def __init__(self):
        self.requests = []

    def _generate(self, requests, on_finished):
        self.requests.append(requests)
        return [Completion([*one.prompt, 0], [0.0] * (len(one.prompt) + 1), "stop") for one in requests]


def test_a_checkpoint_is_scored_greedily_and_sampled_and_its_kl_on_the_samples(tmp_path, monkeypatch):
    from grrm.demo import evaluate_checkpoint
    from grrm.engine.paddle.engine import PaddleEngine
    from grrm.models import tokenizer as tokenizers

    engine, measured = EchoEngine(), []
    monkeypatch.setattr(PaddleEngine, "from_pretrained", lambda path, **_: engine)
    monkeypatch.setattr(tokenizers, "load_tokenizer", lambda path: SimpleNamespace(pad_token_id=0))
    monkeypatch.setattr(tokenizers, "encoder", lambda tokenizer: lambda text: [ord(letter) for letter in text])
    monkeypatch.setattr(tokenizers, "response_decoder", lambda tokenizer: lambda ids: "".join(chr(i) for i in ids if i))
    monkeypatch.setattr(tokenizers, "stop_tokens", lambda tokenizer, word: (0,))
    monkeypatch.setattr(
        evaluate_checkpoint, "kl_to", lambda reference, prompts, *_: measured.append(len(prompts)) or 0.5
    )
    write_rows(tmp_path / "main.parquet", [TranslationRow("Rom", "Rom", "it", "de")] * 3)
    options = ["--model", tmp_path, "--data", tmp_path / "main.parquet", "--out", tmp_path / "scores.json"]
    options += ["--reference", tmp_path, "--samples", 2, "--prompt-type", "Tower", "--extractor-type", "oneline"]
    result = CliRunner().invoke(evaluate_checkpoint.main, [str(option) for option in [*options, "--seed", 7]])
    assert result.exit_code == 0, result.output
    assert [line for line in result.output.splitlines() if "pass" in line] == [f"pass {i}/3" for i in range(1, 4)]
    asked = [(batch[0].params, [request.stream_id for request in batch]) for batch in engine.requests]
    assert [(params.temperature, params.seed, streams) for params, streams in asked] == [
        (0.0, 7, [0, 1, 2]),
        (1.0, 7, [0, 1, 2]),
        (1.0, 7, [3, 4, 5]),
    ]
    assert {(params.max_new_tokens, params.stop_token_ids) for params, _ in asked} == {(64, (0,))}
    scores = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert scores["n_rows"] == 3
    assert scores["kl_to_reference"] == 0.5
    assert measured == [3], "the KL is measured on one sample of each row"
    assert scores["sampled"]["n_samples"] == 2
    response = scores["examples"][0]["greedy_response"]
    assert mt_prompt("Rom", "it", "de", "Tower") in response
    assert scores["examples"][0]["greedy"] is None, "it has several lines, and the extractor takes one"


TASKS = [
    TranslationTask("one", "en", "de", "eins und zwei"),
    TranslationTask("two", "en", "de", "drei und vier"),
    TranslationTask("three", "en", "zh", "五和六"),
]


def read_pass(*texts):
    """The pass of these responses, in which a translation is in brackets, and one that does not end was cut off."""
    completions = [Completion([*map(ord, t)], [0.0] * len(t), "stop" if t.endswith("]") else "length") for t in texts]
    return Pass(completions, [*texts], [text[1:-1] if text.endswith("]") else None for text in texts])


def test_greedy_and_sampled_are_scored_apart_and_samples_are_averaged():
    right = read_pass(*(f"[{task.reference}]" for task in TASKS))
    scores = scores_record(TASKS, [right, right, read_pass("[eins]", "drei", "[五和六]")])
    second = corpus_chrf(["eins", None, "五和六"], [task.reference for task in TASKS]).score
    greedy, sampled = scores["greedy"], scores["sampled"]
    assert (greedy["chrf"], greedy["exact_match"], greedy["n_samples"]) == (pytest.approx(100.0), 1.0, 1)
    assert sampled["chrf"] == pytest.approx((100.0 + second) / 2)
    assert sampled["exact_match"] == pytest.approx((3 / 3 + 1 / 3) / 2)
    assert sampled["unparsable"] == pytest.approx(1 / 6)
    assert sampled["truncated"] == pytest.approx(1 / 6)
    assert sampled["chrf_sentence"]["low"] <= sampled["chrf_sentence"]["mean"] < 100
    assert set(sampled["bleu"]) == {"de", "zh"}
    assert greedy["chrf_by_language"] == {"de": pytest.approx(100.0), "zh": pytest.approx(100.0)}
    assert set(scores["signatures"]) == {"chrf", "bleu_de", "bleu_zh"}
    assert scores["examples"][1] == {
        "source": "two",
        "src_lang": "en",
        "trg_lang": "de",
        "reference": "drei und vier",
        "data_source": "",
        "greedy": "drei und vier",
        "sampled": ["drei und vier", None],
        "greedy_response": "[drei und vier]",
    }


def test_length_counts_the_tokens_of_every_sample_and_copies_of_the_source_are_told():
    scores = scores_record(TASKS, [read_pass("[a]", "[bb]", "[three]"), read_pass("[a]", "[bb]", "[ccc]")])
    assert scores["sampled"]["length_mean"] == pytest.approx((3 + 4 + 5) / 3)
    assert (scores["greedy"]["copied"], scores["sampled"]["copied"]) == (pytest.approx(1 / 3), 0.0)


def test_rows_without_reference_are_refused():
    with pytest.raises(ValueError, match="without a reference"):
        scores_record([TranslationTask("one", "en", "de")], [read_pass("[eins]")] * 2)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("demo", "--seeds 1 --first-seed 1 --judge ranker"),
        ("demo FRESH=yes FULL=no FIRST_SEED=4", "--seeds 1 --first-seed 4 --judge ranker --fresh"),
        ("real QUICK=true FRESH=0", "--half both --seeds 1 --first-seed 1 --quick"),
    ],
)
def test_make_hands_on_its_variables(words, options):
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # not of `make test`
    printed = subprocess.check_output(["make", "-n", *words.split()], cwd=ROOT, text=True, env=own)
    assert shlex.split(printed.splitlines()[-1])[3:] == [words.split()[0], *options.split()]
