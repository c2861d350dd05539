"""Judges that show document context: what their prompts have, what is refused, what counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.text_models import TextModel

from grrm.errors import UserError
from grrm.gqm.groups import Candidate, ContextSegment, Group, Status, TranslationTask
from grrm.gqm.prompts import render_response
from grrm.judges.dedup import content_digest
from grrm.judges.gqm import GQMJudge, GQMOptions
from grrm.judges.registry import spec_of
from grrm.judges.sqm import SQMJudge

CONTEXT = (ContextSegment("Eins", "One"), ContextSegment("Zwei", "Two"))
TASK = TranslationTask("Drei", "de", "en", context=CONTEXT)


def group(task: TranslationTask = TASK) -> Group:
    return Group("g", task, tuple(Candidate(text, text, text) for text in ("Three", "Tree")))


def in_context(*texts: str | None) -> Group:
    return group(replace(TASK, context=(ContextSegment(*texts),)))


def judges(model: TextModel, **settings):
    yield GQMJudge(model, options=GQMOptions(context_segments=1, retries=0), **settings)
    yield SQMJudge(model, context_segments=1, **settings)


def model() -> TextModel:
    return TextModel(lambda prompt: render_response("", [8, 3]) if "multiple" in prompt else "8")


def test_both_judges_show_the_nearest_segment():
    asked = model()
    for judge in judges(asked):
        assert judge.judge([group()])[0].statuses == (Status.SCORED, Status.SCORED)
    assert all("Zwei\n```\nTranslation text:\n```\nTwo\n" in prompt for prompt in asked.prompts)
    assert not any("Eins" in prompt for prompt in asked.prompts)


@pytest.mark.parametrize("texts", [("a\u202eb", "One"), ("Eins", "a\u202eb")])
def test_context_that_cannot_be_shown_is_like_such_a_source(texts):
    asked = model()
    for judge in judges(asked):
        assert judge.judge([in_context(*texts)])[0].statuses == (Status.UNSAFE_SOURCE,) * 2
    assert not asked.prompts


def test_the_limit_on_prompts_counts_context():
    for judge in judges(model(), prompt_length=800):
        assert judge.judge([in_context("Eins", "One")])[0].statuses == (Status.SCORED, Status.SCORED)
        assert judge.judge([in_context("Eins " * 200, "One")])[0].statuses == (Status.TOO_LONG,) * 2


@pytest.mark.parametrize("name", ["gqm", "sqm"])
def test_a_task_without_its_document_is_refused(name):
    task = replace(TASK, context=None)
    spec_of(name).read({}).check_task(task)
    options = spec_of(name).read({"context_segments": 1})
    options.check_task(replace(TASK, context=()))
    with pytest.raises(UserError, match="columns document and position"):
        options.check_task(task)


def test_more_segments_than_a_prompt_may_have_are_refused():
    with pytest.raises(UserError, match="'context_segments' is 17; give a number from 0 to 16"):
        spec_of("gqm").read({"context_segments": 17})


def test_a_cached_verdict_is_of_one_context():
    digests = {content_digest(replace(TASK, context=context), ["Three"]) for context in (None, CONTEXT, CONTEXT[:1])}
    assert len(digests) == 3
    assert content_digest(replace(TASK, context=()), ["Three"]) in digests
