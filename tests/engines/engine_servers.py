"""Servers of real engines as processes: started on a checkpoint, killed, and started again at the same address."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import IO

import pytest
from support.rl_processes import ROOT

ENGINES = ROOT / ".engines"
READY_S = 600.0  # vLLM takes a minute or two on a busy machine
MODEL = "policy"
CONTEXT = 2048  # tokens
# Heads of 32 are the smallest that vLLM has kernels for on a CPU.
SHAPE = {"hidden_size": 128, "intermediate_size": 256, "max_position_embeddings": CONTEXT}


def vllm(model: Path, port: int) -> list[str]:
    """vLLM on a CPU, with the routes for weight updates."""
    options = ["--dtype", "float32", "--max-model-len", str(CONTEXT), "--enforce-eager", "--host", "127.0.0.1"]
    return [
        f"{ENGINES}/vllm/bin/vllm",
        "serve",
        str(model),
        "--served-model-name",
        MODEL,
        *options,
        "--port",
        str(port),
    ]


def llama_cpp(model: Path, port: int) -> list[str]:
    """The server of llama-cpp-python; `model` is a GGUF file."""
    options = [
        "--model",
        str(model),
        "--model_alias",
        MODEL,
        "--n_ctx",
        str(CONTEXT),
        "--port",
        str(port),
        "--seed",
        "0",
    ]
    options += ["--type_k", "0", "--type_v", "0"]  # a cache in float32
    return [f"{ENGINES}/llama_cpp/bin/python", "-m", "llama_cpp.server", *options, "--n_threads", "1"]


def grrm_serve(model: Path, port: int) -> list[str]:
    """The server of this package."""
    return [sys.executable, "-m", "grrm.cli", "serve", str(model), "--name", MODEL, "--port", str(port)]


COMMANDS: dict[str, Callable[[Path, int], list[str]]] = {"vllm": vllm, "llama_cpp": llama_cpp, "grrm": grrm_serve}
_SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


class EngineServer:
    """One server of `kind`, ready when constructed; `options` are appended to its command line.

    `executable` replaces the one of .engines.
    """

    def __init__(self, kind: str, model: Path, log: Path, *options: str, executable: Path | None = None) -> None:
        self.kind, self.log = kind, log
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        first, *rest = COMMANDS[kind](model, port)
        self._command = [str(executable or first), *rest, *options]
        if not Path(self._command[0]).exists():
            pytest.skip(f"{self._command[0]} is not installed: run `make test-engines`")
        self.start()

    @property
    def pid(self) -> int:
        """Of its first process."""
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._output: IO[bytes] = self.log.open("ab")
        self._process = subprocess.Popen(
            self._command,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=os.environ | _SETTINGS,
            cwd=self.log.parent,
            start_new_session=True,
        )
        try:
            self._wait_ready()
        except BaseException:  # an interrupt and a failed test too: no server may outlive its test
            self.kill()
            raise

    def _wait_ready(self) -> None:
        """Wait until it answers; fails the test where it ends instead."""
        gives_up = time.monotonic() + READY_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > gives_up:
                pytest.fail(f"{self.kind} did not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.5)

    def _answers(self) -> bool:
        try:
            self.ask("/v1/models")
        except urllib.error.HTTPError as error:
            return error.code == HTTPStatus.UNAUTHORIZED  # it asks for the key that `options` name
        except (OSError, urllib.error.URLError):
            return False
        return True

    def ask(self, path: str, body: bytes | None = None) -> bytes:
        """The answer to a GET, or with `body` to a POST."""
        request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            content: bytes = answer.read()
            return content

    def n_completions(self) -> int:
        """Completions that it has answered, by its log."""
        return self.log.read_text(errors="replace").count("POST /v1/completions")

    def kill(self) -> None:
        """`kill -9` of all its processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._output.close()


Start = Callable[..., EngineServer]
