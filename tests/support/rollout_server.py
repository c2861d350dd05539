"""A serving engine for rollouts that holds every request to FastDeploy's or vLLM's schema, on a real socket.

What it refuses is what the real one refuses, ignores or does otherwise than a rollout needs; each is a 400, 422 or 500
with the reason. What it draws comes from a `Sampler` that a test gives it. FastDeploy's control calls follow its
docs/features/weight_update.md at d533d0c6e07451fcc5ac801376675d53999206b9, their answers its
tests/engine/test_control_request_response.py at df38cacfb3e89a2812c29741e1f6759d26679922.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from safetensors.numpy import load_file
from support.fastdeploy_weights import Shapes, Worker
from support.local_server import Handler, LocalServer

MODEL = "policy"


class Sampler(Protocol):
    """What is served."""

    def load(self, folder: Path) -> None:
        """Take over the weights in a folder, as vLLM does."""
        ...

    def take(self, folder: Path, weights: dict[str, Any]) -> None:
        """Take over FastDeploy's parameters, of the model whose config.json is in a folder."""
        ...

    def draw(self, prompt: list[int], n: int, temperature: float, seed: int) -> tuple[list[int], list[float]]:
        """`n` tokens, and the log-probability of each at the temperature."""
        ...


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Common(_Strict):
    """Fields that both have; one prompt of token ids."""

    model: str
    prompt: list[int] = Field(min_length=1)
    n: int = Field(default=1, ge=1, le=1)
    temperature: float | int = Field(ge=0)
    repetition_penalty: float | int = Field(gt=0)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | int | None = Field(default=None, ge=0, le=1)
    presence_penalty: float | int | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | int | None = Field(default=None, ge=-2, le=2)
    stop_token_ids: list[int]
    return_token_ids: bool
    logprobs: int | None = Field(default=None, ge=0)
    max_tokens: int = Field(ge=1)
    min_tokens: int = Field(ge=0)


class FastDeployRequest(_Common):
    """FastDeploy's CompletionRequest, as far as a rollout uses it."""

    seed: int = Field(ge=0, le=922337203685477580)
    top_p: float | int = Field(ge=0, le=1)
    temp_scaled_logprobs: bool = False

    @model_validator(mode="after")
    def _check(self) -> FastDeployRequest:
        if self.min_tokens:
            raise ValueError("min_tokens suppresses the checkpoint's own end token only")
        if self.temperature == 0:
            raise ValueError("temperature 0 is taken for 1")
        if self.logprobs is not None and not self.temp_scaled_logprobs and self.temperature != 1:
            raise ValueError("log-probabilities would not be those at the temperature")
        return self


class VllmRequest(_Common):
    """vLLM's CompletionRequest, as far as a rollout uses it."""

    seed: int = Field(ge=0, le=2**63 - 1)
    top_p: float | int = Field(gt=0, le=1)
    ignore_eos: bool

    @model_validator(mode="after")
    def _check(self) -> VllmRequest:
        if self.logprobs is not None and self.temperature not in (0, 1):
            raise ValueError("log-probabilities would be those before the temperature")
        if self.min_tokens > self.max_tokens:
            raise ValueError("min_tokens must be at most max_tokens")
        return self


class VllmReload(_Strict):
    weights_path: str


class VllmRpc(_Strict):
    method: str = Field(pattern="^reload_weights$")
    kwargs: VllmReload


