"""What a run says on the console beside its progress."""

from __future__ import annotations

import pytest

from grrm.gqm.groups import Status
from grrm.tracking.console import StepProgress
from grrm.tracking.run_record import MANY_FAILURES, REMEDIES, RunRecord


def test_every_status_without_a_score_has_a_remedy():
    assert set(REMEDIES) == {status for status in Status if not status.is_scored}


def test_a_frequent_failure_is_told_when_it_becomes_frequent_and_not_at_every_step(capsys: pytest.CaptureFixture[str]):
    record = RunRecord(None, None, StepProgress(5, description="grpo"), 0)
    for step, share in enumerate((MANY_FAILURES, 0.44, 0.5, 0.0, 0.06), 1):
        record.metrics(step, {"status/missing_reference": share, "status/scored": 1 - share})
    said = [line for line in capsys.readouterr().err.splitlines() if "missing_reference" in line]
    assert [line.partition(":")[2] for line in said] == [
        f" step {step}, {share} of the samples are missing_reference: {REMEDIES[Status.MISSING_REFERENCE]}"
        for step, share in ((2, "44%"), (5, "6%"))
    ]
