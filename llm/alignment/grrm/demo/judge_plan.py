"""The stages that train the demo's rankers on what the policy itself draws, and that choose the one to judge."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grrm.demo.layout import Layout
from grrm.demo.results import rankings_file
from grrm.demo.settings import CONSENSUS, RANKER, RANKERS, SFT, TITLES
from grrm.demo.stages import Stage

_MODEL_FILES = ("model.safetensors", "config.json", "reward_model.json", "ranker_head.safetensors")


@dataclass(frozen=True, slots=True)
class JudgePlan:
    """Builds, for one seed, what lies between the SFT policy and reinforcement learning against a ranker."""

    layout: Layout

    def rows(self) -> Stage:
        """The rows that policies translate for the rankers: to learn from, to choose on, to report on."""
        settings, layout = self.layout.settings, self.layout
        counts = {
            layout.train_parquet: settings.ranker_train_rows,
            layout.dev_parquet: settings.ranker_heldout_rows,
            layout.heldout_parquet: settings.ranker_heldout_rows,
        }
        parts = [word for path, count in counts.items() for word in ("--part", path, count)]
        return Stage(
            name="ranker-rows",
            title="rows for the rankers",
            command=layout.module("prepare", "rows", *parts, "--out", self._rows),
            folder=self._rows,
            inputs=list(counts),
            outputs=[self._rows / path.name for path in counts],
            ends_with_result=True,
        )

    def stages(self, seed: int) -> list[Stage]:
        """Samples with gold scores, a ranker of either kind, how well they rank, and the one that judges."""
        files = ("train", "dev", "heldout")
        stages = [stage for name in files for stage in (self._samples(name, seed), self._gold(name, seed))]
        stages += [self._ranker(name, seed) for name in RANKERS]
        return [*stages, self._evaluate(seed), self._choose(seed)]

    def server(self, seed: int) -> tuple[list[str], list[Path]]:
        """The options of the reward server that hosts the chosen ranker, and the files it depends on."""
        folder = self.layout.model(RANKER, seed)
        options = ["--judge", "ranker", "--model", str(folder)]
        options += ["--judge-option", f"prompt_type={self.layout.settings.prompt_type}"]
        return options, self._model_files(folder)

    @property
    def _rows(self) -> Path:
        return self.layout.data / "ranker-rows"

    def _gold_file(self, name: str, seed: int) -> Path:
        return self.layout.model(f"gold-{name}", seed) / "groups.parquet"

    def _samples(self, name: str, seed: int) -> Stage:
        settings, layout = self.layout.settings, self.layout
        folder, rows = layout.model(f"samples-{name}", seed), self._rows / f"{name}.parquet"
        options: list[object] = ["--model", layout.model(SFT, seed), "--prompt-type", settings.prompt_type]
        options += ["--sampling-n", settings.ranker_candidates, "--temperature", 1, "--retry", 0, "--batch-rows", 256]
        options += ["--max-new-tokens", settings.ranker_max_new_tokens, "--seed", seed]
        out = folder / "samples.parquet"
        return Stage(
            name=f"seed{seed}/{folder.name}",
            title=f"samples of the SFT policy ({name}), seed {seed}",
            command=layout.grrm("translate", rows, *options, "--out", out),
            folder=folder,
            inputs=[*layout.weights(SFT, seed), rows],
            outputs=[out],
            ends_with_result=True,
        )

    def _gold(self, name: str, seed: int) -> Stage:
        samples, out = self.layout.model(f"samples-{name}", seed) / "samples.parquet", self._gold_file(name, seed)
        command = self.layout.grrm("rank", samples, "--judge", "text_metric", "--score-key", "scores", "--out", out)
        return Stage(
            name=f"seed{seed}/{out.parent.name}",
            title=f"their chrF against the reference ({name}), seed {seed}",
            command=command,
            folder=out.parent,
            inputs=[samples],
            outputs=[out],
            ends_with_result=True,
        )

    def _ranker(self, name: str, seed: int) -> Stage:
        settings, layout = self.layout.settings, self.layout
        train, dev = (self._gold_file(file, seed) for file in ("train", "dev"))
        overrides: list[object] = ["--model_name_or_path", layout.model(SFT, seed), "--compare", RANKERS[name]]
        overrides += ["--train_datasets", train, "--eval_datasets", dev, "--val_size", 0]
        overrides += ["--per_device_train_batch_size", max(1, settings.ranker_batch_groups // settings.nproc)]
        return layout.training(
            name,
            seed,
            TITLES[name],
            "run_reward.py",
            layout.recipe("ranker_tiny_argument.yaml"),
            overrides,
            [*layout.weights(SFT, seed), train, dev],
            settings.ranker_steps,
            ("loss", "eval_correlation"),
        )

    def _evaluate(self, seed: int) -> Stage:
        layout, out = self.layout, rankings_file(self.layout.out, seed)
        folders = {name: layout.model(name, seed) for name in RANKERS}
        options = [word for name, folder in folders.items() for word in ("--ranker", f"{name}={folder}")]
        files = {name: self._gold_file(name, seed) for name in ("dev", "heldout")}
        options += [word for name, path in files.items() for word in ("--groups", f"{name}={path}")]
        options += ["--prompt-type", layout.settings.prompt_type, "--baseline", CONSENSUS]
        return Stage(
            name=f"seed{seed}/{out.parent.name}",
            title=f"ranking accuracy of the judges, seed {seed}",
            command=layout.module("evaluate_judges", "measure", *options, "--out", out),
            folder=out.parent,
            inputs=[*files.values(), *(file for folder in folders.values() for file in self._model_files(folder))],
            outputs=[out],
            ends_with_result=True,
        )

    def _choose(self, seed: int) -> Stage:
        layout, ranking = self.layout, rankings_file(self.layout.out, seed)
        folder = layout.model(RANKER, seed)
        options = [word for name in RANKERS for word in ("--ranker", f"{name}={layout.model(name, seed)}")]
        return Stage(
            name=f"seed{seed}/{folder.name}",
            title=f"choice of the ranker on the dev rows, seed {seed}",
            command=layout.module("evaluate_judges", "choose", "--ranking", ranking, *options, "--out", folder),
            folder=folder,
            inputs=[ranking, *(file for name in RANKERS for file in self._model_files(layout.model(name, seed)))],
            outputs=[*self._model_files(folder), folder / "choice.json"],
            ends_with_result=True,
        )

    @staticmethod
    def _model_files(folder: Path) -> list[Path]:
        return [folder / name for name in _MODEL_FILES]
