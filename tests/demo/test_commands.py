"""The commands behind the small stages."""

import json
from types import SimpleNamespace

from click.testing import CliRunner

from grrm.data.parquet import TranslationRow, read_rows, write_rows
from grrm.demo.evaluate_checkpoint import EngineGenerator, scores_record
from grrm.demo.prepare import main as prepare
from grrm.demo.prepare import words_of
from grrm.engine.api import Completion
from grrm.evaluation.policy_eval import PolicyCodec, evaluate
from grrm.gqm.groups import TranslationTask


def run(*arguments):
    result = CliRunner().invoke(prepare, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_corpus_tokenizer_and_training_files_follow_from_one_another(tmp_path):
    sizes = ("--train-rows", 60, "--heldout-rows", 7)
    assert "60 training rows, 7 held-out rows" in run(
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


def test_terms_hold_words_that_training_does_not(tmp_path):
    known = [
        TranslationRow("Ancient Macedonian", "altmakedonisch", "en", "de"),
        TranslationRow("Turkish", "x", "en", "de"),
    ]
    write_rows(tmp_path / "train.parquet", known)
    options = ("--rows", 40, "--max-letters", 25, "--languages", "en,de", "--seed", 1)
    said = run("terms", "--train", tmp_path / "train.parquet", "--out", tmp_path / "terms", *options)
    assert "40 held-out rows of terms" in said
    rows = read_rows(tmp_path / "terms" / "heldout.parquet")
    assert len(rows) == 40
    for row in rows:
        english = row.src_text if row.src_lang == "en" else row.trg_text
        assert words_of(english) - {"ancient", "macedonian", "turkish", "altmakedonisch", "x"}
        assert max(len(row.src_text), len(row.trg_text)) <= 25


class EchoEngine:
    """Repeats its prompt and the stop token; remembers what it was asked."""

    def __init__(self):
        self.params = []

    def generate(self, prompts, params, stream_ids=None):
        self.params.append(params)
        return [Completion([*prompt, 0], [0.0] * (len(prompt) + 1), "stop") for prompt in prompts]


def test_further_rows_are_scored_in_the_same_process_under_their_own_name(tmp_path, monkeypatch):
    from grrm.demo import evaluate_checkpoint
    from grrm.engine.paddle.engine import PaddleEngine
    from grrm.models import tokenizer as tokenizers

    engine, measured = EchoEngine(), []
    monkeypatch.setattr(PaddleEngine, "from_pretrained", lambda path: engine)
    monkeypatch.setattr(tokenizers, "load_tokenizer", lambda path: SimpleNamespace(pad_token_id=0))
    monkeypatch.setattr(tokenizers, "encoder", lambda tokenizer: lambda text: [ord(letter) for letter in text])
    monkeypatch.setattr(tokenizers, "response_decoder", lambda tokenizer: lambda ids: "".join(chr(i) for i in ids if i))
    monkeypatch.setattr(tokenizers, "stop_tokens", lambda tokenizer, word: (0,))
    monkeypatch.setattr(
        evaluate_checkpoint, "kl_to", lambda reference, sampled, pad_id: measured.append(len(sampled)) or 0.5
    )
    write_rows(tmp_path / "main.parquet", [TranslationRow("Rom", "Rom", "it", "de")] * 3)
    write_rows(tmp_path / "terms.parquet", [TranslationRow("Datei", "File", "de", "en")] * 2)
    options = ["--model", tmp_path, "--data", tmp_path / "main.parquet", "--out", tmp_path / "scores.json"]
    options += ["--extra-data", f"terms={tmp_path / 'terms.parquet'}", "--reference", tmp_path, "--samples", 2]
    options += ["--prompt-type", "Tower", "--extractor-type", "oneline"]
    result = CliRunner().invoke(evaluate_checkpoint.main, [str(option) for option in options])
    assert result.exit_code == 0, result.output
    assert [line for line in result.output.splitlines() if "pass" in line] == [f"pass {i}/6" for i in range(1, 7)]
    scores = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert scores["n_rows"] == 3
    assert scores["kl_to_reference"] == 0.5
    assert measured == [3], "the KL is measured on one sample of each main row"
    assert scores["extra"]["terms"]["n_rows"] == 2
    assert scores["extra"]["terms"]["sampled"]["n_samples"] == 2
    assert scores["extra"]["terms"]["examples"][0]["source"] == "Datei"


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
            "greedy": "Rom",
            "sampled": ["Rom"],
            "greedy_response": "Rom",
        }
    ]
    assert record["sampled"]["exact_match"] == 1.0
    assert record["greedy"]["chrf_sentence"]["mean"] == 100.0
    assert [
        (params.temperature, params.max_new_tokens, params.stop_token_ids, params.seed) for params in engine.params
    ] == [(0.0, 5, (0,), 3), (1.0, 5, (0,), 3)]
    assert [list(prompt) for prompt, _ in generate.sampled] == [[82, 111, 109]]
