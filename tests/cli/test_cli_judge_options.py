"""`grrm rank --judge-option`: the options of the reward server's judges, and judges of answers, which need them."""

from __future__ import annotations

import json
import threading

import pytest
from support.completions_server import CompletionsServer, Refuse
from support.stopped_clock import PATIENCE_S

from grrm.errors import UserError

LANGUAGES = ["--src-lang", "de", "--trg-lang", "en"]
QUESTION = {"src_text": "2 + 2?", "trg_text": "4"}


def options(**values):
    return [word for name, value in values.items() for word in ("--judge-option", f"{name}={value}")]


def test_answers_are_judged_by_a_rule_without_languages(rank):
    rows = [
        {**QUESTION, "mt_texts": ["2 + 2\n#### 4", "#### 5", "four", None], "src_lang": "no language"},
        {"src_text": "3 * 4?", "trg_text": "3 * 4 = 12\n#### 12", "mt_texts": ["#### 12.0"]},
    ]
    first, second = rank(rows, "--judge", "answer", *options(rule="gsm8k"))
    assert first["judge_scores"] == [10, 0, None, None]
    assert first["judge_statuses"] == ["scored", "scored", "unparsable_candidate", "unparsable_candidate"]
    assert (first["judge_ranking"], first["judge_attempts"], first["src_lang"]) == (None, 0, "no language")
    assert second["judge_scores"] == [10]
    assert "trg_lang" not in second


def test_a_rule_is_normalised_where_none_is_given_and_languages_may_be(rank):
    (row,) = rank([{**QUESTION, "mt_texts": ["\\boxed{4.0}"]}], "--judge", "answer", "--src-lang", "en")
    assert (row["judge_scores"], row["src_lang"]) == ([10], "en")


def test_a_true_answer_that_the_rule_cannot_use_or_that_is_missing_is_one_sentence(rank):
    row = {**QUESTION, "mt_texts": ["4"]}
    with pytest.raises(UserError, match="names no knight and no knave"):
        rank([row], "--judge", "answer", *options(rule="knights_and_knaves"))
    with pytest.raises(UserError, match="row 1: column trg_text is missing"):
        rank([{"src_text": "2 + 2?", "mt_texts": ["4"]}], "--judge", "answer")


@pytest.mark.parametrize(("setup", "scores"), [("addon", [10, 5, 0]), ("tinyv_only", [10, 10, 0])])
def test_a_rule_and_a_verifier_judge_together(rank, setup, scores):
    with CompletionsServer(lambda body, _: str("answer>5</model" not in body["prompt"])) as server:
        row = {**QUESTION, "mt_texts": ["#### 4", "#### four", "#### 5"]}
        given = options(setup=setup, verifier_weight=0.5, retries=0)
        (found,) = rank([row], "--judge", "rule+verifier", "--url", server.url, *given)
    assert found["judge_scores"] == scores
    assert len(server.requests) == (2 if setup == "addon" else 3)


def test_a_rule_and_a_rubric_judge_together(rank):
    with CompletionsServer(lambda body, _: f"Total Score: {7 if 'Be kind' in body['prompt'] else 1}") as server:
        row = {"src_text": "2?", "trg_text": json.dumps({"answer": "4", "criteria": "Be kind"}), "mt_texts": ["#### 3"]}
        (found,) = rank([row], "--judge", "rule+rubric", "--url", server.url, *options(shows_solution=True))
    assert found["judge_scores"] == [7]


def test_options_reach_a_function_of_the_users_own(rank, tmp_path):
    lines = ["from grrm.gqm.groups import Status, Verdict", "def judge(groups, points, retries=0):"]
    lines += ["    return [Verdict((Status.SCORED,), (points + retries,)) for group in groups]"]
    (tmp_path / "own.py").write_text("\n".join(lines))
    own = [*LANGUAGES, "--judge", f"{tmp_path}/own.py:judge"]
    row = {"src_text": "eins", "mt_texts": ["one"]}
    for points, scores in ((2.5, [3.5]), (2, [3])):
        assert rank([row], *own, *options(points=points, retries=1))[0]["judge_scores"] == scores
    with pytest.raises(UserError, match=r"unknown option of judge .*own.py:judge' 'point'.*did you mean 'points'"):
        rank([row], *own, *options(point=2))


