"""The demo's stages, from the corpus to the last evaluation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from grrm.demo.judge_plan import HostedJudge, JudgePlan, PolicyPlan
from grrm.demo.layout import Layout
from grrm.demo.settings import BASE, GRPO_CONSENSUS, GRPO_RANKER, RANKER, SFT, DemoSettings, title_of
from grrm.demo.stages import Stage

# On two idle cores: seconds of a training step, by the stage, and of the stages without steps that take longest.
_STEP_S = {SFT: 0.09, "ranker_none": 0.16, "ranker_group": 0.18, GRPO_RANKER: 0.42}
_RL_STEP_S, _SHORT_S = 0.34, 4.0
_STAGE_S = {"corpus": 10.0, "samples-train": 20.0, "eval-judges": 8.0, "eval-base": 11.0}


@dataclass(frozen=True, slots=True)
class Plan:
    """Builds the stages of one demo; `root` is the checkout, `out` the folder everything is written to."""

    settings: DemoSettings
    root: Path
    out: Path

    def stages(self) -> list[Stage]:
        """All stages in the order in which they run."""
        policies, with_judges = PolicyPlan(self._layout), self.settings.judge == RANKER
        stages = [self._corpus(), self._tokenizer(), policies.convert(), policies.held_out()]
        if with_judges:
            stages.append(self._judges.rows())
        for seed in self.settings.seeds:
            stages += [self._untrained(seed), policies.evaluate(BASE, seed)]
            stages += [self._sft(seed), policies.evaluate(SFT, seed)]
            if with_judges:
                stages += self._judges.stages(seed)
            for run in self.settings.rl_runs:
                stages += [policies.rl(run, seed, self._judge(run, seed)), policies.evaluate(run, seed)]
        return [replace(stage, planned_s=_planned_s(stage)) for stage in stages]

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
        outputs = [layout.corpus(name) for name in ("train", "heldout", "dev")]
        command = layout.grrm("data", "corpus", "phrases", folder, *rows, *draw)
        return layout.shared("corpus", "corpus", command, (), outputs, ends_with_result=True)

    def _tokenizer(self) -> Stage:
        settings, layout = self.settings, self._layout
        folder = layout.data / "tokenizer"
        options = ["--vocab-size", settings.vocab_size, "--prompt-type", settings.prompt_type]
        command = layout.grrm("data", "tokenizer", layout.corpus("train"), folder, *options)
        return layout.shared("tokenizer", "tokenizer", command, [layout.corpus("train")], [folder / "tokenizer.json"])

    def _untrained(self, seed: int) -> Stage:
        layout = self._layout
        folder, config = layout.model(BASE, seed), self.root / self.settings.model_config
        tokenizer = layout.data / "tokenizer"
        options = ["--config", config, "--tokenizer", tokenizer, "--out", folder, "--seed", seed]
        name, title = f"seed{seed}/untrained", f"untrained policy, seed {seed}"
        command, outputs = layout.module("prepare", "untrained", *options), layout.weights(BASE, seed)
        return layout.shared(name, title, command, [config, tokenizer], outputs)

    def _sft(self, seed: int) -> Stage:
        settings, layout = self.settings, self._layout
        recipe, config = layout.recipe("sft_tiny_argument.yaml"), self.root / settings.model_config
        data, tokenizer = layout.data / "converted" / "sft.jsonl", layout.data / "tokenizer"
        overrides: list[object] = ["--init_from_config", config, "--tokenizer_name_or_path", tokenizer]
        overrides += ["--train_datasets", data]
        overrides += ["--per_device_train_batch_size", max(1, settings.sft_batch_rows // settings.nproc)]
        inputs = [config, tokenizer, data]
        return layout.training(SFT, seed, title_of(SFT), "run_sft.py", recipe, overrides, inputs, settings.sft_steps)

    def _judge(self, run: str, seed: int) -> HostedJudge:
        """The judge that a run is trained against."""
        if run == GRPO_RANKER:
            return self._judges.reward_judge("ranker", self._layout.model(RANKER, seed))
        return HostedJudge("consensus" if run == GRPO_CONSENSUS else "text_metric")


def _planned_s(stage: Stage) -> float:
    name = stage.name.rpartition("/")[2]
    if stage.total_steps:
        return stage.total_steps * _STEP_S.get(name, _RL_STEP_S)
    return _STAGE_S.get(name, _SHORT_S)
