"""The stages that train the demo's rankers on the policy's samples, choose the judge, and train policies against it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grrm.demo.layout import WEIGHTS, Layout
from grrm.demo.results import RANKING_FILE, RANKINGS, scores_file
from grrm.demo.settings import BASE, CHOICE, CONSENSUS, GRPO, RANKER, RANKERS, REINFORCE, SFT, STOCK, title_of
from grrm.demo.stages import SERVER_PLACEHOLDER, Stage

GOLD_FILE = "groups.parquet"
ROWS = "ranker-rows"  # the folder of what policies translate for the rankers
_HEADS = {"ranker": "ranker_head.safetensors", "rm": "value_head.safetensors"}


@dataclass(frozen=True, slots=True)
class HostedJudge:
    """A judge by its registered name, as reward servers host it and `evaluate_judges` measures it.

    `files` are those that a stage with it depends on. The mixture has a list of judges as the option `sources`.
    """

    name: str
    model: Path | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    files: Sequence[Path] = ()

    def server(self) -> list[str]:
        """The options of the reward server that hosts it."""
        model = [] if self.model is None else ["--model", str(self.model)]
        values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in self.options.items()}
        options = [word for name, value in values.items() for word in ("--judge-option", f"{name}={value}")]
        return ["--judge", self.name, *model, *options]

    def source(self) -> dict[str, object]:
        """Its entry in a list of judges."""
        model = {} if self.model is None else {"model": str(self.model)}
        return {"judge": self.name, **model, "options": dict(self.options)}


@dataclass(frozen=True, slots=True)
class JudgePlan:
    """Builds, for one seed, what lies between the SFT policy and reinforcement learning against a ranker."""

    layout: Layout

    def rows(self) -> Stage:
        """The rows that policies translate for the rankers: to learn from, to choose on, to report on."""
        settings, layout = self.layout.settings, self.layout
        counts = {
            layout.corpus("train"): settings.ranker_train_rows,
            layout.corpus("dev"): settings.ranker_dev_rows,
            layout.corpus("heldout"): settings.ranker_heldout_rows,
        }
        folder = layout.data / ROWS
        parts = [word for path, count in counts.items() for word in ("--part", path, count)]
        command, outputs = layout.module("prepare", "rows", *parts, "--out", folder), [folder / p.name for p in counts]
        return layout.shared(ROWS, "rows for the rankers", command, [*counts], outputs, ends_with_result=True)

    def stages(self, seed: int) -> list[Stage]:
        """Samples with gold scores, a ranker of either kind, how well they rank, and the one that judges."""
        rows, samples = self.layout.data / ROWS, self.layout.settings.ranker_candidates
        stages = []
        for name in ("train", "dev", "heldout"):
            stages += [self.samples(name, seed, rows / f"{name}.parquet", samples), self.gold(name, seed)]
        for name, compare in RANKERS.items():
            steps, options = self.layout.settings.ranker_steps, ("--compare", compare)
            stages.append(self.reward_model(name, seed, "gold-train", "ranker_tiny_argument.yaml", steps, options))
        judges = {CONSENSUS: HostedJudge(CONSENSUS), **self.rankers(seed)}
        return [*stages, self.measure(RANKINGS, seed, judges), self.choose(RANKINGS, seed)]

    def gold_file(self, name: str, seed: int) -> Path:
        """Groups with gold scores."""
        return self.layout.model(f"gold-{name}", seed) / GOLD_FILE

    def reward_judge(self, judge: str, folder: Path) -> HostedJudge:
        """A reward model, a "ranker" or an "rm", as a judge."""
        return HostedJudge(judge, folder, {"prompt_type": self.layout.settings.prompt_type}, files(judge, folder))

    def samples(self, name: str, seed: int, rows: Path, count: int) -> Stage:
        """Translations that the SFT policy samples for each of some rows."""
        settings, layout = self.layout.settings, self.layout
        options: list[object] = ["--model", layout.model(SFT, seed), "--prompt-type", settings.prompt_type]
        options += ["--sampling-n", count, "--temperature", 1, "--retry", 0, "--batch-rows", 256]
        options += ["--max-new-tokens", settings.ranker_max_new_tokens, "--seed", seed, *layout.dtype()]
        out = layout.model(f"samples-{name}", seed) / "samples.parquet"
        command = layout.grrm("translate", rows, *options, "--out", out)
        title, inputs = f"samples of the {title_of(SFT)} policy ({name})", [*layout.weights(SFT, seed), rows]
        return layout.result(title, command, inputs, [out])

    def gold(self, name: str, seed: int) -> Stage:
        """The chrF of samples against the reference."""
        samples, out = self.layout.model(f"samples-{name}", seed) / "samples.parquet", self.gold_file(name, seed)
        command = self.layout.grrm("rank", samples, "--judge", "text_metric", "--score-key", "scores", "--out", out)
        return self.layout.result(f"their chrF against the reference ({name})", command, [samples], [out])

    def reward_model(
        self,
        name: str,
        seed: int,
        groups: str,
        recipe: str,
        steps: int | None,
        options: Sequence[object] = (),
    ) -> Stage:
        """A reward model on the SFT policy's layers that learns from a folder's groups, measured on the dev rows."""
        settings, layout = self.layout.settings, self.layout
        train, dev = layout.model(groups, seed) / GOLD_FILE, self.gold_file("dev", seed)
        overrides: list[object] = ["--model_name_or_path", layout.model(SFT, seed), *options]
        overrides += ["--train_datasets", train, "--eval_datasets", dev, "--val_size", 0]
        batch = max(1, settings.ranker_batch_groups // settings.nproc)
        overrides += ["--per_device_train_batch_size", batch, *settings.ranker_overrides]
        return layout.training(
            name,
            seed,
            title_of(name),
            "run_reward.py",
            layout.recipe(recipe),
            overrides,
            [*layout.weights(SFT, seed), train, dev],
            steps,
            ("loss", "eval_correlation"),
        )

    def rankers(self, seed: int) -> dict[str, HostedJudge]:
        """Both rankers."""
        return {name: self.reward_judge("ranker", self.layout.model(name, seed)) for name in RANKERS}

    def measure(self, part: str, seed: int, judges: Mapping[str, HostedJudge], n_orders: int = 0) -> Stage:
        """Measure how judges rank the development groups and the held-out ones; `part` is the name of the folder.

        The first `n_orders` groups of each file are judged in the reverse order, too.
        """
        layout, out = self.layout, self.layout.model(part, seed) / RANKING_FILE
        options: list[object] = []
        for name, judge in judges.items():
            source = judge.options["sources"] if judge.name == "mixture" else judge.source()
            options += ["--judge", f"{name}={json.dumps(source)}"]
        sets = {name: self.gold_file(name, seed) for name in ("dev", "heldout")}
        options += [word for name, path in sets.items() for word in ("--groups", f"{name}={path}")]
        options += ["--orders", n_orders, *layout.dtype(), "--out", out]
        title, command = title_of(part.removeprefix("eval-")), layout.module("evaluate_judges", "measure", *options)
        inputs = [*sets.values(), *(file for judge in judges.values() for file in judge.files)]
        return layout.result(f"ranking accuracy of {title}", command, inputs, [out], timeout_s=4 * 3600.0)

    def choose(self, part: str, seed: int) -> Stage:
        """The better ranker, by what was measured in this part."""
        layout, ranking = self.layout, self.layout.model(part, seed) / RANKING_FILE
        folder = layout.model(RANKER, seed)
        options = [word for name in RANKERS for word in ("--ranker", f"{name}={layout.model(name, seed)}")]
        weights = (file for name in RANKERS for file in files("ranker", layout.model(name, seed)))
        command = layout.module("evaluate_judges", "choose", "--ranking", ranking, *options, "--out", folder)
        outputs = [*files("ranker", folder), folder / CHOICE]
        return layout.result("choice of the ranker on the dev rows", command, [ranking, *weights], outputs)


def files(judge: str, folder: Path) -> list[Path]:
    """The files of a reward model that a stage depends on; `judge` is "ranker" or "rm"."""
    return [folder / name for name in ("model.safetensors", "config.json", "reward_model.json", _HEADS[judge])]


_RL_METRICS = ("reward_mean", "kl")


@dataclass(frozen=True, slots=True)
class PolicyPlan:
    """Builds the stages of policies, whatever they are trained against."""

    layout: Layout

    def convert(self) -> Stage:
        """The training rows as SFT and RL read them."""
        layout = self.layout
        folder = layout.data / "converted"
        options = ["--prompt-type", layout.settings.prompt_type]
        command = layout.grrm("data", "convert", layout.corpus("train"), folder, *options)
        outputs = [folder / "sft.jsonl", folder / "rl.jsonl"]
        return layout.shared("convert", "training files", command, [layout.corpus("train")], outputs)

    def held_out(self) -> Stage:
        """Development rows, as RL reads them."""
        settings, layout = self.layout.settings, self.layout
        folder = layout.data / "held-out"
        options = ["--rows", settings.rl_eval_rows, "--prompt-type", settings.prompt_type]
        command = layout.module("prepare", "held-out", "--data", layout.corpus("dev"), "--out", folder, *options)
        title, outputs = "dev rows for RL to be watched on", [folder / "rl.jsonl"]
        return layout.shared("held-out", title, command, [layout.corpus("dev")], outputs)

    def rl(self, run: str, seed: int, judge: HostedJudge) -> Stage:
        """Reinforcement learning; runs of one algorithm differ in what the reward server hosts, and in no setting."""
        settings, layout = self.layout.settings, self.layout
        data = layout.data / "converted" / "rl.jsonl"
        overrides: list[object] = ["--reward_server", SERVER_PLACEHOLDER, "--train_datasets", data]
        overrides += ["--actor_model_name_or_path", layout.model(SFT, seed)]
        watched = layout.data / "held-out" / "rl.jsonl"
        overrides += ["--eval_datasets", watched, "--evaluation_strategy", "steps"]
        overrides += ["--eval_steps", settings.rl_eval_steps, "--eval_on_start", "true", *settings.rl_overrides]
        return layout.training(
            run,
            seed,
            title_of(run),
            "run_rl.py",
            layout.recipe(f"{run if run == REINFORCE else GRPO}_grrm_tiny_argument.yaml"),
            overrides,
            [*layout.weights(SFT, seed), data, watched, *judge.files],
            settings.steps_of_rl,
            _RL_METRICS,
            reward_server=[*judge.server(), *(layout.dtype() if judge.model else [])],
        )

    def evaluate(self, policy: str, seed: int) -> Stage:
        """The scores of a policy on the rows that the report is about."""
        settings, layout = self.layout.settings, self.layout
        data, scores = layout.corpus("heldout"), scores_file(layout.out, seed, policy)
        options: list[object] = ["--prompt-type", settings.prompt_type, "--extractor-type", settings.extractor_type]
        inputs = [*layout.weights(policy, seed), data]
        if policy not in (BASE, STOCK, SFT):
            options += ["--reference", layout.model(SFT, seed)]
            inputs.append(layout.model(SFT, seed) / WEIGHTS)
        samples = settings.untrained_samples if policy in (BASE, STOCK) else settings.eval_samples
        options += ["--samples", samples, "--max-new-tokens", settings.eval_max_new_tokens, *layout.dtype()]
        title = "the untrained policy" if policy == BASE else title_of(policy)
        arguments = ["--model", layout.model(policy, seed), "--data", data, "--out", scores, "--seed", seed]
        command = layout.module("evaluate_checkpoint", *arguments, *options)
        return layout.result(f"evaluation of {title}", command, inputs, [scores])
