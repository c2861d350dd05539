"""Judges that can be built by name, without a model in the process."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from grrm.errors import UserError
from grrm.judges.interface import Judge
from grrm.judges.options import require_known
from grrm.judges.text_metric import METRICS, TextMetricJudge

EMBEDDED_JUDGES = ("text_metric", *METRICS)


def build_judge(name: str = "text_metric", options: Mapping[str, object] | None = None) -> Judge:
    """The judge called `name`: "text_metric" (option `metric`) or a metric's own name ("chrf", "chrf++", "bleu").

    `options` are the judge's constructor arguments. Raises UserError that names the nearest known name or option.
    """
    require_known("judge", name, EMBEDDED_JUDGES)
    chosen = dict(options or {})
    if name != "text_metric":
        chosen.setdefault("metric", name)
        if chosen["metric"] != name:
            raise UserError(f"Judge {name!r} cannot take metric {chosen['metric']!r}; leave out one of the two.")
    known = [option.name for option in dataclasses.fields(TextMetricJudge) if option.init]
    for option in chosen:
        require_known(f"option of judge {name!r}", option, known)
    return TextMetricJudge(**chosen)  # type: ignore[arg-type]
