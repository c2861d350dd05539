"""Groups to judge, and judge models whose scores are known beforehand."""

from __future__ import annotations

import re

from support.text_models import TextModel

from grrm.gqm.chat import render_chatml
from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.gqm.prompts import render_response
from grrm.judges.interface import OpenedGenerator
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.spec import Process


def group_of(texts, group_id="g", source="SRC", id_prefix="c"):
    """A group of translations; None is a response without one."""
    candidates = tuple(Candidate(f"{id_prefix}{i}", text or "?", text, 5) for i, text in enumerate(texts))
    return Group(group_id, TranslationTask(source, "de", "en"), candidates)


def shown_in(prompt):
    """The candidates of a group prompt, in their order there."""
    return re.findall(r"Translation [A-Z]:\n```\n(.*)\n```\n", prompt)


class ModelOf(TextModel):
    """A judge model that scores the candidates it is shown by `score(place, text)`, None for an unreadable reply.

    `score_all(texts)` in its place sees all of them at once.
    """

    def __init__(self, score=None, score_all=None):
        self._score_all = score_all or (lambda texts: [score(place, text) for place, text in enumerate(texts)])
        super().__init__(self._judgement)

    def _judgement(self, prompt):
        scores = self._score_all(shown_in(prompt))
        return "I cannot say." if None in scores else render_response("Read.", scores)


def by_length(place, text):
    """A judge without bias: a point per character."""
    return len(text)


def judge_over(generator, options, *, render=render_chatml, special_tokens=(), metrics=None):
    """The judge with these options over a generator, whose prompts have up to 2048 tokens where no option says more."""
    longest = None if "prompt_length" in options.model_fields_set else 2048
    opened = OpenedGenerator(generator, render, longest, special_tokens=tuple(special_tokens))
    return options.open(Process(generator=lambda: opened, metrics=metrics or JudgeMetrics()))
