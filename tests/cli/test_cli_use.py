"""`grrm rank` and `grrm translate` as users start them: real processes, a tiny random checkpoint, a scripted server."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.command_line import GRRM, grrm, invoke, refusal
from support.completions_server import CompletionsServer, Refuse
from support.fastdeploy_standin import with_fastdeploy
from support.rows import write_jsonl
from support.tiny_policy import write_tiny_checkpoint, write_tiny_reward_model

LANGUAGES = ["--src-lang", "de", "--trg-lang", "en"]
VERDICT = "B is best.\n\n### Final Ranking:\n\nB > A\n\n### Scores:\n\nB: 9, A: 4\n"
ROWS = [
    {"src_text": "Hallo", "src_lang": "de", "trg_lang": "en", "mt_texts": ["Bye", "Hello"], "scores": [2, 9]},
    {
        "src_text": "Danke",
        "src_lang": "de",
        "trg_lang": "en",
        "mt_texts": ["Thanks", None, "Please"],
        "scores": [9, 0, 1],
    },
]


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture
def judge():
    """A server whose judge always finds B best."""
    with CompletionsServer(lambda body, number: VERDICT) as server:
        yield server


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.split("\n") if line]  # other separators occur within texts


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ranker", "rm"])
def test_a_reward_model_scores_every_candidate_and_in_bfloat16_close_to_float32(tmp_path, kind):
    folder = write_tiny_reward_model(tmp_path / kind, {"rm": "pairwise"}.get(kind, kind))
    rows, scores = write_jsonl(tmp_path / "rows.jsonl", ROWS), {}
    for dtype in ("float32", "bfloat16"):
        options = ("--judge", kind, "--model", folder, "--dtype", dtype, "--judge-option", "score_scale=1")
        done = grrm("rank", rows, *options)
        assert done.returncode == 0, done.stderr
        first, second = lines(done.stdout)
        assert second["judge_statuses"] == ["scored", "unparsable_candidate", "scored"]
        assert re.search(r"a group took [\d.]+ tokens read, [\d.]+ ms\n", done.stderr)
        scores[dtype] = [*first["judge_scores"], *second["judge_scores"][::2]]
    assert kind == "rm" or sum(first["judge_scores"]) == pytest.approx(10.0)
    assert scores["bfloat16"] != scores["float32"]
    assert scores["bfloat16"] == pytest.approx(scores["float32"], abs=0.05)


def test_a_judge_that_says_nothing_readable_gives_statuses_and_no_numbers(original, tmp_path):
    rows = write_jsonl(tmp_path / "rows.jsonl", ROWS)
    done = invoke("rank", rows, "--model", original, "--max-new-tokens", 8, "--retry", 1)
    found = lines(done.stdout)
    assert [row["judge_scores"] for row in found] == [[None, None], [None, None, None]]
    assert found[0]["judge_statuses"] == ["judge_unparsable"] * 2
    assert found[1]["judge_statuses"] == ["judge_unparsable", "unparsable_candidate", "judge_unparsable"]
    assert [row["judge_attempts"] for row in found] == [2, 2]
    assert [row["judge_rejections"] for row in found] == [["truncated"] * 2] * 2
    assert "replies that could not be read: truncated 4; 2 of 2 groups are without a verdict, one for '" in done.stderr
    assert "': raise --max-new-tokens\n" in done.stderr
    assert [row["scores"] for row in found] == [row["scores"] for row in ROWS]
    assert "judge_unparsable 4, unparsable_candidate 1" in done.stderr


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_servers_verdicts_are_written_beside_the_rows(judge, tmp_path, suffix):
    rows, out = tmp_path / "rows.parquet", tmp_path / "new" / f"out.{suffix}"
    pq.write_table(pa.Table.from_pylist(ROWS), rows)
    assert invoke("rank", rows, "--url", judge.url, "--out", out).stdout == ""
    found = pq.read_table(out).to_pylist() if suffix == "parquet" else lines(out.read_text())
    assert [row["judge_scores"] for row in found] == [[4, 9], [4, None, 9]]
    assert [row["judge_ranking"] for row in found] == [[[1], [0]], [[2], [0]]]
    assert [row["judge_response"] for row in found] == [VERDICT] * 2
    assert [{name: row[name] for name in ROWS[0]} for row in found] == ROWS
    assert list(out.parent.iterdir()) == [out]


def test_text_comes_in_by_lines_and_tabs_and_a_token_from_the_environment(judge):
    arguments = ["rank", "-", *LANGUAGES, "--url", judge.url, "--model", "mine", "--token-env", "JUDGE_TOKEN"]
    done = grrm(*arguments, stdin="Hallo\tBye\tHello\n", JUDGE_TOKEN="s3cret\n")
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout)[0]["judge_scores"] == [4, 9]
    assert judge.requests[0]["model"] == "mine"
    assert judge.requests[0]["temperature"] == 0.0
    assert judge.tokens == ["Bearer s3cret"]


def test_candidates_are_judged_singly_or_in_several_orders_on_request(rank):
    with CompletionsServer(lambda body, number: VERDICT if "multiple" in body["prompt"] else "good\n7") as server:
        (single,) = rank("a\tb\tc\n", *LANGUAGES, "--url", server.url, "--judge", "sqm")
        (averaged,) = rank("a\tb\tc\n", *LANGUAGES, "--url", server.url, "--permutations", 2, "--shuffle")
    assert (single["judge_scores"], averaged["judge_scores"]) == ([7, 7], [6.5, 6.5])
    assert (single["judge_order_scores"], sorted(averaged["judge_order_scores"])) == (None, [[4, 9], [9, 4]])
    assert single["judge_tokens"] == averaged["judge_tokens"] == 6
    assert "agreement of the orders of 1 groups (Kendall tau-b): -1.000" in rank.told


def test_answers_are_judged_by_criteria_or_by_the_true_answer(rank):
    row = {"src_text": "2 + 2?", "src_lang": "en", "trg_lang": "en", "trg_text": "4", "mt_texts": ["four", "five"]}

    def reply(body, _):
        right = "four<" in body["prompt"] or "\nfour\n" in body["prompt"]
        return str(right) if "Return" in body["prompt"] else f"Total Score: [{9 if right else 1}/10]"

    with CompletionsServer(reply) as server:
        (graded,) = rank([row], "--url", server.url, "--judge", "rubric")
        (verified,) = rank([row], "--url", server.url, "--judge", "verifier", "--verifier-prompt", "tinyv-qwen3")
    assert (graded["judge_scores"], verified["judge_scores"]) == ([9, 1], [10, 0])


def test_a_version_in_another_language_is_shown_to_the_policy_and_judged_instead_of_the_source(rank, tmp_path):
    row = {"src_text": "Hallo", "src_lang": "de", "trg_lang": "fr", "ref_text": "Hello", "ref_lang": "en"}
    rows, sampled = write_jsonl(tmp_path / "anchored.jsonl", [row]), tmp_path / "sampled.jsonl"
    anchored = ["translate", rows, "--anchor-key", "ref_text", "--url"]
    with CompletionsServer(
        lambda body, number: VERDICT if "multiple" in body["prompt"] else f"Bonjour {number}"
    ) as server:
        invoke(*anchored, server.url, "--prompt-type", "Tower", "-n", 2, "--temperature", 1, "--out", sampled)
        columns = ["--src-text-key", "ref_text", "--src-lang-key", "ref_lang"]
        (judged,) = rank(lines(sampled.read_text()), "--url", server.url, *columns)
    prompts = [request["prompt"] for request in server.requests]
    assert "German Source: Hallo\nEnglish Reference: Hello\nFrench Translation:" in prompts[0]
    assert "Hallo" not in prompts[-1]
    assert "Given a source text in English" in prompts[-1]
    assert judged["judge_scores"] == [4, 9]
    assert "--anchor-key is for --prompt-type Tower" in refusal(*anchored, server.url)


def test_several_greedy_translations_are_told_to_be_the_same(tmp_path):
    rows = write_jsonl(tmp_path / "rows.jsonl", [{"src_text": "Hallo", "src_lang": "de", "trg_lang": "fr"}])
    with CompletionsServer(lambda body, number: "Bonjour") as server:
        words = ["translate", rows, "--url", server.url, "--prompt-type", "Tower"]
        greedy, sampled = (invoke(*words, "-n", 2, "--temperature", value).stderr for value in (0, 1))
    assert "--temperature 0 draws the same translation 2 times" in greedy
    assert "the same translation" not in sampled


def on_a_terminal(*arguments: object) -> str:
    """What a person would see, both streams, on a terminal 100 columns wide."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    env = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen([*GRRM, *map(str, arguments)], stdin=terminal, stdout=terminal, stderr=terminal, env=env)
    os.close(terminal)
    seen = b""
    try:
        while piece := os.read(controller, 65536):
            seen += piece
    except OSError:  # Linux says so when the last writer has gone
        pass
    finally:
        os.close(controller)
    assert process.wait(120) == 0, seen
    return seen.decode()


