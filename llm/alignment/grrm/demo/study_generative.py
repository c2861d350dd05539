"""The study's judges that write: GQM from two starting points, and SQM beside it, each a cold start and then RLVR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from grrm.demo.judge_plan import GOLD_FILE
from grrm.demo.layout import Layout
from grrm.demo.settings import SFT
from grrm.demo.stages import Stage

DATA = "gqm-groups"
CANDIDATES = 4  # of a prompt: more do not fit into the tiny policy's positions with an analysis behind them
_ROOM = ("--max_prompt_len", 320, "--max_dec_len", 192, "--max_length", 512)


@dataclass(frozen=True, slots=True)
class Kind:
    """A generative judge by the reward server's `name`.

    `starts` has each judge of the kind, and whose layers its cold start begins with; `augment` are options of the rows
    for RLVR, and `rule` its reward.
    """

    name: str
    starts: Mapping[str, str]
    options: tuple[str, ...]
    augment: tuple[object, ...]
    rule: str
    sft_steps: int
    rlvr_steps: int


GQM = Kind(
    "gqm",
    {"gqm": SFT, "gqm_ranker": "ranker_none_large"},
    ("prompt_type=ranking_score", f"max_candidates={CANDIDATES}", "max_new_tokens=200", "retries=1"),
    ("--subgroup-augment", 1, "--shuffle-augment", 1),
    "ranking_score",
    sft_steps=200,  # of prompts with four candidates: 5 s each on two cores
    rlvr_steps=40,  # 25 to 40 s each
)
SQM = Kind(
    "sqm",
    {"sqm": SFT},
    ("max_new_tokens=200", "retries=1"),
    (),
    "single_score",
    sft_steps=600,
    rlvr_steps=100,
)


@dataclass(frozen=True, slots=True)
class GenerativePlan:
    """Builds, for one seed, the stages of one kind of judges that analyse and score in text, with GRRM's prompts."""

    layout: Layout
    kind: Kind

    def judges(self, seed: int) -> dict[str, Path]:
        """Every judge to be measured and its folder: after the cold start, and after RLVR."""
        return {name: self.layout.model(name, seed) for start in self.kind.starts for name in (f"{start}_sft", start)}

    def server(self, judge: str, seed: int) -> tuple[list[str], list[Path]]:
        """The options of the reward server that hosts a judge, and the files it depends on."""
        options = [word for option in self.kind.options for word in ("--judge-option", option)]
        model = ["--judge", self.kind.name, "--model", str(self.layout.model(judge, seed))]
        return [*model, *options], self.layout.weights(judge, seed)

    def measured(self, seed: int) -> tuple[list[str], list[Path]]:
        """The options that have these judges measured, and the files that this depends on."""
        judges, name = self.judges(seed), self.kind.name
        options = [word for judge, folder in judges.items() for word in (f"--{name}", f"{judge}={folder}")]
        options += [word for option in self.kind.options for word in (f"--{name}-option", option)]
        return options, [file for judge in judges for file in self.layout.weights(judge, seed)]

    def stages(self, seed: int) -> list[Stage]:
        """What both training stages read, made of `groups`, and the judges."""
        stages = [self._convert(f"sft-{self.kind.name}", seed), self._convert(f"rl-{self.kind.name}", seed)]
        for judge, start in self.kind.starts.items():
            stages += [self._sft(judge, start, seed), self._rlvr(judge, seed)]
        return stages

    def groups(self, seed: int) -> Stage:
        """Annotated groups of the policy's samples, which all kinds learn from."""
        samples, folder = self.layout.model("samples-train", seed) / "samples.parquet", self.layout.model(DATA, seed)
        options = ["--group-size", CANDIDATES, "--groups-per-row", 2, "--mixed-share", 0.3, "--seed", seed]
        scale = ["--fit-scale", folder / "scale.json"]
        return Stage(
            name=f"seed{seed}/{DATA}",
            title=f"annotated groups for the GQM, seed {seed}",
            command=self.layout.grrm("data", "groups", samples, folder / GOLD_FILE, *options, *scale),
            folder=folder,
            inputs=[samples],
            outputs=[folder / GOLD_FILE],
            ends_with_result=True,
        )

    def _convert(self, command: str, seed: int) -> Stage:
        groups, folder = self.layout.model(DATA, seed) / GOLD_FILE, self.layout.model(f"data-{command}", seed)
        options = self.kind.augment if command.startswith("rl-") else ()
        return Stage(
            name=f"seed{seed}/{folder.name}",
            title=f"{command} rows, seed {seed}",
            command=self.layout.grrm("data", command, groups, folder / "rows.jsonl", *options, "--seed", seed),
            folder=folder,
            inputs=[groups],
            outputs=[folder / "rows.jsonl"],
            ends_with_result=True,
        )

    def _sft(self, judge: str, start: str, seed: int) -> Stage:
        layout, rows = self.layout, self._rows("sft", seed)
        overrides: list[object] = ["--model_name_or_path", layout.model(start, seed), "--train_datasets", rows]
        recipe = layout.recipe("sft_gqm_tiny_argument.yaml")
        inputs = [*layout.weights(start, seed), rows]
        title = f"{judge.replace('_', ' ')}, cold start"
        return layout.training(
            f"{judge}_sft", seed, title, "run_sft.py", recipe, overrides, inputs, self.kind.sft_steps
        )

    def _rlvr(self, judge: str, seed: int) -> Stage:
        layout, rows = self.layout, self._rows("rl", seed)
        overrides: list[object] = ["--actor_model_name_or_path", layout.model(f"{judge}_sft", seed)]
        overrides += ["--train_datasets", rows, "--rule_reward", self.kind.rule, *_ROOM]
        recipe = layout.recipe("rlvr_grrm_tiny_argument.yaml")
        inputs = [*layout.weights(f"{judge}_sft", seed), rows]
        title = f"{judge.replace('_', ' ')}, RLVR"
        shown = ("reward_mean",)
        return layout.training(judge, seed, title, "run_rl.py", recipe, overrides, inputs, self.kind.rlvr_steps, shown)

    def _rows(self, stage: str, seed: int) -> Path:
        return self.layout.model(f"data-{stage}-{self.kind.name}", seed) / "rows.jsonl"
