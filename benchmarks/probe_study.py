"""RL of 300 steps against each of seven judges that were probed before: does the worst probe say what is gained?

The demo's text and policies; a seed took 45 minutes on two busy cores, three stages side by side. What is finished is
reused.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probe_gains import outcomes, rank_correlations, right_shares, worst_share
from published import RESULTS
from rich.console import Console

from grrm.data.atomic import atomic_path
from grrm.demo.judge_plan import HostedJudge, JudgePlan, PolicyPlan
from grrm.demo.layout import Layout
from grrm.demo.plan import Plan
from grrm.demo.processes import signals_as_interrupts
from grrm.demo.results import load_results, verdict, versions
from grrm.demo.runner import checkout, run_stages
from grrm.demo.settings import SFT, DemoSettings
from grrm.demo.stages import Stage

STEPS, GQM_STEPS = 300, 800
EMBEDDER, NORMALISED = "embedding_qe", "embedding_std"  # its scores differ little: once more, with advantages of size 1
GROUP_OF_FOUR = ("--group-size", 4)
# How a probe shows groups to judges that see more than one candidate: as RL does, as far as that goes.
SHOWN = {"gqm": GROUP_OF_FOUR, "ranker_group": GROUP_OF_FOUR, "consensus": ("--samples-key", "mt_texts")}


@dataclass(frozen=True, slots=True)
class Study:
    """The stages of one seed; `out` is the folder that all seeds share."""

    seed: int
    out: Path

    @property
    def settings(self) -> DemoSettings:
        """Those of the demo, of one process."""
        return DemoSettings(first_seed=self.seed, nproc=1, rl_steps=STEPS)

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
            yield stage
        yield from self._gqm()
        policies = PolicyPlan(self.layout)
        for name, judge in self.judges.items():
            yield self._probe(name, judge)
            yield policies.rl(f"grpo_{name}", self.seed, judge)
            yield policies.evaluate(f"grpo_{name}", self.seed)
        normalised = replace(self.settings, rl_overrides=("--norm_adv_by_std", "true"))
        judge, policies = self.judges[EMBEDDER], PolicyPlan(replace(self.layout, settings=normalised))
        yield policies.rl(f"grpo_{NORMALISED}", self.seed, judge)
        yield policies.evaluate(f"grpo_{NORMALISED}", self.seed)

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
        words: list[object] = ["--judge", judge.name, *(["--model", judge.model] if judge.model else [])]
        for option, value in judge.options.items():
            words += ["--judge-option", f"{option}={value if isinstance(value, str) else json.dumps(value)}"]
        words += [*SHOWN.get(name, ()), "--rows", 60 if name == "gqm" else 100, "--out", self._probes_of(name)]
        command = self.layout.grrm("probe", rows, *words)
        return self.layout.result(f"probes of {name}", command, [rows, *judge.files], [self._probes_of(name)])

    def _probes_of(self, name: str) -> Path:
        return self.layout.model(f"probe-{name}", self.seed) / "probes.json"

    def figures(self) -> dict[str, dict[str, Any]]:
        """Of each judge its probes and what its policy gained."""
        arms = {name: f"grpo_{name}" for name in (*self.judges, NORMALISED)}
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
        return figures


def main() -> None:
    """Run the seeds, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--out", type=Path, default=Path("runs/probe_study"))
    parser.add_argument("--record", type=Path, default=RESULTS / "probe_study.json")
    options = parser.parse_args()
    studies = [Study(seed, options.out.resolve()) for seed in options.seeds]
    with signals_as_interrupts():
        for study in studies:
            run_stages(list(study.stages()), study.settings, checkout(), study.out, Console())
    seeds = {study.seed: {"judges": study.figures()} for study in studies}
    for seed in seeds.values():  # of the policies that one recipe has trained
        seed["tau_b"] = rank_correlations([row for name, row in seed["judges"].items() if name != NORMALISED])
    record = {"seeds": seeds, "steps": STEPS, "versions": versions()}
    with atomic_path(options.record) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
