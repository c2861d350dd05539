"""`grrm serve` as a process, asked by OpenAI's own client: the engine's answers, streams, sharing, an orderly end."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import openai
import pytest
import requests
from support import reward_servers
from support.command_line import grrm, mistake
from support.judged_groups import judge_over

from grrm.engine.api import SamplingParams
from grrm.engine.open import open_checkpoint, open_servers
from grrm.gqm.chat import render_chatml
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask
from grrm.judges.verifier import VerifierOptions
from grrm.models.trained_with import TrainedWith, write_trained_with
from grrm_reward_server.completions.listing import complete_characters

PROMPT = "Translate Guten Morgen"
LONG = 20_000  # tokens that take the tiny model many seconds


def serving(checkpoint, *options, **variables):
    return reward_servers.serving(["-m", "grrm.cli", "serve", str(checkpoint), "--port", "0", *options], **variables)


def own_answers(opened, prompt, n=1, seed=0, **params):
    """The engine's own completions, as the server promises to draw them."""
    sampling = SamplingParams(**params, stop_token_ids=opened.stop_token_ids)
    ids = opened.encode(prompt)
    drawn = [opened.engine.generate([ids], replace(sampling, seed=choice), [seed])[0] for choice in range(n)]
    return [(complete_characters(opened.decode, one.token_ids), one.finish_reason, one.logprobs) for one in drawn]


def test_completions_are_the_engines_own(client, opened):
    assert [model.id for model in client.models.list()] == ["tiny"]
    greedy = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=30, temperature=0)
    assert (greedy.choices[0].text, greedy.choices[0].finish_reason) == own_answers(
        opened, PROMPT, max_new_tokens=30, temperature=0
    )[0][:2]
    params = {"temperature": 0.8, "top_p": 0.9}
    drawn = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=20, n=3, seed=7, logprobs=0, **params)
    for choice, (text, reason, logprobs) in zip(
        drawn.choices, own_answers(opened, PROMPT, n=3, seed=7, max_new_tokens=20, **params), strict=True
    ):
        assert (choice.text, choice.finish_reason) == (text, reason)
        assert choice.logprobs.token_logprobs == pytest.approx(logprobs[: len(choice.logprobs.tokens)], abs=1e-4)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_chat_and_its_stream_are_the_engines_own(client, opened, seed):
    asked = {"model": "tiny", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 40, "seed": seed}
    ((text, reason, _),) = own_answers(opened, render_chatml(PROMPT), seed=seed, max_new_tokens=40)
    whole = client.chat.completions.create(**asked)
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (text, reason)
    with client.chat.completions.create(**asked, stream=True) as stream:
        chunks = [chunk.choices[0] for chunk in stream]
    assert "".join(chunk.delta.content or "" for chunk in chunks) == text
    assert chunks[-1].finish_reason == reason


def test_a_second_client_joins_the_batch_of_the_first(client, url, opened):
    asked = {"model": "tiny", "prompt": PROMPT, "max_tokens": LONG, "temperature": 0, "stream": True}
    first = iter(client.completions.create(**asked))
    begun = next(first).choices[0].text
    short = client.completions.create(model="tiny", prompt=PROMPT + "!", max_tokens=5, temperature=0)
    assert short.choices[0].text == own_answers(opened, PROMPT + "!", max_new_tokens=5, temperature=0)[0][0]
    assert "grrm_sequences_running 1.0\n" in requests.get(f"{url}/metrics", timeout=120).text  # the first goes on
    more = "".join(next(first).choices[0].text for _ in range(20))
    assert own_answers(opened, PROMPT, max_new_tokens=30, temperature=0)[0][0].startswith((begun + more)[:30])
    first.close()


def test_mistakes_are_the_clients_own_exceptions(client):
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.completions.create(model="other", prompt="a")
    with pytest.raises(openai.BadRequestError, match="logprobs is not supported") as caught:
        client.completions.create(model="tiny", prompt="a", logprobs=5, stream=True)
    assert caught.value.param == "logprobs"
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        client.completions.create(model="tiny", prompt=[5] * 30_000)


def test_the_openai_engine_of_ours_gets_what_the_engine_draws_here(url, checkpoint):
    prompts = [PROMPT, PROMPT + "!", "a"]
    params = {"temperature": 1.0, "top_p": 0.95, "max_new_tokens": 12, "seeds": [3, 4, 5]}
    remote = open_servers([url])
    try:
        own = open_checkpoint(checkpoint).generator.generate_text(prompts, **params)
        answered = remote.generator.generate_text(prompts, **params)
        assert answered == [replace(one, text=one.text.rstrip("\N{REPLACEMENT CHARACTER}")) for one in own]
        long = remote.generator.generate_text(["a" * 300_000], temperature=0.0, max_new_tokens=5)
        assert long[0].finish_reason == "too_long"
    finally:
        remote.generator.close()


def test_the_verifier_judge_works_against_it(url):
    remote = open_servers([url], unanswered="mark")
    judge = judge_over(remote.generator, VerifierOptions(mode="compat", retries=0), render=remote.render)
    answers = ("#### 4", "#### 5", "#### 4")
    group = Group(
        "g", TranslationTask("2 + 2?", "en", "en", "4"), tuple(Candidate(str(i), a, a) for i, a in enumerate(answers))
    )
    try:
        (verdict,) = judge.judge([group])
    finally:
        remote.generator.close()
    # An untrained model says nothing that contains `true`.
    assert verdict.statuses == (Status.SCORED, Status.SCORED, Status.DUPLICATE)
    assert verdict.scores == (0.0, 0.0, 0.0)


def test_a_token_is_asked_for_and_what_was_accepted_is_answered_before_the_end(checkpoint):
    with serving(checkpoint, "--token-env", "SERVE_TOKEN", SERVE_TOKEN="s3cret") as (process, url):
        assert requests.get(f"{url}/health", timeout=120).status_code == 200
        with pytest.raises(openai.AuthenticationError) as refusal:
            openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0).models.list()
        assert refusal.value.code == "invalid_api_key"
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="s3cret", max_retries=0)
        asked = {"model": "tiny", "prompt": PROMPT, "temperature": 0}
        stream = iter(client.completions.create(**asked, max_tokens=2000, stream=True))
        next(stream)
        with ThreadPoolExecutor(1) as threads:
            rest = threads.submit(lambda: [chunk.choices[0].finish_reason for chunk in stream])
            process.terminate()
            header = {"Authorization": "Bearer s3cret"}
            refused = requests.post(f"{url}/v1/completions", json=asked, headers=header, timeout=120)
            assert rest.result(120)[-1] in ("length", "stop")
        assert refused.status_code == 503
        assert process.wait(120) == 0


def test_chats_have_the_template_that_the_checkpoint_was_trained_with(checkpoint, tmp_path):
    folder = tmp_path / "trained"
    shutil.copytree(checkpoint, folder)
    write_trained_with(folder, TrainedWith(chat_template="none"))
    with serving(folder) as (_, url):
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        with pytest.raises(openai.BadRequestError, match="chat"):
            client.chat.completions.create(model="trained", messages=[{"role": "user", "content": PROMPT}])


def test_a_checkpoint_that_is_not_there_is_one_sentence(tmp_path):
    mistake(grrm("serve", tmp_path / "none", "--port", 0))