def test_a_person_at_a_terminal_sees_a_bar_and_a_table_that_candidates_cannot_command(judge, tmp_path):
    hostile = ROWS[0] | {"mt_texts": ["[red]a[/red]", "b\u009b31m"]}
    rows = write_jsonl(tmp_path / "rows.jsonl", [ROWS[0], hostile])
    seen = on_a_terminal("rank", rows, "--url", judge.url, "--batch-rows", 1)
    assert "ranking: 100%" in seen
    assert "2/2 [" in seen
    assert seen.rindex("Hello") < seen.rindex("Bye")
    assert "source and candidates" in seen
    assert "[red]a[/red]" in seen
    assert "\u009b" not in seen


def test_translations_are_ranked_as_they_come(original, judge, tmp_path):
    translated, ranked = tmp_path / "translated.jsonl", tmp_path / "ranked.jsonl"
    options = ["--prompt-type", "Tower", "-n", 3, "--temperature", 1, "--max-new-tokens", 6, "--retry", 0]
    done = grrm(
        "translate", "-", *LANGUAGES, "--model", original, *options, "--out", translated, stdin="Hallo\nDanke\n"
    )
    assert done.returncode == 0, done.stderr
    found = lines(translated.read_text())
    assert [row["src_text"] for row in found] == ["Hallo", "Danke"]
    for row in found:
        assert len(row["mt_texts"]) == len(row["mt_statuses"]) == len(row["raw_outputs"]) == 3
        for text, status in zip(row["mt_texts"], row["mt_statuses"], strict=True):
            assert (text is None) == (status == "no_translation")
    invoke("rank", translated, "--url", judge.url, "--out", ranked)
    assert all(len(row["judge_statuses"]) == 3 for row in lines(ranked.read_text()))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_translations_in_any_batch(original):
    options = ["--prompt-type", "Tower", "--temperature", 1, "--max-new-tokens", 6, "--model", original, *LANGUAGES]
    one, other = (
        grrm("translate", "-", *options, "--batch-rows", size, stdin="Hallo\nDanke\n\u2028Guten Tag\n")
        for size in (1, 3)
    )
    assert one.returncode == 0, one.stderr
    assert lines(one.stdout) == lines(other.stdout)
    assert len(lines(one.stdout)) == 3