class Refused(Exception):
    """An answer with another status than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class RolloutServer(LocalServer):
    """`api` is "fastdeploy", started with --model `root`, or "vllm". `eos` is the model's own end token.

    FastDeploy has the parameters `expected`, by default those of the Qwen2 in its folder. Without weights there it does
    not start, and is asked in vain.

    `log` has the paths that were asked for, `loaded` the folders or steps of weights that were taken over. Every path
    in `failing` is answered with 503. `version` is told with each completion where it is not None.
    """

    api: str
    sampler: Sampler
    root: Path
    eos: int
    token: str | None = None
    log: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    version: int | None = None
    paused: bool = False
    asleep: set[str] = field(default_factory=set)  # of vLLM: what has no memory
    expected: Shapes | None = None
    gpu: int = 0
    max_model_len: int = 2**20

    def __post_init__(self) -> None:
        self.worker = Worker(self.root, self.expected, self.gpu)
        super().__init__(self.serve)

    def serve(self, handler: Handler, content: bytes) -> None:
        if handler.command == "GET":
            return handler.reply(200, {"object": "list", "data": [{"id": MODEL, "max_model_len": self.max_model_len}]})
        while self.api == "vllm" and self.paused and handler.path == "/v1/completions":
            time.sleep(0.01)  # vLLM 0.32 holds requests until it goes on
        with self.lock:
            try:
                if self.token is not None and handler.headers.get("Authorization") != f"Bearer {self.token}":
                    raise Refused(401, "no token")
                return handler.reply(200, self.answer(handler.path, content))
            except Refused as refused:
                status, message = refused.status, str(refused)
            except ValidationError as error:
                status, message = 400, str(error.errors(include_url=False, include_input=False))
            return handler.reply(status, {"error": {"message": message}})

    def close(self) -> None:
        self.paused = False
        super().close()

    def answer(self, path: str, content: bytes) -> dict[str, Any]:
        self.log.append(path)
        if path in self.failing:
            raise Refused(503, "busy")
        if path == "/v1/completions":
            return self.complete(content)
        control = self.fastdeploy if self.api == "fastdeploy" else self.vllm
        return control(path, content)

    def fastdeploy(self, path: str, content: bytes) -> dict[str, Any]:
        parts = urlsplit(path)
        tags = dict(parse_qsl(parts.query)).get("tags", "weight,kv_cache")
        self.start_worker()
        try:
            if parts.path == "/v1/pause":
                self.paused = True
            elif parts.path == "/v1/resume":
                self.paused = False
            elif parts.path == "/v1/sleep":
                self.paused = True
                self.worker.sleep(tags)
            elif parts.path == "/v1/wakeup":
                self.wake(tags)
            elif parts.path == "/v1/update_weights":
                raise ModuleNotFoundError("No module named 'checkpoint_transfer'")
            else:
                raise Refused(404, f"no route {path}")
        except (OSError, TypeError, ValueError, RuntimeError, ImportError) as error:
            raise Refused(500, f"Failed run control method: Call Worker error: {error}") from error
        return {"request_id": "control-1", "status": "success", "error_message": None, "result": None}

    def start_worker(self) -> None:
        try:
            self.worker.start()
        except (OSError, RuntimeError) as error:
            raise Refused(503, f"nobody listens yet: {error}") from error

    def wake(self, tags: str) -> None:
        n_read = len(self.worker.steps)
        self.worker.wakeup(tags)
        if len(self.worker.steps) > n_read:
            self.sampler.take(self.root, self.worker.weights)
            self.loaded.append(self.worker.steps[-1])
        self.paused = False

    def vllm(self, path: str, content: bytes) -> dict[str, Any]:
        parts = urlsplit(path)
        if parts.path == "/pause":
            assert dict(parse_qsl(parts.query)) == {"mode": "abort", "clear_cache": "true"}
            self.paused = True
            return {"status": "paused"}
        if path == "/resume":
            self.paused = False
            return {"status": "resumed"}
        if parts.path in ("/sleep", "/wake_up"):
            return self.change_sleep(parts.path, dict(parse_qsl(parts.query)))
        if path != "/collective_rpc":
            raise Refused(404, f"no route {path}")
        if not self.paused:
            raise Refused(500, "requests under way would go on with other weights")
        if "weights" in self.asleep:
            raise Refused(500, "there is no memory for weights")
        self.take_over(Path(VllmRpc.model_validate_json(content).kwargs.weights_path))
        return {"results": [None]}

    def change_sleep(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        """As vLLM's executor does: what is done already is left out, and only all memory together resumes."""
        if path == "/sleep":
            assert query == {"level": "2", "mode": "abort"}
            self.paused, self.asleep = True, {"weights", "kv_cache"}
            return {"status": "sleeping", "level": 2}
        self.asleep -= {query["tags"]}
        self.paused = self.paused and bool(self.asleep)
        return {"status": "sleeping" if self.asleep else "awake", "tags": [query["tags"]]}

    def take_over(self, folder: Path) -> None:
        """Names other than the server's own would leave its weights as they are."""
        if not (folder / "model.safetensors").is_file():
            raise Refused(500, f"no weights in {folder}")
        names = set(load_file(folder / "model.safetensors"))
        if not all(name.startswith(("model.", "lm_head")) for name in names):
            raise Refused(500, "names are not of the form model....")
        self.sampler.load(folder)
        self.loaded.append(folder.name)

    def complete(self, content: bytes) -> dict[str, Any]:
        if self.paused:
            raise Refused(503, "paused")
        of_fastdeploy = self.api == "fastdeploy"
        if of_fastdeploy:
            self.start_worker()
            try:
                if not self.worker.has_cache:
                    raise RuntimeError("there is no KV cache")
                self.worker.check_weights()
            except RuntimeError as error:
                raise Refused(500, str(error)) from error
        request = (FastDeployRequest if of_fastdeploy else VllmRequest).model_validate_json(content)
        self.requests.append(json.loads(content))
        if request.model != MODEL:
            raise Refused(404, f"no model {request.model}")
        if request.max_tokens > self.max_model_len:
            raise Refused(400, f"max_tokens={request.max_tokens} is above max_model_len={self.max_model_len}")
        greedy = request.temperature == 0 or request.top_p == 0
        temperature = 0.0 if greedy else float(request.temperature)
        tokens, logprobs = self.sampler.draw(request.prompt, request.max_tokens, temperature, request.seed)
        ends = [*request.stop_token_ids, *([self.eos] if of_fastdeploy or not request.ignore_eos else [])]
        end = next((place for place, token in enumerate(tokens) if token in ends), None)
        if end is not None:
            tokens, logprobs, reason = tokens[: end + 1], logprobs[: end + 1], "stop"
        else:
            reason = "length"
        if of_fastdeploy and end is None:  # the last token allowed is an end token, whatever was drawn
            tokens[-1], logprobs[-1] = self.eos, -50.0
        elif of_fastdeploy:  # and an end token follows a stop token
            tokens, logprobs = [*tokens, self.eos], [*logprobs, 0.0]
        choice = {"index": 0, "text": "", "finish_reason": reason}
        choice["completion_token_ids" if of_fastdeploy else "token_ids"] = tokens
        if request.logprobs is not None:
            choice["logprobs"] = {"tokens": [""] * len(tokens), "token_logprobs": logprobs}
        answer: dict[str, Any] = {"id": "c", "object": "text_completion", "choices": [choice]}
        return answer if self.version is None else {**answer, "weight_version": self.version}
