"""The engine as its users see it, against a naive loop that runs the whole model for each token."""

from __future__ import annotations

import numpy as np
import pytest

from grrm.engine.api import Request, SamplingParams
from grrm.engine.paddle import cpu_decoder
from grrm.engine.paddle.engine import PaddleEngine
from grrm.engine.paddle.plain_decoder import PlainDecoder
from grrm.errors import UserError

STOPS = (0, 1, 2, 3)


def naive_pick(logits, params, uniform, history, n_generated):
    """One token by sorting and looping, in float64; follows the text of SamplingParams and nothing else."""
    scores = logits.astype(np.float64)
    if params.repetition_penalty != 1:
        for token in set(history):
            scores[token] *= params.repetition_penalty if scores[token] < 0 else 1 / params.repetition_penalty
    if n_generated < params.min_new_tokens:
        scores[list(params.stop_token_ids)] = -np.inf
    if params.temperature == 0:
        return int(scores.argmax())
    scores = scores / params.temperature
    if params.top_k:
        scores[scores < sorted(scores)[-params.top_k]] = -np.inf
    probabilities = np.exp(scores - scores.max())
    probabilities /= probabilities.sum()
    mass = 0.0
    for token in sorted(range(len(scores)), key=lambda t: -probabilities[t]):
        if mass >= params.top_p:
            probabilities[token] = 0
        else:
            mass += probabilities[token]
    mass, target = 0.0, uniform * probabilities.sum()
    for token, probability in enumerate(probabilities):
        mass += probability
        if mass > target:
            return token
    raise AssertionError("the uniform lies beyond the distribution")


def naive_generate(model, full_forward, prompt, params, stream_id):
    key = np.array([params.seed, stream_id], dtype=np.uint64)
    uniforms = np.random.Generator(np.random.Philox(key=key)).random(params.max_new_tokens)
    tokens, logprobs = [], []
    for step in range(params.max_new_tokens):
        logits = full_forward(model, prompt + tokens)[-1]
        tokens.append(naive_pick(logits, params, uniforms[step], prompt + tokens, step))
        scaled = logits.astype(np.float64) / (params.temperature or 1)
        logprobs.append(scaled[tokens[-1]] - scaled.max() - np.log(np.exp(scaled - scaled.max()).sum()))
        if tokens[-1] in params.stop_token_ids:
            return tokens, logprobs, "stop"
    return tokens, logprobs, "length"


@pytest.fixture(scope="module")
def llama(make_model):
    return make_model("llama", tie_word_embeddings=True)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0},
        {"temperature": 0, "repetition_penalty": 1.5, "min_new_tokens": 4},
        {"temperature": 0.6},
        {"temperature": 1.5, "min_new_tokens": 5},
        {"top_k": 7},
        {"top_p": 0.7},
        {"repetition_penalty": 1.4},
        {"temperature": 1.3, "top_k": 40, "top_p": 0.9, "repetition_penalty": 1.2, "min_new_tokens": 3},
    ],
)
def test_tokens_and_logprobs_equal_a_naive_loop(options, model, llama, full_forward, prompts):
    params = SamplingParams(max_new_tokens=7, stop_token_ids=STOPS, seed=5, **options)
    for tested in (model, llama):
        # Six slots for fourteen prompts: sequences wait, and enter slots that others have used.
        by_kernels, by_operators = (
            PaddleEngine(tested, max_num_seqs=6, use_kernels=kernels).generate(prompts, params)
            for kernels in (True, False)
        )
        for index, prompt in enumerate(prompts):
            tokens, logprobs, reason = naive_generate(tested, full_forward, prompt, params, index)
            for completion in (by_kernels[index], by_operators[index]):
                assert (completion.token_ids, completion.finish_reason) == (tokens, reason)
                np.testing.assert_allclose(completion.logprobs, logprobs, atol=1e-4)


@pytest.mark.parametrize(("use_kernels", "packed"), [(True, False), (True, True), (False, False)])
def test_completions_do_not_depend_on_the_batch(use_kernels, packed, model, prompts, monkeypatch):
    if packed:
        monkeypatch.setattr(cpu_decoder, "FEW_WEIGHTS", 0)
    params = SamplingParams(max_new_tokens=12, stop_token_ids=STOPS, seed=9)
    prompts = prompts * 5  # 70 sequences
    streams = list(range(1000, 1000 + len(prompts)))
    engine = PaddleEngine(model, use_kernels=use_kernels)
    whole = engine.generate(prompts, params, streams)
    order = np.random.default_rng(0).permutation(len(prompts)).tolist()
    batches = {
        "halves": [range(35), range(35, 70)],
        "shuffled": [order],
        "alone": [[index] for index in range(0, 70, 7)],
        "three slots": [range(70)],
    }
    for name, parts in batches.items():
        engine = PaddleEngine(model, max_num_seqs=3 if name == "three slots" else 32, use_kernels=use_kernels)
        for part in parts:
            some = engine.generate([prompts[i] for i in part], params, [streams[i] for i in part])
            for index, completion in zip(part, some, strict=True):
                assert completion.token_ids == whole[index].token_ids, name
                np.testing.assert_allclose(completion.logprobs, whole[index].logprobs, atol=1e-4)


