"""A tiny policy whose distribution is far from uniform, its data, and a judge that gives every status."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from support.rl_processes import TinyWorld
from support.tiny_policy import random_policy

from grrm.gqm.groups import Group, Status, Verdict

SPREAD = 0.2  # of weights: log-probs from 0 to -10, gradients of all layers of one size
CONSTANT, OF_EOS = 3.0, 5.0  # a number that embeddings have at the same place, and that of the end of a text


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
            value[0], value[0, tokenizer.eos_token_id] = 0.0, OF_EOS - CONSTANT
        parameter.set_value(value)
    model.save_pretrained(str(folder), safe_serialization=True)
    return folder


def judge(groups: Sequence[Group]) -> list[Verdict]:
    """A score by the text, and now and then another status by the group or by the text."""
    return [_verdict(group, number) for number, group in enumerate(groups)]


def _verdict(group: Group, number: int) -> Verdict:
    statuses: list[Status] = []
    scores: list[float | None] = []
    for sample, candidate in enumerate(group.candidates):
        digest = hashlib.sha256(candidate.response.encode()).digest()
        status = Status.SCORED
        if candidate.translation is None:
            status = Status.UNPARSABLE_CANDIDATE
        elif number == 1 and sample:
            status = Status.JUDGE_UNPARSABLE  # which leaves a group of one
        elif digest[1] < 32:
            status = Status.TOO_LONG
        elif digest[1] > 224 and scores and scores[-1] is not None:
            status = Status.DUPLICATE
        statuses.append(status)
        copied = scores[-1] if scores else None
        scores.append(copied if status is Status.DUPLICATE else digest[0] / 25.5 if status is Status.SCORED else None)
    return Verdict(tuple(statuses), tuple(scores))
