"""RL of 300 steps against each of seven judges that were probed before: does the worst probe say what is gained?

The demo's policies, on its text or with `--human` on texts that people translated. The stages of a seed took three
hours in sum on two busy cores, 44 minutes of them the embedder's. What is finished is reused. One process at a time may
have the folder: stages read the addresses of their reward servers from one log.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from machine import RESULTS
from probe_gains import outcomes, rank_correlations, right_shares, worst_share
from rich.console import Console

from grrm.data.atomic import write_json
from grrm.data.corpora.homeassistant import build_homeassistant
from grrm.data.corpora.translations import Limits
from grrm.data.parquet import TranslationRow, read_rows, write_rows
from grrm.demo.judge_plan import HostedJudge, JudgePlan, PolicyPlan
from grrm.demo.layout import Layout
from grrm.demo.plan import Plan
from grrm.demo.processes import signals_as_interrupts
from grrm.demo.results import load_results, verdict, versions
from grrm.demo.runner import checkout, only_run_in, run_stages
from grrm.demo.settings import SFT, DemoSettings
from grrm.demo.stages import Stage
from grrm.entry import run_main

STEPS, GQM_STEPS, HUMAN_SFT_STEPS = 300, 800, 3600
EMBEDDER, NORMALISED = "embedding_qe", "embedding_std"  # its scores differ little: once more, with advantages of size 1
SFT_ROWS = "sft.parquet"
LANGUAGES = ("de", "es", "fr", "it", "nl", "pt")  # of Home Assistant's texts
GROUP_OF_FOUR = ("--group-size", 4)
# How a probe shows groups to judges that see more than one candidate: as RL does, as far as that goes.
SHOWN = {"gqm": GROUP_OF_FOUR, "ranker_group": GROUP_OF_FOUR, "consensus": ("--samples-key", "mt_texts")}


@dataclass(frozen=True, slots=True)
class Study:
    """The stages of one seed; `out` is the folder that all seeds share."""

    seed: int
    out: Path
    is_human: bool = False
    wheel: tuple[str, ...] = ()

    @property
    def settings(self) -> DemoSettings:
        """Those of the demo, of one process."""
        return DemoSettings(
            first_seed=self.seed, nproc=1, rl_steps=STEPS, sft_steps=HUMAN_SFT_STEPS if self.is_human else None
        )

    @property
    def layout(self) -> Layout:
        """Folders and commands."""
        return Layout(self.settings, checkout(), self.out)

    @property
    def judges(self) -> dict[str, HostedJudge]:
        """Those that policies are trained against."""
        layout = self.layout
        gqm, sft = layout.weights("gqm", self.seed), layout.weights(SFT, self.seed)
        options = {"prompt_type": "score", "max_candidates": 4, "max_new_tokens": 40, "retries": 1}
        options["score_reading"] = "expected_digit"
        likelihood = {"model": str(layout.model(SFT, self.seed)), "prompt_type": "Tower"}
        return {
            "chrf": HostedJudge("text_metric"),
            "consensus": HostedJudge("consensus"),
            **JudgePlan(layout).rankers(self.seed),
            "gqm": HostedJudge("gqm", layout.model("gqm", self.seed), options, gqm),
            EMBEDDER: HostedJudge(EMBEDDER),
            "logprob": HostedJudge("grrm.demo.logprob_judge:judge", None, likelihood, sft),
        }

    def stages(self) -> Iterator[Stage]:
        """In the order in which they run."""
        for stage in Plan(self.settings, checkout(), self.out).stages():
            if stage.name.endswith("/eval-judges"):
                break
            yield from self._on_human_text(stage) if self.is_human else [stage]
        yield from self._gqm()
        normalised = PolicyPlan(replace(self.layout, settings=self._normalised))
        policies = normalised if self.is_human else PolicyPlan(self.layout)
        for name, judge in self.judges.items():
            yield self._probe(name, judge)
            yield policies.rl(f"grpo_{name}", self.seed, judge)
            yield policies.evaluate(f"grpo_{name}", self.seed)
        if not self.is_human:
            yield normalised.rl(f"grpo_{NORMALISED}", self.seed, self.judges[EMBEDDER])
            yield normalised.evaluate(f"grpo_{NORMALISED}", self.seed)

    @property
    def _normalised(self) -> DemoSettings:
        """With advantages in units of each judge's own spread."""
        return replace(self.settings, rl_overrides=("--norm_adv_by_std", "true"))

    def _on_human_text(self, stage: Stage) -> Iterator[Stage]:
        """A stage of the demo on texts of Home Assistant; SFT and RL have rows of their own."""
        layout = self.layout
        if stage.name == "corpus":
            command = [sys.executable, __file__, "--corpus", str(stage.folder), *self.wheel]
            stage = replace(stage, command=command, outputs=[*stage.outputs, stage.folder / SFT_ROWS])
        elif stage.name == "tokenizer":
            stage = _moved(stage, layout.corpus("train"), layout.corpus("train").with_name(SFT_ROWS))
        elif stage.name == "convert":
            outputs = [self._sft_rows / "sft.jsonl"]
            of_sft = replace(stage, name="convert-sft", folder=self._sft_rows, outputs=outputs)
            of_sft = _moved(of_sft, stage.folder, self._sft_rows)
            yield _moved(of_sft, layout.corpus("train"), layout.corpus("train").with_name(SFT_ROWS))
        elif stage.name.endswith(f"/{SFT}"):
            stage = _moved(stage, layout.data / "converted" / "sft.jsonl", self._sft_rows / "sft.jsonl")
        yield stage

    @property
    def _sft_rows(self) -> Path:
        return self.layout.data / "sft-rows"

    def _gqm(self) -> Iterator[Stage]:
        layout, seed = self.layout, self.seed
        samples = layout.model("samples-train", seed) / "samples.parquet"
        groups = layout.model("gqm-data", seed) / "groups.parquet"
        rows = layout.model("gqm-rows", seed) / "rows.jsonl"
        options = [*GROUP_OF_FOUR, "--groups-per-row", 2, "--fit-scale", groups.parent / "scale.json"]
        command = layout.grrm("data", "groups", samples, groups, *options, "--top-score", 9, "--seed", seed)
        yield layout.result("groups", command, [samples], [groups])
        command = layout.grrm(
            "data", "sft-gqm", groups, rows, "--prompt-type", "score", "--no-analysis", "--seed", seed
        )
        yield layout.result("gqm rows", command, [groups], [rows])
        recipe, weights = layout.recipe("sft_gqm_tiny_argument.yaml"), layout.weights(SFT, seed)
        overrides = ["--model_name_or_path", layout.model(SFT, seed), "--train_datasets", rows, "--form_weight", 0.1]
        yield layout.training("gqm", seed, "GQM", "run_sft.py", recipe, overrides, [*weights, rows], GQM_STEPS)

    def _probe(self, name: str, judge: HostedJudge) -> Stage:
        rows = self.layout.model("samples-heldout", self.seed) / "samples.parquet"
        options = [*SHOWN.get(name, ()), "--rows", 60 if name == "gqm" else 100, "--out", self._probes_of(name)]
        command = self.layout.grrm("probe", rows, *judge.server(), *options)
        return self.layout.result(f"probes of {name}", command, [rows, *judge.files], [self._probes_of(name)])

    def _probes_of(self, name: str) -> Path:
        return self.layout.model(f"probe-{name}", self.seed) / "probes.json"

    def figures(self) -> dict[str, Any]:
        """Of each judge its probes and what its policy gained, and their rank correlation; of SFT its scores."""
        arms = {name: f"grpo_{name}" for name in (*self.judges, *([] if self.is_human else [NORMALISED]))}
        results = load_results(self.out, self.settings, {}, (SFT, *arms.values()))
        figures = {}
        for name, arm in arms.items():
            probes = json.loads(self._probes_of(EMBEDDER if name == NORMALISED else name).read_text(encoding="utf-8"))
            policy = {"learned": verdict(results, arm), "scores": results.scores[arm][self.seed]}
            gained = outcomes({"seeds": {"": {"policies": {arm: policy}}}}, arm)
            figures[name] = {"worst share": worst_share(probes), **gained, "learned": policy["learned"]}
            figures[name]["copied in samples"] = policy["scores"]["sampled"]["copied"]
            figures[name]["tokens"] = policy["scores"]["sampled"]["length_mean"]
            (report,) = probes["group_sizes"].values()
            figures[name]["probes"] = right_shares(report)
        of_same_recipe = [row for name, row in figures.items() if name != NORMALISED]
        start = results.scores[SFT][self.seed]
        of_sft = {
            way: {name: start[way][name] for name in ("chrf", "copied", "length_mean")} for way in ("sampled", "greedy")
        }
        return {"judges": figures, "tau_b": rank_correlations(of_same_recipe), SFT: of_sft}


