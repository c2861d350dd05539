"""Compiles a grammar once in a process of its own, whose time and memory are limited; this file is its program too.

The library has limits of its own, but some schemas pass them: `multipleOf: 999983` takes 24 s, a conjunction of twenty
patterns all memory.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from typing import Any

SECONDS, MIB = 2, 2048
LIMITS: dict[str, Any] = {"max_lexer_states": 50_000, "verbose_errors": False}


def _main() -> None:
    """Print the reason not to compile the grammar on stdin, if there is one."""
    resource.setrlimit(resource.RLIMIT_AS, (MIB << 20, MIB << 20))
    import llguidance

    grammar, tokenizer, size, stop_token_ids = json.load(sys.stdin)
    vocabulary = llguidance.LLTokenizer(tokenizer, n_vocab=size, eos_token=stop_token_ids)
    limit = math.ceil(time.process_time()) + SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    limits = llguidance.LLParserLimits(**LIMITS)
    matcher = llguidance.LLMatcher(vocabulary, grammar, log_level=0, limits=limits)
    is_stuck = not matcher.is_error() and not any(matcher.compute_bitmask())
    reason = (matcher.get_error().splitlines() or [""])[0]
    print("no text satisfies it" if is_stuck or reason == "NoExtensionBias" else reason, end="")


if __name__ == "__main__":
    _main()
