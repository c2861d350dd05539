"""The tables of measurements in README and docs, each rendered from the files in benchmarks/results.

`page_tables.py` writes them into their pages. The demo's numbers come from demo.json, which has the layout of the
`summary.json` of `make demo SEEDS=3`: copy that file there, then run `page_tables.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from machine import RESULTS
from titles import (
    JUDGES,
    POLICIES,
    PROBED,
    README,
    REAL_JUDGES,
    REAL_POLICIES,
    REAL_SEEDS,
    REAL_SHORT,
    REAL_WITHOUT_LENGTH,
    STUDIED,
)

from grrm.evaluation.probes.measure import CHANCE, MIN_ROWS

NONE = "–"
DECODINGS = {"sampled": "", "greedy": "greedy_"}  # what the names of a gain begin with
Lines = Iterable[Sequence[str]]


def result(name: str) -> dict[str, Any]:
    """Return benchmarks/results/NAME.json."""
    return dict(json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")))


def real(half: str) -> dict[str, Any]:
    """The "judges" or "policies" of the pretrained model, of seed 1."""
    return dict(result(f"real_{half}")["seeds"]["1"][half])


def real_gains(policy: str, decoding: str = "") -> list[dict[str, float]]:
    """Gains of the pretrained policy over SFT on each seed of the common settings that has it; see `gain_of`."""
    seeds = (seed for seed in result("real_policies")["seeds"].values() if "settings" not in seed)
    records = (seed["policies"].get(policy, {}) for seed in seeds)
    return [gain_of(record["learned"], decoding) for record in records if "learned" in record]


def spread(figure: Mapping[str, Any] | None, digits: int, scale: float = 1.0) -> str:
    """Mean ± standard deviation."""
    return NONE if figure is None else f"{scale * figure['mean']:.{digits}f} ± {scale * figure['sd']:.{digits}f}"


def gain_of(learned: Mapping[str, Any], decoding: str = "") -> dict[str, float]:
    """Return a policy's gain over SFT in samples, or with the decoding "greedy_", with its interval."""
    low, high = learned[f"{decoding}interval"]
    return {"mean": learned[f"{decoding}gain"], "low": low, "high": high}


def each(values: Iterable[float | None], form: str) -> str:
    """The numbers one after another."""
    return ", ".join(NONE if value is None else format(value, form) for value in values)


def interval(figure: Mapping[str, float] | None, form: str) -> str:
    """Mean with its interval."""
    return f"{figure['mean']:{form}} ({figure['low']:{form}} to {figure['high']:{form}})" if figure else NONE


def real_policies_of(page: str) -> Lines:
    policies = real("policies")
    for policy, title in README[page].items():
        scores, cells = policies[policy]["scores"], []
        for way, prefix in DECODINGS.items():
            gains = each((gain["mean"] for gain in real_gains(policy, prefix)), "+.1f")
            cells.append(f"{scores[way]['chrf']:.1f}" + (f" ({gains})" if gains else ""))
        yield title, *cells


def real_seeds() -> Lines:
    for policy, title in REAL_SEEDS.items():
        yield title, *(interval(gain, "+.2f") for way in DECODINGS.values() for gain in real_gains(policy, way))


def real_policies() -> Lines:
    policies = real("policies")
    return (_learned(title, policies[policy]) for policy, title in REAL_POLICIES.items())


def real_without_length() -> Lines:
    seed = result("real_policies")["seeds"]["3"]
    records = {"sft": seed["policies"]["sft"]} | seed
    return (_learned(title, records[policy]) for policy, title in REAL_WITHOUT_LENGTH.items())


def real_short() -> Lines:
    policies = result("real_policies")["seeds"]["4"]["policies"]
    return (_learned(title, policies[policy]) for policy, title in REAL_SHORT.items())


def _learned(title: str, record: Mapping[str, Any]) -> Sequence[str]:
    """A row on a policy of the pretrained model."""
    learned, scores = record.get("learned"), record["scores"]
    gains = {way: gain_of(learned, prefix) if learned else None for way, prefix in DECODINGS.items()}
    cells = [cell for way in gains for cell in (f"{scores[way]['chrf']:.1f}", interval(gains[way], "+.2f"))]
    bleu = " / ".join(f"{scores['greedy']['bleu'][language]:.1f}" for language in ("de", "es"))
    of_samples = (f"{100 * scores['sampled']['copied']:.1f}", f"{scores['sampled']['length_mean']:.1f}")
    return title, *cells, bleu, *of_samples, each([scores.get("kl_to_reference")], ".3f")


