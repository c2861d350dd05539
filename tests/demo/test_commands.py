"""The commands behind the small stages."""

import json
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from grrm.data.parquet import TranslationRow, read_rows, write_rows
from grrm.demo.evaluate_checkpoint import EngineGenerator, scores_record
from grrm.demo.prepare import main as prepare
from grrm.engine.api import Completion, Engine
from grrm.evaluation.policy_eval import PolicyCodec, evaluate
from grrm.evaluation.text_metrics import sentence_chrfs
from grrm.gqm.groups import TranslationTask
from grrm.gqm.mt_prompts import mt_prompt


def run(*arguments):
    result = CliRunner().invoke(prepare, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_corpus_tokenizer_and_training_files_follow_from_one_another(tmp_path):
    sizes = ("--train-rows", 60, "--heldout-rows", 7, "--dev-rows", 5)
    assert "60 rows to train on, 5 to choose on, 7 to report on" in run(
        "corpus", "--out", tmp_path / "corpus", *sizes, "--languages", "en,de,zh", "--seed", 1
    )
    data = ("--data", tmp_path / "corpus" / "train.parquet", "--prompt-type", "Tower")
    run("tokenizer", *data, "--out", tmp_path / "tokenizer", "--vocab-size", 300)
    assert (tmp_path / "tokenizer" / "tokenizer.json").exists()
    assert "60 rows written" in run("convert", *data, "--out", tmp_path / "converted")
    rl, sft = (
        (tmp_path / "converted" / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")[0] for name in ("rl", "sft")
    )
    assert json.loads(rl)["src"] == json.loads(sft)["src"]
    assert json.loads(json.loads(rl)["tgt"])["reference"] == json.loads(sft)["tgt"]


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
        self.params = []

    def _generate(self, requests, on_finished):
        self.params.append(requests[0].params)
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
        evaluate_checkpoint, "kl_to", lambda reference, sampled, pad_id, dtype: measured.append(len(sampled)) or 0.5
    )
    write_rows(tmp_path / "main.parquet", [TranslationRow("Rom", "Rom", "it", "de")] * 3)
    options = ["--model", tmp_path, "--data", tmp_path / "main.parquet", "--out", tmp_path / "scores.json"]
    options += ["--reference", tmp_path, "--samples", 2, "--prompt-type", "Tower", "--extractor-type", "oneline"]
    result = CliRunner().invoke(evaluate_checkpoint.main, [str(option) for option in options])
    assert result.exit_code == 0, result.output
    assert [line for line in result.output.splitlines() if "pass" in line] == [f"pass {i}/3" for i in range(1, 4)]
    scores = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert scores["n_rows"] == 3
    assert scores["kl_to_reference"] == 0.5
    assert measured == [3], "the KL is measured on one sample of each row"
    assert scores["sampled"]["n_samples"] == 2
    response = scores["examples"][0]["greedy_response"]
    assert mt_prompt("Rom", "it", "de", "Tower") in response
    assert scores["examples"][0]["greedy"] is None, "it has several lines, and the extractor takes one"


def test_scores_of_a_checkpoint_carry_what_the_report_reads():
    codec = PolicyCodec(
        build_prompt=lambda task: task.source,
        encode=lambda text: [ord(letter) for letter in text],
        decode=lambda ids: "".join(chr(i) for i in ids if i),
        extract=lambda text: text,
    )
    engine = EchoEngine()
    generate = EngineGenerator(engine, 5, (0,))
    scores = evaluate(generate, codec, [TranslationTask("Rom", "it", "de", "Rom")], n_samples=1, seed=3)
    record = json.loads(json.dumps(scores_record(scores)))
    assert record["examples"] == [
        {
            "source": "Rom",
            "src_lang": "it",
            "trg_lang": "de",
            "reference": "Rom",
            "data_source": "",
            "greedy": "Rom",
            "sampled": ["Rom"],
            "greedy_response": "Rom",
        }
    ]
    assert record["sampled"]["exact_match"] == record["greedy"]["copied"] == 1.0
    assert record["greedy"]["chrf_by_language"] == {"de": 100.0}
    assert record["greedy"]["chrf_sentence"]["mean"] == 100.0
    assert [
        (params.temperature, params.max_new_tokens, params.stop_token_ids, params.seed) for params in engine.params
    ] == [(0.0, 5, (0,), 3), (1.0, 5, (0,), 3)]
    assert [list(prompt) for prompt, _ in generate.sampled] == [[82, 111, 109]]
