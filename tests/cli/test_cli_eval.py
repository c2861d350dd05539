"""`grrm eval` as users start it: real processes, tables, JSON and charts."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import sacrebleu
from support.command_line import grrm, mistake

RANKED = [
    {"src_lang": "de", "trg_lang": "en", "scores": [1, 2, 3], "judge_scores": [1, 5, 5]},
    {"src_lang": "de", "trg_lang": "en", "scores": [1, 2], "judge_scores": [None, None]},
    {"src_lang": "zh", "trg_lang": "en", "scores": [7, 7], "judge_scores": [4, 4]},
]
TRANSLATED = [
    {"src_text": source, "src_lang": "en", "trg_lang": language, "trg_text": reference, "translation": translation}
    for source, language, reference, translation in (
        ("one", "de", "eins zwei drei vier", "eins zwei drei"),
        ("two", "zh", "今天天气很好啊", "今天天气很好啊"),
        ("six", "zh", "明天去北京玩吧", None),
    )
]


evaluate = partial(grrm, "eval")


def rows_file(folder: Path, rows: list[dict], name: str = "rows") -> Path:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def results(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("rules", "accuracy"),
    [
        ([], 2 / 3),
        (["--ties", "half"], 2.5 / 3),
        (["--ties", "skip"], 1.0),
        (["--unscored", "wrong"], 2 / 4),
    ],
)
def test_ranking_accuracy_counts_ties_and_missing_scores_as_it_is_told(tmp_path, rules, accuracy):
    out = tmp_path / "out.json"
    done = evaluate("ranking", rows_file(tmp_path, RANKED), *rules, "--json", out)
    assert done.returncode == 0, done.stderr
    found = results(out)["results"]
    german = found["de-en"]
    assert german["accuracy"]["mean"] == pytest.approx(accuracy)
    assert german["accuracy"]["low"] <= accuracy <= german["accuracy"]["high"]
    assert (german["n_groups"], german["n_pairs"], german["coverage"], german["tied"]) == (
        2,
        4,
        0.75,
        pytest.approx(1 / 3),
    )
    assert (found["zh-en"]["accuracy"], found["zh-en"]["zero_variance"]) == (None, 1.0)
    assert found["all"]["zero_variance"] == 0.5


def test_ranking_table_says_what_was_counted_and_shows_no_accuracy_where_there_is_none(tmp_path):
    done = evaluate("ranking", rows_file(tmp_path, RANKED))
    assert done.returncode == 0, done.stderr
    table = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.strip()}
    assert table["de-en"][1] == "0.667"
    assert table["zh-en"][1:3] == ["-", "-"]
    assert "a judge's ties: wrong; pairs it did not score: skip" in done.stdout


def test_pairs_of_equal_gold_count_on_request(tmp_path):
    out = tmp_path / "out.json"
    rows = [RANKED[2], {**RANKED[2], "judge_scores": [4, 5]}]
    done = evaluate("ranking", rows_file(tmp_path, rows), "--gold-ties", "count", "--json", out)
    assert done.returncode == 0, done.stderr
    assert results(out)["gold_ties"] == "count"
    found = results(out)["results"]["all"]
    assert (found["accuracy"]["mean"], found["n_pairs"], found["tied"]) == (0.5, 2, 0.0)


def test_the_other_metrics_are_in_the_table_and_the_json(tmp_path):
    rows = [
        {
            **RANKED[0],
            "judge_scores": [1, 2, 6],
            "judge_order_scores": [[1, 2, 6], [1, 1, 6]],
            "judge_tokens": 40,
            "systems": ["a", "b", "c"],
        },
        {**RANKED[1], "systems": ["a", "c"]},
    ]
    out = tmp_path / "out.json"
    done = evaluate("ranking", rows_file(tmp_path, rows), "--system-key", "systems", "--json", out)
    assert done.returncode == 0, done.stderr
    found = results(out)["results"]["all"]
    assert found["correlation"]["mean"] == pytest.approx(5 / 28**0.5)
    assert (found["kendall_tau_b"]["mean"], found["tie_calibrated_accuracy"]["mean"]) == (1.0, 1.0)
    assert (found["tie_threshold"], found["soft_pairwise_accuracy"], found["tokens"]["mean"]) == (0.0, 1.0, 40.0)
    assert found["order_consistency"]["mean"] == pytest.approx(2 / 3)
    assert found["soft_sample_accuracy"]["mean"] == pytest.approx(2.75 / 3)
    shown = [line.split("  ")[0] for line in done.stdout.splitlines()]
    assert {"correlation within groups", "pairs alike in other orders", "generated tokens a group"} <= set(shown)


def test_orders_and_tokens_are_of_the_judge_of_grrm_rank_only(tmp_path):
    row = {**RANKED[0], "judge_order_scores": [[1, 2, 3], [3, 2, 1]], "judge_tokens": 40, "mine": [1, 2, 3]}
    out = tmp_path / "out.json"
    done = evaluate("ranking", rows_file(tmp_path, [row]), "--score-key", "mine", "--json", out)
    assert done.returncode == 0, done.stderr
    found = results(out)["results"]["all"]
    assert (found["order_consistency"], found["tokens"], found["soft_sample_accuracy"]["mean"]) == (None, None, 1.0)


def test_bad_rows_are_left_out_and_counted(tmp_path):
    bad = [{**RANKED[0], "scores": None}, {**RANKED[0], "judge_scores": [1, "2", 3]}, {**RANKED[0], "scores": [1]}]
    out = tmp_path / "out.json"
    done = evaluate("ranking", rows_file(tmp_path, [*bad, *RANKED]), "--json", out)
    assert done.returncode == 0, done.stderr
    assert results(out)["results"]["all"]["n_groups"] == len(RANKED)
    assert sum(results(out)["left_out"].values()) == len(bad)
    assert "3 rows scored, 3 left out (1 x scores is not a list of numbers" in done.stdout
    assert "row 2: column judge_scores holds [1, '2', 3]" in done.stderr


def test_a_line_that_is_no_json_is_left_out_and_counted(tmp_path):
    path, out = rows_file(tmp_path, RANKED), tmp_path / "out.json"
    path.write_text(path.read_text() + '{"scores": [1,\n')
    done = evaluate("ranking", path, "--json", out)
    assert done.returncode == 0, done.stderr
    assert results(out)["left_out"] == {"the line is not JSON": 1}
    assert f"line {len(RANKED) + 1} is not JSON" in done.stderr


def test_consensus_stands_beside_the_judges_where_the_texts_are_known(tmp_path):
    texts = {"mt_texts": ["a good day", "a good night", "fork"]}
    rows = [{**RANKED[0], **texts, "scores": [3, 2, 1], "judge_scores": [1, 2, 3]}]
    out = tmp_path / "out.json"
    done = evaluate("ranking", rows_file(tmp_path, rows, "judge"), "--json", out)
    assert done.returncode == 0, done.stderr
    found = results(out)
    assert found["results"]["all"]["accuracy"]["mean"] == 0.0
    beside = found["baseline"]["consensus"]
    assert beside["results"]["all"]["accuracy"]["mean"] > 0.5
    assert beside["difference"]["mean"] == beside["results"]["all"]["accuracy"]["mean"]
    table = done.stdout.partition("Judges side by side")[2].splitlines()
    assert [line.split()[0] for line in table[1:4]] == ["judge", "judge", "consensus"]
    for unread in (["--baseline", "none"], []):
        if not unread:
            rows[0]["mt_texts"] = None
        done = evaluate("ranking", rows_file(tmp_path, rows, "judge"), *unread, "--json", out)
        assert done.returncode == 0, done.stderr
        assert "baseline" not in results(out)


def test_consensus_takes_the_texts_of_any_file_and_tells_when_there_are_none(tmp_path):
    texts = {"mt_texts": ["a good day", "a good night", "fork"]}
    bare = [{**row, "mt_texts": None} for row in RANKED]
    with_texts = [{**row, **texts, "judge_scores": [1, 2, 3][: len(row["scores"])]} for row in RANKED]
    for row in with_texts:
        row["mt_texts"] = texts["mt_texts"][: len(row["scores"])]
    files = [rows_file(tmp_path, bare, "first"), rows_file(tmp_path, with_texts, "second")]
    out = tmp_path / "out.json"
    assert evaluate("ranking", *files, "--json", out).returncode == 0
    assert list(results(out)["baseline"]) == ["consensus"]
    done = evaluate("ranking", files[0])
    assert done.returncode == 0
    assert f"no consensus beside the judges: {len(RANKED)} of {len(RANKED)} rows lack mt_texts" in done.stderr
    done = evaluate("ranking", files[0], "--baseline", "consensus")
    assert done.returncode == 2
    assert "--baseline consensus needs the texts of every row" in done.stderr


def test_judges_are_compared_on_the_rows_that_all_of_them_can_use(tmp_path):
    worse = [{**RANKED[0], "judge_scores": [3, 2, 1]}, RANKED[1], {**RANKED[2], "judge_scores": None}]
    files = [rows_file(tmp_path, RANKED, "good"), rows_file(tmp_path, worse, "bad")]
    out = tmp_path / "out.json"
    done = evaluate("ranking", *files, "--json", out)
    assert done.returncode == 0, done.stderr
    judges = results(out)["judges"]
    assert {name: judge["results"]["all"]["accuracy"]["mean"] for name, judge in judges.items()} == {
        "good": pytest.approx(2 / 3),
        "bad": 0.0,
    }
    assert [judge["results"]["all"]["n_groups"] for judge in judges.values()] == [2, 2]
    assert judges["bad"]["difference"]["mean"] == pytest.approx(-2 / 3)
    assert judges["good"]["left_out"] == {"left out for another judge": 1}
    table = done.stdout.partition("Judges side by side")[2].splitlines()
    assert [line.split()[:2] for line in table[1:4]] == [["judge", "accuracy"], ["good", "0.667"], ["bad", "0.000"]]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (RANKED[:2], "one has 3 rows and two 2"),
        ([{**RANKED[0], "scores": [3, 2, 1]}, *RANKED[1:]], "row 1 has other languages or gold scores in two than in"),
    ],
)
def test_judges_of_different_groups_are_not_compared(tmp_path, other, message):
    done = evaluate("ranking", rows_file(tmp_path, RANKED, "one"), rows_file(tmp_path, other, "two"))
    assert message in mistake(done)


def test_translations_are_scored_with_signatures(tmp_path):
    out = tmp_path / "out.json"
    done = evaluate("mt", rows_file(tmp_path, TRANSLATED), "--json", out)
    assert done.returncode == 0, done.stderr
    found = results(out)["results"]
    chinese = [row["trg_text"] for row in TRANSLATED[1:]]
    expected = sacrebleu.corpus_bleu(["今天天气很好啊", ""], [chinese], tokenize="zh")
    assert found["en-zh"]["bleu"]["score"] == pytest.approx(expected.score)
    assert "tok:zh" in found["en-zh"]["bleu"]["signature"]
    assert (found["en-zh"]["n_missing"], found["all"]["bleu"], found["all"]["n_rows"]) == (1, None, 3)
    assert found["en-zh"]["bleu"]["signature"] in done.stdout


def test_comet_runs_in_its_own_environment_and_joins_the_report(tmp_path):
    environment, out = tmp_path / "comet", tmp_path / "out.json"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120)
    (packages,) = environment.glob("lib/python3*/site-packages")
    (packages / "torch.py").write_text("class cuda:\n    is_available = staticmethod(lambda: False)\n")
    (packages / "comet.py").write_text(
        "def download_model(name): return name\n"
        "class Found: pass\n"
        "class Model:\n"
        "    def predict(self, rows, **options):\n"
        "        found = Found()\n"
        "        found.scores = [float(row['mt'] == row['ref']) for row in rows]\n"
        "        return found\n"
        "def load_from_checkpoint(name): return Model()\n"
    )
    options = ["--comet", "--comet-env", environment, "--json", out]
    done = evaluate("mt", rows_file(tmp_path, TRANSLATED), *options)
    assert done.returncode == 0, done.stderr
    means = {name: scores["neural"]["comet"]["mean"] for name, scores in results(out)["results"].items()}
    assert means == {"en-de": 0.0, "en-zh": 0.5, "all": pytest.approx(1 / 3)}
    assert "COMET" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "rows", "message"),
    [
        (["mt", "--comet", "--comet-env", "nowhere"], TRANSLATED, "create it with `grrm scorer install comet"),
        (
            ["mt", "--reference-key", "gold"],
            TRANSLATED,
            "row 1: column gold is missing; it must be text, the reference",
        ),
        (["mt"], RANKED, "column translation is missing; it must be text or null; run `grrm translate` first"),
        (["ranking"], TRANSLATED, "column scores is missing"),
        (["ranking", "--gold-key", "judge_scores"], [{"judge_scores": [1]}], "column src_lang is missing"),
        (["ranking", "--score-key", "other"], RANKED, "run `grrm rank` first"),
        (["ranking"], [RANKED[0] | {"judge_scores": [1]}], "scores and judge_scores have 3 and 1 entries"),
    ],
)
def test_mistakes_are_one_sentence_and_status_2(tmp_path, arguments, rows, message):
    command, *rest = arguments
    done = evaluate(command, rows_file(tmp_path, rows), *rest)
    assert message in mistake(done)


def test_a_result_that_cannot_be_written_is_refused_before_anything_is_scored(tmp_path):
    done = evaluate("mt", rows_file(tmp_path, TRANSLATED), "--json", tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: cannot write {tmp_path}")


def test_a_refused_evaluation_leaves_nothing_where_its_results_would_have_been(tmp_path):
    out = tmp_path / "out.json"
    done = evaluate("ranking", rows_file(tmp_path, [{**RANKED[0], "scores": [10**400, 1, 2]}]), "--json", out)
    assert done.returncode == 2
    assert "row 1: column scores holds [1000" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
