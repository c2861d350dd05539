"""Work of a stage on a device: tokens of a micro-batch, a scoring pass and rollouts; models of judges beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.config.model_shape import ModelShape, Weight, model_shape
from grrm.config.stage_config import DPOConfig, RewardModelConfig, RLConfig, SFTConfig, StageConfig
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


CANDIDATES = 8  # of a ranker's group, where the file does not say
_PACK_TOKENS = 4096  # of a reward model's row


@dataclass(frozen=True, slots=True)
class Workload:
    """Upper bounds, as if every row were as long as the file allows.

    `tokens` of a micro-batch in rows of up to `longest`, of which `scored` meet the output layer; `scored_only` are
    those of a pass without gradient, as in an evaluation. Rollouts hold `sequences` of up to `positions` tokens; none
    where that is 0. `judges` have their models on the same device. A critic has a backbone like the policy's, all of
    which is trained.
    """

    tokens: int
    longest: int
    scored: int
    scored_only: int = 0
    sequences: int = 0
    positions: int = 0
    has_reference: bool = False
    has_critic: bool = False
    critic_recompute: str = ""
    frozen_layers: int = 0
    frozen: tuple[str, ...] = ()
    lora_rank: int = 0
    lora_targets: tuple[str, ...] = ()
    judges: tuple[JudgeModel, ...] = ()
    ranker_blocks: int = 0  # above the policy of a ranker
    ranker_width: int = 0  # 0 is that of the policy
    ranker_span: int = 0  # tokens that see each other in these blocks

    @classmethod
    def of(cls, config: StageConfig, rows: int) -> Workload:
        """The work of a micro-batch of so many rows in the stage that `config` is of."""
        work = cls._of_stage(config, rows)
        if isinstance(config, SFTConfig | DPOConfig | RewardModelConfig) and config.evaluation_strategy != "no":
            work = replace(work, scored_only=work.tokens // rows * config.per_device_eval_batch_size)
        if not config.lora:
            return work
        targets = tuple(name.removesuffix("_proj") for name in config.lora_target_modules)
        return replace(work, lora_rank=config.lora_rank, lora_targets=targets)

    @classmethod
    def _of_stage(cls, config: StageConfig, rows: int) -> Workload:
        if isinstance(config, RLConfig):
            return cls._of_rl(config, rows)
        if isinstance(config, SFTConfig):
            tokens = rows * config.max_length
            return cls(tokens, config.max_length, tokens, frozen_layers=config.frozen_layers)
        if isinstance(config, DPOConfig):
            tokens = 2 * rows * config.max_length
            return cls(tokens, 2 * config.max_length, tokens, has_reference=True, frozen_layers=config.frozen_layers)
        assert isinstance(config, RewardModelConfig)
        is_pairwise = config.reward_model == "pairwise"
        tokens = rows * config.max_length * (2 if is_pairwise else CANDIDATES)
        longest = max(_PACK_TOKENS, config.max_length)
        if is_pairwise:
            return cls(tokens, longest, 0, frozen=("head",))
        span = config.max_length * (CANDIDATES if config.compare == "group" else 1)
        head = cls(tokens, longest, tokens, ranker_blocks=config.blocks, ranker_width=config.width or 0)
        return replace(head, ranker_span=span)

    @classmethod
    def _of_rl(cls, config: RLConfig, rows: int) -> Workload:
        positions = config.max_prompt_len + config.max_dec_len
        has_critic = ADVANTAGE_RULES[config.advantage_rule].needs_critic
        scoring = max(config.per_device_logprob_batch_size, config.per_device_value_batch_size * has_critic)
        budget = config.max_tokens_per_micro_batch
        return cls(
            tokens=budget or rows * positions,
            longest=config.max_length if config.share_prompt else positions,
            scored=budget or rows * config.max_dec_len,
            scored_only=scoring * positions,
            sequences=config.rollout_max_num_seqs if config.rollout_backend == "paddle" else 0,
            positions=positions,
            has_reference=bool(config.kl_coeff or config.kl_loss_coeff),
            has_critic=has_critic,
            critic_recompute=config.critic_recompute_granularity if config.critic_recompute else "",
            frozen_layers=config.frozen_layers,
            judges=judge_models(config),
        )

    def trained(self, weights: Iterable[Weight], hidden: int) -> Iterator[Weight]:
        """Those of the weights that are trained, or with LoRA the adapters of targets [in, out], one of them `hidden`:
        rank (in + out) numbers."""
        for weight in weights:
            if self.lora_rank:
                if weight.name in self.lora_targets:
                    yield replace(weight, numbers=self.lora_rank * (hidden + weight.numbers // hidden))
                continue
            is_low = weight.layer is not None and weight.layer < self.frozen_layers
            is_embedding = weight.name == "embedding" and self.frozen_layers > 0
            if not (is_low or is_embedding or weight.name in self.frozen):
                yield weight

    def head(self, shape: ModelShape) -> Iterator[Weight]:
        """Weights of a ranker above the policy, all of which are trained: see `RankerHead`."""
        width = self.ranker_width or shape.hidden
        if self.ranker_blocks:
            yield Weight("features", (3 * shape.hidden + 2) * width)
        for _ in range(self.ranker_blocks):
            yield Weight("block", 12 * width * width)  # four of attention, three of 8/3 in the feed-forward layer