@pytest.mark.slow
def test_fastdeploy_translates_as_the_paddle_engine_does_and_leaves_stdout_to_the_results(original):
    options = ["--prompt-type", "Tower", "--max-new-tokens", 6, "--retry", 0, "--model", original, *LANGUAGES]
    by_fastdeploy = ["--backend", "fastdeploy", "--fastdeploy-option", "max_model_len=512", "--deadline", 60]
    texts = {"stdin": "Hallo\nDanke\n"}
    ours = grrm("translate", "-", *options, **texts)
    theirs = grrm("translate", "-", *options, *by_fastdeploy, **texts, **with_fastdeploy())
    assert theirs.returncode == 0, theirs.stderr
    assert "Loading Weights" in theirs.stderr
    assert lines(theirs.stdout) == lines(ours.stdout)
    assert len(lines(theirs.stdout)) == 2


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("quantization=wint8", "FastDeploy is not installed: install"),
        ("quantisation=wint8", "unknown FastDeploy option"),
    ],
)
def test_a_missing_fastdeploy_and_a_wrong_option_are_one_sentence(original, option, message):
    arguments = ["--model", original, "--backend", "fastdeploy", "--fastdeploy-option", option]
    assert refusal("rank", "-", *LANGUAGES, *arguments, stdin="a\tb\tc\n").startswith(message)


def test_blank_lines_and_what_no_translation_can_be_extracted_from_are_null(tmp_path):
    out, text = tmp_path / "out.parquet", "Hallo\r\n \nDanke\n"
    with CompletionsServer(lambda body, _: "```\nHello\n```" if "Hallo" in body["prompt"] else "no block") as server:
        done = invoke("translate", "-", *LANGUAGES, "--url", server.url, "--retry", 2, "--out", out, stdin=text)
    found = pq.read_table(out).to_pylist()
    assert [(row["src_text"], row["translation"], row["status"]) for row in found] == [
        ("Hallo", "Hello", "translated"),
        (None, None, None),
        ("Danke", None, "no_translation"),
    ]
    assert "no_translation 1, translated 1" in done.stderr
    assert [round(body["temperature"], 1) for body in server.requests[2:]] == [0.1, 0.2]


def test_a_server_that_refuses_is_one_sentence_and_leaves_no_file(tmp_path):
    with CompletionsServer(lambda body, number: Refuse(404, {"error": {"message": "no such model"}})) as server:
        arguments = ["--url", server.url, "--model", "x", "--out", tmp_path / "out.jsonl"]
        said = refusal("translate", "-", *LANGUAGES, *arguments, stdin="Hallo\n")
    assert "did not answer prompt 0 at attempt 1: it answered HTTP 404: no such model" in said
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_checkpoint_is_one_sentence_and_leaves_no_file(tmp_path):
    weights = write_tiny_checkpoint(tmp_path / "tiny") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    paths = ["--model", tmp_path / "tiny", "--out", tmp_path / "out.jsonl"]
    said = refusal("rank", "-", *LANGUAGES, *paths, stdin="a\tb\tc\n")
    assert "its weights are damaged, get them again" in said
    assert str(tmp_path / "tiny") in said
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]
