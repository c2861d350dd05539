"""Counters in Prometheus' text format."""

from __future__ import annotations

import threading
from collections import defaultdict

from grrm.judges.metrics import COUNTERS, JudgeMetrics

HELP = {
    "grrm_requests_total": "Requests answered, by route and HTTP status.",
    "grrm_connections_closed_total": "Connections closed because of a deadline or a limit, by reason.",
    "grrm_groups_total": "Groups judged.",
    "grrm_candidates_total": "Candidates judged, by outcome.",
    "grrm_rows_defaulted_total": "Unscored rows of PaddleNLP's protocol that got the default reward.",
    "grrm_replayed_answers_total": "Requests answered from an earlier request with the same id.",
    "grrm_judge_calls_total": "Calls of the judge; one call may serve several requests.",
    "grrm_judge_failures_total": "Calls of the judge that raised or broke its contract.",
    "grrm_constant_score_alarms_total": "Times that the judge gave many translations in a row one and the same score.",
    "grrm_judge_seconds_total": "Time spent in the judge.",
}


class Metrics:
    """Counters that only grow; thread-safe."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, float]] = {name: defaultdict(float) for name in HELP}
        self._lock = threading.Lock()

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Adds `amount` to counter `name`; label values must not need escaping. Raises KeyError on an unknown name."""
        key = ",".join(f'{label}="{value}"' for label, value in labels.items())
        with self._lock:
            self._values[name][key] += amount

    def render(self) -> str:
        """All counters as text exposition format, version 0.0.4."""
        lines = []
        with self._lock:
            for name, help_text in HELP.items():
                lines += [f"# HELP {name} {help_text}", f"# TYPE {name} counter"]
                for key, value in self._values[name].items():
                    lines.append(f"{name}{{{key}}} {value:.17g}" if key else f"{name} {value:.17g}")
        return "\n".join(lines) + "\n"


def render_judge(name: str, model: str | None, counters: JudgeMetrics | None) -> str:
    """Which judge is hosted, and what it counted itself, in the same format."""
    labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in (("judge", name), ("model", model or "")))
    lines = ["# HELP grrm_judge_info The judge that is hosted.", "# TYPE grrm_judge_info gauge"]
    lines.append(f"grrm_judge_info{{{labels}}} 1")
    for counter, value in (counters.values() if counters else {}).items():
        # The agreement is negative for some groups, so its sum is no counter.
        kind, suffix = ("gauge", "") if counter == "agreement_sum" else ("counter", "_total")
        metric = f"grrm_judge_{counter}{suffix}"
        lines += [f"# HELP {metric} {COUNTERS[counter]}", f"# TYPE {metric} {kind}", f"{metric} {value:.17g}"]
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
