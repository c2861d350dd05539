"""Completions that are JSON of a schema: the tokens that may come next, by the library llguidance.

Compiling a schema can take any time and memory, so a new one is compiled first in a limited process of its own
(schema_trial.py). Each step is bounded by limits of the library, in states and not in time: they give equal results.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from grrm.engine.schema_trial import LIMITS, MIB, SECONDS
from grrm.errors import UserError

MAX_CHARACTERS = 1 << 17  # of a schema
_WAIT_S = 30.0  # for the schemas of others, and for the process
_REMEMBERED, _COMPILED = 256, 16
# A client's schema cannot relax its own validation.
_OVERRIDES = {"lenient": False, "coerce_one_of": False}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer.json, the width of the model's logits, and the tokens that end a completion."""

    tokenizer: str
    size: int
    stop_token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar that a completion follows. It can be sent to other processes, which compile it there."""

    grammar: str
    vocabulary: Vocabulary

    def matcher(self) -> Any:
        """A new `llguidance.LLMatcher` at the beginning of a completion."""
        return _compiled(self).deep_copy()


_compiling = threading.Lock()
_refusals: dict[Constraint, str] = {}  # empty for a grammar that may be compiled


def json_constraint(schema: Mapping[str, Any], vocabulary: Vocabulary | None) -> Constraint:
    """The constraint to JSON that a schema describes.

    Raises UserError without llguidance, without a tokenizer.json (`vocabulary` None), and for a schema that is too
    large, has keywords that llguidance does not know, admits no text, or takes too much to compile.
    """
    if find_spec("llguidance") is None:
        raise UserError(
            "response_format needs the package llguidance: install it with `pip install 'paddle-grrm[structured]'`"
        )
    if vocabulary is None:
        raise UserError("response_format needs a tokenizer.json, which this model's folder lacks: add it")
    import llguidance

    text = json.dumps(schema)
    if len(text) > MAX_CHARACTERS:
        raise UserError(f"the JSON schema has {len(text)} characters, more than {MAX_CHARACTERS}: make it smaller")
    try:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(text, overrides=_OVERRIDES)  # not compiled yet
    except ValueError as error:  # nested too deeply
        raise UserError(f"the JSON schema cannot be read: {error}") from error
    constraint = Constraint(grammar, vocabulary)
    reason = _refusals.get(constraint)
    if reason is None:
        reason = _compile_first(constraint)
    if reason:
        raise UserError(f"the JSON schema cannot be followed: {reason}")
    return constraint


def _compile_first(constraint: Constraint) -> str:
    """Compile a new grammar, one at a time; returns the reason not to."""
    if not _compiling.acquire(timeout=_WAIT_S):
        raise UserError("other JSON schemas are still being compiled: ask again later")
    try:
        reason = _refusals.get(constraint)
        if reason is None:
            reason = _tried(constraint)
            if not reason:
                _compiled(constraint)
            while len(_refusals) >= _REMEMBERED:
                del _refusals[next(iter(_refusals))]
            _refusals[constraint] = reason
        return reason
    finally:
        _compiling.release()


def _tried(constraint: Constraint) -> str:
    vocabulary = constraint.vocabulary
    sent = [constraint.grammar, vocabulary.tokenizer, vocabulary.size, vocabulary.stop_token_ids]
    command = [sys.executable, "-I", str(Path(__file__).with_name("schema_trial.py"))]
    too_much = f"it takes more than {SECONDS} s or {MIB} MiB to compile, make it simpler"
    try:
        done = subprocess.run(command, input=json.dumps(sent).encode(), capture_output=True, timeout=_WAIT_S)
    except subprocess.TimeoutExpired:
        return too_much
    if done.returncode > 0:
        raise RuntimeError(f"{command} failed: {done.stderr.decode(errors='replace')}")
    return too_much if done.returncode else done.stdout.decode()


@lru_cache(maxsize=_COMPILED)
def _compiled(constraint: Constraint) -> Any:
    import llguidance

    limits = llguidance.LLParserLimits(**LIMITS)
    return llguidance.LLMatcher(_tokenizer(constraint.vocabulary), constraint.grammar, log_level=0, limits=limits)


@lru_cache(maxsize=1)
def _tokenizer(vocabulary: Vocabulary) -> Any:
    import llguidance

    return llguidance.LLTokenizer(
        vocabulary.tokenizer, n_vocab=vocabulary.size, eos_token=list(vocabulary.stop_token_ids)
    )
