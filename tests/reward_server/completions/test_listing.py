"""Texts of listed tokens: the rules of vLLM 0.32, by which evaluation clients read log-probabilities of any server."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grrm.engine.api import PromptScores
from grrm_reward_server.completions.listing import TokenList, complete_characters

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
N_BYTES = 3  # of "日"


def decode(tokens):
    """The tokens of these tests are bytes strings."""
    return b"".join(tokens).decode("utf-8", "replace")


def in_bytes(text):
    return [bytes([one]) for one in text.encode()]


def listed(tokens, alternatives=()):
    return TokenList(decode).add(tokens, [-1.0] * len(tokens), alternatives)


def texts(tokens):
    return [token.text for token in listed(tokens)]


def test_a_part_of_a_character_has_no_text_and_its_last_part_has_all_of_it():
    assert texts(in_bytes("a日b")) == ["a", "", "", "日", "b"]
    assert [token.offset for token in listed(in_bytes("a日b"))] == [0, 1, 1, 1, 2]


def test_a_token_that_ends_inside_a_character_has_no_text_before_that_either():
    assert texts([b"ab\xe6", b"\x97\xa5"]) == ["", "ab日"]


def test_a_token_that_only_begins_inside_a_character_shows_that():
    assert texts([b"\xe6\x97", b"\xa5 x"]) == ["", f"{UNKNOWN} x"]


def test_a_part_that_nothing_completes_stays_without_text():
    assert texts([b"\xe6", b"a", b"\xa5"]) == ["", "a", ""]


def test_alternatives_stand_behind_the_sampled_tokens():
    tops = [
        token.top_logprobs for token in listed(in_bytes("日"), [[], [(b"\x9c", -2.0)], [(b"\xa6", -3.0), (b"x", -4.0)]])
    ]
    assert tops == [[], [("", -2.0)], [("\u65e6", -3.0), ("x", -4.0)]]


def test_tokens_come_in_any_pieces():
    tokens, one = in_bytes("日本é"), TokenList(decode)
    pieces = [one.add(tokens[begin : begin + 2], [-1.0] * 2, ()) for begin in range(0, len(tokens), 2)]
    assert [token for piece in pieces for token in piece] == listed(tokens)


def test_a_prompts_first_token_and_a_reply_do_not_see_what_is_before_them():
    one = TokenList(decode)
    prompt = one.add_prompt(in_bytes("日é")[: N_BYTES + 1], PromptScores([-1.0] * N_BYTES, []))
    assert [(token.text, token.logprob) for token in prompt] == [(UNKNOWN, None)] + [("", -1.0)] * N_BYTES
    (reply,) = one.add(in_bytes("é")[1:], [-2.0], ())
    assert (reply.text, reply.offset) == ("", 1)


@given(st.text(alphabet="a é日😀", max_size=12), st.integers(0, 3))
def test_texts_put_together_are_the_reply(text, n_lost):
    tokens = in_bytes(text)
    tokens = tokens[: len(tokens) - n_lost] if n_lost else tokens
    assert "".join(texts(tokens)) == complete_characters(decode, tokens) == decode(tokens).rstrip(UNKNOWN)
    assert text.startswith(complete_characters(decode, tokens))


def test_a_reply_ends_before_the_token_whose_character_is_incomplete():
    assert complete_characters(decode, [b"a", b" b\xe6"]) == "a"
    assert complete_characters(decode, [b"\xe6", b"a"]) == f"{UNKNOWN}a"
    assert complete_characters(decode, [b"\xe6", b"\x97"]) == ""