def test_options_of_metrics_are_options_too(rank):
    row = {"src_text": "eins", "trg_text": "one", "mt_texts": ["one more"]}
    exact, whole = (
        rank([row], *LANGUAGES, "--judge", "text_metric", *given)[0]["judge_scores"][0]
        for given in (["--metric", "bleu"], options(metric="bleu", round_to_integer="true"))
    )
    assert whole == round(exact) != exact


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--judge", "answer", *options(rul="gsm8k")], "did you mean 'rule'"),
        (["--judge", "answer", *options(rule="gsm8")], "did you mean 'gsm8k'"),
        (["--judge", "answer", *options(rule=5)], "unknown answer rule 5"),
        (["--judge", "answer", "--judge-option", "rule"], "write it as NAME=VALUE"),
        (["--judge", "answer", *2 * ["--judge-option", "rule=exact"]], "rule is given twice"),
        (["--judge", "answer", "--metric", "bleu"], "--metric has no effect with --judge answer"),
        (["--judge", "answer", "--url", "http://127.0.0.1:1"], "--url has no effect with --judge answer"),
        (["--judge", "consensus", *options(rule="gsm8k")], "unknown option of judge 'consensus' 'rule'"),
        (["--judge", "consensus", "--metric", "bleu", *options(metric="chrf")], "--metric has no effect beside"),
        (["--judge", "consensus", "--scorer-env", "x"], "--scorer-env has no effect"),
        (["--url", "http://127.0.0.1:1", *options(rule="gsm8k")], "unknown judge option 'rule'"),
        (["--url", "http://127.0.0.1:1", "--retry", 1, *options(retries=2)], "--retry has no effect beside"),
        (["--judge", "rule+verifier", "--url", "http://127.0.0.1:1", "--shuffle"], "--shuffle has no effect"),
        (["--judge", "rule+rubric", "--url", "http://127.0.0.1:1", "--think"], "--think has no effect"),
        (["--judge", "verifier", "--url", "http://127.0.0.1:1", *options(setup="addon")], "option 'setup'"),
        (["--url", "http://127.0.0.1:1", *options(prompt_length="x")], "'prompt_length' is 'x'; give a whole number"),
        (["--url", "http://127.0.0.1:1", *options(prompt_length=99)], "needs the folder of the tokenizer"),
        (["--judge", "ranker", "--model", "x", *options(batch_tokens=0)], "'batch_tokens' is 0"),
        (
            ["--judge", "ranker", "--model", "x", "--mt-prompt-type", "seedx", *options(prompt_type="Tower")],
            "--mt-prompt-type has no effect beside --judge-option prompt_type",
        ),
        (["--judge", "comet", *options(batch_size=0)], "'batch_size' is 0"),
        (["--judge", "comet", *options(environment="none")], "COMET has no environment at 'none'"),
    ],
)
def test_wrong_and_doubled_options_are_one_sentence(rank, arguments, message):
    row = {**QUESTION, "mt_texts": ["4", "5"]}
    with pytest.raises(UserError) as caught:
        rank([row], *LANGUAGES, *arguments)
    assert message in str(caught.value)


