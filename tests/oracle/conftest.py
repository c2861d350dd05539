"""The table of largest errors at the end of a run of these tests with -s."""

from __future__ import annotations

import json

import pytest
from oracle.comparison import Comparison, table

ERRORS = "largest relative errors"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.config.option.capture != "no":
        return
    runs: dict[str, Comparison] = {}
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == ERRORS:
                runs |= {run: Comparison(errors) for run, errors in json.loads(value).items()}
    if runs:
        terminalreporter.write_line(table(runs))
