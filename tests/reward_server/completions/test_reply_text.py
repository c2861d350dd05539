"""Pieces of text from tokens: whole characters, and nothing of a stop text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.cli.commands.serve import serve
from grrm_reward_server.completions.replies import ReplyText
from grrm_reward_server.settings import CompletionSettings


def from_bytes(token_ids):
    """A tokenizer with a token for each byte."""
    return bytes(token_ids).decode("utf-8", "replace")


def pieces_of(text, stops=(), size=1):
    reply, ids = ReplyText(from_bytes, stops), list(text.encode())
    parts = [ids[begin : begin + size] for begin in range(0, len(ids), size)] or [[]]
    return reply, [reply.add(part, is_last=place == len(parts) - 1) for place, part in enumerate(parts)]


def test_a_character_of_several_tokens_is_given_out_whole():
    _, pieces = pieces_of("日本 ok")
    assert [piece for piece in pieces if piece] == ["日", "本", " ", "o", "k"]


def test_an_incomplete_character_at_the_end_is_left_out_as_by_vllm():
    reply = ReplyText(from_bytes)
    assert (reply.add([0x61, 0xE6]), reply.add([], is_last=True), reply.text) == ("a", "", "a")
    reply = ReplyText(from_bytes)
    assert reply.add([0xE6, 0x61], is_last=True) == "\N{REPLACEMENT CHARACTER}a"


def test_what_may_begin_a_stop_text_is_held_back_until_it_is_known():
    reply, pieces = pieces_of("one\n\ntwo", ["\n\n"])
    assert pieces[:5] == ["o", "n", "e", "", ""]
    assert (reply.text, reply.is_stopped, bytes(reply.token_ids)) == ("one", True, b"one\n\n")
    reply, pieces = pieces_of("one\ntwo", ["\n\n"])
    assert pieces[3:5] == ["", "\nt"]
    assert (reply.text, reply.is_stopped) == ("one\ntwo", False)
    assert pieces_of("one\n", ["\n\n"])[0].text == "one\n"


@pytest.mark.parametrize("size", [1, 3, 100])
def test_the_first_stop_text_ends_the_reply_however_the_tokens_come(size):
    reply, _ = pieces_of("a, b; c", [";", ", "], size)
    assert (reply.text, bytes(reply.token_ids)) == ("a", b"a, ")


STOPS = st.lists(st.text(alphabet="ab\n日", min_size=1, max_size=4), max_size=3)


@given(st.text(alphabet="ab\né日", max_size=30), STOPS)
def test_pieces_put_together_are_the_text_before_the_first_stop(text, stops):
    whole = min((text[: text.find(stop)] for stop in stops if stop in text), key=len, default=text)
    reply, pieces = pieces_of(text, stops)
    assert reply.text == "".join(pieces)
    # A longer stop that begins earlier may end later than a shorter one, which then was there first.
    if len(stops) < 2:
        assert reply.text == whole
    assert reply.is_stopped == any(stop in text for stop in stops)


# --- docs/serve.md lists the options, routes and refusals that there are


TEXT = (Path(__file__).parents[3] / "docs" / "serve.md").read_text(encoding="utf-8")


def test_options_are_those_of_the_command():
    options = {name for parameter in serve.params for name in parameter.opts if name.startswith("--")}
    rows = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `--")]
    assert {name for row in rows for name in re.findall(r"`(--[\w-]+)`", row)} == options


def test_limits_are_those_of_the_settings():
    settings = CompletionSettings()
    assert f"`--host`, `--port` | {settings.host}, {settings.port} |" in TEXT
    assert f"`--max-in-flight` | {settings.max_in_flight} |" in TEXT
    assert f"`--request-timeout` | {settings.request_timeout_s:g} |" in TEXT
    assert f"a body {settings.body_timeout_s:g} s and {settings.max_body_bytes // 2**20} MiB" in TEXT