def test_rows_that_no_server_answers_for_are_written_with_their_status_and_judged_later(rank):
    is_over = threading.Event()

    def hangs_once(body, _):
        if "wort 3" in body["prompt"] and not is_over.is_set():
            is_over.wait(PATIENCE_S)
        return "Good.\nA: 9, B: 7"

    server = CompletionsServer(hangs_once)
    rows = [{"src_text": f"wort {i}", "mt_texts": ["word", f"worth {i}"]} for i in range(8)]
    given = ["--url", server.url, "--model", "m", *LANGUAGES, "--prompt-type", "score"]
    try:
        first = rank(rows, *given, "--deadline", "6")
        assert [row["judge_statuses"][0] for row in first] == ["scored"] * 3 + ["judge_timeout"] + ["scored"] * 4
        assert first[3]["judge_scores"] == [None, None]
        assert "no server answered for 1 of 8 rows" in rank.told
        is_over.set()
        server.requests.clear()
        second = rank(first, *given, "--resume")
        assert len(server.requests) == 1
        assert "7 of 8 rows keep the verdicts that they have" in rank.told
        assert second[:3] + second[4:] == first[:3] + first[4:]
        assert second[3]["judge_scores"] == [9, 7]
        assert rank(second, *given, "--resume") == second
        assert json.loads(second[0]["judge_settings"]) == {"judge": "gqm", "model": "m", "prompt_type": "score"}
        other = [*given[:3], "other", *LANGUAGES, "--temperature", "1"]
        with pytest.raises(UserError) as caught:
            rank(first, *other, "--resume")
    finally:
        is_over.set()
        server.close()
    assert (
        "model is m there and other here, prompt_type is score there and the default here, temperature is the default "
        "there and 1.0 here" in str(caught.value)
    )
    assert "with another --out and without --resume" in str(caught.value)


def test_servers_that_have_gone_are_waited_for_once_and_not_with_every_batch(rank):
    def goes_after_the_first(body, number):
        server.model_status = 503 if number else 200
        return Refuse(503) if number else "Good.\nA: 9, B: 7"

    rows = [{"src_text": f"wort {i}", "mt_texts": ["word", f"worth {i}"]} for i in range(6)]
    given = ["--model", "m", *LANGUAGES, "--prompt-type", "score", "--batch-rows", "1", "--deadline", "5"]
    with CompletionsServer(goes_after_the_first) as server:
        found = rank(rows, "--url", server.url, *given)
        assert [row["judge_statuses"][0] for row in found] == ["scored"] + ["judge_unreachable"] * 5
        assert len({body["prompt"] for body in server.requests}) == 2
        assert "no server answered for 5 of 6 rows: give the output as ROWS with --resume" in rank.told


def test_a_request_that_fails_by_itself_is_that_of_one_row(rank):
    def refuses_one(body, _):
        return Refuse(503) if "wort 1" in body["prompt"] else "Good.\nA: 9, B: 7"

    rows = [{"src_text": f"wort {i}", "mt_texts": ["word", f"worth {i}"]} for i in range(4)]
    given = ["--model", "m", *LANGUAGES, "--prompt-type", "score", "--batch-rows", "1", "--deadline", "5"]
    with CompletionsServer(refuses_one) as server:
        found = rank(rows, "--url", server.url, *given)
    assert [row["judge_statuses"][0] for row in found] == ["scored", "judge_unreachable", "scored", "scored"]


def test_where_no_server_answers_at_all_nothing_is_written(rank, tmp_path):
    with CompletionsServer(lambda body, _: Refuse(503, Retry_After="0")) as server:
        options = ("--url", server.url, "--model", "m", "--deadline", "2", *LANGUAGES)
        with pytest.raises(UserError, match="no server answered for any of the 2 rows"):
            rank([{"src_text": "a", "mt_texts": ["b", "c"]}] * 2, *options)
    assert not (tmp_path / "out.jsonl").exists()


def test_resuming_needs_what_an_earlier_run_wrote(rank):
    with pytest.raises(UserError, match="has no column judge_statuses to resume from"):
        rank([{"src_text": "a", "mt_texts": ["b", "c"]}], "--url", "http://127.0.0.1:1", *LANGUAGES, "--resume")
