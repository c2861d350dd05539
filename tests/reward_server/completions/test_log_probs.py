"""Log-probabilities from a real `grrm serve`, against those of the model's own forward pass over the same tokens."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import requests

from grrm.gqm.chat import render_chatml

PROMPT = "Translate Guten Morgen"
UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def own_logprobs(opened, ids):
    """Log-probabilities [T, V] of what follows each of these tokens."""
    with paddle.no_grad():
        logits = opened.engine.model(paddle.to_tensor([list(ids)]))
    logits_TV = (logits[0] if isinstance(logits, (tuple, list)) else logits)[0].astype("float64").numpy()
    logits_TV = logits_TV - logits_TV.max(axis=1, keepdims=True)
    return logits_TV - np.log(np.exp(logits_TV).sum(axis=1, keepdims=True))


def best_by_text(opened, logprobs_V, k, own):
    """The token `own` and the `k` most probable ones; the tests of listed tokens have those that are parts."""
    tokens = [own, *np.argsort(-logprobs_V, kind="stable")[:k]]
    texts = [(opened.decode_all([int(token)]), token) for token in reversed(tokens)]
    return {text: logprobs_V[token] for text, token in texts if text and UNKNOWN not in text}


def test_a_chat_lists_the_most_probable_tokens(client, opened):
    turns = [{"role": "user", "content": PROMPT}]
    asked = {"model": "tiny", "messages": turns, "max_tokens": 8, "temperature": 0, "logprobs": True}
    content = client.chat.completions.create(**asked, top_logprobs=4).choices[0].logprobs.content
    ids = opened.encode(render_chatml(PROMPT))
    assert 0 < len(content) <= 8
    for listed in content:
        own_V = own_logprobs(opened, ids)[-1]
        assert listed.logprob == pytest.approx(own_V.max(), abs=1e-4)
        assert [top.logprob for top in listed.top_logprobs] == pytest.approx(np.sort(own_V)[:-5:-1], abs=1e-4)
        for top, token in zip(listed.top_logprobs, np.argsort(-own_V)[:4], strict=True):
            text = opened.decode_all([int(token)])
            assert top.token == text or UNKNOWN in text
            assert top.bytes == list(top.token.encode())
        ids = [*ids, int(own_V.argmax())]


@pytest.mark.parametrize("max_tokens", [0, 3])
@pytest.mark.parametrize("temperature", [0, 0.7])
def test_an_echo_has_the_log_probs_of_the_prompt(client, opened, max_tokens, temperature):
    prompts = [opened.encode(PROMPT), opened.encode(PROMPT + "!" * 1200)]
    asked = {"echo": True, "logprobs": 3, "max_tokens": max_tokens, "temperature": temperature, "seed": 1}
    answer = client.completions.create(model="tiny", prompt=prompts, **asked)
    for ids, choice in zip(prompts, answer.choices, strict=True):
        listed = choice.logprobs
        assert choice.text.startswith(opened.decode(ids))
        assert len(ids) + min(max_tokens, 1) <= len(listed.tokens) <= len(ids) + max_tokens
        assert (listed.token_logprobs[0], listed.top_logprobs[0]) == (None, None)
        own_TV = own_logprobs(opened, ids)
        if temperature:
            scaled_TV = own_TV / temperature
            own_TV = scaled_TV - np.log(np.exp(scaled_TV).sum(axis=1, keepdims=True))
        own = [own_TV[position, token] for position, token in enumerate(ids[1:])]
        assert listed.token_logprobs[1 : len(ids)] == pytest.approx(own, abs=1e-4)
        for position in range(1, len(ids)):
            top = best_by_text(opened, own_TV[position - 1], 3, ids[position])
            assert {text: listed.top_logprobs[position].get(text) for text in top} == pytest.approx(top, abs=1e-4)
    n_listed = sum(len(choice.logprobs.tokens) for choice in answer.choices)
    assert answer.usage.completion_tokens == n_listed - sum(map(len, prompts))


@pytest.mark.parametrize("penalties", [(0, 1.5), (2, 0), (-0.5, 0.25)], ids=["presence", "frequency", "both"])
def test_penalties_by_count_choose_and_leave_the_log_probs_alone(client, opened, penalties):
    frequency, presence = penalties
    asked = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12, "temperature": 0, "logprobs": 0}
    answer = client.completions.create(**asked, frequency_penalty=frequency, presence_penalty=presence)
    free = client.completions.create(**asked)
    ids, drawn = opened.encode(PROMPT), []
    for logprob in answer.choices[0].logprobs.token_logprobs:
        own_V = own_logprobs(opened, [*ids, *drawn])[-1]
        shaped_V = own_V.copy()
        for token in set(drawn):
            shaped_V[token] -= frequency * drawn.count(token) + presence
        drawn.append(int(shaped_V.argmax()))
        assert logprob == pytest.approx(own_V[drawn[-1]], abs=1e-4)
    assert opened.decode(drawn).rstrip(UNKNOWN) == answer.choices[0].text
    if frequency >= 0:
        assert answer.choices[0].text != free.choices[0].text


def test_the_end_token_is_listed(client, opened):
    ids = opened.encode(PROMPT)
    own_V = own_logprobs(opened, ids)[-1]
    asked = {"model": "tiny", "prompt": ids, "max_tokens": 1, "temperature": 1, "logprobs": 0, "n": 64}
    choices = [choice for seed in range(20) for choice in client.completions.create(**asked, seed=seed).choices]
    ended = [choice for choice in choices if choice.finish_reason == "stop"]
    assert 0 < len(ended) < len(choices)
    stops = {opened.decode_all([stop]): own_V[stop] for stop in opened.stop_token_ids}
    for choice in ended:
        ((text,), (logprob,)) = choice.logprobs.tokens, choice.logprobs.token_logprobs
        assert (choice.text, logprob) == ("", pytest.approx(stops[text], abs=1e-4))


def test_a_log_likelihood_as_lm_eval_asks_for_it_and_sums_it(url, opened):
    """The request of EleutherAI's lm-eval 0.4.13, `local-completions`, and the arithmetic of its `parse_logprobs`."""
    context, endings = opened.encode(PROMPT), [opened.encode(end) for end in (" x", " Good morning", "\n\n!")]
    context_logprobs_V = own_logprobs(opened, context)[-1]
    endings.append([int(context_logprobs_V.argmax())])
    prompts = [[*context, *end] for end in endings]
    body = {
        "model": "tiny",
        "prompt": prompts,
        "temperature": 0,
        "max_tokens": 1,
        "logprobs": 1,
        "seed": 1234,
        "echo": True,
    }
    answer = requests.post(f"{url}/v1/completions", json=body, timeout=120).json()
    for ids, choice in zip(prompts, answer["choices"], strict=True):
        listed = choice["logprobs"]
        token_logprobs = listed["token_logprobs"][len(context) : -1]
        tops = listed["top_logprobs"][len(context) : -1]
        own_TV = own_logprobs(opened, ids)
        own = [own_TV[position, ids[position + 1]] for position in range(len(context) - 1, len(ids) - 1)]
        assert sum(token_logprobs) == pytest.approx(sum(own), abs=1e-3)
        is_greedy = all(x == max(top.values()) for x, top in zip(token_logprobs, tops, strict=True))
        greedy_T = own_TV[len(context) - 1 : -1].argmax(axis=1)
        assert is_greedy == (greedy_T.tolist() == ids[len(context) :])
    assert is_greedy
