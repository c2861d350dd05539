"""A real `grrm serve` over a tiny random model, which all tests share, and the same model in this process."""

from __future__ import annotations

import openai
import pytest
from support import reward_servers
from support.tiny_policy import write_tiny_checkpoint

from grrm.engine.open import open_model


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    return write_tiny_checkpoint(tmp_path_factory.mktemp("model") / "tiny", max_positions=30_000)


@pytest.fixture(scope="session")
def opened(checkpoint):
    return open_model(checkpoint)


@pytest.fixture(scope="session")
def url(checkpoint):
    with reward_servers.serving(["-m", "grrm.cli", "serve", str(checkpoint), "--port", "0"]) as (_, url):
        yield url


@pytest.fixture(scope="session")
def client(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
