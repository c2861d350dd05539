"""The requests that benchmarks/server.py sends: the same groups as a trainer sends them in either protocol."""

from __future__ import annotations

import json
import random

from server_load import ID_MARK

from grrm.data.convert import render_prompt
from grrm.data.task_json import render_tgt
from grrm.gqm.chat import EOS_TEXT, render_chatml
from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.rewards.protocol import request_from_groups

_SYLLABLES = "ba der ein fün gro häu ing kal lung mor nen östr pre schi tra zu"
_WORDS = 35  # a text; 32 groups of eight make 394 kB of PaddleNLP's rows
_CHANGED = 5  # words in which a response differs from the reference


def make_groups(n_groups: int, n_samples: int) -> list[Group]:
    """Groups of made-up words with a reference and samples that come near it, always the same ones."""
    rng = random.Random(1)
    syllables = _SYLLABLES.split()
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 3))) for _ in range(2000)]

    def sample(reference: list[str]) -> str:
        changed = list(reference)
        for position in rng.sample(range(_WORDS), _CHANGED):
            changed[position] = rng.choice(words)
        return " ".join(changed)

    groups = []
    for number in range(n_groups):
        source, reference = rng.choices(words, k=_WORDS), rng.choices(words, k=_WORDS)
        texts = [sample(reference) for _ in range(n_samples)]
        candidates = tuple(Candidate(str(index), text, text, _WORDS) for index, text in enumerate(texts))
        groups.append(
            Group(f"12-{number}", TranslationTask(" ".join(source), "de", "en", " ".join(reference)), candidates)
        )
    return groups


def rows_body(groups: list[Group]) -> bytes:
    """`POST /` as PaddleNLP's trainer sends it: prompt, label and response of every sample, special tokens kept."""
    rows = [
        (render_chatml(render_prompt(group.task, "Tower")), render_tgt(group.task), candidate.response)
        for group in groups
        for candidate in group.candidates
    ]
    src, tgt, response = zip(*rows, strict=True)
    ended = {"tgt": [text + EOS_TEXT for text in tgt], "response": [text + EOS_TEXT for text in response]}
    return json.dumps({"src": src} | ended).encode()


def score_body(groups: list[Group]) -> bytes:
    """`POST /v1/score` as this project's client sends it, with a mark where the request's id goes."""
    return request_from_groups(ID_MARK.decode(), groups).model_dump_json().encode()
