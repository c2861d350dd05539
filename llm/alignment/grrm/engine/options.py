"""Compatibility of options and back ends, for everything that opens a model: Python, the commands, the reward server.

Imports neither Paddle nor an engine, so that a command line or a settings file is checked at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from grrm.entry import GPU_EXTRA
from grrm.errors import UserError, require_known

SERVERS, PADDLE, FASTDEPLOY = "servers", "paddle", "fastdeploy"
REWARD_MODEL = "reward model"  # runs in this process and generates nothing
BACKENDS = (PADDLE, FASTDEPLOY)  # of a checkpoint folder; a model with URLs runs on servers
SERVER_WAIT_S = 10.0  # for one that a user has named to take a connection; then it is not there
AUTO_DTYPE = "auto"  # the checkpoint's own on a GPU, float32 on a CPU
BF16 = "bfloat16"
DTYPES = (AUTO_DTYPE, "float32", BF16)

_ON_SERVERS = "the model runs on the servers of {urls}"
_CHECKPOINT = "the model is a checkpoint"
_SCORES = {REWARD_MODEL: "a reward model runs in this process and generates nothing"}
_FASTDEPLOY_BATCHES = "FastDeploy plans its batches itself"
_FASTDEPLOY_MEMORY = "FastDeploy has its own gpu_memory_utilization"
# Option -> the back ends it has no effect with, and why. An option that is not here is one of servers.
NO_EFFECT: Mapping[str, Mapping[str, str]] = {
    "model": {},
    "urls": _SCORES,
    "chat_template": {},
    "backend": {SERVERS: _ON_SERVERS, **_SCORES},
    "dtype": {SERVERS: _ON_SERVERS, FASTDEPLOY: "FastDeploy computes in bfloat16"},
    "fastdeploy_options": {SERVERS: _ON_SERVERS, PADDLE: "the backend is paddle", **_SCORES},
    "max_num_seqs": {SERVERS: _ON_SERVERS, **_SCORES},
    "max_batched_tokens": {SERVERS: _ON_SERVERS, FASTDEPLOY: _FASTDEPLOY_BATCHES, **_SCORES},
    "memory_fraction": {SERVERS: _ON_SERVERS, FASTDEPLOY: _FASTDEPLOY_MEMORY, **_SCORES},
    "seed": {SERVERS: _ON_SERVERS, **_SCORES},
    "deadline": {PADDLE: "the backend is paddle", **_SCORES},
    "tokenizer": {PADDLE: _CHECKPOINT, FASTDEPLOY: _CHECKPOINT, **_SCORES},
    "token": {PADDLE: _CHECKPOINT, FASTDEPLOY: _CHECKPOINT, **_SCORES},
}
_OF_SERVERS = NO_EFFECT["token"]

# Names and types as in FastDeploy's parameter documentation. Others stay out: some of them load code from a file.
_FASTDEPLOY_TYPES: dict[str, tuple[type, ...]] = {
    "tensor_parallel_size": (int,),  # GPUs the weights are spread over
    "max_model_len": (int,),  # tokens of a prompt and its reply together; default: the model's positions
    "gpu_memory_utilization": (float, int),  # share of a GPU's memory for weights, activations and KV cache
    "quantization": (str,),  # wint8 or wint4: weights are rounded as they are loaded
    "enable_prefix_caching": (bool,),  # keep the KV cache of prompts' beginnings between requests
    "engine_worker_queue_port": (int,),  # a port of its own for each FastDeploy on a machine
}
FASTDEPLOY_OPTIONS = tuple(_FASTDEPLOY_TYPES)


@dataclass(frozen=True, slots=True)
class OptionNames:
    """The user's names of options: `names` by option (others as they are); `noun` precedes a name."""

    names: Mapping[str, str]
    noun: str = ""

    def __getitem__(self, option: str) -> str:
        return self.names.get(option, option)


def choose_back_end(specified: Collection[str], names: OptionNames, backend: str = PADDLE) -> str:
    """`SERVERS` where URLs are among the options set, else `backend`, one of `BACKENDS`.

    `specified` are the options that the user has set. Raises UserError, one sentence, for a back end that does not
    exist, an option that has no effect with the one chosen, and a checkpoint without a folder or without Paddle to run
    it.
    """
    require_known("backend", backend, BACKENDS)
    chosen = SERVERS if "urls" in specified else backend
    _refuse_without_effect(specified, names, chosen)
    if chosen != SERVERS:
        _check_checkpoint(
            specified, names, f", or a server with {names['urls']}", f", or name a server with {names['urls']}"
        )
    return chosen


def check_reward_model_options(specified: Collection[str], names: OptionNames) -> None:
    """Raises UserError as `choose_back_end` does, for the options of a reward model, which is a folder."""
    _refuse_without_effect(specified, names, REWARD_MODEL)
    _check_checkpoint(specified, names)


def _refuse_without_effect(specified: Collection[str], names: OptionNames, chosen: str) -> None:
    for option in specified:
        reason = NO_EFFECT.get(option, _OF_SERVERS).get(chosen)
        if reason is not None:
            because = reason.format(urls=names["urls"])
            remedy = " or ".join(["leave it out", *_remedies(option, chosen, names)])
            raise UserError(f"{names.noun}{names[option]} has no effect, as {because}: {remedy}")


def _check_checkpoint(specified: Collection[str], names: OptionNames, or_give: str = "", or_name: str = "") -> None:
    if "model" not in specified:
        raise UserError(f"no model is named: give the folder of a checkpoint with {names['model']}{or_give}")
    if find_spec("paddle") is None or find_spec("safetensors") is None:
        raise UserError(f"a checkpoint needs Paddle: `pip install 'paddle-grrm[cpu]'`, on a GPU {GPU_EXTRA}{or_name}")


def _remedies(option: str, chosen: str, names: OptionNames) -> list[str]:
    """Return ways to give the option an effect."""
    if chosen == SERVERS:
        return ["set it there"]
    if chosen == REWARD_MODEL:
        return ["use a judge that generates text"]
    refusing = NO_EFFECT.get(option, _OF_SERVERS)
    others = [f"set {names['backend']} to {backend}" for backend in BACKENDS if backend not in refusing]
    return others if SERVERS in refusing else [*others, f"name servers with {names['urls']}"]


def check_fastdeploy_options(options: Mapping[str, object]) -> dict[str, object]:
    """A copy of the options. Raises UserError for a name that FastDeploy does not have, or a value of another type."""
    for name, value in options.items():
        require_known("FastDeploy option", name, FASTDEPLOY_OPTIONS)
        types = _FASTDEPLOY_TYPES[name]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise UserError(f"FastDeploy option {name!r} is {value!r}: it must be of type {types[0].__name__}.")
        if isinstance(value, int | float) and not isinstance(value, bool) and not value > 0:
            raise UserError(f"FastDeploy option {name!r} is {value!r}: it must be above 0.")
    return dict(options)
