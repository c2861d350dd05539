"""The tests that docs/server.md names for its promises are there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "server.md"


def test_every_promise_has_its_test():
    promised = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(promised) > 10
    for file, name in promised:
        texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob(file)]
        assert any(f"\ndef {name}(" in text for text in texts), (file, name)
