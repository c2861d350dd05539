"""The policy on serving engines: publishing its weights in a folder, and the engine that asks the servers."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import paddle
from safetensors import SafetensorError
from safetensors.paddle import save_file

from grrm.config.stage_config import RLConfig
from grrm.engine.api import Request, SamplingParams
from grrm.engine.openai_wire import completions_client
from grrm.engine.rollout_wire import ROLLOUT_APIS, FastDeployApi
from grrm.engine.server_engine import ServerEngine, WeightsCheck
from grrm.errors import UserError
from grrm.http_client.exchange import token_from_file
from grrm.models.checkpoint import TIED_HEAD
from grrm.models.export import transformers_name
from grrm.models.fastdeploy_snapshot import check_served, snapshot_weights, write_snapshot
from grrm.models.gathered_weights import Weights, gathered_weights, save_policy
from grrm.models.hub import TOKENIZER_FILES, checkpoint_folder
from grrm.models.token_scores import score_responses
from grrm.paddlenlp_api.training import TrainingArguments
from grrm.parallel.data_ranks import DataRanks, run_together

_CONFIG_FILES = ("config.json", "generation_config.json")
CHECKED_PROMPTS, CHECKED_TOKENS = 3, 32  # number of prompts, and the longest response, by which weights are checked


def build_server_engine(
    model: Any, config: RLConfig, args: TrainingArguments, ranks: DataRanks, check: WeightsCheck | None = None
) -> ServerEngine:
    """The engine over `rollout_servers`. Raises UserError when the settings cannot work."""
    api, processes = ROLLOUT_APIS[config.rollout_backend], ranks.processes()
    token = config.rollout_token_file
    client = completions_client(
        config.rollout_servers or [],
        token=None if token is None else token_from_file(token, f"rollout_token_file '{token}'"),
        read_timeout_s=config.rollout_deadline_s,
        deadline_s=config.rollout_deadline_s,
        max_connections=config.rollout_max_num_seqs,
    )

    def together(work: Callable[[], Any]) -> Any:
        own = work if processes.rank == 0 else lambda: None
        result = run_together("updating the rollout servers", own, processes, (UserError,))
        return processes.gather(result)[0]

    folder = Path(config.rollout_weights_dir or Path(args.output_dir) / "rollout_weights").absolute()
    publisher: WeightsPublisher
    if isinstance(api, FastDeployApi):
        publisher = SnapshotPublisher(model, folder, together, checkpoint_folder(config.actor_model_name_or_path))
    else:
        publisher = WeightsPublisher(model, folder, together)
    return ServerEngine(
        client,
        api,
        vocab_size=model.config.vocab_size,
        max_positions=model.config.max_position_embeddings,
        publish=publisher,
        together=together,
        max_staleness=config.rollout_max_staleness,
        model=config.rollout_model_name,
        check=check,
        releases=config.rollout_servers_sleep,
    )


def build_weights_check(
    model: Any, config: RLConfig, prompts: Sequence[Sequence[int]], sampling: SamplingParams, pad_id: int
) -> WeightsCheck | None:
    """The check of servers by samples of the first `prompts` as rollouts are sampled; None where it is off."""
    if not config.rollout_check_limit:
        return None
    n_tokens = min(sampling.max_new_tokens, CHECKED_TOKENS)
    params = replace(sampling, max_new_tokens=n_tokens, min_new_tokens=min(sampling.min_new_tokens, n_tokens))
    score = partial(
        score_responses,
        model,
        pad_id=pad_id,
        batch_size=config.per_device_logprob_batch_size,
        temperature=config.temperature,
        pack_tokens=config.pack_tokens,
    )
    requests = [Request(prompt, params, stream) for stream, prompt in enumerate(prompts[:CHECKED_PROMPTS])]
    return WeightsCheck(requests, score, config.rollout_check_limit)


class WeightsPublisher:
    """Leaves the weights of version N in `folder`/step-N, whole or not at all, and keeps the last two.

    Names and orientation are Hugging Face's.
    """

    def __init__(self, model: Any, folder: Path, together: Callable[[Callable[[], Any]], Any]) -> None:
        self._model, self._folder, self._together = model, folder, together
        self._retained: list[Path] = []

    def __call__(self, version: int) -> Path:
        """Write the model's weights of now. A collective. Raises UserError, on every rank, for an unusable folder."""
        weights = gathered_weights(self._model)
        self._together(lambda: self._write(version, weights))
        return self._target(version)

    def _write(self, version: int, weights: Weights | None) -> None:
        try:
            self._fill(version, weights)
        except (OSError, SafetensorError) as error:
            why = getattr(error, "strerror", error)
            raise UserError(
                f"rollout_weights_dir '{self._folder}' cannot be written ({why}): name another folder"
            ) from None

    def _target(self, version: int) -> Path:
        return self._folder / f"step-{version}"

    def _fill(self, version: int, weights: Weights | None) -> None:
        target = self._target(version)
        unfinished = target.with_name(f".{target.name}.part")
        for leftover in (unfinished, target):
            shutil.rmtree(leftover, ignore_errors=True)
        unfinished.mkdir(parents=True)
        save_policy(self._model, unfinished, {})  # what the weights need beside them
        named = self._model.state_dict() if weights is None else weights
        save_file(hugging_face_weights(self._model.config, named), unfinished / "model.safetensors", {"format": "pt"})
        os.replace(unfinished, target)
        self._retained = [*self._retained[-1:], target]
        for path in self._folder.iterdir():
            if re.fullmatch(r"step-\d+", path.name) and path not in self._retained:
                shutil.rmtree(path, ignore_errors=True)


class SnapshotPublisher(WeightsPublisher):
    """Leaves the weights of every version in the model folder of FastDeploy servers, in place of those before.

    What the folder needs beside them comes from `checkpoint`, the policy that training began with, so that servers can
    be started on it. Raises UserError for a policy that FastDeploy takes no weights of.
    """

    def __init__(
        self, model: Any, folder: Path, together: Callable[[Callable[[], Any]], Any], checkpoint: Path
    ) -> None:
        check_served(model.config.model_type)
        super().__init__(model, folder, together)
        self._checkpoint = checkpoint

    def _target(self, version: int) -> Path:
        return self._folder

    def _fill(self, version: int, weights: Weights | None) -> None:
        config = self._model.config
        self._folder.mkdir(parents=True, exist_ok=True)
        for name in (*_CONFIG_FILES, *TOKENIZER_FILES):
            source, target = self._checkpoint / name, self._folder / name
            if source.is_file() and not (target.exists() and target.samefile(source)):
                shutil.copyfile(source, target)
        named = self._model.state_dict() if weights is None else weights
        served = snapshot_weights(config.model_type, named, is_tied=config.tie_word_embeddings)
        write_snapshot(self._folder, served, version)


def hugging_face_weights(config: Any, weights: Weights) -> Weights:
    """A policy's weights as Hugging Face's class of the same architecture has them.

    There projections are [out, in]. An output layer that shares the embedding's weights is among them: vLLM on a CPU
    has a repacked copy of it, which only weights under its own name replace.
    """
    converted: Weights = {}
    for name, tensor in weights.items():
        theirs = transformers_name(name, has_tied_head=False)
        assert theirs is not None  # of a tied output layer only
        is_shared = name == TIED_HEAD and config.tie_word_embeddings
        is_projection = len(tensor.shape) == 2 and not is_shared and not name.endswith("embed_tokens.weight")
        converted[theirs] = paddle.transpose(tensor, [1, 0]).contiguous() if is_projection else tensor
    return converted