def test_the_longest_prompts_enter_first_so_that_none_of_them_is_waited_for_in_the_end(model):
    prompts, entered = [[5] * 2, [6] * 9, [7] * 4, [6] * 9, [8] * 7], []
    PaddleEngine(model, max_num_seqs=1).generate(
        prompts, SamplingParams(max_new_tokens=1), on_finished=lambda i, _: entered.append(i)
    )
    assert entered == [1, 3, 4, 2, 0]


def test_slot_array_shrinks_when_few_sequences_are_left(model, monkeypatch, full_forward):
    engine = PaddleEngine(model, use_kernels=False)
    sizes, decode = [], PlainDecoder.decode

    def watched(decoder, slots, tokens, positions, cache):
        sizes.append(cache.n_slots)
        return decode(decoder, slots, tokens, positions, cache)

    monkeypatch.setattr(PlainDecoder, "decode", watched)
    params = SamplingParams(max_new_tokens=25, stop_token_ids=tuple(range(30)), seed=3)
    completions = engine.generate([[40 + i] for i in range(57)], params)
    assert sizes[0] == 64
    assert sizes[-1] == 16
    last = max(range(57), key=lambda i: len(completions[i].token_ids))
    tokens, _, _ = naive_generate(engine.model, full_forward, [40 + last], params, last)
    assert completions[last].token_ids == tokens


def test_on_finished_is_called_as_completions_end(model, prompts):
    sizes, params = [], SamplingParams(max_new_tokens=30, stop_token_ids=tuple(range(20)))
    PaddleEngine(model, max_num_seqs=16).generate(
        prompts, params, on_finished=lambda _, c: sizes.append(len(c.token_ids))
    )
    assert sizes == sorted(sizes)
    assert len(set(sizes)) > 1


@pytest.mark.parametrize("use_kernels", [True, False])
def test_a_budget_limits_the_sequences_at_a_time_not_the_result(use_kernels, model, prompts):
    params = SamplingParams(max_new_tokens=5)
    tight = PaddleEngine(model, max_cache_bytes=1, prefill_tokens=1, use_kernels=use_kernels)
    found = tight.generate(prompts, params)
    assert tight.cache_use.max_running == 1
    wide = PaddleEngine(model, use_kernels=use_kernels)
    assert [c.token_ids for c in found] == [c.token_ids for c in wide.generate(prompts, params)]
    assert wide.cache_use.max_running > 1


def test_impossible_engine_sizes_are_refused(model):
    with pytest.raises(UserError, match="max_num_seqs"):
        PaddleEngine(model, max_num_seqs=0)


@pytest.mark.parametrize("use_kernels", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_top_logprobs_are_the_models_most_probable_tokens(model, full_forward, prompts, use_kernels, temperature):
    params = SamplingParams(5, temperature=temperature, top_k=3, stop_token_ids=(3,), top_logprobs=4)
    engine = PaddleEngine(model, use_kernels=use_kernels, max_num_seqs=4)
    for prompt, completion in zip(prompts, engine.generate(prompts, params), strict=True):
        assert len(completion.top_logprobs) == len(completion.token_ids)
        for number, (token, top) in enumerate(zip(completion.token_ids, completion.top_logprobs, strict=True)):
            logits_V = full_forward(model, prompt + completion.token_ids[:number])[-1].astype(np.float64)
            logits_V /= temperature or 1.0
            logprobs_V = logits_V - np.logaddexp.reduce(logits_V)
            best = np.argsort(-logprobs_V)[:4]
            assert [one for one, _ in top] == best.tolist()
            assert [logprob for _, logprob in top] == pytest.approx(logprobs_V[best].tolist(), abs=1e-4)
            assert dict(top)[token] == pytest.approx(completion.logprobs[number], abs=1e-6)


def test_only_requests_that_want_top_logprobs_have_them(model):
    plain, asked = SamplingParams(3, temperature=0), SamplingParams(3, temperature=0, top_logprobs=1)
    session = PaddleEngine(model, max_num_seqs=4).open_session()
    session.add({0: Request([5, 6, 7], plain), 1: Request([5, 6, 7], asked), 2: Request([8], asked)})
    session.cancel(2)
    ended = {}
    while not session.is_idle:
        ended.update(session.step())
    assert ended[0].top_logprobs == []
    assert [[token] for token in ended[1].token_ids] == [[one for one, _ in top] for top in ended[1].top_logprobs]
