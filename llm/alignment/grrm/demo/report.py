"""The demo's report: summary.json for scripts, PNG curves, and one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grrm.demo.figures import draw_all
from grrm.demo.pictures import Picture, inline
from grrm.demo.results import Results, load_results, summarise
from grrm.demo.samples import pick_groups, pick_samples
from grrm.demo.settings import TITLES, DemoSettings
from grrm.demo.stages import write_json
from grrm.tracking.report.page import page_environment, write_bytes

SUMMARY, PAGE, FIGURES = "summary.json", "report.html", "figures"
_TABLE = (
    ("chrF, sampled", "chrf", 1.0, 1),
    ("chrF, greedy", "chrf_greedy", 1.0, 1),
    ("chrF per sentence, sampled", "chrf_sentence", 1.0, 1),
    ("chrF per sentence, greedy", "chrf_sentence_greedy", 1.0, 1),
    ("exact, sampled (%)", "exact_match", 100.0, 1),
    ("exact, greedy (%)", "exact_match_greedy", 100.0, 1),
    ("tokens per sample", "response_length", 1.0, 1),
    ("KL to SFT, nats per token", "kl_to_sft", 1.0, 4),
    ("unparsable (%)", "unparsable", 100.0, 2),
)


def write_report(out: Path, settings: DemoSettings, seconds: Mapping[str, float]) -> dict[str, Any]:
    """Write `summary.json`, `report.html` and `figures/*.png` into `out` from what the stages left.

    Returns the summary. Absent runs and metrics are shown as not run or not logged.
    Raises ValueError on a damaged file.
    """
    results = load_results(out, settings, seconds)
    summary = summarise(results)
    pictures = draw_all(results)
    for picture in pictures:
        if picture.light_png is not None:
            write_bytes(out / FIGURES / f"{picture.name}.png", picture.light_png)
    write_bytes(out / PAGE, render_page(out, results, summary, pictures).encode())
    write_json(out / SUMMARY, summary)
    return summary


def render_page(out: Path, results: Results, summary: Mapping[str, Any], pictures: list[Picture]) -> str:
    """The page as text."""
    environment = page_environment(Path(__file__).parent)
    environment.filters["figure"] = show_figure
    return environment.get_template("report.html.jinja").render(
        summary=summary,
        titles=TITLES,
        policies=list(summary["chrf"]),
        rows=[(label, summary[key], scale, digits) for label, key, scale, digits in _TABLE],
        rankings=[(TITLES[name], of_sets) for name, of_sets in summary["ranking"].items()],
        chosen=[(seed, TITLES[name]) for seed, name in summary["chosen_ranker"].items()],
        verdicts=[(TITLES[name], judged) for name, judged in summary["learned"].items()],
        not_judged=[TITLES[name] for name in results.settings.rl_runs if name not in summary["learned"]],
        pictures=[(picture, inline(picture.light_png), inline(picture.dark_png)) for picture in pictures],
        samples=pick_samples(results),
        groups=pick_groups(out, results),
        total_s=sum(summary["seconds"].values()),
    )


def show_figure(figure: Mapping[str, Any] | None, scale: float = 1.0, digits: int = 1) -> str:
    """A mean with its spread: "61.3 ± 0.4", or "61.3" for one seed, or a dash for none."""
    if figure is None:
        return "–"
    mean = f"{figure['mean'] * scale:.{digits}f}"
    return mean if figure["sd"] is None else f"{mean} ± {figure['sd'] * scale:.{digits}f}"
