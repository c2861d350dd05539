"""A judge that asks the policy itself: the mean log-probability of a translation's tokens behind its prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from grrm.data.convert import render_prompt
from grrm.gqm.groups import Group, Status, Verdict

_BATCH = 32


def judge(groups: Sequence[Group], *, model: str, prompt_type: str, dtype: str = "float32") -> list[Verdict]:
    """Scores 10 exp(mean of log p), the end of the translation included, under the policy in the folder `model`."""
    from grrm.models.token_scores import score_responses

    policy, tokenizer, encode, encode_text = _opened(model, dtype)
    positions = [
        (number, position, candidate.translation)
        for number, group in enumerate(groups)
        for position, candidate in enumerate(group.candidates)
        if candidate.translation is not None
    ]
    prompts = [encode(render_prompt(groups[number].task, prompt_type)) for number, _, _ in positions]
    responses = [[*encode_text(text), int(tokenizer.eos_token_id)] for _, _, text in positions]
    scored = score_responses(
        policy, prompts, responses, pad_id=tokenizer.pad_token_id or 0, batch_size=_BATCH, temperature=1.0
    )
    scores: list[list[float | None]] = [[None] * len(group.candidates) for group in groups]
    for (number, position, _), logprobs_T in zip(positions, scored, strict=True):
        scores[number][position] = 10 * math.exp(float(logprobs_T.mean()))
    status_of = {True: Status.SCORED, False: Status.UNPARSABLE_CANDIDATE}
    return [Verdict(tuple(status_of[score is not None] for score in of_group), tuple(of_group)) for of_group in scores]


@lru_cache(maxsize=1)
def _opened(model: str, dtype: str) -> tuple[Any, Any, Any, Any]:
    from grrm.engine.open import prepare_paddle

    prepare_paddle(quiet=True)
    from grrm.models.cpu_layers import use_cpu_layers
    from grrm.models.policy import load_policy
    from grrm.models.tokenizer import encoder, load_tokenizer, text_encoder

    use_cpu_layers(dtype)
    tokenizer = load_tokenizer(model)
    return load_policy(Path(model)), tokenizer, encoder(tokenizer), text_encoder(tokenizer)
