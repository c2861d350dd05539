"""Counters, histograms and gauges for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from grrm.judges.metrics import COUNTERS as JUDGE_COUNTERS
from grrm.judges.metrics import JudgeMetrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COUNTERS: Mapping[str, tuple[str, Sequence[str]]] = {  # by name: help, names of the labels
    "grrm_requests_total": ("Requests answered, by route and HTTP status.", ("route", "code")),
    "grrm_connections_closed_total": ("Connections closed because of a deadline or a limit, by reason.", ("reason",)),
    "grrm_groups_total": ("Groups judged.", ()),
    "grrm_candidates_total": ("Candidates judged, by outcome.", ("status",)),
    "grrm_rows_defaulted_total": ("Unscored rows of PaddleNLP's protocol that got the default reward.", ()),
    "grrm_replayed_answers_total": ("Requests answered from an earlier request with the same id.", ()),
    "grrm_abandoned_requests_total": ("Requests given up because their client had gone.", ()),
    "grrm_judge_calls_total": ("Calls of the judge; one call may serve several requests.", ()),
    "grrm_judge_failures_total": ("Calls of the judge that raised or broke its contract.", ()),
    "grrm_constant_score_alarms_total": (
        "Times that the judge scored many translations in a row alike.",
        (),
    ),
    "grrm_judge_seconds_total": ("Time spent in the judge.", ()),
}
SECONDS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 20.0, 60.0, 300.0, 1800.0)
HISTOGRAMS: Mapping[str, tuple[str, str, Sequence[float]]] = {  # help, label, upper bounds
    "grrm_request_seconds": ("From a request's arrival to its answer, by route.", "route", SECONDS),
    "grrm_queue_wait_seconds": (
        "From a request's arrival to the call that serves it, by judge.",
        "judge",
        SECONDS,
    ),
    "grrm_judge_call_seconds": ("What a call of the judge takes, by judge.", "judge", SECONDS),
    "grrm_batch_groups": (
        "Groups of a call of the judge, by judge.",
        "judge",
        (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096),
    ),
    "grrm_reply_tokens": (
        "Tokens that the judge's model wrote about a group, by judge.",
        "judge",
        (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 32768),
    ),
}

disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Counters and histograms by name; thread-safe. `gauges` are read when they are asked for."""

    def __init__(
        self,
        counters: Mapping[str, tuple[str, Sequence[str]]] = COUNTERS,
        histograms: Mapping[str, tuple[str, str, Sequence[float]]] = HISTOGRAMS,
        gauges: Mapping[str, tuple[str, Callable[[], float]]] | None = None,
    ) -> None:
        self.registry = CollectorRegistry()
        self._counters = {
            name: Counter(name, help_text, labels, registry=self.registry)
            for name, (help_text, labels) in counters.items()
        }
        self._histograms = {
            name: Histogram(name, help_text, (label,), registry=self.registry, buckets=bounds)
            for name, (help_text, label, bounds) in histograms.items()
        }
        for name, (help_text, read) in (gauges or {}).items():
            Gauge(name, help_text, registry=self.registry).set_function(read)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add `amount` to counter `name`. Raises KeyError for an unknown name."""
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(amount)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add an observation to histogram `name`. Raises KeyError for an unknown name."""
        self._histograms[name].labels(**labels).observe(value)

    def render(self) -> str:
        """Return everything in the text exposition format, version 0.0.4."""
        return generate_latest(self.registry).decode()


class JudgeCollector(Collector):
    """The judges that are hosted, by name and model, and what each counted itself."""

    def __init__(self, judges: Sequence[tuple[str, str | None, JudgeMetrics | None]]) -> None:
        self._judges = judges

    def collect(self) -> Iterator[Metric]:
        """Read the counters of every judge; they have its name as a label where there are several judges."""
        info = GaugeMetricFamily("grrm_judge_info", "The judges that are hosted.", labels=("judge", "model"))
        for name, model, _ in self._judges:
            info.add_metric((name, model or ""), 1)
        yield info
        labelled = len(self._judges) > 1
        counting = [(name, counters.values()) for name, _, counters in self._judges if counters is not None]
        for counter, help_text in JUDGE_COUNTERS.items() if counting else ():
            # The agreement is negative for some groups, so its sum is no counter.
            family = GaugeMetricFamily if counter == "agreement_sum" else CounterMetricFamily
            metric = family(f"grrm_judge_{counter}", help_text, labels=("judge",) if labelled else ())
            for name, values in counting:
                metric.add_metric((name,) if labelled else (), values[counter])
            yield metric
