"""The demo's stages, from the corpus to the last evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grrm.demo.judge_plan import JudgePlan
from grrm.demo.layout import WEIGHTS, Layout
from grrm.demo.results import scores_file
from grrm.demo.settings import (
    BASE,
    GRPO,
    GRPO_CONSENSUS,
    GRPO_RANKER,
    RANKER,
    REINFORCE,
    SFT,
    DemoSettings,
    title_of,
)
from grrm.demo.stages import SERVER_PLACEHOLDER, Stage

_RL_METRICS = ("reward_mean", "kl")


@dataclass(frozen=True, slots=True)
class Plan:
    """Builds the stages of one demo; `root` is the checkout, `out` the folder everything is written to."""

    settings: DemoSettings
    root: Path
    out: Path

    def stages(self) -> list[Stage]:
        """All stages in the order in which they run."""
        stages = [self._corpus(), self._tokenizer(), self._convert(), self._held_out()]
        with_judges = self.settings.judge == RANKER
        if with_judges:
            stages.append(self._judges.rows())
        for seed in self.settings.seeds:
            stages += [self._untrained(seed), self.evaluate(BASE, seed), self._sft(seed), self.evaluate(SFT, seed)]
            if with_judges:
                stages += self._judges.stages(seed)
            for run in self.settings.rl_runs:
                stages += [self.rl(run, seed, *self._reward_server(run, seed)), self.evaluate(run, seed)]
        return stages

    @property
    def _layout(self) -> Layout:
        return Layout(self.settings, self.root, self.out)

    @property
    def _judges(self) -> JudgePlan:
        return JudgePlan(self._layout)

    def _corpus(self) -> Stage:
        settings, layout = self.settings, self._layout
        folder = layout.data / "corpus"
        rows = ["--train-rows", settings.train_rows, "--heldout-rows", settings.heldout_rows]
        rows += ["--dev-rows", settings.dev_rows]
        draw = ["--languages", ",".join(settings.languages), "--seed", settings.corpus_seed]
        return Stage(
            name="corpus",
            title="corpus",
            command=layout.module("prepare", "corpus", "--out", folder, *rows, *draw),
            folder=folder,
            outputs=[layout.train_parquet, layout.heldout_parquet, layout.dev_parquet],
            ends_with_result=True,
        )

    def _tokenizer(self) -> Stage:
        settings, layout = self.settings, self._layout
        folder = layout.data / "tokenizer"
        options = ["--vocab-size", settings.vocab_size, "--prompt-type", settings.prompt_type]
        return Stage(
            name="tokenizer",
            title="tokenizer",
            command=layout.module("prepare", "tokenizer", "--data", layout.train_parquet, "--out", folder, *options),
            folder=folder,
            inputs=[layout.train_parquet],
            outputs=[folder / "tokenizer.json"],
        )

    def _convert(self) -> Stage:
        layout = self._layout
        folder = layout.data / "converted"
        options = ["--prompt-type", self.settings.prompt_type]
        return Stage(
            name="convert",
            title="training files",
            command=layout.module("prepare", "convert", "--data", layout.train_parquet, "--out", folder, *options),
            folder=folder,
            inputs=[layout.train_parquet],
            outputs=[folder / "sft.jsonl", folder / "rl.jsonl"],
        )

    def _held_out(self) -> Stage:
        settings, layout = self.settings, self._layout
        folder = layout.data / "held-out"
        options = ["--rows", settings.rl_eval_rows, "--prompt-type", settings.prompt_type]
        return Stage(
            name="held-out",
            title="dev rows for RL to be watched on",
            command=layout.module("prepare", "held-out", "--data", layout.dev_parquet, "--out", folder, *options),
            folder=folder,
            inputs=[layout.dev_parquet],
            outputs=[folder / "rl.jsonl"],
        )

    def _untrained(self, seed: int) -> Stage:
        layout = self._layout
        folder, config = layout.model(BASE, seed), self.root / self.settings.model_config
        tokenizer = layout.data / "tokenizer"
        return Stage(
            name=f"seed{seed}/untrained",
            title=f"untrained policy, seed {seed}",
            command=layout.module(
                "prepare", "untrained", "--config", config, "--tokenizer", tokenizer, "--out", folder, "--seed", seed
            ),
            folder=folder,
            inputs=[config, tokenizer],
            outputs=layout.weights(BASE, seed),
        )

    def _sft(self, seed: int) -> Stage:
        settings, layout = self.settings, self._layout
        recipe, config = layout.recipe("sft_tiny_argument.yaml"), self.root / settings.model_config
        data, tokenizer = layout.data / "converted" / "sft.jsonl", layout.data / "tokenizer"
        overrides: list[object] = ["--init_from_config", config, "--tokenizer_name_or_path", tokenizer]
        overrides += ["--train_datasets", data]
        overrides += ["--per_device_train_batch_size", max(1, settings.sft_batch_rows // settings.nproc)]
        inputs = [config, tokenizer, data]
        return layout.training(SFT, seed, title_of(SFT), "run_sft.py", recipe, overrides, inputs, settings.sft_steps)

    def rl(
        self,
        run: str,
        seed: int,
        server: list[str],
        judge_files: list[Path],
        start: str = SFT,
        steps: int | None = None,
    ) -> Stage:
        """Reinforcement learning; runs of one algorithm differ in what the reward server hosts, and in no setting.

        The policy `start` is the first one and the one that KL is measured from; `steps` None: as the settings say.
        """
        settings, layout = self.settings, self._layout
        data = layout.data / "converted" / "rl.jsonl"
        overrides: list[object] = ["--reward_server", SERVER_PLACEHOLDER, "--train_datasets", data]
        overrides += ["--actor_model_name_or_path", layout.model(start, seed)]
        watched = layout.data / "held-out" / "rl.jsonl"
        overrides += ["--eval_datasets", watched, "--evaluation_strategy", "steps"]
        overrides += ["--eval_steps", settings.rl_eval_steps, "--eval_on_start", "true"]
        return layout.training(
            run,
            seed,
            title_of(run),
            "run_rl.py",
            layout.recipe(f"{run if run == REINFORCE else GRPO}_grrm_tiny_argument.yaml"),
            overrides,
            [*layout.weights(start, seed), data, watched, *judge_files],
            steps or settings.steps_of_rl,
            _RL_METRICS,
            reward_server=server,
        )

    def _reward_server(self, run: str, seed: int) -> tuple[list[str], list[Path]]:
        """The options of the reward server of a run, and the files that it depends on."""
        if run == GRPO_RANKER:
            return self._judges.server("ranker", self._layout.model(RANKER, seed))
        return ["--judge", "consensus" if run == GRPO_CONSENSUS else "text_metric"], []

    def evaluate(self, policy: str, seed: int) -> Stage:
        """The scores of a policy on the rows that the report is about."""
        settings, layout = self.settings, self._layout
        model, data, scores = layout.model(policy, seed), layout.heldout_parquet, scores_file(self.out, seed, policy)
        options: list[object] = ["--prompt-type", settings.prompt_type, "--extractor-type", settings.extractor_type]
        inputs = [*layout.weights(policy, seed), layout.data / "tokenizer", data]
        if policy not in (BASE, SFT):
            options += ["--reference", layout.model(SFT, seed)]
            inputs.append(layout.model(SFT, seed) / WEIGHTS)
        samples = settings.untrained_samples if policy == BASE else settings.eval_samples
        options += ["--samples", samples, "--max-new-tokens", settings.eval_max_new_tokens]
        title = "the untrained policy" if policy == BASE else title_of(policy)
        return Stage(
            name=f"seed{seed}/eval-{policy}",
            title=f"evaluation of {title}, seed {seed}",
            command=layout.module(
                "evaluate_checkpoint", "--model", model, "--data", data, "--out", scores, "--seed", seed, *options
            ),
            folder=scores.parent,
            inputs=inputs,
            outputs=[scores],
            ends_with_result=True,
        )