def _moved(stage: Stage, old: Path, new: Path) -> Stage:
    """The stage with another path in its command and inputs."""
    command = [str(new) if word == str(old) else word for word in stage.command]
    return replace(stage, command=command, inputs=[new if path == old else path for path in stage.inputs])


def write_human_corpus(folder: Path, wheel: Path | None) -> None:
    """Home Assistant's texts of 2 to 8 words; no English text of those for SFT is in the others."""
    pairs = [("en", language) for language in LANGUAGES]
    settings = DemoSettings()
    limits = Limits(heldout=settings.heldout_rows, dev=settings.dev_rows)
    build_homeassistant(folder, pairs, wheel, min_words=2, max_words=8, limits=limits)
    parts: tuple[list[TranslationRow], list[TranslationRow]] = ([], [])
    for row in read_rows(folder / "train.parquet"):
        parts[crc32(row.src_text.encode()) % 4 > 0].append(row)
    for name, rows in zip(("train.parquet", SFT_ROWS), parts, strict=True):
        print(f"{write_rows(folder / name, rows)} rows in {name}")


def main() -> None:
    """Run the seeds, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--human", action="store_true", help="on texts of Home Assistant")
    parser.add_argument("--from", dest="wheel", type=Path, help="Home Assistant's wheel; default: downloaded")
    parser.add_argument("--corpus", type=Path, metavar="FOLDER", help="write these texts there, and nothing else")
    parser.add_argument("--out", type=Path, help="default: runs/probe_study, runs/probe_study_human")
    options = parser.parse_args()
    if options.corpus:
        write_human_corpus(options.corpus, options.wheel)
        return
    name = "probe_study_human" if options.human else "probe_study"
    wheel = ("--from", str(options.wheel.resolve())) if options.wheel else ()
    out = (options.out or Path("runs") / name).resolve()
    studies = [Study(seed, out, options.human, wheel) for seed in options.seeds]
    with only_run_in(out, "model"), signals_as_interrupts():
        for study in studies:
            run_stages(list(study.stages()), study.layout, Console())
    seeds = {study.seed: study.figures() for study in studies}
    write_json(RESULTS / f"{name}.json", {"seeds": seeds, "steps": STEPS, "versions": versions()})


if __name__ == "__main__":
    run_main(main)
