"""Every number of the demo in one place."""

from __future__ import annotations

from dataclasses import dataclass

from grrm.data.corpora.cldr import LANGUAGES

BASE, SFT = "base", "sft"
ALGORITHMS = ("grpo", "reinforce_plus_plus")
METRIC, GRRM = "metric", "grrm"  # what the demo's reward comes from; with GRRM from the metric first, to compare
JUDGED = {"sqm": "sqm", GRRM: "gqm"}  # policies that GRPO trains against a judge of the demo's own, and its kind
JUDGE_STEPS = (SFT, "rlvr")
POLICIES = (BASE, SFT, *ALGORITHMS, *JUDGED)
TITLES = {
    BASE: "untrained",
    SFT: "SFT",
    "grpo": "GRPO",
    "reinforce_plus_plus": "REINFORCE++",
    "sqm": "GRPO, SQM",
    GRRM: "GRPO, GRRM",
}
TERMS = "terms"  # the harder corpus that every policy is scored on as well


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What the demo trains and on what; None leaves a number to the recipe's YAML file.

    Seeds are `first_seed`, `first_seed + 1`, …; the corpus and the tokenizer are the same for all of them. The SFT
    batch of `sft_batch_rows` rows is divided among the `nproc` processes.
    """

    n_seeds: int = 1
    first_seed: int = 1
    languages: tuple[str, ...] = LANGUAGES
    train_rows: int = 40_000
    heldout_rows: int = 2_000
    terms_rows: int = 500
    corpus_seed: int = 0
    vocab_size: int = 2048
    model_config: str = "llm/config/qwen/tiny_model_config.json"
    prompt_type: str = "Tower"
    extractor_type: str = "oneline"
    sft_batch_rows: int = 48
    sft_steps: int | None = None
    rl_steps: int | None = None
    eval_samples: int = 2
    untrained_samples: int = 1  # the untrained policy always writes up to the limit: slow, and the same every time
    eval_max_new_tokens: int = 64
    judge: str = METRIC
    judge_rows: int = 6000  # source texts that the policy translates for the judges to learn from
    judge_heldout_rows: int = 200
    judge_candidates: int = 8  # translations of each, so that a rollout group fits into one prompt
    judge_mixed_share: float = 0.3
    judge_free_layers: int = 1
    judge_sft_rows: int = 50
    judge_compared: int = 4  # candidates of a prompt of the group judge's RLVR
    judge_orders: int = 4  # in which the group judge sees held-out candidates; its scores are averaged
    judge_live_orders: int = 2  # the same where it rewards
    judge_sft_steps: int | None = None
    judge_rl_steps: int | None = None
    judged_rl_steps: int = 120  # of a policy against a judge, whose every step takes longer than the metric's
    judged_kl_loss_coeff: float = 0.5  # a learned judge is noisy, and wrong where the policy has not been before
    judged_frozen_layers: int = 1  # and embeddings: most of the gain for a third of what greedy loses
    judged_learning_rate: float = 1e-4  # noise in the weights costs greedy decoding by its square
    judged_temperature: float = 0.7  # nearer to greedy decoding, which at 1 pays for what samples gain
    nproc: int = 2

    @property
    def seeds(self) -> list[int]:
        """The seeds of the study."""
        return [self.first_seed + index for index in range(self.n_seeds)]

    @property
    def rl_runs(self) -> tuple[str, ...]:
        """The policies that reinforcement learning trains."""
        return (*ALGORITHMS, *JUDGED) if self.judge == GRRM else ALGORITHMS
