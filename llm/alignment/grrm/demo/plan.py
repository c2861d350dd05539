"""The demo's stages, from the corpus to the last evaluation."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from grrm.demo.results import scores_file, seed_folder
from grrm.demo.settings import ALGORITHMS, BASE, SFT, TERMS, TITLES, DemoSettings
from grrm.demo.stages import SERVER_PLACEHOLDER, Stage
from grrm.rl.metrics_log import FILE_NAME as METRICS_FILE

_RECIPES = Path("llm/config/qwen")
_SCRIPTS = Path("llm/alignment/grrm")
_WEIGHTS = "model.safetensors"
_TRAINING_TIMEOUT_S = 4 * 3600.0
_RL_METRICS = ("reward_mean", "kl")


@dataclass(frozen=True, slots=True)
class Plan:
    """Builds the stages of one demo; `root` is the checkout, `out` the folder everything is written to."""

    settings: DemoSettings
    root: Path
    out: Path

    def stages(self) -> list[Stage]:
        """All stages in the order in which they run."""
        stages = [self._corpus(), self._terms(), self._tokenizer(), self._convert()]
        for seed in self.settings.seeds:
            stages += [self._untrained(seed), self._evaluate(BASE, seed), self._sft(seed), self._evaluate(SFT, seed)]
            for algorithm in ALGORITHMS:
                stages += [self._rl(algorithm, seed), self._evaluate(algorithm, seed)]
        return stages

    @property
    def _data(self) -> Path:
        return self.out / "data"

    @property
    def _train_parquet(self) -> Path:
        return self._data / "corpus" / "train.parquet"

    @property
    def _terms_heldout(self) -> Path:
        return self._data / TERMS / "heldout.parquet"

    def _corpus(self) -> Stage:
        settings, folder = self.settings, self._data / "corpus"
        rows = ["--train-rows", settings.train_rows, "--heldout-rows", settings.heldout_rows]
        draw = ["--languages", ",".join(settings.languages), "--seed", settings.corpus_seed]
        return Stage(
            name="corpus",
            title="corpus",
            command=self._module("prepare", "corpus", "--out", folder, *rows, *draw),
            folder=folder,
            outputs=[self._train_parquet, folder / "heldout.parquet"],
            ends_with_result=True,
        )

    def _terms(self) -> Stage:
        settings, folder = self.settings, self._terms_heldout.parent
        draw = ["--languages", ",".join(settings.languages), "--seed", settings.corpus_seed]
        rows = ["--train", self._train_parquet, "--rows", settings.terms_rows]
        return Stage(
            name=TERMS,
            title="corpus of terms",
            command=self._module("prepare", "terms", "--out", folder, *rows, *draw),
            folder=folder,
            inputs=[self._train_parquet],
            outputs=[self._terms_heldout],
            ends_with_result=True,
        )

    def _tokenizer(self) -> Stage:
        settings, folder = self.settings, self._data / "tokenizer"
        options = ["--vocab-size", settings.vocab_size, "--prompt-type", settings.prompt_type]
        return Stage(
            name="tokenizer",
            title="tokenizer",
            command=self._module("prepare", "tokenizer", "--data", self._train_parquet, "--out", folder, *options),
            folder=folder,
            inputs=[self._train_parquet],
            outputs=[folder / "tokenizer.json"],
        )

    def _convert(self) -> Stage:
        folder = self._data / "converted"
        options = ["--prompt-type", self.settings.prompt_type]
        return Stage(
            name="convert",
            title="training files",
            command=self._module("prepare", "convert", "--data", self._train_parquet, "--out", folder, *options),
            folder=folder,
            inputs=[self._train_parquet],
            outputs=[folder / "sft.jsonl", folder / "rl.jsonl"],
        )

    def _untrained(self, seed: int) -> Stage:
        folder, config = self._model(BASE, seed), self.root / self.settings.model_config
        tokenizer = self._data / "tokenizer"
        return Stage(
            name=f"seed{seed}/untrained",
            title=f"untrained policy, seed {seed}",
            command=self._module(
                "prepare", "untrained", "--config", config, "--tokenizer", tokenizer, "--out", folder, "--seed", seed
            ),
            folder=folder,
            inputs=[config, tokenizer],
            outputs=[folder / _WEIGHTS, folder / "config.json"],
        )

    def _sft(self, seed: int) -> Stage:
        settings, folder = self.settings, self._model(SFT, seed)
        recipe, config = self._recipe("sft_tiny_argument.yaml"), self.root / settings.model_config
        data, tokenizer = self._data / "converted" / "sft.jsonl", self._data / "tokenizer"
        overrides: list[object] = ["--init_from_config", config, "--tokenizer_name_or_path", tokenizer]
        overrides += ["--train_datasets", data, "--output_dir", folder, "--seed", seed]
        overrides += ["--per_device_train_batch_size", max(1, settings.sft_batch_rows // settings.nproc)]
        return self._training(SFT, seed, "run_sft.py", recipe, overrides, [config, tokenizer, data], settings.sft_steps)

    def _rl(self, algorithm: str, seed: int) -> Stage:
        folder, start = self._model(algorithm, seed), self._model(SFT, seed)
        recipe, data = self._recipe(f"{algorithm}_grrm_tiny_argument.yaml"), self._data / "converted" / "rl.jsonl"
        overrides: list[object] = ["--reward_server", SERVER_PLACEHOLDER, "--actor_model_name_or_path", start]
        overrides += ["--train_datasets", data, "--output_dir", folder, "--seed", seed]
        inputs = [start / _WEIGHTS, start / "config.json", data]
        return self._training(algorithm, seed, "run_rl.py", recipe, overrides, inputs, self.settings.rl_steps)

    def _training(
        self,
        run: str,
        seed: int,
        script: str,
        recipe: Path,
        overrides: Sequence[object],
        inputs: Sequence[Path],
        steps: int | None,
    ) -> Stage:
        folder = self._model(run, seed)
        if steps is not None:
            overrides = [*overrides, "--max_steps", steps]
        return Stage(
            name=f"seed{seed}/{run}",
            title=f"{TITLES[run]}, seed {seed}",
            command=[*self._launcher(folder), str(self.root / _SCRIPTS / script), str(recipe), *map(str, overrides)],
            folder=folder,
            settings={"judge": self.settings.judge} if run in ALGORITHMS else {},
            inputs=[recipe, *inputs],
            outputs=[folder / _WEIGHTS, folder / "config.json"],
            metrics=folder / METRICS_FILE,
            total_steps=steps if steps is not None else _steps_in(recipe),
            shown=_RL_METRICS if run in ALGORITHMS else ("loss",),
            timeout_s=_TRAINING_TIMEOUT_S,
        )

    def _evaluate(self, policy: str, seed: int) -> Stage:
        settings, model = self.settings, self._model(policy, seed)
        data, scores = self._data / "corpus" / "heldout.parquet", scores_file(self.out, seed, policy)
        options: list[object] = ["--prompt-type", settings.prompt_type, "--extractor-type", settings.extractor_type]
        inputs = [model / _WEIGHTS, model / "config.json", self._data / "tokenizer", data]
        if policy in ALGORITHMS:
            options += ["--reference", self._model(SFT, seed)]
            inputs.append(self._model(SFT, seed) / _WEIGHTS)
        options += ["--extra-data", f"{TERMS}={self._terms_heldout}"]
        inputs.append(self._terms_heldout)
        samples = settings.untrained_samples if policy == BASE else settings.eval_samples
        options += ["--samples", samples, "--max-new-tokens", settings.eval_max_new_tokens]
        title = "the untrained policy" if policy == BASE else TITLES[policy]
        return Stage(
            name=f"seed{seed}/eval-{policy}",
            title=f"evaluation of {title}, seed {seed}",
            command=self._module(
                "evaluate_checkpoint", "--model", model, "--data", data, "--out", scores, "--seed", seed, *options
            ),
            folder=scores.parent,
            inputs=inputs,
            outputs=[scores],
            ends_with_result=True,
        )

    def _model(self, policy: str, seed: int) -> Path:
        return seed_folder(self.out, seed) / policy

    def _recipe(self, name: str) -> Path:
        return self.root / _RECIPES / name

    def _module(self, module: str, *arguments: object) -> list[str]:
        return [sys.executable, "-m", f"grrm.demo.{module}", *map(str, arguments)]

    def _launcher(self, folder: Path) -> list[str]:
        """The launcher for several processes; one process needs none."""
        if self.settings.nproc == 1:
            return [sys.executable]
        options = ["--nproc_per_node", str(self.settings.nproc), "--log_dir", str(folder / "rank-logs")]
        return [sys.executable, "-m", "paddle.distributed.launch", *options]


def _steps_in(recipe: Path) -> int | None:
    """`max_steps` of a recipe, None when it has none."""
    values: Any = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    steps = values.get("max_steps") if isinstance(values, dict) else None
    return steps if isinstance(steps, int) else None
