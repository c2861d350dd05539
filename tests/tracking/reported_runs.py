"""Runs for the report: two short ones on the same prompts, with hostile samples, and one as long as real ones are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from support.dumped_run import config_of, write_run
from support.rl_processes import rollouts_of

from grrm.evaluation import verdict
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask, Verdict
from grrm.tracking.metrics_log import MetricsLog
from grrm.tracking.report.selection import write_opinions
from grrm.tracking.rollout_dump import ROLLOUTS, RolloutDump, group_record

HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\"><b>bold</b>",
    "＂＞‹svg onload=alert(1)›<!--\u2028{{ data }}&lt;b&gt;",
)
LONG_RUN = {"steps": 400, "prompts": 4, "samples": 4, "length": 800}  # as much text as sixteen by eight of usual length
RUN_VERDICT = verdict.Verdict(
    "helped", "chrF of samples has risen", 10, 20, 50, 50, {verdict.CHRF: verdict.Change(51.0, 52.0, 0.5, 1.5)}
)
VERDICT = RUN_VERDICT.to_json()
_SENTENCE = "Ein Satz von mittlerer Länge, wie er in Übersetzungen von Menschen am häufigsten vorkommt. "


def reported_runs(folder: Path) -> list[Path]:
    """Two runs, the second with another scale of rewards, judged anew in reverse, evaluated, and with a verdict."""
    plain = write_run(folder / "plain", config_of())
    scaled = write_run(folder / "<b>scaled", config_of(score_scale_factor="0.2"))
    dump = scaled / ROLLOUTS / "rollouts-rank000.jsonl"
    lines = dump.read_text(encoding="utf-8").splitlines(keepends=True)
    for i, text in enumerate(HOSTILE):
        lines[i] = lines[i].replace('"twos"', json.dumps(text))
    dump.write_text("".join(lines), encoding="utf-8")
    records = [record for record in rollouts_of(scaled) if record["use"] == "trained"]
    reverse = [
        Verdict((Status.SCORED,) * 3, tuple(10 - c["score"] for c in record["candidates"])) for record in records
    ]
    write_opinions(scaled, "contrary", zip(records, reverse, strict=True))
    evaluations = MetricsLog(scaled, first_step=100)
    change = "eval_alarm/chrf_greedy_change"
    for step, greedy in ((10, 60.0), (20, 61.0)):
        ends = {change: greedy - 60.0, f"{change}_low": -0.5, f"{change}_high": 2.5}
        evaluations.log(step, {"eval_chrf_greedy": greedy, "eval_chrf": greedy - 9, **ends})
    (scaled / "verdict.json").write_text(json.dumps(VERDICT), encoding="utf-8")
    return [plain, scaled]


def write_long_run(folder: Path, steps: int, prompts: int = 4, samples: int = 2, length: int = 90) -> Path:
    """A run whose every group is of a prompt of its own, or, one in eight, of the same; of two language pairs."""
    dump, metrics = RolloutDump(folder / ROLLOUTS), MetricsLog(folder)
    draw = np.random.default_rng(5)
    for step in range(1, steps + 1):
        records = []
        for p in range(prompts):
            trg_lang = ("de", "zh")[p % 2]
            source = f"A sentence to translate, {'again' if p % 8 == 0 else f'{step} {p}'}"
            task = TranslationTask(source, "en", trg_lang, _SENTENCE[:length])
            rewards = [float(reward) for reward in draw.random(samples).round(3)]
            texts = [f"{(9 * _SENTENCE)[:length]} {step} {p} {i}" for i in range(samples)]
            group = Group(f"{step}-{p}", task, tuple(Candidate(str(i), t, t, 20) for i, t in enumerate(texts)))
            judged = Verdict((Status.SCORED,) * samples, tuple(10 * reward for reward in rewards))
            records.append(group_record(step, group, judged, rewards, rewards))
        dump.write(step, records)
        metrics.log(
            step, {f"metric_{i}": float(value) for i, value in enumerate(draw.random(60))} | {"reward_mean": 0.5}
        )
    return folder
