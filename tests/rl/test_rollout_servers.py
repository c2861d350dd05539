"""RL runs whose rollouts a serving engine draws, with the weights of each step: its log-probabilities say so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file
from support.rl_processes import TinyWorld, entry_command, metrics_of, one_rank, run, two_ranks
from support.rollout_server import RolloutServer

from grrm.engine.api import SamplingParams
from grrm.engine.paddle.engine import PaddleEngine
from grrm.engine.rollout_wire import HUGGING_FACE, PADDLE
from grrm.models.checkpoint import load_causal_lm
from grrm.models.tokenizer import load_tokenizer
from grrm.training.rollout_servers import WeightsPublisher


class Policy:
    """Serves the model in the folder it was given last, in Paddle's layout or Hugging Face's."""

    def load(self, folder: Path) -> None:
        self.engine = PaddleEngine(load_causal_lm(folder))

    def draw(self, prompt: list[int], n: int, temperature: float, seed: int) -> tuple[list[int], list[float]]:
        params = SamplingParams(max_new_tokens=n, temperature=temperature, seed=seed)
        (completion,) = self.engine.generate([prompt], params)
        return completion.token_ids, completion.logprobs


@pytest.fixture
def start(world: TinyWorld, tmp_path: Path) -> Iterator[Any]:
    servers: list[RolloutServer] = []

    def build(api: str, policy: Policy | None = None) -> RolloutServer:
        eos = load_tokenizer(world.policy).eos_token_id
        servers.append(RolloutServer(api, policy or Policy(), tmp_path / "weights", eos))
        return servers[-1]

    yield build
    for server in servers:
        server.close()


@pytest.mark.parametrize("layout", [PADDLE, HUGGING_FACE])
def test_weights_are_left_whole_and_those_of_a_run_that_was_stopped_are_not_taken_for_newer(
    layout: str, make_model: Any, tmp_path: Path
) -> None:
    policy = make_model()
    for leftover in ("step-7", "step-8"):
        (tmp_path / leftover).mkdir()
    publish = WeightsPublisher(policy, tmp_path, layout, lambda work: work())
    for version in (5, 6, 7):
        place = publish(version)
        again = load_causal_lm(place)
        pairs = zip(policy.parameters(), again.parameters(), strict=True)
        assert all((one.numpy() == other.numpy()).all() for one, other in pairs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-6", "step-7"]


@pytest.mark.parametrize("tie", [True, False])
def test_an_output_layer_is_published_under_its_own_name_also_where_it_is_tied(
    tie: bool, make_model: Any, tmp_path: Path
) -> None:
    policy = make_model(tie_word_embeddings=tie)
    publish = WeightsPublisher(policy, tmp_path, HUGGING_FACE, lambda work: work())
    weights = load_file(publish(1) / "model.safetensors")
    head, embedding = weights["lm_head.weight"], weights["model.embed_tokens.weight"]
    assert head.shape == embedding.shape
    assert (head == embedding).all() == tie


def settings(tmp_path: Path, *servers: RolloutServer) -> dict[str, str]:
    return {
        "rollout_backend": servers[0].api,
        "rollout_servers": ",".join(server.url for server in servers),
        "rollout_weights_dir": str(tmp_path / "weights"),
        "temperature": "1.0",
        "min_dec_len": "0" if servers[0].api == "fastdeploy" else "1",
        "warmup_steps": "0",
    }


def check(output: Path) -> None:
    """Trainer and server agree about every token, so the server had the weights of that very step."""
    lines = metrics_of(output)
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert all(line["logprob_gap_max"] < 1e-4 for line in lines)
    assert all(line["rollout_is_mean"] == pytest.approx(1, abs=1e-4) for line in lines)
    assert [line["rollout_weights_step"] for line in lines] == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("api", ["fastdeploy", "vllm"])
def test_a_server_draws_with_the_weights_of_each_step(api: str, start: Any, world: TinyWorld, tmp_path: Path) -> None:
    server = start(api)
    run(one_rank(entry_command(world, tmp_path / "out", **settings(tmp_path, server))))
    check(tmp_path / "out")
    assert server.loaded == ["step-0", "step-1", "step-2"]
    assert sorted(path.name for path in (tmp_path / "weights").iterdir()) == ["step-1", "step-2"]


@pytest.mark.slow
def test_a_server_draws_a_step_ahead_while_the_trainer_updates(start: Any, world: TinyWorld, tmp_path: Path) -> None:
    server = start("vllm")
    run(one_rank(entry_command(world, tmp_path / "out", rollout_ahead="1", **settings(tmp_path, server))))
    first, second, third = metrics_of(tmp_path / "out")
    assert first["logprob_gap_max"] < 1e-4
    assert min(second["rollout_is_max"], third["rollout_is_max"]) > 1.01
    assert [line["rollout_weights_step"] for line in (first, second, third)] == [0, 0, 1]
    assert server.loaded == ["step-0", "step-1"]


class FirstWeights(Policy):
    """Serves the weights it was given first, whatever it is given later, as a server that keeps a copy would."""

    def load(self, folder: Path) -> None:
        if not hasattr(self, "engine"):
            super().load(folder)


@pytest.mark.slow
def test_a_server_that_keeps_the_weights_of_the_start_stops_every_rank(
    start: Any, world: TinyWorld, tmp_path: Path
) -> None:
    server = start("vllm", FirstWeights())
    command = entry_command(world, tmp_path / "out", **settings(tmp_path, server))
    done = run(two_ranks(command, tmp_path / "logs"), expect=None)
    assert done.returncode
    for rank in (0, 1):
        log = (tmp_path / f"logs/workerlog.{rank}").read_text()
        assert f"rollout server {server.url} differs from the trainer after the update to step 1" in log
        assert "Traceback" not in log


@pytest.mark.scale
def test_two_ranks_share_a_pool_of_servers(start: Any, world: TinyWorld, tmp_path: Path) -> None:
    servers = start("fastdeploy"), start("fastdeploy")
    run(two_ranks(entry_command(world, tmp_path / "out", **settings(tmp_path, *servers)), tmp_path / "logs"))
    check(tmp_path / "out")
    assert [server.loaded for server in servers] == [["step-0", "step-1", "step-2"]] * 2


@pytest.mark.slow
def test_a_server_that_is_gone_stops_the_run_with_a_sentence(start: Any, world: TinyWorld, tmp_path: Path) -> None:
    server = start("fastdeploy")
    server.failing.add("/v1/update_weights")
    command = entry_command(world, tmp_path / "out", rollout_deadline_s="5", **settings(tmp_path, server))
    done = run(one_rank(command), expect=2)
    assert f"generation server {server.url} did not answer to take over weights" in done.stderr
    assert "Traceback" not in done.stderr
