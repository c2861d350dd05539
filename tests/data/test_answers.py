"""Question-and-answer rows as lines of a mixed run."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.rows import write_jsonl

from grrm.config import RLConfig
from grrm.data.answers import convert_answers
from grrm.data.dataset import read_prompt_items
from grrm.data.row_tasks import mixed_of
from grrm.errors import UserError
from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.judges.registry import open_judge
from grrm.rewards.answers import ANSWER_RULES
from grrm.rewards.rule_rewards import rule_of_row
from grrm.rewards.verified import read_truth
from grrm.rl.reward_sources import check_routed

ASK = [{"role": "user", "content": "What is 2 + 2? Answer behind ####."}]


def rows_of(*rows):
    return [
        {"data_source": source, "prompt": prompt, "reward_model": {"ground_truth": truth}, "extra_info": extra}
        for source, prompt, truth, extra in rows
    ]


def converted(tmp_path, rows):
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    report = convert_answers(tmp_path / "rows.parquet", tmp_path / "rows.jsonl")
    return report, [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_row_keeps_question_truth_and_source(tmp_path):
    system = [{"role": "system", "content": "Be brief."}, *ASK]
    extra = {"question": "What is 2 + 2?", "criteria": "10 für 4"}
    none = {"question": None, "criteria": None}
    report, lines = converted(
        tmp_path, rows_of(("openai/gsm8k", ASK, "4", none), ("polaris_tinyv", system, "four", extra))
    )
    assert (report.written, report.rejected) == (2, ())
    assert lines[0] == {
        "src": "<|im_start|>user\nWhat is 2 + 2? Answer behind ####.<|im_end|>\n<|im_start|>assistant\n",
        "tgt": "4",
        "data_source": "openai/gsm8k",
        "question": ASK[0]["content"],
    }
    assert lines[1]["src"].startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is")
    assert (read_truth(lines[1]["tgt"]).answer, read_truth(lines[1]["tgt"]).criteria) == ("four", "10 für 4")
    assert "für" in lines[1]["tgt"]
    assert lines[1]["question"] == "What is 2 + 2?"


def test_bad_rows_are_left_out_with_their_number(tmp_path):
    report, lines = converted(
        tmp_path,
        rows_of(
            ("openai/gsm8k", ASK, "4", None),
            (None, ASK, "4", None),
            ("a", [], "4", None),
            ("a", [{"role": "user", "content": "x<|im_end|>"}], "4", None),
            ("a", ASK, None, None),
            ("a", None, "4", None),
            ("a", [{"role": "user", "content": " "}], "4", None),
            ("a", [{"role": "system", "content": "Be brief."}], "4", None),
        ),
    )
    assert len(lines) == 1
    assert [row.row for row in report.rejected] == [2, 3, 4, 5, 6, 7, 8]
    assert {row.reason for row in report.rejected[5:]} == {"prompt has no message of the user"}
    assert report.rejected[3].reason == "reward_model has no ground_truth that is text or a number"


def test_numbers_are_truths_if_they_are_finite(tmp_path):
    truths = (0.5, float("nan"), math.inf, 72.0)
    report, lines = converted(tmp_path, rows_of(*(("a", ASK, truth, None) for truth in truths)))
    assert [line["tgt"] for line in lines] == ["0.5", "72"]  # whole numbers beside a missing one are floats in parquet
    assert [row.row for row in report.rejected] == [2, 3]


def test_a_file_of_bad_rows_is_refused(tmp_path):
    with pytest.raises(UserError, match="has no usable row"):
        converted(tmp_path, rows_of(("a", ASK, None, None)))
    assert not (tmp_path / "rows.jsonl").exists()


def test_lines_are_not_written_under_the_name_of_another_format(tmp_path):
    pq.write_table(pa.Table.from_pylist(rows_of(("a", ASK, "4", None))), tmp_path / "rows.parquet")
    with pytest.raises(UserError, match=r"does not end with \.jsonl"):
        convert_answers(tmp_path / "rows.parquet", tmp_path / "out.parquet")


# A right answer to "2 + 2?" as each rule reads it, and the truth beside which it is right.
RIGHT = {
    "exact": ("\\boxed{four}", "four"),
    "normalised": ("\\boxed{4.0}", "4"),
    "gsm8k": ("2 + 2 = 4\n#### 4", "4"),
    "knights_and_knaves": ("<answer>(1) Zoey is a knave</answer>", "(1) Zoey is a knave"),
    "math": ("so $\\boxed{2 + 2}$", "4"),
    "grade": ("Fine.\nTotal Score: 8/10", "0.8"),
}
ROUTED = {"gsm8k": "openai/gsm8k", "grade": "grade", "math": "polaris_mathverify"}


def test_every_rule_has_a_right_answer():
    assert set(RIGHT) == {*ANSWER_RULES, "grade"}


@pytest.mark.parametrize("extra", [None, {"criteria": "10 for 4"}, {"question": "2 + 2?", "criteria": '10 {"for"} 4'}])
@pytest.mark.parametrize("rule", RIGHT)
def test_a_right_answer_earns_all_of_the_reward(tmp_path, rule, extra):
    if rule == "math":
        pytest.importorskip("math_verify")
    solution, truth = RIGHT[rule]
    _, (line,) = converted(tmp_path, rows_of((ROUTED.get(rule, "x"), ASK, truth, extra)))
    assert rule_of_row("", rule)(solution, line["tgt"]).score == 1.0  # use_rule_reward
    candidates = (Candidate("0", solution, solution),)
    task = TranslationTask(line["question"], "", "", line["tgt"], line["data_source"])
    (verdict,) = open_judge("answer", {"rule": rule}).judge([Group("g", task, candidates)])
    assert verdict.scores == (10.0,)
    if rule in ROUTED:
        check_routed(RLConfig.model_construct(reward_routes={}, reward_sources=None))(task)  # before a run


def test_a_true_answer_in_json_is_judged_as_it_is(tmp_path):
    truth = '{"answer": "4"}'
    _, (line,) = converted(tmp_path, rows_of(("x", ASK, truth, None)))
    assert read_truth(line["tgt"]).answer == truth
    assert read_truth('{"answer": 4, "criteria": "10 for 4"}').answer == "4"
    assert rule_of_row("", "exact")(f"<answer>{truth}</answer>", line["tgt"]).score == 1.0


def test_a_puzzle_with_a_control_token_is_left_out(tmp_path):
    quizzes = [{"quiz": quiz, "solution_text_format": "Zoey is a knave"} for quiz in ("Who?", "x<|im_end|>")]
    report, lines = converted(tmp_path, quizzes)
    assert [line["question"] for line in lines] == ["Who?"]
    assert [row.reason for row in report.rejected] == ["quiz contains a control token of the chat template"]


def mixed(tmp_path, *rows, check=lambda task: None):
    path = write_jsonl(tmp_path / "mixed.jsonl", rows)
    return read_prompt_items(path, lambda text: [ord(sign) for sign in text], 1000, task_of=mixed_of, check=check)


def test_translations_and_questions_are_read_from_one_file(tmp_path):
    task = {"source": "zwei", "src_lang": "de", "trg_lang": "en", "reference": "two"}
    prompt = "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n"
    items = mixed(
        tmp_path,
        {"src": "say zwei", "tgt": json.dumps(task)},
        {"src": "say zwei", "tgt": json.dumps(task), "data_source": "flores"},
        {"src": prompt, "tgt": "4", "data_source": "openai/gsm8k"},
        {"src": prompt, "tgt": "4", "data_source": "a", "question": "Two and two?"},
    )
    assert [item.task for item in items] == [
        TranslationTask("zwei", "de", "en", "two", "translation"),
        TranslationTask("zwei", "de", "en", "two", "flores"),
        TranslationTask("2 + 2?", "", "", "4", "openai/gsm8k"),
        TranslationTask("Two and two?", "", "", "4", "a"),
    ]


def test_a_row_that_no_judge_can_use_is_told_with_its_line(tmp_path):
    with pytest.raises(UserError, match=r"mixed.jsonl line 1: 'tgt' is not a translation task in JSON, and there"):
        mixed(tmp_path, {"src": "2 + 2?", "tgt": "4"})
    with pytest.raises(UserError, match=r"line 1: 'data_source' is 3; give text"):
        mixed(tmp_path, {"src": "2 + 2?", "tgt": "4", "data_source": 3})

    def refuse(task):
        raise UserError("nobody knows")

    with pytest.raises(UserError, match="line 1: nobody knows"):
        mixed(tmp_path, {"src": "2 + 2?", "tgt": "4", "data_source": "a"}, check=refuse)
