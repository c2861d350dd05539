"""A tiny policy whose distribution is far from uniform, its data, and a judge that gives every status."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from support.rl_processes import TinyWorld
from support.tiny_policy import random_policy

from grrm.gqm.groups import Candidate, Group, Status, Verdict
from grrm.gqm.spans import ErrorSpan

SPREAD = 0.2  # of weights: log-probs from 0 to -10, gradients of all layers of one size
CONSTANT, OF_EOS = 3.0, 5.2  # a number that embeddings have at the same place, and that of the end of a text


def write_oracle_policy(world: TinyWorld, folder: Path, *, tied: bool = True) -> Path:
    """Save a policy whose norms and biases are not ones and zeros, and that ends a response now and then."""
    import shutil

    from grrm.models.tokenizer import load_tokenizer

    shutil.copytree(world.policy, folder)
    tokenizer = load_tokenizer(str(folder))
    model = random_policy(vocab_size=len(tokenizer), tie_word_embeddings=tied)
    rng = np.random.default_rng(17)
    for name, parameter in model.named_parameters():
        value = rng.normal(1.0 if "norm" in name else 0.0, SPREAD, parameter.shape).astype(np.float32)
        if "embed_tokens" in name:
            value[:, 0] = CONSTANT
            value[tokenizer.eos_token_id, 0] = OF_EOS
        elif "lm_head" in name:
            value[0], value[0, tokenizer.eos_token_id] = 0.0, 1.5 * (OF_EOS - CONSTANT)
        parameter.set_value(value)
    model.save_pretrained(str(folder), safe_serialization=True)
    return folder


def judge(groups: Sequence[Group]) -> list[Verdict]:
    """A score by the text; some samples have another status, by the place of their group in the rollout."""
    return [_verdict(group) for group in groups]


def _verdict(group: Group) -> Verdict:
    position = int(group.group_id.rpartition("-")[2])
    statuses: list[Status] = []
    scores: list[float | None] = []
    for sample, candidate in enumerate(group.candidates):
        status, score = _status(position, sample, scores), None
        if candidate.translation is None:
            status = Status.UNPARSABLE_CANDIDATE
        elif status is Status.DUPLICATE:
            score = scores[0]
        elif status is Status.SCORED:
            score = hashlib.sha256(candidate.response.encode()).digest()[0] / 25.5
        statuses.append(status)
        scores.append(score)
    return Verdict(tuple(statuses), tuple(scores), spans=tuple(map(_spans, group.candidates)))


def _spans(candidate: Candidate) -> tuple[ErrorSpan, ...] | None:
    """Two errors that overlap, at places that the text decides; none in a short text."""
    if candidate.translation is None:
        return None
    n, draws = len(candidate.translation), hashlib.sha256(candidate.translation.encode()).digest()
    if n < 4:
        return ()
    start = draws[1] % (n - 3)
    severities = ("minor", "major", "critical")
    first, second = (ErrorSpan(start + k, start + k + 2, severities[draws[2 + k] % 3]) for k in (0, 1))
    return first, second


def _status(position: int, sample: int, scores: list[float | None]) -> Status:
    """Copies in group 0, one score only in group 1, a text that is too long for the judge in group 3."""
    if position == 0 and sample in (1, 2) and scores[0] is not None:
        return Status.DUPLICATE
    if position == 1 and sample > 0:
        return Status.JUDGE_UNPARSABLE
    return Status.TOO_LONG if (position, sample) == (3, 0) else Status.SCORED
