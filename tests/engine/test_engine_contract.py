"""What every engine promises: the same tests for the Paddle engine and for FastDeploy, here its stand-in."""

from __future__ import annotations

import numpy as np
import pytest
from support.fastdeploy_standin import fastdeploy_on_path, start_engine

from grrm.engine.api import SamplingParams
from grrm.engine.paddle.engine import PaddleEngine
from grrm.errors import UserError

STOPS = tuple(range(40))


def text_params(**values):
    return SamplingParams(**values, logprobs=False)


@pytest.fixture(scope="module", params=["paddle", "fastdeploy"])
def engine(request, model, tmp_path_factory):
    if request.param == "paddle":
        yield PaddleEngine(model)
        return
    with fastdeploy_on_path():
        yield start_engine(tmp_path_factory.mktemp("model"), model)


def tokens_of(completions):
    return [completion.token_ids for completion in completions]


@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.5}, {"stop_token_ids": STOPS}])
def test_greedy_completions_are_the_models_likeliest_tokens_in_the_order_of_the_prompts(
    engine, model, full_forward, prompts, options
):
    params = text_params(max_new_tokens=5, temperature=0, **options)
    for prompt, completion in zip(prompts, engine.generate(prompts, params), strict=True):
        expected: list[int] = []
        while len(expected) < 5 and not (expected and expected[-1] in params.stop_token_ids):
            scores = full_forward(model, prompt + expected)[-1].astype(np.float64)
            for token in set(prompt + expected):
                scores[token] *= params.repetition_penalty ** (1 if scores[token] < 0 else -1)
            expected.append(int(scores.argmax()))
        assert completion.token_ids == expected


def test_completions_do_not_depend_on_the_batch(engine, prompts):
    params = text_params(max_new_tokens=8, stop_token_ids=STOPS[:4], seed=9)
    streams = list(range(1000, 1000 + len(prompts)))
    whole = engine.generate(prompts, params, streams)
    order = np.random.default_rng(0).permutation(len(prompts)).tolist()
    for part in (range(5), order, [6]):
        some = engine.generate([prompts[i] for i in part], params, [streams[i] for i in part])
        assert some == [whole[i] for i in part]


def test_same_seed_same_tokens_other_seed_other_tokens(engine, prompts):
    def run(seed, streams=None):
        return tokens_of(engine.generate(prompts, text_params(max_new_tokens=10, seed=seed), streams))

    assert run(1) == run(1)
    assert run(1) == run(1, range(len(prompts)))
    assert run(1) != run(2)
    assert run(1) != run(1, range(50, 50 + len(prompts)))


def test_samples_of_one_prompt_differ(engine):
    completions = engine.generate([[5, 6, 7]] * 8, text_params(max_new_tokens=10))
    assert len({tuple(tokens) for tokens in tokens_of(completions)}) > 4


def test_stop_token_is_part_of_the_completion_and_its_last(engine, prompts):
    for completion in engine.generate(prompts, text_params(max_new_tokens=30, stop_token_ids=STOPS)):
        assert completion.finish_reason == "stop"
        assert [token in STOPS for token in completion.token_ids] == [False] * (len(completion.token_ids) - 1) + [True]


def test_without_a_stop_token_a_completion_has_all_the_tokens_it_may(engine, prompts):
    for completion in engine.generate(prompts, text_params(max_new_tokens=9)):
        assert (len(completion.token_ids), completion.finish_reason) == (9, "length")


def test_a_completion_ends_where_the_model_has_no_more_room(engine):
    longest = engine.max_prompt_tokens
    completions = engine.generate([[5] * longest, [5] * (longest - 6)], text_params(max_new_tokens=30))
    assert [len(c.token_ids) for c in completions] == [1, 7]
    assert {c.finish_reason for c in completions} == {"length"}


def test_logprobs_that_are_not_wanted_are_empty(engine, prompts):
    assert [c.logprobs for c in engine.generate(prompts, text_params(max_new_tokens=2))] == [[]] * len(prompts)


def test_on_finished_is_called_once_for_every_completion(engine, prompts):
    finished, params = [], text_params(max_new_tokens=3)
    made = engine.generate(prompts, params, on_finished=lambda *one: finished.append(one))
    assert sorted(index for index, _ in finished) == list(range(len(prompts)))
    assert all(completion is made[index] for index, completion in finished)


def test_sleep_and_wake_change_nothing(engine, prompts):
    params = text_params(max_new_tokens=3)
    before = engine.generate(prompts, params)
    engine.sleep()
    engine.wake()
    assert engine.generate(prompts, params) == before


def test_no_prompts_no_completions(engine):
    assert engine.generate([], text_params(max_new_tokens=3)) == []


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([[1], []], "Prompt 1 is empty"),
        ([[1] * 64], "64 tokens, which leaves no room in the .* of 64"),
        ([[1, 97]], "outside the model's vocabulary of 97"),
        ([[-1]], "outside the model's vocabulary of 97"),
    ],
)
def test_bad_prompts_are_refused_in_one_sentence(prompts, message, engine):
    with pytest.raises(UserError, match=message):
        engine.generate(prompts, text_params(max_new_tokens=3))


def test_stop_token_of_another_tokenizer_is_refused(engine):
    with pytest.raises(UserError, match="Stop token"):
        engine.generate([[1]], text_params(max_new_tokens=3, stop_token_ids=(151645,)))


def test_stream_ids_must_match_the_prompts(engine):
    with pytest.raises(ValueError, match="1 stream_ids for 2 prompts"):
        engine.generate([[1], [2]], text_params(max_new_tokens=3), [0])
