"""Every number of the demo in one place."""

from __future__ import annotations

from dataclasses import dataclass

from grrm.data.corpora.cldr import LANGUAGES

BASE, SFT = "base", "sft"
GRPO, REINFORCE = "grpo", "reinforce_plus_plus"
GRPO_CONSENSUS, GRPO_RANKER = "grpo_consensus", "grpo_ranker"
METRIC, RANKER = "metric", "ranker"  # what the demo is about: algorithms against a metric, or judges
RL_RUNS = {METRIC: (GRPO, REINFORCE), RANKER: (GRPO, GRPO_CONSENSUS, GRPO_RANKER)}
POLICIES = (BASE, SFT, GRPO, REINFORCE, GRPO_CONSENSUS, GRPO_RANKER)
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
    "ranker_none": "ranker, each candidate by itself",
    "ranker_group": "ranker, candidates compared",
    # Of the study.
    "rm": "reward model on pairs",
    "ranker_none_large": "large ranker",
    "ranker_group_large": "large ranker, compared",
    "gqm_sft": "GQM, cold start",
    "gqm": "GQM",
    "gqm_ranker_sft": "GQM from ranker, cold start",
    "gqm_ranker": "GQM from ranker",
    "sqm_sft": "SQM, cold start",
    "sqm": "SQM",
    "grpo_rm": "GRPO, reward model on pairs",
    "grpo_ranker_none_large": "GRPO, large ranker",
    "grpo_ranker_group_large": "GRPO, large ranker, compared",
    "grpo_ranker_refreshed": "GRPO, retrained ranker",
    "grpo_gqm": "GRPO, GQM",
    "grpo_sqm": "GRPO, SQM",
    "grpo_mixture": "GRPO, mixture",
}


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What the demo trains and on what; None leaves a number to the recipe's YAML file.

    Seeds are `first_seed`, `first_seed + 1`, …; the corpus and the tokenizer are the same for all of them. Batches of
    `sft_batch_rows` rows and of `ranker_batch_groups` groups are divided among the `nproc` processes. Settings are
    chosen on the `dev_rows`; the report is about the `heldout_rows`, which share no text and no value with these.
    """

    n_seeds: int = 1
    first_seed: int = 1
    judge: str = RANKER
    languages: tuple[str, ...] = LANGUAGES
    train_rows: int = 40_000
    dev_rows: int = 1_000
    heldout_rows: int = 2_000
    corpus_seed: int = 1
    vocab_size: int = 2048
    model_config: str = "llm/config/qwen/tiny_model_config.json"
    prompt_type: str = "Tower"
    extractor_type: str = "oneline"
    sft_batch_rows: int = 48
    sft_steps: int | None = None
    rl_steps: int | None = None
    quick_rl_steps: int = 180  # where the demo is about the metric alone
    rl_eval_rows: int = 500  # of the dev rows, translated while RL goes on
    rl_eval_steps: int = 100
    eval_samples: int = 2
    untrained_samples: int = 1  # the untrained policy always writes up to the limit: slow, and the same every time
    eval_max_new_tokens: int = 64
    ranker_train_rows: int = 7_000  # source texts that the policy translates for the rankers to learn from
    ranker_heldout_rows: int = 500  # for their evaluation, of each held-out file
    ranker_candidates: int = 8  # translations of each
    ranker_max_new_tokens: int = 40  # as in the rollouts of the recipes
    ranker_batch_groups: int = 24
    ranker_steps: int | None = None
    nproc: int = 2

    @property
    def seeds(self) -> list[int]:
        """The seeds of the study."""
        return [self.first_seed + index for index in range(self.n_seeds)]

    @property
    def rl_runs(self) -> tuple[str, ...]:
        """The policies that reinforcement learning trains."""
        return RL_RUNS[self.judge]

    @property
    def steps_of_rl(self) -> int | None:
        """Training steps of every policy; None leaves them to the recipe."""
        return self.quick_rl_steps if self.judge == METRIC and self.rl_steps is None else self.rl_steps

    @property
    def headline(self) -> str:
        """The run that the demo is about."""
        return GRPO_RANKER if self.judge == RANKER else GRPO


def title_of(name: str) -> str:
    """What a run or a judge is called: a name that has no title of its own as it is."""
    return TITLES.get(name, name.replace("_", " "))