def real_judges() -> Lines:
    judges = result("real_rm")["judges"] | real("judges")
    for judge, title in REAL_JUDGES.items():
        scores = judges[judge]["heldout"]
        figures = (scores[key] for key in ("hardest_third", "correlation", "order_consistency"))
        others = (each([figure and figure["mean"]], ".3f") for figure in figures)
        shares = (f"{100 * scores[key]:.1f}" for key in ("readable", "tied"))
        pairs, variance = interval(scores["accuracy_ties_half"], ".3f"), f"{scores['score_variance']:.2f}"
        yield title, *shares, pairs, *others, variance, f"{scores['tokens']['mean']:.0f}"


def real_claims() -> Lines:
    """Of each judge the figures about which the paper has claims."""
    first, third = real("judges"), result("real_rlvr")["judges"]
    rows = {"SQM": (first, "sqm"), "GQM after SFT": (first, "gqm_sft"), "the same, seed 3": (third, "gqm_sft")}
    for title, (judges, name) in (rows | {"after RLVR by the order, seed 3": (third, "gqm")}).items():
        written, expected = judges[name]["heldout"], judges[f"{name}_expected"]["heldout"]
        shares = (f"{100 * written[key]:.1f}" for key in ("tied", "zero_variance"))
        yield title, *shares, f"{written['score_variance']:.2f}", interval(expected["hardest_third"], ".3f")


def real_similarities() -> Lines:
    for policy, title in REAL_POLICIES.items():
        scores = [real("policies")[policy]["scores"][decoding] for decoding in DECODINGS]
        cells = [
            (f"{of_decoding['similarity']:.3f}", interval(of_decoding.get("similarity_gain"), "+.4f"))
            for of_decoding in scores
        ]
        yield title, *(cell for pair in cells for cell in pair)


def probe_shares() -> Lines:
    reports = [report for report, _ in _probed()]
    for probe in reports[0]["probes"]:
        yield f"`{probe}`", *(_share_of(report["probes"][probe]["all"]) for report in reports)


def _share_of(scores: Mapping[str, Any]) -> str:
    """The share of right decisions, bold where its interval lies below chance; none of too few rows."""
    if scores["right"] is None or scores["decided"] < MIN_ROWS:
        return NONE
    share = f"{scores['right']['mean']:.2f}"
    return f"**{share}**" if scores["right"]["high"] < CHANCE else share


def probe_habits() -> Lines:
    for (report, rows), probed in zip(_probed(), PROBED.values(), strict=True):
        habits = (report[key] for key in ("first_wins", "order_consistency", "length_correlation"))
        of_all = [scores["all"] for scores in report["probes"].values()]
        counts = (sum(scores[key] for scores in of_all) for key in ("decided", "refused", "unscored"))
        means = (each([habit and habit["mean"]], ".2f") for habit in habits)
        yield probed.title, str(rows), *map(str, counts), *means, f"{100 * report['tied']:.1f}"


def studied_judges(record: str) -> Lines:
    judges = result(record)["seeds"]["1"]["judges"]
    for name, row in sorted(judges.items(), key=lambda item: (item[0] == "embedding_std", -item[1]["worst share"])):
        worst = min(row["probes"], key=row["probes"].__getitem__)
        gains = (interval(gain_of(row["learned"], way), "+.2f") for way in DECODINGS.values())
        probe = f"`{worst}`" if row["worst share"] < 1 else NONE
        yield STUDIED[name], probe, f"{row['worst share']:.2f}", *gains, f"{row['tokens']:.1f}"


def _probed() -> list[tuple[dict[str, Any], int]]:
    """Of each judge the report of its groups, and how many rows each probe has at most."""
    judges = result("real_probes")["judges"]
    records = [judges[name] for name in PROBED]
    return [(next(iter(record["group_sizes"].values())), record["rows_a_probe"]) for record in records]


def demo_policies() -> Lines:
    demo = result("demo")
    for policy, title in POLICIES.items():
        scores = [spread(demo[key][policy], 1) for key in ("chrf", "chrf_greedy")]
        exact = [spread(demo[key][policy], 1, 100) for key in ("exact_match", "exact_match_greedy")]
        yield title, *scores, *exact, spread(demo["kl_to_sft"].get(policy), 3)


def demo_gains() -> Lines:
    for policy, learned in result("demo")["learned"].items():
        sampled = f"{interval(gain_of(learned), '+.2f')}, sd {learned['sd']:.2f}"
        title = POLICIES[policy].removeprefix("GRPO, ")
        yield (
            title,
            each(learned["gains"], "+.1f"),
            sampled,
            each(learned["greedy_gains"], "+.1f"),
            interval(gain_of(learned, "greedy_"), "+.2f"),
        )


