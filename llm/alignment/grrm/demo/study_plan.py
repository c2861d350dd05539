"""The stages of `make study`, behind those of the demo: larger rankers, other judges, and where comparing pays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grrm.demo.judge_plan import GOLD_FILE, ROWS, JudgePlan, files
from grrm.demo.layout import Layout
from grrm.demo.plan import Plan
from grrm.demo.results import seed_folder
from grrm.demo.settings import CONSENSUS
from grrm.demo.stages import Stage
from grrm.demo.study_generative import GQM, SQM, GenerativePlan, Kind

LARGE_ROWS, LARGE_STEPS, SMALL_STEPS = 21_000, 1_400, 400
RM_STEPS = 2_800  # a linear head leaves the backbone more to learn: after 1,400 its development accuracy still rises
WIDE_ROWS, WIDE_SAMPLES = 1_500, 16
EIGHT_CANDIDATES_GROUPS = 3_000  # of the arms by number of groups, the one beside those by number of candidates
SAMPLES_A_STEP = 192  # of a ranker: as many candidates whatever the size of a group
STUDY_FILE = "study.json"
# What is measured together, as soon as its judges are trained: each a folder of its own.
LARGE_PART, GQM_PART, SQM_PART, SMALL_PART = PARTS = ("study-large", "study-gqm", "study-sqm", "study-small")
LARGE, WIDE, MIXED = "large", "wide", "mixed"  # files of groups with gold, beside the demo's
# Policies of the study, and the kind of judge that each is trained against.
RL_JUDGES = {
    "grpo_rm": "rm",
    "grpo_ranker_none_large": "ranker",
    "grpo_ranker_group_large": "ranker",
    "grpo_gqm": "gqm",
    "grpo_sqm": "sqm",
    "grpo_mixture": "mixture",
}
WRITING = {"gqm": GQM, "sqm": SQM}
# The mixture: the larger ranker, and consensus at half its weight, both as differences from the group's mean.
MIXTURE, MIXED_RANKER = "mixture", "ranker_none_large"
# With the larger ranker for the first half, and then with one trained on what the policy has come to say; this seed.
REFRESHED, HALF, REFRESH_SEED, HALF_STEPS, FRESH_STEPS = "grpo_ranker_refreshed", "grpo_ranker_half", 1, 200, 600


@dataclass(frozen=True, slots=True)
class RankerArm:
    """A ranker of the study: `groups` groups of `candidates` candidates of the file `gold`, and training steps."""

    name: str
    compare: str
    gold: str
    groups: int
    candidates: int = 8
    steps: int = SMALL_STEPS

    @property
    def data(self) -> str:
        """The folder of its groups; rankers that learn from the same ones share it."""
        return f"groups-{self.gold}-{self.groups}x{self.candidates}"

    @property
    def title(self) -> str:
        """What tables call it; one of equal training with the others, by what sets it apart."""
        learned_from = f"{self.groups:,} groups" if self.candidates == 8 else f"{self.candidates} candidates"
        if self.gold == MIXED:
            learned_from = "mixed quality"
        return f"ranker{', compared' * (self.compare == 'group')}: {learned_from}"


def ranker_arms() -> list[RankerArm]:
    """Every ranker, with and without comparison: the largest, by number of groups and candidates, by quality."""
    arms = []
    for compare in ("none", "group"):
        arms.append(RankerArm(f"ranker_{compare}_large", compare, LARGE, LARGE_ROWS, steps=LARGE_STEPS))
        for groups in (1_000, EIGHT_CANDIDATES_GROUPS, 10_000):
            arms.append(RankerArm(f"ranker_{compare}_{groups}_groups", compare, LARGE, groups))
        for candidates, groups in ((2, 12_000), (WIDE_SAMPLES, WIDE_ROWS)):
            gold = WIDE if candidates > 8 else LARGE
            arms.append(RankerArm(f"ranker_{compare}_{candidates}_candidates", compare, gold, groups, candidates))
        arms.append(RankerArm(f"ranker_{compare}_{MIXED}", compare, MIXED, 3_000))
    return arms


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """Builds the study's stages of one seed; they read what the demo's stages of that seed leave."""

    layout: Layout

    def rows(self) -> Stage:
        """More training rows for the policies to translate."""
        return self._judges.first_rows("study-rows", {self.layout.train_parquet: LARGE_ROWS})

    def stages(self, seed: int) -> list[Stage]:
        """Everything of one seed: the judges that policies are trained against first, then the other rankers."""
        rows = self.layout.data / "study-rows" / self.layout.train_parquet.name
        few = self.layout.data / ROWS / self.layout.train_parquet.name
        large, small = ([arm for arm in ranker_arms() if (arm.steps == LARGE_STEPS) == is_large] for is_large in (1, 0))
        stages = [self._judges.samples(LARGE, seed, rows, 8), self._judges.gold(LARGE, seed)]
        stages.append(self._judges.reward_model("rm", seed, f"gold-{LARGE}", "rm_tiny_argument.yaml", RM_STEPS))
        stages += [*self._rankers(large, seed), self._mixed("heldout", f"{MIXED}-heldout", seed)]
        stages.append(self._measure(LARGE_PART, seed, {"rm": "rm", **{arm.name: "ranker" for arm in large}}))
        stages += self._policy_stages(("rm", "ranker"), seed)
        if seed == REFRESH_SEED:
            stages += self._refreshed(seed)
        stages += [self._writing(GQM).groups(seed), *self._writing(GQM).stages(seed)]
        stages.append(self._measure(GQM_PART, seed, {}, self._writing(GQM).measured(seed)))
        stages += self._policy_stages(("gqm",), seed)
        stages += [*self._writing(SQM).stages(seed), self._measure(SQM_PART, seed, {}, self._sqm_and_mixture(seed))]
        stages += self._policy_stages(("sqm", MIXTURE), seed)
        stages += [self._judges.samples(WIDE, seed, few, WIDE_SAMPLES), self._judges.gold(WIDE, seed)]
        stages += [self._mixed("train", MIXED, seed), *self._rankers(small, seed)]
        return [*stages, self._measure(SMALL_PART, seed, {arm.name: "ranker" for arm in small})]

    def _policy_stages(self, judges: Sequence[str], seed: int) -> list[Stage]:
        stages = []
        for run in (run for run, judge in RL_JUDGES.items() if judge in judges):
            stages += [self._policies.rl(run, seed, *self._server(run, seed)), self._policies.evaluate(run, seed)]
        return stages

    def _refreshed(self, seed: int) -> list[Stage]:
        """A policy whose ranker is trained again half way, from the policy of then on its samples."""
        rows = self.layout.data / ROWS / self.layout.train_parquet.name
        first, ranker, samples = "ranker_none_large", "ranker_refreshed", "refreshed"
        recipe, compare = "ranker_tiny_argument.yaml", ("--compare", "none")
        servers = [self._judges.server("ranker", self.layout.model(name, seed)) for name in (first, ranker)]
        return [
            self._policies.rl(HALF, seed, *servers[0], steps=HALF_STEPS),
            self._judges.samples(samples, seed, rows, 8, HALF),
            self._judges.gold(samples, seed),
            self._judges.reward_model(ranker, seed, f"gold-{samples}", recipe, FRESH_STEPS, compare, policy=HALF),
            self._policies.rl(REFRESHED, seed, *servers[1], start=HALF, steps=HALF_STEPS),
            self._policies.evaluate(REFRESHED, seed),
        ]

    def _server(self, run: str, seed: int) -> tuple[list[str], list[Path]]:
        name, judge = run.removeprefix("grpo_"), RL_JUDGES[run]
        if judge in WRITING:
            return self._writing(WRITING[judge]).server(name, seed)
        if judge == MIXTURE:
            sources, depends_on = self._mixture(seed)
            return ["--judge", "mixture", "--judge-option", f"sources={sources}"], depends_on
        return self._judges.server(judge, self.layout.model(name, seed))

    def _mixture(self, seed: int) -> tuple[str, list[Path]]:
        """The list of judges, as JSON, and the files that it depends on."""
        folder = self.layout.model(MIXED_RANKER, seed)
        ranker = {"judge": "ranker", "model": str(folder), "options": {"prompt_type": self.layout.settings.prompt_type}}
        sources = [ranker | {"normalise": "mean"}, {"judge": CONSENSUS, "weight": 0.5, "normalise": "mean"}]
        return json.dumps(sources), files("ranker", folder)

    def _sqm_and_mixture(self, seed: int) -> tuple[list[str], list[Path]]:
        options, depends_on = self._writing(SQM).measured(seed)
        sources, of_mixture = self._mixture(seed)
        return [*options, "--mixture", f"{MIXTURE}={sources}"], [*depends_on, *of_mixture]

    def _writing(self, kind: Kind) -> GenerativePlan:
        return GenerativePlan(self.layout, kind)

    @property
    def _judges(self) -> JudgePlan:
        return JudgePlan(self.layout)

    @property
    def _policies(self) -> Plan:
        return Plan(self.layout.settings, self.layout.root, self.layout.out)

    def _mixed(self, name: str, out: str, seed: int) -> Stage:
        """Groups of which a half are references, damaged references or copies of the source."""
        samples, gold = (
            self.layout.model(f"samples-{name}", seed) / "samples.parquet",
            self._judges.gold_file(out, seed),
        )
        options = ["--group-size", 8, "--mixed-share", 1, "--seed", seed]
        return Stage(
            name=f"seed{seed}/{gold.parent.name}",
            title=f"groups of mixed quality ({name}), seed {seed}",
            command=self.layout.grrm("data", "groups", samples, gold, *options),
            folder=gold.parent,
            inputs=[samples],
            outputs=[gold],
            ends_with_result=True,
        )

    def _rankers(self, arms: list[RankerArm], seed: int) -> list[Stage]:
        stages = {}
        for arm in arms:
            stages[arm.data] = self._groups(arm, seed)
            batch, options = SAMPLES_A_STEP // arm.candidates, ("--compare", arm.compare)
            stages[arm.name] = self._judges.reward_model(
                arm.name, seed, arm.data, "ranker_tiny_argument.yaml", arm.steps, options, batch
            )
        return list(stages.values())

    def _groups(self, arm: RankerArm, seed: int) -> Stage:
        gold, folder = self._judges.gold_file(arm.gold, seed), self.layout.model(arm.data, seed)
        sizes = ["--rows", arm.groups, "--candidates", arm.candidates]
        return Stage(
            name=f"seed{seed}/{arm.data}",
            title=f"{arm.groups} groups of {arm.candidates} ({arm.gold}), seed {seed}",
            command=self.layout.module("prepare", "subset", "--groups", gold, *sizes, "--out", folder / GOLD_FILE),
            folder=folder,
            inputs=[gold],
            outputs=[folder / GOLD_FILE],
            ends_with_result=True,
        )

    def _measure(
        self, part: str, seed: int, judges: Mapping[str, str], others: tuple[list[str], list[Path]] = ([], [])
    ) -> Stage:
        """Reward models, by name and kind, on the policy's samples and on mixed quality; consensus beside them.

        `others` are options for further judges, and the files that these depend on.
        """
        layout, out = self.layout, study_file(self.layout.out, seed, part)
        options = [word for name in judges for word in ("--ranker", f"{name}={layout.model(name, seed)}")]
        sets = {name: self._judges.gold_file(file, seed) for name, file in _SETS.items()}
        options += [word for name, path in sets.items() for word in ("--groups", f"{name}={path}")]
        options += ["--prompt-type", layout.settings.prompt_type, "--baseline", CONSENSUS, *others[0]]
        models = [file for name, judge in judges.items() for file in files(judge, layout.model(name, seed))]
        models += others[1]
        return Stage(
            name=f"seed{seed}/{part}",
            title=f"judges of the study ({part.removeprefix('study-')}), seed {seed}",
            command=layout.module("evaluate_judges", "measure", *options, "--out", out),
            folder=out.parent,
            inputs=[*sets.values(), *models],
            outputs=[out],
            ends_with_result=True,
        )


_SETS: dict[str, str] = {"heldout": "heldout", MIXED: f"{MIXED}-heldout"}


def study_file(out: Path, seed: int, part: str) -> Path:
    """How the judges of one of `PARTS` ranked."""
    return seed_folder(out, seed) / part / STUDY_FILE


def study_stages(plan: Plan) -> list[Stage]:
    """The demo's stages, and behind those of each seed the study's."""
    study = StudyPlan(Layout(plan.settings, Path(plan.root), plan.out))
    return [*plan.stages(), study.rows(), *(stage for seed in plan.settings.seeds for stage in study.stages(seed))]
