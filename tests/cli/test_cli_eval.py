"""`grrm eval`: tables, JSON and charts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sacrebleu
from support.command_line import grrm, invoke, refusal
from support.metric_environments import TENTHS, TORCH, install, make_environment
from support.rows import write_jsonl

from grrm.errors import UserError

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
TEXTS = ["a good day", "a good night", "fork"]


def rows_file(folder: Path, rows: list[dict], name: str = "rows") -> Path:
    path = folder / f"{name}.jsonl"
    return write_jsonl(path, rows)


@pytest.fixture
def evaluate(tmp_path):
    """`grrm eval` in this process, on rows or on those of several files; its results. Raises what it raises."""

    def run(command, rows, *options):
        files = rows if isinstance(rows, dict) else {"rows": rows}
        paths = [rows_file(tmp_path, content, name) for name, content in files.items()]
        run.told = invoke("eval", command, *paths, *options, "--json", tmp_path / "out.json").output
        return json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))

    return run


@pytest.mark.parametrize(
    ("rules", "accuracy"),
    [([], 2 / 3), (["--ties", "half"], 2.5 / 3), (["--ties", "skip"], 1.0), (["--unscored", "wrong"], 2 / 4)],
)
def test_ranking_accuracy_counts_ties_and_missing_scores_as_it_is_told(evaluate, rules, accuracy):
    found = evaluate("ranking", RANKED, *rules)["results"]
    german = found["de-en"]
    assert german["accuracy"]["mean"] == pytest.approx(accuracy)
    assert german["accuracy"]["low"] <= accuracy <= german["accuracy"]["high"]
    counts = [german[name] for name in ("n_groups", "n_pairs", "coverage", "tied")]
    assert counts == [2, 4, 0.75, pytest.approx(1 / 3)]
    assert (found["zh-en"]["accuracy"], found["zh-en"]["zero_variance"]) == (None, 1.0)
    assert found["all"]["zero_variance"] == 0.5


def test_ranking_table_says_what_was_counted_and_shows_no_accuracy_where_there_is_none(tmp_path):
    done = invoke("eval", "ranking", rows_file(tmp_path, RANKED))
    table = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.strip()}
    assert table["de-en"][1] == "0.667"
    assert table["zh-en"][1:3] == ["-", "-"]
    assert "a judge's ties: wrong; pairs it did not score: skip" in done.stdout


def test_groups_whose_languages_are_codes_or_names_are_of_one_pair(evaluate):
    named = {"src_lang": "German", "trg_lang": "English"}
    assert evaluate("ranking", [RANKED[0], RANKED[0] | named])["results"]["de-en"]["n_groups"] == 2


def test_pairs_of_equal_gold_count_on_request(evaluate):
    found = evaluate("ranking", [RANKED[2], {**RANKED[2], "judge_scores": [4, 5]}], "--gold-ties", "count")
    assert found["gold_ties"] == "count"
    overall = found["results"]["all"]
    assert (overall["accuracy"]["mean"], overall["n_pairs"], overall["tied"]) == (0.5, 2, 0.0)


def test_the_other_metrics_are_in_the_table_and_the_json(evaluate):
    orders = {"judge_scores": [1, 2, 6], "judge_order_scores": [[1, 2, 6], [1, 1, 6]], "judge_tokens": 40}
    rows = [{**RANKED[0], **orders, "systems": ["a", "b", "c"]}, {**RANKED[1], "systems": ["a", "c"]}]
    found = evaluate("ranking", rows, "--system-key", "systems")["results"]["all"]
    assert found["correlation"]["mean"] == pytest.approx(5 / 28**0.5)
    assert (found["kendall_tau_b"]["mean"], found["tie_calibrated_accuracy"]["mean"]) == (1.0, 1.0)
    assert (found["tie_threshold"], found["soft_pairwise_accuracy"], found["tokens"]["mean"]) == (0.0, 1.0, 40.0)
    assert found["order_consistency"]["mean"] == pytest.approx(2 / 3)
    assert found["soft_sample_accuracy"]["mean"] == pytest.approx(2.75 / 3)
    shown = [line.split("  ")[0] for line in evaluate.told.splitlines()]
    assert {"correlation within groups", "pairs alike in other orders", "generated tokens a group"} <= set(shown)


def test_orders_and_tokens_are_of_the_judge_of_grrm_rank_only(evaluate):
    row = {**RANKED[0], "judge_order_scores": [[1, 2, 3], [3, 2, 1]], "judge_tokens": 40, "mine": [1, 2, 3]}
    found = evaluate("ranking", [row], "--score-key", "mine")["results"]["all"]
    assert (found["order_consistency"], found["tokens"], found["soft_sample_accuracy"]["mean"]) == (None, None, 1.0)


def test_bad_rows_are_left_out_and_counted(evaluate, caplog):
    bad = [{**RANKED[0], "scores": None}, {**RANKED[0], "judge_scores": [1, "2", 3]}, {**RANKED[0], "scores": [1]}]
    found = evaluate("ranking", [*bad, *RANKED])
    assert found["results"]["all"]["n_groups"] == len(RANKED)
    assert sum(found["left_out"].values()) == len(bad)
    assert "3 rows scored, 3 left out (1 x scores is not a list of numbers" in evaluate.told
    assert "row 2: column judge_scores holds [1, '2', 3]" in caplog.text


def test_a_line_that_is_no_json_is_left_out_and_counted(tmp_path):
    path, out = rows_file(tmp_path, RANKED), tmp_path / "out.json"
    path.write_text(path.read_text() + '{"scores": [1,\n')
    done = grrm("eval", "ranking", path, "--json", out)
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["left_out"] == {"the line is not JSON": 1}
    assert f"line {len(RANKED) + 1} is not JSON" in done.stderr


def test_consensus_stands_beside_the_judges_where_the_texts_are_known(evaluate):
    row = {**RANKED[0], "mt_texts": TEXTS, "scores": [3, 2, 1], "judge_scores": [1, 2, 3]}
    found = evaluate("ranking", {"judge": [row]})
    assert found["results"]["all"]["accuracy"]["mean"] == 0.0
    beside = found["baseline"]["consensus"]
    assert beside["results"]["all"]["accuracy"]["mean"] > 0.5
    assert beside["difference"]["mean"] == beside["results"]["all"]["accuracy"]["mean"]
    table = evaluate.told.partition("Judges side by side")[2].splitlines()
    assert [line.split()[0] for line in table[1:4]] == ["judge", "judge", "consensus"]
    assert "baseline" not in evaluate("ranking", [row], "--baseline", "none")


def test_consensus_takes_the_texts_of_any_file_and_tells_when_there_are_none(evaluate):
    sizes = [len(row["scores"]) for row in RANKED]
    with_texts = [
        {**row, "mt_texts": TEXTS[:size], "judge_scores": [1, 2, 3][:size]}
        for row, size in zip(RANKED, sizes, strict=True)
    ]
    assert list(evaluate("ranking", {"first": RANKED, "second": with_texts})["baseline"]) == ["consensus"]
    assert "baseline" not in evaluate("ranking", RANKED)
    assert f"no consensus beside the judges: {len(RANKED)} of {len(RANKED)} rows lack mt_texts" in evaluate.told
    with pytest.raises(UserError, match="--baseline consensus needs the texts of every row"):
        evaluate("ranking", RANKED, "--baseline", "consensus")


def test_judges_are_compared_on_the_rows_that_all_of_them_can_use(evaluate):
    worse = [{**RANKED[0], "judge_scores": [3, 2, 1]}, RANKED[1], {**RANKED[2], "judge_scores": None}]
    judges = evaluate("ranking", {"good": RANKED, "bad": worse})["judges"]
    overall = {name: judge["results"]["all"] for name, judge in judges.items()}
    accuracies = {name: scores["accuracy"]["mean"] for name, scores in overall.items()}
    assert accuracies == {"good": pytest.approx(2 / 3), "bad": 0.0}
    assert [scores["n_groups"] for scores in overall.values()] == [2, 2]
    assert judges["bad"]["difference"]["mean"] == pytest.approx(-2 / 3)
    assert judges["good"]["left_out"] == {"left out for another judge": 1}
    table = evaluate.told.partition("Judges side by side")[2].splitlines()
    assert [line.split()[:2] for line in table[1:4]] == [["judge", "accuracy"], ["good", "0.667"], ["bad", "0.000"]]


def test_translations_are_scored_with_signatures(evaluate):
    report = evaluate("mt", TRANSLATED, "--seed", 5)
    assert report["seed"] == 5
    found = report["results"]
    chinese = [row["trg_text"] for row in TRANSLATED[1:]]
    expected = sacrebleu.corpus_bleu(["今天天气很好啊", ""], [chinese], tokenize="zh")
    assert found["en-zh"]["bleu"]["score"] == pytest.approx(expected.score)
    assert "tok:zh" in found["en-zh"]["bleu"]["signature"]
    assert (found["en-zh"]["n_missing"], found["all"]["bleu"], found["all"]["n_rows"]) == (1, None, 3)
    assert found["en-zh"]["bleu"]["signature"] in evaluate.told


def test_comet_runs_in_its_own_environment_and_joins_the_report(evaluate, tmp_path):
    environment = make_environment(tmp_path)
    install(environment, torch=TORCH, comet=TENTHS)
    found = evaluate("mt", TRANSLATED, "--comet", "--comet-env", environment)["results"]
    means = {name: scores["neural"]["comet"]["mean"] for name, scores in found.items()}
    assert means == {"en-de": 1.4, "en-zh": 0.35, "all": pytest.approx(0.7)}
    assert "COMET" in evaluate.told


@pytest.mark.parametrize(
    ("command", "rows", "options", "message"),
    [
        ("mt", TRANSLATED, ["--comet", "--comet-env", "nowhere"], "create it with `grrm scorer install comet"),
        (
            "mt",
            TRANSLATED,
            ["--reference-key", "gold"],
            "row 1: column gold is missing; it must be text, the reference",
        ),
        ("mt", RANKED, [], "column translation is missing; it must be text or null; run `grrm translate` first"),
        ("mt", TRANSLATED, ["--comet-model", "x"], "--comet-model has no effect without --comet; leave it out"),
        ("mt", TRANSLATED, ["--scorer-deadline", "5"], "--scorer-deadline has no effect without a learned metric"),
        ("ranking", TRANSLATED, [], "column scores is missing"),
        ("ranking", [{"judge_scores": [1]}], ["--gold-key", "judge_scores"], "column src_lang is missing"),
        ("ranking", RANKED, ["--score-key", "other"], "run `grrm rank` first"),
        ("ranking", [RANKED[0] | {"judge_scores": [1]}], [], "scores and judge_scores have 3 and 1 entries"),
        ("ranking", {"one": RANKED, "two": RANKED[:2]}, [], "one has 3 rows and two 2"),
        (
            "ranking",
            {"one": RANKED, "two": [{**RANKED[0], "scores": [3, 2, 1]}, *RANKED[1:]]},
            [],
            "row 1 has other languages or gold scores in two than in",
        ),
        ("ranking", [{**RANKED[0], "scores": [10**400, 1, 2]}], [], "row 1: column scores holds [1000"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(evaluate, tmp_path, command, rows, options, message):
    with pytest.raises(UserError) as caught:
        evaluate(command, rows, *options)
    assert message in str(caught.value)
    assert not list(tmp_path.glob("*out*"))


def test_a_result_that_cannot_be_written_is_refused_before_anything_is_scored(tmp_path):
    said = refusal("eval", "mt", rows_file(tmp_path, TRANSLATED), "--json", tmp_path)
    assert said.startswith(f"cannot write {tmp_path}")
