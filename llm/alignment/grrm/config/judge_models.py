"""Judges whose models are on the training device beside the policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from grrm.config.model_shape import ModelShape, model_shape
from grrm.config.stage_config import RLConfig
from grrm.errors import UserError
from grrm.judges.generative import GenerativeOptions
from grrm.judges.sources import JudgeSource, read_sources

INSTRUCTIONS = 512  # tokens of a judge's prompt beside the texts, at most


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """A judge's model in `folder`; `shape` is None where that is not known.

    It writes replies that, with their prompts, have up to `positions` tokens; 0 for a reward model, which writes none.
    Where the argument file does not bound prompts, they hold what a group can have, and INSTRUCTIONS.
    """

    title: str
    folder: str
    shape: ModelShape | None
    positions: int = 0

    def is_parked(self, device: str) -> bool:
        """True if its weights are on the device only while it writes; on a CPU they have nowhere else to be."""
        return bool(self.positions) and device == "gpu"

    def weight(self, device: str) -> int:
        """Bytes of a weight: 16 bits on a GPU, as they are released, but for reward models and on a CPU."""
        return 2 if self.positions and device == "gpu" else 4


def judge_models(config: RLConfig) -> tuple[JudgeModel, ...]:
    """The models that a run loads into the trainer's process to judge, in the order of the file."""
    if config.use_rm_server or config.use_rule_reward:
        return ()
    if config.reward_model_name_or_path:
        return (_model("reward model", config.reward_model_name_or_path),)
    sources = read_sources(config.reward_sources) if config.reward_sources else ()
    return tuple(model for source in sources for model in _of_source(source, config))


def judge_folders(config: RLConfig) -> list[str]:
    """The folders of models that reward_sources names."""
    return [model.folder for model in judge_models(config)] if config.reward_sources else []


def _of_source(source: JudgeSource, config: RLConfig) -> Iterator[JudgeModel]:
    options = source.spec.read(source.options)
    if source.generates_locally and isinstance(options, GenerativeOptions):
        shown = (config.rollout_n if options.sees_group else 1) * config.max_dec_len
        yield _model(source.title, str(source.model), options, config.max_prompt_len + shown + INSTRUCTIONS)
    elif source.spec.needs == "reward model":
        yield _model(source.title, str(source.model))
    if source.fallback is not None:
        yield from _of_source(source.fallback, config)


def _model(title: str, folder: str, options: GenerativeOptions | None = None, longest_prompt: int = 0) -> JudgeModel:
    try:
        shape = model_shape(folder)
    except UserError:
        shape = None
    if options is None or shape is None:
        return JudgeModel(title, folder, shape)
    prompt_length = options.longest_prompt(min(longest_prompt, shape.positions))
    return JudgeModel(title, folder, shape, min(prompt_length + options.max_new_tokens, shape.positions))
