"""Real engines: `make test-engines` installs them and runs these tests, which no other command collects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engines.engine_servers import SHAPE, EngineServer, Start
from support.rl_processes import TinyWorld
from support.tiny_policy import write_policy

# Its grammar of a JSON schema permits any number of blanks, of which a random model makes use.
WITHOUT_BLANKS = ("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}')


@pytest.fixture(scope="session", params=["tied", "untied"])
def policy_world(request: pytest.FixtureRequest, world: TinyWorld) -> TinyWorld:
    """A corpus and a policy whose output layer is the embedding, or one of its own."""
    folder = world.folder / request.param
    folder.mkdir(exist_ok=True)  # the order of tests may ask for it twice
    for file in world.policy.iterdir():
        if "token" in file.name:
            (folder / file.name).write_bytes(file.read_bytes())
    write_policy(folder, **SHAPE, tie_word_embeddings=request.param == "tied")
    return TinyWorld(world.folder, folder, world.rl_data)


@pytest.fixture(scope="session")
def exported(policy_world: TinyWorld) -> Path:
    """The policy as other engines load it."""
    from grrm.models.export import export_policy

    out = policy_world.policy.with_name(f"{policy_world.policy.name}-exported")
    if not out.exists():
        export_policy(policy_world.policy, out)
    return out


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers that end with the test."""
    servers: list[EngineServer] = []

    def start_server(kind: str, model: Path, *options: str) -> EngineServer:
        servers.append(EngineServer(kind, model, tmp_path / f"{kind}-{len(servers)}.log", *options))
        return servers[-1]

    yield start_server
    for server in servers:
        server.kill()


@pytest.fixture(scope="session")
def vllm(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    """A vLLM server of the policy, for tests that leave it running."""
    server = EngineServer("vllm", exported, tmp_path_factory.mktemp("vllm") / "log", *WITHOUT_BLANKS)
    yield server
    server.kill()
