"""Every number of the demo in one place."""

from __future__ import annotations

from dataclasses import dataclass

from grrm.data.corpora.cldr import LANGUAGES

BASE, SFT = "base", "sft"
STOCK = "stock"  # a pretrained model as it was published
GRPO, REINFORCE = "grpo", "reinforce_plus_plus"
GRPO_CONSENSUS, GRPO_RANKER = "grpo_consensus", "grpo_ranker"
METRIC, RANKER = "metric", "ranker"  # what the demo is about: algorithms against a metric, or judges
RL_RUNS = {METRIC: (GRPO, REINFORCE), RANKER: (GRPO, GRPO_CONSENSUS, GRPO_RANKER)}
RANKERS = {"ranker_none": "none", "ranker_group": "group"}  # trained both ways, by `compare`; the better one judges
CHOICE = "choice.json"  # beside the better ranker: which one it is
CONSENSUS = "consensus"
JUDGES = (CONSENSUS, *RANKERS)  # whose ranking is measured
TITLES = {
    BASE: "untrained",
    SFT: "SFT",
    GRPO: "GRPO, metric",
    REINFORCE: "REINFORCE++, metric",
    GRPO_CONSENSUS: "GRPO, consensus",
    GRPO_RANKER: "GRPO, ranker",
    CONSENSUS: "consensus",
    "judges": "the judges",
    "ranker_none": "ranker, each candidate by itself",
    "ranker_group": "ranker, candidates compared",
    # Of the pretrained model.
    STOCK: "as published",
    "logprob": "log-probability",
    "rm": "reward model on pairs",
    "sqm": "SQM",
    "sqm_expected": "SQM, expected scores",
    "gqm_sft": "GQM after SFT",
    "gqm_sft_expected": "GQM after SFT, expected scores",
    "gqm_sft_permuted": "GQM after SFT, several orders",
    "gqm": "GQM after RLVR",
    "gqm_expected": "GQM after RLVR, expected scores",
    "grpo_sqm": "GRPO, SQM",
    "grpo_gqm_sft": "GRPO, GQM after SFT",
    "grpo_gqm_orders": "GRPO, GQM over several orders",
    "grpo_embedding": "GRPO, embedder",
    "grpo_gqm": "GRPO, GQM after RLVR",
    "grpo_mixture": "GRPO, GQM and consensus",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that the demo shares with the study of a pretrained model.

    Seeds are `first_seed`, `first_seed + 1`, …; the corpus is the same for all of them. Batches of
    `ranker_batch_groups` groups are divided among the `nproc` processes. With the `dtype` "bfloat16" the operands of
    matrix products are rounded, in training and elsewhere.
    """

    n_seeds: int = 1
    first_seed: int = 1
    nproc: int = 2
    dtype: str = "float32"
    prompt_type: str = "Tower"
    extractor_type: str = "oneline"
    sft_steps: int | None = None
    rl_steps: int | None = None
    rl_overrides: tuple[object, ...] = ()  # of the recipe
    rl_eval_rows: int = 500  # of the dev rows, translated while RL goes on
    rl_eval_steps: int = 100
    eval_samples: int = 2
    untrained_samples: int = 1  # the untrained policy always writes up to the limit: slow, and the same every time
    eval_max_new_tokens: int = 64
    ranker_train_rows: int = 7_000  # source texts that the policy translates for the rankers to learn from
    ranker_dev_rows: int = 500  # for choices between them
    ranker_heldout_rows: int = 500  # for their evaluation
    ranker_candidates: int = 8  # translations of each
    ranker_max_new_tokens: int = 40  # as in the rollouts of the recipes
    ranker_batch_groups: int = 24
    save_steps: int | None = None  # between checkpoints, from which an interrupted training stage resumes
    ranker_overrides: tuple[object, ...] = ()  # of the recipes of reward models
    ranker_steps: int | None = None

    @property
    def seeds(self) -> list[int]:
        """All seeds."""
        return [self.first_seed + index for index in range(self.n_seeds)]

    @property
    def rl_runs(self) -> tuple[str, ...]:
        """The policies that reinforcement learning trains."""
        return ()

    @property
    def steps_of_rl(self) -> int | None:
        """Training steps of every policy; None leaves them to the recipe."""
        return self.rl_steps

    @property
    def headline(self) -> str:
        """The run that a report is about."""
        return GRPO_RANKER if GRPO_RANKER in self.rl_runs else GRPO


@dataclass(frozen=True, slots=True)
class DemoSettings(Settings):
    """The models, data and steps of the demo; None leaves a number to the recipe's YAML file.

    The tokenizer is the same for all seeds. Batches of `sft_batch_rows` rows are divided among the processes. Settings
    are chosen on the `dev_rows`; the report is about the `heldout_rows`, which share no text and no value with these.
    """

    judge: str = RANKER  # policies against a metric and the better ranker; METRIC: two algorithms, against it alone
    full: bool = False  # a policy against consensus, too; several seeds have one anyway
    languages: tuple[str, ...] = LANGUAGES
    train_rows: int = 40_000
    dev_rows: int = 1_000
    heldout_rows: int = 2_000
    corpus_seed: int = 1
    vocab_size: int = 2048
    model_config: str = "llm/config/qwen/tiny_model_config.json"
    sft_batch_rows: int = 48
    quick_rl_steps: int = 180  # where the demo is about the metric alone

    @property
    def rl_runs(self) -> tuple[str, ...]:
        """The policies that reinforcement learning trains."""
        with_consensus = self.full or self.n_seeds > 1
        return tuple(run for run in RL_RUNS[self.judge] if with_consensus or run != GRPO_CONSENSUS)

    @property
    def steps_of_rl(self) -> int | None:
        """Training steps of every policy; None leaves them to the recipe."""
        return self.quick_rl_steps if self.judge == METRIC and self.rl_steps is None else self.rl_steps


def title_of(name: str) -> str:
    """The title of a run or judge; a name without one stays as it is."""
    return TITLES.get(name, name.replace("_", " "))
