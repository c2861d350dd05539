"""The typed values of an argument file's keys, without the checks across keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grrm.config.key import Section
from grrm.config.load import explicit_values, usable_values
from grrm.config.problems import Problems


def typed_values(section: type[Section], raw: Mapping[str, Any]) -> dict[str, Any]:
    """Raises UserError for a key that is not known and a value that it cannot have."""
    problems = Problems()
    values = usable_values(section, explicit_values(section, raw, problems), problems)
    problems.raise_if_any("keys")
    return values
