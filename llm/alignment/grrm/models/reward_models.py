"""Reward models in and out of their folders, and the scores they give.

A folder holds the backbone as an ordinary checkpoint, the head's weights beside it, `reward_model.json`, which says
what head it is, and `grrm.json`, which says what it was trained with. The head of a pairwise model is LLaMA-Factory's
`value_head.safetensors`, which is read without the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save_file

from grrm.errors import UserError, require_known
from grrm.models.gathered_weights import Weights, save_policy
from grrm.models.hub import REWARD_MODEL_FILES, checkpoint_folder
from grrm.models.policy import load_policy
from grrm.models.ranker import Ranker
from grrm.models.trained_with import OLDER_KEY, read_trained_with, write_trained_with
from grrm.models.value_head import CandidateGroup, PairwiseModel, RewardModel

KINDS: dict[str, Any] = {"pairwise": PairwiseModel, "ranker": Ranker}
SETTINGS_FILE, *_HEAD_FILES = REWARD_MODEL_FILES
HEAD_FILES = dict(zip(("pairwise", "ranker"), _HEAD_FILES, strict=True))
_VALUE_HEAD = "v_head.summary."  # LLaMA-Factory's names; its weight is [1, H]
_NUMBERS: dict[str, Any] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}


def with_new_head(
    kind: str, backbone: Any, *, compare: str = "none", blocks: int = 2, width: int | None = None, seed: int = 0
) -> RewardModel:
    """The policy `backbone` under a new head; `compare`, `blocks` and `width` are the ranker's.

    `width` None is the backbone's. Raises UserError for a kind or setting that does not exist.
    """
    require_known("reward model", kind, KINDS)
    settings = {"compare": compare, "blocks": blocks, "width": width} if kind == "ranker" else {}
    model: RewardModel = KINDS[kind](backbone, **settings, seed=seed)
    return model


def load_reward_model(directory: str | Path) -> RewardModel:
    """The reward model that `save_reward_model` or, if pairwise, LLaMA-Factory wrote, in eval mode.

    Raises UserError, one sentence, for a head that is missing, not whole or does not fit its backbone, and as
    `load_policy`.
    """
    directory = Path(directory)
    kind, settings = _read_settings(directory)
    trained_with = read_trained_with(directory)
    weights = _read_head(directory / HEAD_FILES[kind])
    backbone = load_policy(directory)
    try:
        model: RewardModel = KINDS[kind](backbone, **settings)
    except TypeError as error:
        raise _unreadable(directory, str(error)) from error
    _fill_head(model, weights, directory / HEAD_FILES[kind])
    model.trained_with = trained_with
    model.eval()
    return model


def cast_weights(model: RewardModel, dtype: str) -> None:
    """Weights to `dtype`, while the tables of rotary positions stay as precise as they are."""
    layers = model.sublayers(include_self=True)
    tables = [
        (layer, name, table.clone()) for layer in layers for name, table in layer.named_buffers(include_sublayers=False)
    ]
    model.to(dtype=dtype)
    for layer, name, table in tables:
        setattr(layer, name, table)


def fill_value_head(model: PairwiseModel, directory: str | Path) -> None:
    """Give `model` the value head in `directory`, if there is one. Raises UserError as `load_reward_model`."""
    path = checkpoint_folder(directory) / HEAD_FILES["pairwise"]
    if path.is_file():
        _fill_head(model, _read_head(path), path)


def take_over_head(model: RewardModel, directory: str | Path) -> None:
    """Give `model` the head of the reward model in `directory`; nothing where that is a policy.

    Raises UserError for a head of another kind or other settings, and as `load_reward_model`.
    """
    folder = checkpoint_folder(directory)
    if not any((folder / name).is_file() for name in REWARD_MODEL_FILES):
        return
    kind, settings = _read_settings(folder)
    own = model.settings()
    if kind != model.kind or any(own.get(name) != value for name, value in settings.items()):
        theirs, ours = (_described(*head) for head in ((kind, settings), (model.kind, own)))
        raise UserError(
            f"'{directory}' holds a reward model ({theirs}), which cannot go on as another ({ours}): set the keys of "
            "the argument file as there, or start from a policy"
        )
    _fill_head(model, _read_head(folder / HEAD_FILES[kind]), folder / HEAD_FILES[kind])


def _described(kind: str, settings: dict[str, Any]) -> str:
    return ", ".join([f"reward_model {kind}", *(f"{name} {value}" for name, value in settings.items())])


def save_reward_model(model: RewardModel, directory: str | Path, weights: Weights | None = None) -> None:
    """Write backbone, head and its settings; `weights` are the `gathered_weights` of the backbone."""
    directory = Path(directory)
    save_policy(model.backbone, directory, weights)
    save_file(_head_weights(model), directory / HEAD_FILES[model.kind], metadata={"format": "pt"})
    settings = {"kind": model.kind, **model.settings()}
    (directory / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n")
    write_trained_with(directory, model.trained_with)


def score_groups(model: RewardModel, groups: Sequence[CandidateGroup], *, max_tokens: int) -> list[list[float]]:
    """Scores of each group's candidates, without gradient, groups in their order.

    As many groups go through the model at once as have at most `max_tokens` tokens, a larger one alone. Raises
    ValueError for an empty prompt or response. Weights of a diverged training give scores that are not finite.
    """
    scores: list[list[float]] = [[] for _ in groups]
    was_training = model.training
    model.eval()
    with paddle.no_grad():
        for numbers in _batches(groups, max_tokens):
            scores_R = model(**model.collate([groups[number] for number in numbers])).tolist()
            for number in numbers:
                size = len(groups[number].responses)
                scores[number], scores_R = scores_R[:size], scores_R[size:]
    if was_training:
        model.train()
    return scores


def _batches(groups: Sequence[CandidateGroup], max_tokens: int) -> Iterator[list[int]]:
    """Numbers of the groups of each batch; those of like length go together, so that little is padded."""
    sizes = [len(group.prompt_ids) + sum(map(len, group.responses)) for group in groups]
    batch: list[int] = []
    for number in sorted(range(len(groups)), key=lambda number: -sizes[number]):
        if batch and sum(sizes[member] for member in batch) + sizes[number] > max_tokens:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _read_settings(directory: Path) -> tuple[str, dict[str, Any]]:
    """The kind of the reward model in a folder, and the settings of its head."""
    try:
        settings = json.loads((directory / SETTINGS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        if (directory / HEAD_FILES["pairwise"]).is_file():
            return "pairwise", {}
        raise UserError(
            f"'{directory}' has neither {SETTINGS_FILE} nor {HEAD_FILES['pairwise']}, so it holds no reward model: "
            "give the folder that its training wrote"
        ) from None
    except (OSError, ValueError) as error:
        raise _unreadable(directory, str(error)) from error
    if not isinstance(settings, dict) or settings.get("kind") not in KINDS:
        raise _unreadable(directory, f"its kind is none of {', '.join(KINDS)}")
    settings.pop(OLDER_KEY, None)
    return settings.pop("kind"), settings


def _unreadable(directory: Path, cause: str) -> UserError:
    return UserError(f"'{directory / SETTINGS_FILE}' does not describe a reward model ({cause}): get the folder again")


def _read_head(path: Path) -> dict[str, NDArray[np.float32]]:
    """Tensors of a safetensors file by their names, in float32."""
    try:
        stored = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
        return {name: _numbers(tensor) for name, tensor in stored}
    except FileNotFoundError:
        raise UserError(
            f"the reward model in '{path.parent}' lacks its head, {path.name}: get the folder again"
        ) from None
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"'{path}' cannot be read ({error}): the head is not whole, get it again") from error


def _numbers(tensor: dict[str, Any]) -> NDArray[np.float32]:
    stored: NDArray[Any] = np.frombuffer(tensor["data"], dtype=_NUMBERS[tensor["dtype"]])
    if tensor["dtype"] == "BF16":
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32).reshape(tensor["shape"])


def _head_weights(model: RewardModel) -> dict[str, NDArray[np.float32]]:
    """The head's weights as they are stored."""
    weights = {name: np.asarray(weight.astype("float32").numpy()) for name, weight in model.head.named_parameters()}
    if model.kind == "pairwise":
        return {_VALUE_HEAD + name: np.ascontiguousarray(parameter.T) for name, parameter in weights.items()}
    return weights


def _fill_head(model: RewardModel, weights: dict[str, NDArray[np.float32]], path: Path) -> None:
    needed = _head_weights(model)
    for name in sorted(needed.keys() | weights.keys()):
        have, need = (shapes[name].shape if name in shapes else None for shapes in (weights, needed))
        if have != need:
            raise UserError(
                f"the head '{path}' does not fit its backbone ({name} is {_shape(have)}, not {_shape(need)}): give the "
                "folder in which both were saved together"
            )
    for name, parameter in model.head.named_parameters():
        stored = weights[_VALUE_HEAD + name].T if model.kind == "pairwise" else weights[name]
        parameter.set_value(paddle.to_tensor(np.ascontiguousarray(stored)).astype(parameter.dtype))


def _shape(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else str(list(shape))
