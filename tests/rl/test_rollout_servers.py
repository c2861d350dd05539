"""RL runs whose rollouts a serving engine draws, with the weights of each step: its log-probabilities say so."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file
from support.fastdeploy_weights import Weights, split_qwen2
from support.rl_processes import TinyWorld, entry_command, metrics_of, one_rank, run, two_ranks
from support.rollout_server import RolloutServer

from grrm.engine.api import SamplingParams
from grrm.engine.paddle.engine import PaddleEngine
from grrm.errors import UserError
from grrm.models.checkpoint import TIED_HEAD, load_causal_lm
from grrm.models.tokenizer import load_tokenizer
from grrm.training.rollout_servers import SnapshotPublisher, WeightsPublisher


class Policy:
    """Serves the model in the folder it was given last, or of the weights that FastDeploy had of it."""

    def __init__(self, start: Path) -> None:
        self.start = start

    def load(self, folder: Path) -> None:
        self.engine = PaddleEngine(load_causal_lm(folder))

    def take(self, folder: Path, weights: Weights) -> None:
        model = load_causal_lm(self.start)
        parts = split_qwen2(weights, json.loads((folder / "config.json").read_text()))
        if model.config.tie_word_embeddings:
            parts[TIED_HEAD] = parts[TIED_HEAD].T
        for name, parameter in model.state_dict().items():
            parameter.set_value(parts.pop(name))
        assert not parts
        self.engine = PaddleEngine(model)

    def draw(self, prompt: list[int], n: int, temperature: float, seed: int) -> tuple[list[int], list[float]]:
        params = SamplingParams(max_new_tokens=n, temperature=temperature, seed=seed)
        (completion,) = self.engine.generate([prompt], params)
        return completion.token_ids, completion.logprobs


@pytest.fixture
def start(world: TinyWorld, closing: ExitStack, tmp_path: Path) -> Any:
    def build(api: str, policy: Policy | None = None) -> RolloutServer:
        eos = load_tokenizer(world.policy).eos_token_id
        return closing.enter_context(RolloutServer(api, policy or Policy(world.policy), tmp_path / "weights", eos))

    return build


def test_weights_are_left_whole_and_those_of_a_run_that_was_stopped_are_not_taken_for_newer(
    make_model: Any, tmp_path: Path
) -> None:
    policy = make_model()
    for leftover in ("step-7", "step-8"):
        (tmp_path / leftover).mkdir()
    publish = WeightsPublisher(policy, tmp_path, lambda work: work())
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
    publish = WeightsPublisher(policy, tmp_path, lambda work: work())
    weights = load_file(publish(1) / "model.safetensors")
    head, embedding = weights["lm_head.weight"], weights["model.embed_tokens.weight"]
    assert head.shape == embedding.shape
    assert (head == embedding).all() == tie


def test_a_folder_for_fastdeploy_has_what_a_server_is_started_on(make_model: Any, tmp_path: Path) -> None:
    policy, checkpoint, folder = make_model(), tmp_path / "policy", tmp_path / "served"
    checkpoint.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (checkpoint / name).write_text(name)
    publish = SnapshotPublisher(policy, folder, lambda work: work(), checkpoint)
    assert publish(1) == publish(2) == folder
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.json", "tokenizer.json"} | {f"model_state.tp0.{gpu}.pdparams" for gpu in range(16)}
    assert (folder / "config.json").read_text() == "config.json"
    in_place = SnapshotPublisher(policy, checkpoint, lambda work: work(), checkpoint)
    assert in_place(3) == checkpoint
    assert (checkpoint / "config.json").read_text() == "config.json"


def test_a_policy_that_fastdeploy_takes_no_weights_of_is_refused_before_a_step(make_model: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="set rollout_backend: vllm"):
        SnapshotPublisher(make_model("llama"), tmp_path, lambda work: work(), tmp_path)


def settings(tmp_path: Path, *servers: RolloutServer) -> dict[str, str]:
    return {
        "rollout_backend": servers[0].api,
        "rollout_servers": ",".join(server.url for server in servers),
        "rollout_weights_dir": str(tmp_path / "weights"),
        "temperature": "1.0",
        "min_dec_len": "0" if servers[0].api == "fastdeploy" else "1",
        "warmup_steps": "0",
    }


GAPS = {"fastdeploy": 0.03, "vllm": 1e-4}  # of a server whose weights are rounded to bfloat16, and of one with ours


def check(output: Path, api: str) -> None:
    """Trainer and server agree about every token, so the server had the weights of that very step."""
    lines = metrics_of(output)
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert all(line["logprob_gap_max"] < GAPS[api] for line in lines)
    assert all(line["rollout_is_mean"] == pytest.approx(1, abs=GAPS[api]) for line in lines)
    assert [line["rollout_weights_step"] for line in lines] == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("api", ["fastdeploy", "vllm"])
def test_a_server_draws_with_the_weights_of_each_step(api: str, start: Any, world: TinyWorld, tmp_path: Path) -> None:
    server = start(api)
    run(one_rank(entry_command(world, tmp_path / "out", **settings(tmp_path, server))))
    check(tmp_path / "out", api)
    assert server.loaded == ["step-0", "step-1", "step-2"]
    folders = [path.name for path in (tmp_path / "weights").iterdir() if path.is_dir()]
    assert sorted(folders) == (["step-1", "step-2"] if api == "vllm" else [])


@pytest.mark.slow
@pytest.mark.parametrize("api", ["fastdeploy", "vllm"])
def test_servers_sleep_while_both_ranks_train(api: str, start: Any, world: TinyWorld, tmp_path: Path) -> None:
    server = start(api)
    words = entry_command(world, tmp_path / "out", rollout_servers_sleep="true", **settings(tmp_path, server))
    run(two_ranks(words, tmp_path))
    check(tmp_path / "out", api)
    assert server.loaded == ["step-0", "step-1", "step-2"]
    assert server.paused


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
    server = start("vllm", FirstWeights(world.policy))
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
    check(tmp_path / "out", "fastdeploy")
    assert [server.loaded for server in servers] == [["step-0", "step-1", "step-2"]] * 2


@pytest.mark.slow
def test_a_server_that_is_gone_stops_the_run_with_a_sentence(start: Any, world: TinyWorld, tmp_path: Path) -> None:
    server = start("fastdeploy")
    server.failing.add("/v1/wakeup?tags=weight")
    command = entry_command(world, tmp_path / "out", rollout_deadline_s="5", **settings(tmp_path, server))
    done = run(one_rank(command), expect=2)
    assert f"generation server {server.url} did not answer to take over weights" in done.stderr
    assert "Traceback" not in done.stderr
