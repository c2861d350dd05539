"""The stages that train the demo's own judges, a group judge (GQM) and a single one (SQM) of the same making."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grrm.demo.layout import Layout
from grrm.demo.results import rankings_file, seed_folder
from grrm.demo.settings import JUDGE_STEPS, JUDGED, SFT
from grrm.demo.stages import Stage

_RULES = {"gqm": "score", "sqm": "single_score"}


@dataclass(frozen=True, slots=True)
class JudgePlan:
    """Builds, for one seed, what lies between the SFT policy and reinforcement learning against a judge."""

    layout: Layout

    def stages(self, seed: int) -> list[Stage]:
        """The judges' data, their starts, two steps of training each, and how well they rank held-out groups."""
        stages = [self._data(seed)]
        for kind in JUDGED.values():
            stages += [self._start(kind, seed), self._sft(kind, seed), self._rlvr(kind, seed)]
        return [*stages, self._evaluate(seed)]

    def server(self, policy: str, seed: int) -> tuple[list[str], list[Path]]:
        """The options of the reward server that hosts the judge of `policy`, and the files it depends on."""
        kind = JUDGED[policy]
        name = _name(kind, JUDGE_STEPS[-1])
        options = [word for option in self._options(kind) for word in ("--judge-option", option)]
        return ["--judge", kind, "--model", str(self.layout.model(name, seed)), *options], self.layout.weights(
            name, seed
        )

    def _data(self, seed: int) -> Stage:
        settings, layout = self.layout.settings, self.layout
        folder = self._folder(seed)
        rows: list[object] = ["--train", layout.train_parquet, "--heldout", layout.heldout_parquet]
        rows += ["--train-rows", settings.judge_rows, "--heldout-rows", settings.judge_heldout_rows]
        options: list[object] = ["--samples", settings.judge_candidates, "--mixed-share", settings.judge_mixed_share]
        options += ["--prompt-type", settings.prompt_type, "--seed", seed, "--out", folder]
        return Stage(
            name=f"seed{seed}/{folder.name}",
            title=f"groups for the judges, seed {seed}",
            command=layout.module("prepare_judge", "data", "--policy", layout.model(SFT, seed), *rows, *options),
            folder=folder,
            inputs=[*layout.weights(SFT, seed), layout.train_parquet, layout.heldout_parquet],
            outputs=[folder / name for name in ("sft_gqm.jsonl", "rl_gqm.jsonl", "on_policy.parquet", "mixed.parquet")],
            ends_with_result=True,
        )

    def _start(self, kind: str, seed: int) -> Stage:
        settings, layout = self.layout.settings, self.layout
        name = f"{kind}-start"
        folder = layout.model(name, seed)
        options: list[object] = ["--kind", kind, "--candidates", settings.judge_candidates]
        options += ["--extra-layers", settings.judge_extra_layers, "--prompt-type", settings.prompt_type]
        return Stage(
            name=f"seed{seed}/{name}",
            title=f"{kind.upper()} before training, seed {seed}",
            command=layout.module(
                "prepare_judge", "start", "--policy", layout.model(SFT, seed), *options, "--seed", seed, "--out", folder
            ),
            folder=folder,
            inputs=layout.weights(SFT, seed),
            outputs=layout.weights(name, seed),
        )

    def _sft(self, kind: str, seed: int) -> Stage:
        settings, layout = self.layout.settings, self.layout
        start, data = layout.model(f"{kind}-start", seed), self._folder(seed) / f"sft_{kind}.jsonl"
        rows = settings.judge_batch_groups * (1 if kind == "gqm" else settings.judge_candidates)
        overrides: list[object] = ["--model_name_or_path", start, "--train_datasets", data]
        overrides += ["--per_device_train_batch_size", max(1, rows // settings.nproc)]
        return layout.training(
            _name(kind, SFT),
            seed,
            f"{kind.upper()}, SFT",
            "run_sft.py",
            layout.recipe("sft_gqm_tiny_argument.yaml"),
            overrides,
            [*layout.weights(f"{kind}-start", seed), data],
            settings.judge_sft_steps,
        )

    def _rlvr(self, kind: str, seed: int) -> Stage:
        layout = self.layout
        start, data = _name(kind, SFT), self._folder(seed) / f"rl_{kind}.jsonl"
        overrides: list[object] = ["--actor_model_name_or_path", layout.model(start, seed), "--train_datasets", data]
        overrides += ["--rule_reward", _RULES[kind]]
        return layout.training(
            _name(kind, "rlvr"),
            seed,
            f"{kind.upper()}, RLVR",
            "run_rl.py",
            layout.recipe("rlvr_grrm_tiny_argument.yaml"),
            overrides,
            [*layout.weights(start, seed), data],
            layout.settings.judge_rl_steps,
            ("reward_mean",),
        )

    def _evaluate(self, seed: int) -> Stage:
        layout, out = self.layout, rankings_file(self.layout.out, seed)
        names = [(kind, step) for kind in JUDGED.values() for step in JUDGE_STEPS]
        judges = [f"{kind}.{step}={kind}:{layout.model(_name(kind, step), seed)}" for kind, step in names]
        files = [self._folder(seed) / f"{name}.parquet" for name in ("on_policy", "mixed")]
        options = [word for judge in judges for word in ("--judge", judge)]
        options += [word for file in files for word in ("--groups", f"{file.stem}={file}")]
        for kind in JUDGED.values():
            options += [word for option in self._options(kind) for word in (f"--{kind}-option", option)]
        return Stage(
            name=f"seed{seed}/{out.parent.name}",
            title=f"ranking accuracy of the judges, seed {seed}",
            command=layout.module("evaluate_judges", *options, "--out", out),
            folder=out.parent,
            inputs=[*files, *(file for kind, step in names for file in layout.weights(_name(kind, step), seed))],
            outputs=[out],
            ends_with_result=True,
        )

    def _options(self, kind: str) -> Sequence[str]:
        """How the judge is asked, wherever it is."""
        limits = ["max_new_tokens=48"]
        if kind == "sqm":
            return limits
        orders = self.layout.settings.judge_orders
        return [
            *limits,
            "prompt_type=score",
            f"max_candidates={self.layout.settings.judge_candidates}",
            f"permutations={orders}",
        ]

    def _folder(self, seed: int) -> Path:
        return seed_folder(self.layout.out, seed) / "judge-data"


def _name(kind: str, step: str) -> str:
    """The folder of a judge after a step of its training."""
    return f"{kind}-{step}"
