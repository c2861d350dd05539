"""What a prompt that no model can take costs the process that is asked, until it is refused."""

from __future__ import annotations

import json
import time
from functools import cache

import pytest
import requests
from support.reward_app import group, score_body
from support.reward_servers import cost, reward_server, serving
from support.stopped_clock import PATIENCE_S
from support.tiny_policy import write_tiny_checkpoint
from tokenizers import Tokenizer

from grrm.gqm.fences import FENCED

MIB = 2**20
CONTEXT = 8_192  # tokens, of little more than a character each
ENGLISH = "The quick brown fox jumps over the lazy dog, which sleeps. "
TEXTS = {
    "English": ENGLISH,
    "blanks": " ",
    "one letter": "a",
    "marks": "\u0301",
    "digits": "7 ",
    "token": "<|",
    "scores": "A: 1, B: 2 ",
    "backslashes": "A\\1",
    "look-alikes": "А\\①",
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_tiny_checkpoint(tmp_path_factory.mktemp("model") / "tiny", max_positions=CONTEXT)


@pytest.fixture(scope="module")
def completions(checkpoint):
    with serving(["-m", "grrm.cli", "serve", str(checkpoint), "--port", "0"]) as served:
        yield served


def long_text(piece, n_bytes):
    return piece * (n_bytes // len(piece.encode()))


def prompts_of(name):
    """Bodies for each route by what they ask: a prompt of as many bytes or characters as may be sent."""
    sizes = {"marks": 3, "backslashes": 2, "look-alikes": 2}
    for n_bytes in (149 * MIB // 10, 39 * MIB // 10):
        text = long_text(TEXTS[name], n_bytes // sizes.get(name, 1))  # JSON doubles backslashes
        chat = [{"role": "user", "content": text}]
        yield "/v1/completions", {"model": "tiny", "prompt": text}
        yield "/v1/completions", {"model": "tiny", "prompt": [text[:40_000]] * 90}
        yield "/v1/chat/completions", {"model": "tiny", "messages": chat}


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_a_prompt_that_no_model_can_take_is_refused_for_little(completions, name):
    process, url = completions
    requests.get(f"{url}/healthz", timeout=PATIENCE_S)
    for path, message in prompts_of(name):
        body = json.dumps(message, ensure_ascii=False).encode()
        status, growth, _, probe_s = cost(process, url, path, body)
        assert status == 400
        assert growth < 10 * len(body) + 20 * MIB
        assert probe_s < 0.5


@pytest.mark.slow
def test_more_token_ids_than_any_request_has_are_refused_for_little(completions):
    process, url = completions
    requests.get(f"{url}/healthz", timeout=PATIENCE_S)
    for n_ids in (2**20 + 20_000, 5 * 2**20):
        body = b'{"model":"tiny","prompt":[7' + b", 7" * n_ids + b"]}"
        status, growth, _, probe_s = cost(process, url, "/v1/completions", body)
        assert status == 422
        assert growth < 2 * len(body) + 20 * MIB
        assert probe_s < 0.5


def group_of(text):
    """Fifteen candidates of repeated `text`, 0.9 MiB in all."""
    return [long_text(text, 65_000)[: 60_000 - place] for place in range(15)]


@cache
def once_over(checkpoint, text):
    """CPU seconds of this process to pass each candidate through the guard and the tokenizer once.

    A judge that pays for texts in vain pays several times that, on any processor.
    """
    tokenizer, start = Tokenizer.from_file(str(checkpoint / "tokenizer.json")), time.process_time()
    for candidate in group_of(text):
        FENCED.unsafe_reason(candidate)
        tokenizer.encode(FENCED.escape(candidate))
    return time.process_time() - start


# Every kind of text for one judge; one of them for the others, whose tokens the same code counts.
OPTIONS = {"gqm refuses": {"judge": "gqm", "judge_options": {"too_long": "refuse"}}}
JUDGES = ("gqm", "gqm refuses", "sqm", "rubric", "pairwise", "verifier", "mqm")
TEXTS_OF = {**dict.fromkeys((*JUDGES, "mixture"), ("English",)), "gqm": tuple(TEXTS)}


@pytest.fixture(scope="module")
def judges(checkpoint, tmp_path_factory):
    """A server with all these judges."""
    model = str(checkpoint)
    named = {name: {"judge": name, "model": model, **OPTIONS.get(name, {})} for name in JUDGES}
    sources = [{"judge": name, "model": model} for name in ("sqm", "mqm")]
    named["mixture"] = {"judge": "mixture", "judge_options": {"sources": sources}}
    settings = tmp_path_factory.mktemp("settings") / "server.yaml"
    settings.write_text(json.dumps({"judges": named}))
    with reward_server("--config", str(settings)) as (process, url):
        requests.get(f"{url}/readyz", timeout=PATIENCE_S)
        yield process, url


@pytest.mark.slow
@pytest.mark.parametrize("judge", TEXTS_OF)
def test_a_group_that_no_judge_can_take_is_refused_for_little(judges, checkpoint, judge):
    process, url = judges
    for name in TEXTS_OF[judge]:
        message = score_body(group("g", *group_of(TEXTS[name])), request_id=f"{judge}, {name}") | {"judge": judge}
        for path in ("/v1/score", "/v1/prompts"):
            status, growth, seconds, probe_s = cost(
                process, url, path, json.dumps(message, ensure_ascii=False).encode()
            )
            assert status == 200
            assert growth < 100e6
            assert seconds < 2.0 or seconds < 2 * once_over(checkpoint, TEXTS[name])
            assert probe_s < 0.5
