"""Every number of the demo in one place."""

from __future__ import annotations

from dataclasses import dataclass

from grrm.data.corpora.cldr import LANGUAGES

BASE, SFT = "base", "sft"
ALGORITHMS = ("grpo", "reinforce_plus_plus")
POLICIES = (BASE, SFT, *ALGORITHMS)
TITLES = {BASE: "untrained", SFT: "SFT", "grpo": "GRPO", "reinforce_plus_plus": "REINFORCE++"}
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
    heldout_rows: int = 1_000
    terms_rows: int = 500
    corpus_seed: int = 0
    vocab_size: int = 2048
    model_config: str = "llm/config/qwen/tiny_model_config.json"
    prompt_type: str = "Tower"
    extractor_type: str = "oneline"
    sft_batch_rows: int = 48
    sft_steps: int | None = None
    rl_steps: int | None = None
    eval_samples: int = 4
    untrained_samples: int = 1  # the untrained policy always writes up to the limit: slow, and the same every time
    eval_max_new_tokens: int = 64
    judge: str = "metric"
    nproc: int = 2

    @property
    def seeds(self) -> list[int]:
        """The seeds of the study."""
        return [self.first_seed + index for index in range(self.n_seeds)]