def demo_judges() -> Lines:
    for judge, title in JUDGES.items():
        scores = result("demo")["ranking"][judge]["heldout"]
        seeds = [each(scores[key]["values"], ".3f") for key in ("accuracy", "correlation")]
        others = [spread(scores[key], 3) for key in ("tie_calibrated_accuracy", "kendall_tau_b")]
        yield title, *seeds, *others, f"{scores['milliseconds_a_group']['mean']:.1f}"


def rubric_judge() -> Lines:
    rows = result("rubric_judge")["rows"]
    for row in rows:
        columns = (row["ties_half"], row["ties_wrong"], row["correlation"])
        yield row["judge"], *(each(column, ".3f") if column else NONE for column in columns)


def layouts() -> Lines:
    for row in result("layouts")["rows"]:
        groups = "equal" if row["same_groups"] else "differ"
        differences = (f"{row[key]:.0e}" if row[key] else "0" for key in ("loss", "weights"))
        yield row["layout"], str(row["processes"]), groups, *differences


def memory() -> Lines:
    for row in result("memory")["rows"]:
        yield row["name"], *(cell for before in ("", "tensors_") for cell in _compared(row, before))


def _compared(row: Mapping[str, Any], before: str) -> Iterator[str]:
    """Measured and planned size and the error; tensors were not counted in every run."""
    if row[f"{before}measured_mib"] is None:
        yield from (NONE, f"{row[f'{before}planned_mib']:,}", NONE)
        return
    yield from (f"{row[f'{before}{of}_mib']:,}" for of in ("measured", "planned"))
    yield f"{100 * row[f'{before}error']:+.1f}%"


def server_attacks() -> Lines:
    rows = result("server_attacks")["rows"]
    attacks, servers = (dict.fromkeys(row[key] for row in rows) for key in ("attack", "server"))
    cells = {(row["attack"], row["server"]): f"{row['growth_mb']:,.0f} MB, {row['p99_ms']:,.0f} ms" for row in rows}
    return ([attack, *(cells.get((attack, server), NONE) for server in servers)] for attack in attacks)


@dataclass(frozen=True, slots=True)
class Published:
    """A table: the first one of `page` after the text `after`. Its head stays as it is, `lines()` are its rows."""

    page: str
    after: str
    lines: Callable[[], Lines]

    def written(self, text: str) -> str:
        """The page's text with the rows as the results are now. Raises ValueError where there is no such table."""
        before, mark, rest = text.partition(self.after)
        if not mark or "\n|" not in rest:
            raise ValueError(f"{self.page} has no table after {self.after!r}")
        lead, bar, table = rest.partition("\n|")
        head, rule, *lines = (bar + table).lstrip("\n").split("\n")
        tail = next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))
        rows = [f"| {' | '.join(line)} |".replace("|  |", "| |") for line in self.lines()]
        return "\n".join([before + mark + lead, head, rule, *rows, *lines[tail:]])


RESULTS_PAGE, REAL_PAGE, PROBE_PAGE = "docs/results.md", "docs/real.md", "docs/probe.md"
PUBLISHED = (
    Published("README.md", "<!-- results -->", lambda: real_policies_of("README.md")),
    Published("README_zh.md", "<!-- results -->", lambda: real_policies_of("README_zh.md")),
    Published(REAL_PAGE, "### What policies gain", real_policies),
    Published(REAL_PAGE, "### Two seeds", real_seeds),
    Published(REAL_PAGE, "### Rewards without length", real_without_length),
    Published(REAL_PAGE, "### After RLVR, and the SQM", real_short),
    Published(REAL_PAGE, "### By an embedder", real_similarities),
    Published(REAL_PAGE, "### How the judges rank", real_judges),
    Published(REAL_PAGE, "### Beside the paper's claims", real_claims),
    Published(PROBE_PAGE, "Share of right decisions", probe_shares),
    Published(PROBE_PAGE, "Over all probes: maximum rows", probe_habits),
    Published(PROBE_PAGE, "## Do probes predict the outcome of RL?", lambda: studied_judges("probe_study_human")),
    Published("docs/LOG.md", "## Seven judges probed", lambda: studied_judges("probe_study")),
    Published(RESULTS_PAGE, "## Scores of the policies", demo_policies),
    Published(RESULTS_PAGE, "Gain of each seed over", demo_gains),
    Published(RESULTS_PAGE, "## How well the judges rank", demo_judges),
    Published("docs/answers.md", "Pairs in order on the 400 held-out groups", rubric_judge),
    Published("docs/train.md", "The table has the largest differences", layouts),
    Published("docs/benchmarks.md", "## Memory beside the plan", memory),
    Published("docs/server.md", "**Attacks.**", server_attacks),
)
