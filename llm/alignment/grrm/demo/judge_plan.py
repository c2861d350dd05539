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
_DATA = ("train.parquet", "rl_gqm.jsonl", "rl_sqm.jsonl", "on_policy.parquet", "mixed.parquet")


@dataclass(frozen=True, slots=True)
class JudgePlan:
    """Builds, for one seed, what lies between the SFT policy and reinforcement learning against a judge."""

    layout: Layout

    def stages(self, seed: int) -> list[Stage]:
        """What the judges learn and grow from, both judges before and after RLVR, and how well they rank."""
        stages = [self._data(seed), self._reader_start(seed), self._reader(seed)]
        for kind in JUDGED.values():
            stages += [self._grow(kind, seed), self._rlvr(kind, seed)]
        return [*stages, self._evaluate(seed)]

    def server(self, policy: str, seed: int) -> tuple[list[str], list[Path]]:
        """The options of the reward server that hosts the judge of `policy`, and the files it depends on."""
        kind = JUDGED[policy]
        name = _name(kind, JUDGE_STEPS[-1])
        asked = [*self._options(kind, self.layout.settings.judge_live_orders)]
        if kind == "gqm":
            # What the policy writes again and again is likelier right; ranked are groups of different translations.
            asked.append("show_copies=true")
        options = [word for option in asked for word in ("--judge-option", option)]
        return ["--judge", kind, "--model", str(self.layout.model(name, seed)), *options], self.layout.weights(
            name, seed
        )

    def _data(self, seed: int) -> Stage:
        settings, layout = self.layout.settings, self.layout
        folder = self._folder(seed)
        rows: list[object] = ["--train", layout.train_parquet, "--heldout", layout.heldout_parquet]
        rows += ["--train-rows", settings.judge_rows, "--heldout-rows", settings.judge_heldout_rows]
        options: list[object] = ["--samples", settings.judge_candidates, "--mixed-share", settings.judge_mixed_share]
        options += ["--compared", settings.judge_compared]
        options += ["--prompt-type", settings.prompt_type, "--seed", seed, "--out", folder]
        return Stage(
            name=f"seed{seed}/{folder.name}",
            title=f"groups for the judges, seed {seed}",
            command=layout.module("prepare_judge", "data", "--policy", layout.model(SFT, seed), *rows, *options),
            folder=folder,
            inputs=[*layout.weights(SFT, seed), layout.train_parquet, layout.heldout_parquet],
            outputs=[folder / name for name in _DATA],
            ends_with_result=True,
        )

    def _reader_start(self, seed: int) -> Stage:
        settings, layout = self.layout.settings, self.layout
        name = "reader-start"
        folder, groups = layout.model(name, seed), self._folder(seed) / "train.parquet"
        options: list[object] = ["--groups", groups, "--candidates", settings.judge_candidates]
        options += ["--prompt-type", settings.prompt_type, "--seed", seed, "--out", folder]
        return Stage(
            name=f"seed{seed}/{name}",
            title=f"judges' words for the policy, seed {seed}",
            command=layout.module("prepare_judge", "reader", "--policy", layout.model(SFT, seed), *options),
            folder=folder,
            inputs=[*layout.weights(SFT, seed), groups],
            outputs=[*layout.weights(name, seed), folder / "expected.jsonl"],
            ends_with_result=True,
        )

    def _reader(self, seed: int) -> Stage:
        settings, layout = self.layout.settings, self.layout
        start = layout.model("reader-start", seed)
        overrides: list[object] = ["--model_name_or_path", start, "--train_datasets", start / "expected.jsonl"]
        overrides += ["--per_device_train_batch_size", max(1, settings.judge_sft_rows // settings.nproc)]
        return layout.training(
            "reader",
            seed,
            "judges, SFT",
            "run_sft.py",
            layout.recipe("sft_gqm_tiny_argument.yaml"),
            overrides,
            [*layout.weights("reader-start", seed), start / "expected.jsonl"],
            settings.judge_sft_steps,
        )

    def _grow(self, kind: str, seed: int) -> Stage:
        settings, layout = self.layout.settings, self.layout
        name, rows = _name(kind, SFT), self._folder(seed) / f"rl_{kind}.jsonl"
        folder = layout.model(name, seed)
        options: list[object] = ["--kind", kind, "--rows", rows, "--candidates", settings.judge_candidates]
        options += ["--free-layers", settings.judge_free_layers, "--seed", seed, "--out", folder]
        return Stage(
            name=f"seed{seed}/{name}",
            title=f"{kind.upper()}, grown from what SFT has taught, seed {seed}",
            command=layout.module("prepare_judge", "start", "--reader", layout.model("reader", seed), *options),
            folder=folder,
            inputs=[*layout.weights("reader", seed), rows],
            outputs=layout.weights(name, seed),
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
            asked = self._options(kind, layout.settings.judge_orders)
            options += [word for option in asked for word in (f"--{kind}-option", option)]
        return Stage(
            name=f"seed{seed}/{out.parent.name}",
            title=f"ranking accuracy of the judges, seed {seed}",
            command=layout.module("evaluate_judges", *options, "--out", out),
            folder=out.parent,
            inputs=[*files, *(file for kind, step in names for file in layout.weights(_name(kind, step), seed))],
            outputs=[out],
            ends_with_result=True,
        )

    def _options(self, kind: str, orders: int) -> Sequence[str]:
        """How the judge is asked; a group judge sees its candidates in so many orders."""
        limits = ["max_new_tokens=48"]
        if kind == "sqm":
            return limits
        candidates = self.layout.settings.judge_candidates
        return [*limits, "prompt_type=score", f"max_candidates={candidates}", f"permutations={orders}"]

    def _folder(self, seed: int) -> Path:
        return seed_folder(self.layout.out, seed) / "judge-data"


def _name(kind: str, step: str) -> str:
    """The folder of a judge after a step of its training."""
    return f"{kind}-{step}"
