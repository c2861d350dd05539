"""Judges for `reward_server.py --judge FILE:FUNCTION` that take their time, fail or die."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from grrm.gqm.groups import Status, Verdict
from grrm.judges.text_metric import TextMetricJudge


def slow(groups, takes):
    """Scores digits as what they are, after `takes` seconds, or once the file `takes` is gone; "wordy" has it say much.

    What has no digits, as the probe of readiness, does not wait for the file.
    """
    texts = [[candidate.translation for candidate in group.candidates] for group in groups]
    wait = threading.Event().wait  # under libfaketime time.sleep fails when the clock jumps
    if isinstance(takes, str):
        while Path(takes).exists() and any(text.isdigit() for several in texts for text in several):
            wait(0.01)
    else:
        wait(takes)
    return [_digits(several) for several in texts]


def _digits(texts):
    scores = tuple(float(text) if text.isdigit() else 0.0 for text in texts)
    return Verdict((Status.SCORED,) * len(texts), scores, analysis="x" * 4_000_000 if "wordy" in texts else "")


def faulty(groups, fault, group_id):
    """Judges by chrF, but leaves one group "unscored" or fails with a "raise" on it."""
    verdicts = TextMetricJudge().judge(groups)
    for i, group in enumerate(groups):
        if group.group_id == group_id:
            if fault == "raise":
                raise RuntimeError("out of memory")
            verdicts[i] = Verdict.unscored(len(group.candidates), Status.JUDGE_UNPARSABLE)
    return verdicts


def mortal(groups, marker, prefix):
    """Judges by chrF. Its process is killed (SIGKILL) at the first group whose id begins with `prefix`.

    Of several servers with the same `marker`, a file, only the first that gets such a group is; none where it is there.
    """
    if any(group.group_id.startswith(prefix) for group in groups):
        try:
            Path(marker).touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return TextMetricJudge().judge(groups)
