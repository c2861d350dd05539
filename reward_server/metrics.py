"""Counters and histograms in Prometheus' text format."""

from __future__ import annotations

import bisect
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from grrm.judges.metrics import COUNTERS, JudgeMetrics

HELP = {
    "grrm_requests_total": "Requests answered, by route and HTTP status.",
    "grrm_connections_closed_total": "Connections closed because of a deadline or a limit, by reason.",
    "grrm_groups_total": "Groups judged.",
    "grrm_candidates_total": "Candidates judged, by outcome.",
    "grrm_rows_defaulted_total": "Unscored rows of PaddleNLP's protocol that got the default reward.",
    "grrm_replayed_answers_total": "Requests answered from an earlier request with the same id.",
    "grrm_abandoned_requests_total": "Requests given up because their client had gone.",
    "grrm_judge_calls_total": "Calls of the judge; one call may serve several requests.",
    "grrm_judge_failures_total": "Calls of the judge that raised or broke its contract.",
    "grrm_constant_score_alarms_total": "Times that the judge gave many translations in a row one and the same score.",
    "grrm_judge_seconds_total": "Time spent in the judge.",
}
SECONDS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 20.0, 60.0, 300.0, 1800.0)
HISTOGRAMS: Mapping[str, tuple[str, Sequence[float]]] = {
    "grrm_request_seconds": ("From a request's arrival to its answer, by route.", SECONDS),
    "grrm_queue_wait_seconds": ("From a request's arrival to the call of the judge that serves it, by judge.", SECONDS),
    "grrm_judge_call_seconds": ("What a call of the judge takes, by judge.", SECONDS),
    "grrm_batch_groups": (
        "Groups of a call of the judge, by judge.",
        (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096),
    ),
    "grrm_reply_tokens": (
        "Tokens that the judge's model wrote about a group, by judge.",
        (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 32768),
    ),
}


class _Histogram:
    """How many observations were at most as large as each bound, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = (*bounds, math.inf)
        self.counts = [0] * len(self.bounds)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        count = 0
        comma = "," if labels else ""
        for bound, here in zip(self.bounds, self.counts, strict=True):
            count += here
            le = "+Inf" if math.isinf(bound) else f"{bound:g}"
            yield f'{name}_bucket{{{labels}{comma}le="{le}"}} {count}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self.total:.17g}"
        yield f"{name}_count{braces} {count}"


class Metrics:
    """Counters that only grow, and histograms; thread-safe. `gauges` are read when they are asked for."""

    def __init__(
        self,
        help_texts: Mapping[str, str] = HELP,
        histograms: Mapping[str, tuple[str, Sequence[float]]] = HISTOGRAMS,
        gauges: Mapping[str, tuple[str, Callable[[], float]]] | None = None,
    ) -> None:
        self._help, self._histogram_help, self._gauges = help_texts, histograms, gauges or {}
        self._histograms: dict[str, dict[str, _Histogram]] = {name: {} for name in histograms}
        self._values: dict[str, dict[str, float]] = {name: defaultdict(float) for name in help_texts}
        self._lock = threading.Lock()

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Adds `amount` to counter `name`. Raises KeyError on an unknown name."""
        key = _labels(labels)
        with self._lock:
            self._values[name][key] += amount

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Adds an observation to histogram `name`. Raises KeyError on an unknown name."""
        key = _labels(labels)
        with self._lock:
            of_labels = self._histograms[name]
            if key not in of_labels:
                of_labels[key] = _Histogram(self._histogram_help[name][1])
            of_labels[key].observe(value)

    def render(self) -> str:
        """Everything as text exposition format, version 0.0.4."""
        lines = []
        with self._lock:
            for name, help_text in self._help.items():
                lines += [f"# HELP {name} {help_text}", f"# TYPE {name} counter"]
                for key, value in self._values[name].items():
                    lines.append(f"{name}{{{key}}} {value:.17g}" if key else f"{name} {value:.17g}")
            for name, (help_text, _) in self._histogram_help.items():
                lines += [f"# HELP {name} {help_text}", f"# TYPE {name} histogram"]
                for key, histogram in self._histograms[name].items():
                    lines += histogram.lines(name, key)
        for name, (help_text, read) in self._gauges.items():
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge", f"{name} {read():.17g}"]
        return "\n".join(lines) + "\n"


def render_judges(judges: Sequence[tuple[str, str | None, JudgeMetrics | None]]) -> str:
    """Which judges are hosted, by name and model, and what each counted itself, in the same format."""
    lines = ["# HELP grrm_judge_info The judges that are hosted.", "# TYPE grrm_judge_info gauge"]
    lines += [f"grrm_judge_info{{{_labels({'judge': name, 'model': model or ''})}}} 1" for name, model, _ in judges]
    counting = [(name, counters.values()) for name, _, counters in judges if counters is not None]
    for counter, help_text in COUNTERS.items() if counting else ():
        # The agreement is negative for some groups, so its sum is no counter.
        kind, suffix = ("gauge", "") if counter == "agreement_sum" else ("counter", "_total")
        metric = f"grrm_judge_{counter}{suffix}"
        lines += [f"# HELP {metric} {help_text}", f"# TYPE {metric} {kind}"]
        for name, values in counting:
            labels = f"{{{_labels({'judge': name})}}}" if len(judges) > 1 else ""
            lines.append(f"{metric}{labels} {values[counter]:.17g}")
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
