"""What `grrm rank` and `grrm translate` refuse before they ask a server for anything."""

from __future__ import annotations

import pytest
from support.command_line import refusal
from support.completions_server import CompletionsServer


@pytest.fixture
def server():
    with CompletionsServer(lambda body, number: "unused") as server:
        yield server


def refused(server: CompletionsServer, command: str, *options: object, **environment: str) -> str:
    words = [command, "-", "--src-lang", "de", "--trg-lang", "en", "--url", server.url, *options]
    said = refusal(*words, stdin="a\tb\tc\n", **environment)
    assert server.paths == []
    return said


@pytest.mark.parametrize("token", ["", "two\nlines", "тайна"])
def test_a_token_that_no_header_can_carry_is_a_sentence(server, token):
    assert refused(server, "rank", "--token-env", "JUDGE_TOKEN", JUDGE_TOKEN=token) == (
        "the environment variable JUDGE_TOKEN of --token-env holds no token: put one line of printable ASCII without "
        "spaces there"
    )


@pytest.mark.parametrize(
    ("option", "value"), [("--temperature", "nan"), ("--top-p", "nan"), ("--deadline", "inf"), ("--temperature", "inf")]
)
def test_what_is_no_finite_number_is_refused(server, option, value):
    assert f"Invalid value for '{option}'" in refused(server, "translate", option, value)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (["--judge", "sqm", "--permutations", 2], "--permutations"),
        (["--judge", "sqm", "--shuffle"], "--shuffle"),
        (["--judge", "sqm", "--think"], "--think"),
        (["--judge", "gqm", "--think"], "--think"),
        (["--judge", "consensus"], "--url"),
        (["--metric", "bleu"], "--metric"),
        (["--dtype", "float32"], "--dtype"),
        (["--backend", "fastdeploy"], "--backend"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(server, options, name):
    assert refused(server, "rank", *options).startswith(f"{name} has no effect")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--url", "http://x"], "--url has no effect, as a reward model runs in this process and generates nothing"),
        (["--temperature", 1], "--temperature has no effect with --judge ranker, which generates nothing"),
        (["--permutations", 2], "--permutations has no effect with --judge ranker"),
        (["--mt-prompt-type", "seedx", "--trg-lang", "English"], "needs the target language as a code"),
    ],
)
def test_a_reward_model_refuses_what_it_has_no_use_for(options, message):
    arguments = ["rank", "-", "--src-lang", "de", "--trg-lang", "en", "--judge", "ranker", "--model", "nowhere"]
    assert message in refusal(*arguments, *options, stdin="a\tb\tc\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("convert rows.csv out --columns src_text=en,src_text=de", "'src_text' is not one of src_text, trg_text,"),
        ("pairs folder out.parquet --min-winner-score nan", "'--min-winner-score': 'nan' is not a finite number"),
    ],
)
def test_an_option_of_data_that_contradicts_itself_is_named(words, message):
    assert message in refusal("data", *words.split())
