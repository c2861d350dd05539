"""Constraints of completions: masks on arrays and tensors, what becomes too complex, what is missing."""

from __future__ import annotations

import numpy as np
import pytest

from grrm.engine import constraint
from grrm.engine.api import Request, SamplingParams, check_widely_served
from grrm.engine.constraint import Constraint, Vocabulary, json_constraint
from grrm.engine.paddle.constrained import Constraints
from grrm.errors import UserError

WIDTH = 70
VOCABULARY = Vocabulary("tokenizer.json", WIDTH, (2,))


class Matcher:
    """Allows every third token, and cannot go on after `n` of them."""

    def __init__(self, n: int = 9) -> None:
        self.n, self.consumed = n, []

    def deep_copy(self) -> Matcher:
        return Matcher(self.n)

    def compute_bitmask(self) -> bytes:
        return np.packbits(np.arange(64) % 3 == 0, bitorder="little").tobytes()

    def is_error(self) -> bool:
        return len(self.consumed) >= self.n

    def consume_token(self, token: int) -> bool:
        self.consumed.append(token)
        return True


def constraints_of(monkeypatch, matcher, *numbers):
    monkeypatch.setattr(constraint, "_compiled", lambda _: matcher)
    constraints = Constraints()
    params = SamplingParams(max_new_tokens=5, stop_token_ids=(2,), constraint=Constraint("g", VOCABULARY))
    requests = {number: Request([1], params) for number in numbers}
    constraints.add(requests | {99: Request([1], SamplingParams(max_new_tokens=5))})
    return constraints


@pytest.mark.parametrize("on_device", [False, True])
def test_only_constrained_rows_are_masked(monkeypatch, on_device):
    paddle = pytest.importorskip("paddle")
    constraints = constraints_of(monkeypatch, Matcher(), 4, 5)
    logits_SV = np.random.default_rng(0).normal(size=(3, WIDTH)).astype(np.float32)
    sent = paddle.to_tensor(logits_SV) if on_device else logits_SV.copy()
    masked_SV = np.asarray(constraints.mask(np.array([4, 99, 5]), sent))
    allowed_V = (np.arange(WIDTH) % 3 == 0) & (np.arange(WIDTH) < 64)
    assert np.array_equal(masked_SV[1], logits_SV[1])
    for row in (0, 2):
        assert np.array_equal(masked_SV[row][allowed_V], logits_SV[row][allowed_V])
        assert np.all(masked_SV[row][~allowed_V] == -np.inf)


def test_what_becomes_too_complex_ends_and_is_told(monkeypatch):
    constraints = constraints_of(monkeypatch, Matcher(n=1), 4)
    number, logits_SV = np.array([4]), np.zeros((1, WIDTH), np.float32)
    constraints.mask(number, logits_SV)
    constraints.advance(number, np.array([3]))
    masked_SV = constraints.mask(number, np.zeros((1, WIDTH), np.float32))
    assert np.flatnonzero(np.isfinite(masked_SV[0])).tolist() == [2]
    constraints.advance(number, np.array([2]))
    assert constraints.drop(4)
    assert not constraints


def test_missing_package_and_missing_tokenizer_are_named(monkeypatch):
    monkeypatch.setattr(constraint, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"paddle-grrm\[structured\]"):
        json_constraint({}, VOCABULARY)
    monkeypatch.setattr(constraint, "find_spec", lambda name: object())
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        json_constraint({}, None)


def test_other_engines_refuse_it():
    params = SamplingParams(max_new_tokens=5, constraint=Constraint("g", VOCABULARY))
    with pytest.raises(UserError, match="a constraint"):
        check_widely_served(params, "FastDeploy")
