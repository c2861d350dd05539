"""Work of a stage on one device at a time: tokens of a micro-batch, of a scoring pass, and of rollouts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.config.judge_models import JudgeModel, judge_models
from grrm.config.model_shape import Weight
from grrm.config.stage_config import DPOConfig, RewardModelConfig, RLConfig, SFTConfig, StageConfig

CANDIDATES = 8  # of a ranker's group, where the file does not say
_PACK_TOKENS = 4096  # of a reward model's row


@dataclass(frozen=True, slots=True)
class Workload:
    """Upper bounds, as if every row were as long as the file allows.

    `tokens` of a micro-batch in rows of up to `longest`, of which `scored` meet the output layer; `scored_only` are
    those of a pass without gradient. Rollouts hold `sequences` of up to `positions` tokens; none where that is 0.
    `judges` have their models on the same device. A critic has a backbone like the policy's, all of which is trained.
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

    @classmethod
    def of(cls, config: StageConfig, rows: int) -> Workload:
        """The work of a micro-batch of so many rows in the stage that `config` is of."""
        work = cls._of_stage(config, rows)
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
        return cls(tokens, longest, 0 if is_pairwise else tokens, frozen=("head",) if is_pairwise else ())

    @classmethod
    def _of_rl(cls, config: RLConfig, rows: int) -> Workload:
        positions = config.max_prompt_len + config.max_dec_len
        scoring = max(config.per_device_logprob_batch_size, 0)
        budget = config.max_tokens_per_micro_batch
        return cls(
            tokens=budget or rows * positions,
            longest=config.max_length if config.share_prompt else positions,
            scored=budget or rows * config.max_dec_len,
            scored_only=scoring * positions,
            sequences=config.rollout_max_num_seqs if config.rollout_backend == "paddle" else 0,
            positions=positions,
            has_reference=bool(config.kl_coeff or config.kl_loss_coeff),
            has_critic=ADVANTAGE_RULES[config.advantage_rule].needs_critic,
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
