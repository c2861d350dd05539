"""The stages that train the demo's rankers on what the policy itself draws, and that choose the one to judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grrm.demo.layout import Layout
from grrm.demo.results import rankings_file
from grrm.demo.settings import CONSENSUS, RANKER, RANKERS, SFT, title_of
from grrm.demo.stages import Stage

GOLD_FILE = "groups.parquet"
ROWS = "ranker-rows"  # the folder of what policies translate for the rankers
_HEADS = {"ranker": "ranker_head.safetensors", "rm": "value_head.safetensors"}


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
        return self.first_rows(ROWS, counts)

    def first_rows(self, name: str, counts: Mapping[Path, int]) -> Stage:
        """The first so many rows of some files, in a folder of the data that all seeds share."""
        folder = self.layout.data / name
        parts = [word for path, count in counts.items() for word in ("--part", path, count)]
        return Stage(
            name=name,
            title="rows for the rankers",
            command=self.layout.module("prepare", "rows", *parts, "--out", folder),
            folder=folder,
            inputs=list(counts),
            outputs=[folder / path.name for path in counts],
            ends_with_result=True,
        )

    def stages(self, seed: int) -> list[Stage]:
        """Samples with gold scores, a ranker of either kind, how well they rank, and the one that judges."""
        rows, samples = self.layout.data / ROWS, self.layout.settings.ranker_candidates
        stages = []
        for name in ("train", "dev", "heldout"):
            stages += [self.samples(name, seed, rows / f"{name}.parquet", samples), self.gold(name, seed)]
        for name, compare in RANKERS.items():
            steps, options = self.layout.settings.ranker_steps, ("--compare", compare)
            stages.append(self.reward_model(name, seed, "gold-train", "ranker_tiny_argument.yaml", steps, options))
        return [*stages, self._evaluate(seed), self._choose(seed)]

    def gold_file(self, name: str, seed: int) -> Path:
        """Groups with gold scores."""
        return self.layout.model(f"gold-{name}", seed) / GOLD_FILE

    def server(self, judge: str, folder: Path) -> tuple[list[str], list[Path]]:
        """The options of the reward server that hosts a reward model, and the files it depends on."""
        options = ["--judge", judge, "--model", str(folder)]
        return [*options, "--judge-option", f"prompt_type={self.layout.settings.prompt_type}"], files(judge, folder)

    def samples(self, name: str, seed: int, rows: Path, count: int, policy: str = SFT) -> Stage:
        """What a policy draws for each of some rows."""
        settings, layout = self.layout.settings, self.layout
        folder = layout.model(f"samples-{name}", seed)
        options: list[object] = ["--model", layout.model(policy, seed), "--prompt-type", settings.prompt_type]
        options += ["--sampling-n", count, "--temperature", 1, "--retry", 0, "--batch-rows", 256]
        options += ["--max-new-tokens", settings.ranker_max_new_tokens, "--seed", seed]
        out = folder / "samples.parquet"
        return Stage(
            name=f"seed{seed}/{folder.name}",
            title=f"samples of the {title_of(policy)} policy ({name}), seed {seed}",
            command=layout.grrm("translate", rows, *options, "--out", out),
            folder=folder,
            inputs=[*layout.weights(policy, seed), rows],
            outputs=[out],
            ends_with_result=True,
        )

    def gold(self, name: str, seed: int) -> Stage:
        """The chrF of samples against the reference."""
        samples, out = self.layout.model(f"samples-{name}", seed) / "samples.parquet", self.gold_file(name, seed)
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

    def reward_model(
        self,
        name: str,
        seed: int,
        groups: str,
        recipe: str,
        steps: int | None,
        options: Sequence[object] = (),
        batch_groups: int | None = None,
        policy: str = SFT,
    ) -> Stage:
        """A reward model on a policy's layers that learns from a folder's groups, measured on the dev rows."""
        settings, layout = self.layout.settings, self.layout
        train, dev = layout.model(groups, seed) / GOLD_FILE, self.gold_file("dev", seed)
        overrides: list[object] = ["--model_name_or_path", layout.model(policy, seed), *options]
        overrides += ["--train_datasets", train, "--eval_datasets", dev, "--val_size", 0]
        batch = max(1, (batch_groups or settings.ranker_batch_groups) // settings.nproc)
        overrides += ["--per_device_train_batch_size", batch]
        return layout.training(
            name,
            seed,
            title_of(name),
            "run_reward.py",
            layout.recipe(recipe),
            overrides,
            [*layout.weights(policy, seed), train, dev],
            steps,
            ("loss", "eval_correlation"),
        )

    def _evaluate(self, seed: int) -> Stage:
        layout, out = self.layout, rankings_file(self.layout.out, seed)
        folders = {name: layout.model(name, seed) for name in RANKERS}
        options = [word for name, folder in folders.items() for word in ("--ranker", f"{name}={folder}")]
        sets = {name: self.gold_file(name, seed) for name in ("dev", "heldout")}
        options += [word for name, path in sets.items() for word in ("--groups", f"{name}={path}")]
        options += ["--prompt-type", layout.settings.prompt_type, "--baseline", CONSENSUS]
        return Stage(
            name=f"seed{seed}/{out.parent.name}",
            title=f"ranking accuracy of the judges, seed {seed}",
            command=layout.module("evaluate_judges", "measure", *options, "--out", out),
            folder=out.parent,
            inputs=[*sets.values(), *(file for folder in folders.values() for file in files("ranker", folder))],
            outputs=[out],
            ends_with_result=True,
        )

    def _choose(self, seed: int) -> Stage:
        layout, ranking = self.layout, rankings_file(self.layout.out, seed)
        folder = layout.model(RANKER, seed)
        options = [word for name in RANKERS for word in ("--ranker", f"{name}={layout.model(name, seed)}")]
        made = (file for name in RANKERS for file in files("ranker", layout.model(name, seed)))
        return Stage(
            name=f"seed{seed}/{folder.name}",
            title=f"choice of the ranker on the dev rows, seed {seed}",
            command=layout.module("evaluate_judges", "choose", "--ranking", ranking, *options, "--out", folder),
            folder=folder,
            inputs=[ranking, *made],
            outputs=[*files("ranker", folder), folder / "choice.json"],
            ends_with_result=True,
        )


def files(judge: str, folder: Path) -> list[Path]:
    """The files of a reward model that a stage depends on; `judge` is "ranker" or "rm"."""
    return [folder / name for name in ("model.safetensors", "config.json", "reward_model.json", _HEADS[judge])]
