"""A finished demo made of invented numbers, in the formats of the real stages."""

import math
import random

import pytest
from matplotlib.figure import Figure

from grrm.demo.results import RANKING_FILE, RANKINGS, scores_file, seed_folder
from grrm.demo.settings import CHOICE, JUDGES, RANKER, RANKERS, RL_RUNS, DemoSettings
from grrm.demo.stages import write_json
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask, Verdict
from grrm.tracking.metrics_log import MetricsLog
from grrm.tracking.rollout_dump import RolloutDump, group_record

ROWS = [
    ("12 kilometres per hour", "en", "de", "12 Kilometer pro Stunde"),
    ("le 3 mai 2021 à 14:05", "fr", "en", "May 3, 2021 at 2:05 PM"),
    ("Germany, Japan <b>& Peru</b>", "en", "zh", "德国、日本和秘鲁"),
    ("三小时二十分钟", "zh", "en", "3 hours and 20 minutes"),
    ("€1.234,50", "nl", "pt", "1.234,50 €"),
    ("vor 5 Tagen", "de", "ru", "5 дней назад"),
]
CHRF = {"base": 8.0, "sft": 59.0, "grpo": 63.5, "grpo_consensus": 62.4, "grpo_ranker": 63.1}


def invented_scores(policy: str, seed: int) -> dict:
    rng = random.Random(f"{policy} {seed}")

    def decoding(chrf: float) -> dict:
        return {
            "chrf": chrf,
            "chrf_sentence": {"mean": chrf - 2, "low": chrf - 4, "high": chrf},
            "bleu": {"de": chrf / 2},
            "exact_match": chrf / 150,
            "length_mean": 18.0,
            "unparsable": 0.01,
            "truncated": 0.0,
            "n_samples": 2,
        }

    def damaged(text: str) -> str | None:
        keep = CHRF[policy] / 70
        letters = [letter for letter in text if rng.random() < keep]
        return "".join(letters) if rng.random() < 0.95 else None

    examples = [
        {
            "source": source,
            "src_lang": src,
            "trg_lang": trg,
            "reference": reference,
            "greedy": reference if policy != "base" and rng.random() < 0.6 else damaged(reference),
            "sampled": [damaged(reference), damaged(reference)],
            "greedy_response": reference,
        }
        for source, src, trg, reference in ROWS * 5
    ]
    return {
        "sampled": decoding(CHRF[policy] + seed * 0.2),
        "greedy": decoding(CHRF[policy] + 12 + seed * 0.1),
        "n_rows": len(examples),
        **({"kl_to_reference": 0.02} if policy in RL_RUNS[RANKER] else {}),
        "signatures": {"chrf": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0"},
        "examples": examples,
    }


def invented_ranking(seed: int) -> dict:
    def of_set(accuracy: float) -> dict:
        figures = {
            name: {"mean": value, "low": value - 0.02, "high": value + 0.02}
            for name, value in (
                ("accuracy", accuracy),
                ("correlation", accuracy + 0.02),
                ("tie_calibrated_accuracy", accuracy - 0.1),
            )
        }
        return {**figures, "kendall_tau_b": None, "tied": 0.01, "milliseconds_a_group": 2.5}

    return {
        name: {"dev": of_set(0.7 + seed / 100), "heldout": of_set(0.6 + position / 10 + seed / 100)}
        for position, name in enumerate(JUDGES)
    }


def write_metrics(folder, steps: int, seed: int, *, rl: bool) -> None:
    rng, log = random.Random(seed), MetricsLog(folder)
    for step in range(1, steps + 1):
        done = step / steps
        metrics = {"loss": 6.5 * math.exp(-4 * done) + 0.6 + rng.gauss(0, 0.03)}
        if rl:
            metrics = {
                "loss": rng.gauss(0, 0.02),
                "reward_mean": 5.9 + 0.6 * done + rng.gauss(0, 0.08),
                "response_length_mean": 18 + rng.gauss(0, 0.4),
                "kl": 0.02 * done + abs(rng.gauss(0, 0.001)),
                "frac_zero_variance": 0.1 + 0.15 * done + rng.gauss(0, 0.02),
                "frac_unscored": max(0.0, rng.gauss(0.005, 0.004)),
                "logprob_gap_mean": 2e-6,
                "logprob_gap_max": 3e-5,
            }
        log.log(step, metrics)


def write_rollouts(folder) -> None:
    dump = RolloutDump(folder)
    for step in (1, 2, 120):
        records = []
        for index in range(2):
            source, src, trg, reference = ROWS[(step + index) % len(ROWS)]
            texts = [reference, reference[:-3], None, reference]
            candidates = [
                Candidate(str(i), text or "?? <script>alert(1)</script>", text, 9 + i) for i, text in enumerate(texts)
            ]
            group = Group(f"{step}-{index}", TranslationTask(source, src, trg, reference), tuple(candidates))
            statuses = (Status.SCORED, Status.SCORED, Status.UNPARSABLE_CANDIDATE, Status.DUPLICATE)
            scores = (10.0, 6.0 + index, None, 10.0)
            verdict = Verdict(statuses, scores, (("0", "3"), ("1",)), "", 1)
            records.append(
                group_record(step, group, verdict, [1.0, 0.6 + index / 10, None, 1.0], [0.2, -0.4, None, 0.2])
            )
        dump.write(step, records)


def write_demo(out):
    """Write an invented study of three seeds into `out`; (folder, settings)."""
    settings = DemoSettings(n_seeds=3)
    for seed in settings.seeds:
        write_metrics(seed_folder(out, seed) / "sft", 700, seed, rl=False)
        write_json(seed_folder(out, seed) / RANKINGS / RANKING_FILE, invented_ranking(seed))
        write_json(seed_folder(out, seed) / RANKER / CHOICE, {"chosen": "ranker_none"})
        for name in RANKERS:
            log = MetricsLog(seed_folder(out, seed) / name)
            for step in (100, 200):
                log.log(step, {"eval_correlation": 0.5 + step / 1000})
        for policy in CHRF:
            write_json(scores_file(out, seed, policy), invented_scores(policy, seed))
        for run in settings.rl_runs:
            write_metrics(seed_folder(out, seed) / run, 120, seed, rl=True)
            write_rollouts(seed_folder(out, seed) / run / "rollouts")
    return out, settings


@pytest.fixture(scope="session")
def invent_demo():
    """Writes an invented study into a folder."""
    return write_demo


@pytest.fixture
def finished_demo(tmp_path):
    """(folder, settings) of an invented study of three seeds, to be changed at will."""
    return write_demo(tmp_path / "demo")


@pytest.fixture
def savefig(monkeypatch):
    """What renders a figure, which takes seconds; figures of this test are drawn only."""
    rendering = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, file, **options: file.write(b"\x89PNG"))
    return rendering


@pytest.fixture
def without_embedder(monkeypatch):
    monkeypatch.setattr("grrm.demo.real_plan.available", lambda: False)
