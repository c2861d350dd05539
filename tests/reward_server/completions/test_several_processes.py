"""`grrm serve` as several processes behind one port: replicas, and tensor ranks on CPUs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import requests
from support import reward_servers
from support.command_line import grrm, mistake

from grrm.engine.api import SamplingParams
from grrm_reward_server.completions.listing import complete_characters

pytestmark = pytest.mark.slow
PATIENCE_S = 120
PROMPTS = ["Translate Guten Morgen", "Guten Morgen", "Good morning", "Translate"]
PARAMS = {"max_tokens": 12, "temperature": 0.8, "n": 2, "logprobs": 0}


@pytest.fixture(scope="module")
def expected(opened):
    """By prompt: texts and log-probabilities of an engine in one process."""
    answers = {}
    for prompt in PROMPTS:
        params = [
            SamplingParams(max_new_tokens=12, temperature=0.8, seed=seed, stop_token_ids=opened.stop_token_ids)
            for seed in range(2)
        ]
        drawn = [opened.engine.generate([opened.encode(prompt)], one, [7])[0] for one in params]
        answers[prompt] = [(complete_characters(opened.decode, one.token_ids), one.logprobs) for one in drawn]
    return answers


@contextmanager
def serving(checkpoint, *options):
    """(process, URL) of a server, and the ids of the processes that it consists of."""
    command = ["-m", "grrm.cli", "serve", str(checkpoint), "--port", "0", *options]
    with reward_servers.serving(command, stderr=subprocess.PIPE) as (process, url):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield process, url, list(map(int, children))


def completed(url, prompt):
    body = {"model": "tiny", "prompt": prompt, "seed": 7, **PARAMS}
    answer = requests.post(f"{url}/v1/completions", json=body, timeout=PATIENCE_S)
    answer.raise_for_status()
    return [(choice["text"], choice["logprobs"]["token_logprobs"]) for choice in answer.json()["choices"]]


def check_answers(url, expected):
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        for prompt, answers in zip(PROMPTS, pool.map(lambda prompt: completed(url, prompt), PROMPTS), strict=True):
            assert [text for text, _ in answers] == [text for text, _ in expected[prompt]]
            for (_, logprobs), (_, own) in zip(answers, expected[prompt], strict=True):
                assert logprobs == pytest.approx(own[: len(logprobs)], abs=1e-4)


def has_accepted(pid):
    """True if a process holds connections beside the socket that all share."""
    mine = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            mine.add(os.readlink(link).removeprefix("socket:[").rstrip("]"))
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return any(line[9] in mine and line[3] == "01" for line in lines)


def check_all_accept(url, pids):
    """Connect until each process has accepted a connection: the others may still load when the first tells its URL."""
    deadline, waiting = time.monotonic() + PATIENCE_S, set(pids)
    while waiting:
        assert time.monotonic() < deadline, f"processes {waiting} accept no connection"
        with ExitStack() as stack:
            for _ in range(20):
                session = stack.enter_context(requests.Session())
                assert session.get(f"{url}/healthz", timeout=PATIENCE_S).status_code == 200
            waiting -= set(filter(has_accepted, waiting))


def test_replicas_answer_as_one_process_and_go_on_when_one_is_killed(checkpoint, expected):
    with serving(checkpoint, "--devices", "cpu:2") as (process, url, replicas):
        assert len(replicas) == 2
        check_all_accept(url, replicas)
        check_answers(url, expected)
        os.kill(replicas[0], signal.SIGKILL)
        line = next(line for line in process.stderr if "replica" in line)
        assert line.rstrip().endswith("replica 0 of 2 ended with signal 9: 1 go on")
        check_answers(url, expected)
        process.terminate()
        assert process.wait(PATIENCE_S) == 1


def test_tensor_ranks_answer_as_one_process_and_end_together(checkpoint, expected):
    with serving(checkpoint, "--devices", "cpu:2", "--tensor-parallel", "2") as (process, url, ranks):
        assert len(ranks) == 2
        check_answers(url, expected)
        endless = {"model": "tiny", "prompt": "a", "max_tokens": 20_000, "temperature": 0, "stream": True}
        with requests.post(f"{url}/v1/completions", json=endless, stream=True, timeout=PATIENCE_S) as stream:
            assert next(stream.iter_lines()).startswith(b"data: ")
            check_answers(url, expected)  # in the batch of the other
        check_answers(url, expected)  # which was left
        os.kill(ranks[1], signal.SIGKILL)
        assert process.wait(PATIENCE_S) == 1
        assert "replica 0 of 1 ended with signal 9: 0 go on" in process.stderr.read()
        assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)


def test_tensor_ranks_end_in_order(checkpoint, expected):
    with serving(checkpoint, "--devices", "cpu:2", "--tensor-parallel", "2") as (process, url, _):
        check_answers(url, expected)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def test_model_that_does_not_divide_is_refused(checkpoint):
    done = grrm("serve", checkpoint, "--port", "0", "--devices", "cpu:3", "--tensor-parallel", "3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("tensor_parallel_degree 3 does not divide the 4 attention heads") == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--tensor-parallel", "2"), "name them with --devices"),
        (("--devices", "cpu:3", "--tensor-parallel", "2"), "2 does not divide the 3 devices"),
        (("--devices", "gpu"), "give different GPUs"),
    ],
)
def test_devices_that_cannot_be_used_are_refused(checkpoint, options, sentence):
    assert sentence in mistake(grrm("serve", checkpoint, "--port", "0", *options))
