"""Counters in Prometheus' text format."""

from __future__ import annotations

import threading
from collections import defaultdict

HELP = {
    "grrm_requests_total": "Requests answered, by route and HTTP status.",
    "grrm_groups_total": "Groups judged.",
    "grrm_candidates_total": "Candidates judged, by outcome.",
    "grrm_rows_defaulted_total": "Unscored rows of PaddleNLP's protocol that got the default reward.",
    "grrm_replayed_answers_total": "Requests answered from an earlier request with the same id.",
    "grrm_judge_failures_total": "Calls of the judge that raised or broke its contract.",
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
