"""The stages that train a policy against a judge, and that evaluate one."""

from __future__ import annotations

from dataclasses import dataclass

from grrm.demo.judge_plan import HostedJudge
from grrm.demo.layout import WEIGHTS, Layout
from grrm.demo.results import scores_file
from grrm.demo.settings import BASE, GRPO, REINFORCE, SFT, STOCK, title_of
from grrm.demo.stages import SERVER_PLACEHOLDER, Stage

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
        return Stage(
            name="convert",
            title="training files",
            command=layout.module("prepare", "convert", "--data", layout.train_parquet, "--out", folder, *options),
            folder=folder,
            inputs=[layout.train_parquet],
            outputs=[folder / "sft.jsonl", folder / "rl.jsonl"],
        )

    def held_out(self) -> Stage:
        """Development rows, as RL reads them."""
        settings, layout = self.layout.settings, self.layout
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
        model, data, scores = layout.model(policy, seed), layout.heldout_parquet, scores_file(layout.out, seed, policy)
        options: list[object] = ["--prompt-type", settings.prompt_type, "--extractor-type", settings.extractor_type]
        inputs = [*layout.weights(policy, seed), data]
        if policy not in (BASE, STOCK, SFT):
            options += ["--reference", layout.model(SFT, seed)]
            inputs.append(layout.model(SFT, seed) / WEIGHTS)
        samples = settings.untrained_samples if policy in (BASE, STOCK) else settings.eval_samples
        options += ["--samples", samples, "--max-new-tokens", settings.eval_max_new_tokens, *layout.dtype()]
        title = "the untrained policy" if policy == BASE else title_of(policy)
        arguments = ["--model", model, "--data", data, "--out", scores, "--seed", seed]
        command = layout.module("evaluate_checkpoint", *arguments, *options)
        return layout.result(f"evaluation of {title}", command, inputs, [scores])
