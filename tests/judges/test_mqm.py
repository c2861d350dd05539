"""The judge that marks errors, over a scripted generator, and its spans on the way to token advantages."""

import pytest
from support.judged_groups import group_of

from grrm.errors import UserError
from grrm.gqm.groups import Status, TranslationTask
from grrm.gqm.spans import ErrorSpan
from grrm.judges.generation import JudgeSampling
from grrm.judges.mqm import MQMJudge, MQMOptions
from grrm.judges.registry import spec_of

ONCE = JudgeSampling(retries=0)


def test_every_candidate_has_the_spans_of_its_text(scripted):
    generator = scripted({"\nan old horse\n": ['major: "horse"'], "\nold\n": ["No errors."]})
    verdict = MQMJudge(generator, sampling=ONCE).judge([group_of(["an old horse", None, "old", "an old horse"])])[0]
    assert verdict.scores == (pytest.approx(8.0), None, 10.0, pytest.approx(8.0))
    horse = (ErrorSpan(7, 12, "major"),)
    assert verdict.spans == (horse, None, (), horse)


def test_unreadable_reply_has_neither_score_nor_spans(scripted):
    generator = scripted({"\nx\n": ["fine\n7"], "\ny\n": ['minor: "y"']})
    verdict = MQMJudge(generator, sampling=ONCE).judge([group_of(["x", "y"])])[0]
    assert verdict.statuses == (Status.JUDGE_UNPARSABLE, Status.SCORED)
    assert verdict.spans == (None, (ErrorSpan(0, 1, "minor"),))


def test_group_without_a_readable_reply_has_no_spans_at_all(scripted):
    verdict = MQMJudge(scripted({"\nx\n": ["?"]}), sampling=ONCE).judge([group_of(["x"])])[0]
    assert (verdict.scores, verdict.spans) == ((None,), ())


def test_rules_that_need_spans_accept_it():
    assert spec_of("mqm").marks_errors


def test_context_to_show_must_be_there():
    with pytest.raises(UserError, match="context"):
        MQMOptions(context_segments=1).check_task(TranslationTask("a", "de", "en"))
