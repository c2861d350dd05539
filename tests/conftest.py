"""Set up this process, and through what they inherit those that tests start, as the entry scripts set up theirs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from grrm import startup

if TYPE_CHECKING:
    import numpy as np
    from support.rl_processes import TinyWorld

# Tests run side by side and start ranks of their own: one thread each, or they take turns on the same cores.
os.environ["OMP_NUM_THREADS"] = "1"
# The processes that tests start compile our modules once, not each for itself, also where a shell asks for the latter.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
startup.flush_denormals = lambda: False  # not in this process, where property tests draw such numbers
startup.configure_process()

# How long an example takes says more about what else the machine does than about the code.
unhurried = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("unhurried", **unhurried)
hypothesis.settings.load_profile("unhurried")

# What a shell starts in the background ignores Ctrl-C, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


CPU_LIMIT_S = 20.0  # of a test that is not marked slow; what takes more is told at the end, and fails nothing


def cpu_seconds() -> float:
    """Spent by this process, and by those that it started and waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    before = cpu_seconds()
    try:
        return (yield)
    finally:
        spent_s = cpu_seconds() - before
        if spent_s > CPU_LIMIT_S and not any(item.get_closest_marker(name) for name in ("slow", "scale")):
            item.user_properties.append(("cpu_seconds", round(spent_s, 1)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed"):
        if spent_s := dict(report.user_properties).get("cpu_seconds"):
            terminalreporter.line(f"{report.nodeid} took {spent_s} CPU-seconds: cheaper, or marked slow?", yellow=True)


# Fixtures import what they need when they are first used: tests of what runs without paddle do not load it.


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    """What a test enters here is closed after it."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> TinyWorld:
    """A corpus of a few hundred phrases, its BPE, and a randomly initialised policy."""
    from support.rl_processes import TinyWorld
    from support.tiny_policy import write_policy

    from grrm.data.bpe import corpus_texts, train_bpe
    from grrm.data.convert import convert_to_src_tgt
    from grrm.data.corpora.phrases import build_phrases

    folder = tmp_path_factory.mktemp("world")
    build_phrases(folder, 200, 20, ["en", "de", "es"], seed=1)
    train_bpe(corpus_texts(folder / "train.parquet"), folder / "policy", vocab_size=512)
    convert_to_src_tgt(folder / "train.parquet", folder / "rl.jsonl", "Tower")
    write_policy(folder / "policy")
    return TinyWorld(folder, folder / "policy", folder / "rl.jsonl")


@pytest.fixture(scope="session")
def save_policy() -> Callable[..., None]:
    """Save a randomly initialised policy beside the tokenizer of a folder; further arguments change its shape."""
    from support.tiny_policy import write_policy

    return write_policy


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Any]:
    """Builds a tiny random Qwen2 or Llama."""
    from support.tiny_models import build_model

    return build_model


@pytest.fixture(scope="module")
def model(make_model: Callable[..., Any]) -> Any:
    """A tiny random Qwen2."""
    return make_model()


@pytest.fixture(scope="session")
def full_forward() -> Callable[[Any, Sequence[int]], np.ndarray]:
    """(T, V) logits of one sequence, the slow way."""
    from support.tiny_models import naive_logits

    return naive_logits


@pytest.fixture
def prompts() -> list[list[int]]:
    """Prompts of different lengths, some of them twice in a row."""
    import numpy as np
    from support.tiny_models import VOCAB

    rng = np.random.default_rng(3)
    distinct = [rng.integers(0, VOCAB, n).tolist() for n in (3, 17, 1, 16, 9, 33, 5)]
    return [prompt for prompt in distinct for _ in range(2)]


@pytest.fixture(scope="module")
def tab() -> Iterator[Any]:
    """A tab of a headless Chromium, whose pages must not complain."""
    from support.browser import browser_page

    with browser_page() as page:
        yield page
        assert page.complaints == []  # no error, and nothing that the security policy had to refuse
