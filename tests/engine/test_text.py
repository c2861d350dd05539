"""Text generation for judges, over a scripted engine and a token per character."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grrm.engine.api import Completion, Engine
from grrm.engine.text import EngineTextGenerator
from grrm.errors import UserError

EOS = 0


def generator_over(engine, stop_token_ids=(EOS,), **options):
    """One token per character, but for the eos."""

    def encode(text):
        return [ord(character) for character in text]

    def decode(ids):
        return "".join(chr(token) for token in ids if token != EOS)

    return EngineTextGenerator(engine, encode, decode, stop_token_ids, **options)


class EchoEngine(Engine):
    """Repeats each prompt, then eos where there is room; remembers how it was called."""

    def __init__(self):
        self.calls = []

    def _generate(self, requests, on_finished):
        (params,) = {request.params for request in requests}
        self.calls.append((params, [request.stream_id for request in requests]))
        replies = [[*request.prompt, 0][: params.max_new_tokens] for request in requests]
        return [Completion(reply, [0.0] * len(reply), "stop" if reply[-1] == 0 else "length") for reply in replies]


def test_replies_keep_order_and_end_before_the_eos():
    generator = generator_over(EchoEngine())
    first, second = generator.generate_text(["ab", "cdef"], temperature=0.5, top_p=0.9, max_new_tokens=4)
    assert (first.text, first.finish_reason, first.n_tokens) == ("ab", "stop", 3)
    assert (second.text, second.finish_reason, second.n_tokens) == ("cdef", "length", 4)


def test_sampling_options_and_seeds_reach_the_engine():
    engine = EchoEngine()
    generator = generator_over(engine, seed=3)
    generator.generate_text(["a", "b"], temperature=0.5, top_p=0.9, max_new_tokens=4, seeds=[7, 8])
    params, streams = engine.calls[0]
    assert (params.temperature, params.top_p, params.max_new_tokens) == (0.5, 0.9, 4)
    assert (params.seed, params.stop_token_ids, streams) == (3, (0,), [7, 8])


def test_a_retry_without_seeds_does_not_repeat_the_same_reply():
    engine = EchoEngine()
    generator = generator_over(engine)
    for _ in range(2):
        generator.generate_text(["a", "b"], temperature=1.0, max_new_tokens=4)
    assert not set(engine.calls[0][1]) & set(engine.calls[1][1])


def test_tokens_are_counted():
    assert generator_over(EchoEngine()).count_tokens("four") == 4


def test_a_tokenizer_without_eos_is_refused():
    with pytest.raises(UserError, match="eos_token"):
        generator_over(EchoEngine(), stop_token_ids=())


def test_choices_of_a_token_are_the_texts_of_its_alternatives():
    class Sure(EchoEngine):
        def _generate(self, requests, on_finished):
            (completion,) = super()._generate(requests, on_finished)
            tops = [[(token, -0.1), (ord("z"), -2.5)] for token in completion.token_ids]
            assert requests[0].params.top_logprobs == 2
            return [replace(completion, top_logprobs=tops)]

    generator = generator_over(Sure())
    (reply,) = generator.generate_text(["ab"], temperature=0.0, max_new_tokens=4, top_logprobs=2)
    assert [token.text for token in reply.tokens] == ["a", "b", ""]
    assert reply.tokens[0].choices == (("a", -0.1), ("z", -2.5))
