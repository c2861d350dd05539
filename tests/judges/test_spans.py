"""Error spans: the judge that marks words, and the way of spans through mixtures, gates and a server."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.judged_groups import group_of
from support.reward_app import group, make_client, score_body

from grrm.data.convert import convert_to_src_tgt
from grrm.data.dataset import read_prompt_items
from grrm.data.task_json import parse_tgt, render_tgt
from grrm.errors import UserError
from grrm.evaluation.annotation.gold import gold_groups, merged_scores, write_gold
from grrm.evaluation.annotation.intake import Annotation, Span
from grrm.gqm.groups import Status, Verdict
from grrm.gqm.spans import ErrorSpan, joined_spans, read_marked, severity_weights
from grrm.http_client.exchange import AnswerError
from grrm.inference.judge_sources import Host, open_mixture
from grrm.judges.gated import GatedJudge
from grrm.judges.mixture import MixtureJudge, Part
from grrm.judges.registry import open_judge
from grrm.judges.sources import read_sources
from grrm.judges.spans import SpansJudge, aligned, marked_errors
from grrm.rewards.gates import read_gates
from grrm.rewards.messages import ScoreAnswer
from grrm.rewards.protocol import request_from_groups, verdict_fields, verdicts_from_answer
from grrm_reward_server.hosting import build_hosted_judge
from grrm_reward_server.settings import Settings

WORD = st.text("ab1,.é世 ", max_size=20)


def distance_by_loops(ours, theirs):
    """The Levenshtein distance by its recursion, a row at a time."""
    row = list(range(len(theirs) + 1))
    for i, word in enumerate(ours, start=1):
        before, row = row, [i]
        for j, other in enumerate(theirs, start=1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (word != other)))
    return row[-1]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from("abc"), max_size=7), st.lists(st.sampled_from("abc"), max_size=7))
def test_an_alignment_has_the_fewest_errors(ours, theirs):
    partners, distance = aligned(ours, theirs)
    assert distance == distance_by_loops(ours, theirs)
    same = sum(word == other for word, other in zip(ours, partners, strict=True))
    replaced = sum(other is not None for other in partners) - same
    assert distance == replaced + partners.count(None) + len(theirs) - same - replaced


@pytest.mark.parametrize(
    ("translation", "reference", "score", "marked"),
    [
        ("The cat sat on 3 mats.", "The cat sits on 4 mats.", 10 * 5 / 7, [("sat", "major"), ("3", "critical")]),
        ("The cat on the mat", "The cat sat on the mat", 10 * 5 / 6, []),  # what is missing has no place
        ("a big red dog", "a dog", 0, [("big red", "major")]),
        ("the dog!", "The dog.", 10 / 3, [("the", "minor"), ("!", "minor")]),
        ("1.5 km", "1.5 km", 10, []),
        ("1,5 km", "1.5 km", 5, [("1,5", "critical")]),
        ("委员会在开会", "委员会将开会", 10 * 5 / 6, [("在", "major")]),
        ("", "something", 0, []),
    ],
)
def test_words_that_are_not_the_references_are_marked(translation, reference, score, marked):
    found, spans = marked_errors(translation, reference)
    assert found == pytest.approx(score)
    assert [(translation[span.start : span.end], span.severity) for span in spans] == marked


@settings(max_examples=60, deadline=None)
@given(WORD, WORD)
def test_spans_are_inside_the_text_and_apart(translation, reference):
    score, spans = marked_errors(translation, reference)
    assert 0 <= score <= 10
    ends = [0, *(span.end for span in spans)]
    assert all(end <= span.start for end, span in zip(ends, spans, strict=False))
    assert ends[-1] <= len(translation)
    assert marked_errors(translation, translation) == (10, ())


def test_copies_and_candidates_without_a_translation_and_texts_too_long():
    long = "x " * 5000
    texts = ["two cats", None, "two cats", "two dogs"]
    (verdict,) = open_judge("spans").judge([with_reference(group_of(texts), "two dogs")])
    assert [status.value for status in verdict.statuses] == ["scored", "unparsable_candidate", "duplicate", "scored"]
    assert verdict.spans == ((ErrorSpan(4, 8, "major"),), None, (ErrorSpan(4, 8, "major"),), ())
    (verdict,) = SpansJudge().judge([with_reference(group_of(["two", long]), long)])
    assert verdict.statuses == (Status.SCORED, Status.TOO_LONG)
    assert verdict.spans[1] is None
    (verdict,) = SpansJudge().judge([with_reference(group_of(["two"]), " ")])
    assert (verdict.statuses, verdict.spans) == ((Status.MISSING_REFERENCE,), ())


@pytest.mark.parametrize(
    ("texts", "spans", "found"),
    [
        (None, None, ()),
        (["a"], None, ()),
        (
            ["two cats"],
            [[{"start": 4, "end": 8, "severity": None, "annotator": "x"}, {"start": 8, "end": 8, "severity": "major"}]],
            (("two cats", (ErrorSpan(4, 8, "minor"),)),),
        ),
        (["a"], [[], []], "spans has not one list for each of mt_texts"),
        (["a"], [[{"start": 0}]], "spans has an entry that is not start, end and severity"),
        (["a"], [[{"start": "0", "end": 1, "severity": "minor"}]], "spans has an entry that is not start, end"),
        ([None], [[]], "spans has an entry that is not start, end"),
        (["a"], [[{"start": 0, "end": 2, "severity": "minor"}]], "spans: candidate 0 has an error span up to"),
        (["a"], [[{"start": 0, "end": 1, "severity": "bad"}]], "spans: 'bad' is no severity"),
    ],
)
def test_marked_translations_of_a_row_are_read_or_refused(texts, spans, found):
    read = read_marked(texts, spans)
    assert read.startswith(found) if isinstance(found, str) else read == found


def test_imported_annotation_goes_from_its_file_to_the_task(tmp_path):
    annotation = Annotation(
        group_id="g", src_text="zwei Hunde", trg_text="two dogs", src_lang="de", trg_lang="en", annotator="a",
        mt_texts=["two cats", "two dogs"], scores=[10, 90], spans=[[Span(start=4, end=8, severity="major")], []],
    )  # fmt: skip
    groups = gold_groups([annotation])
    write_gold(tmp_path / "gold.parquet", groups, merged_scores(groups))
    convert_to_src_tgt(tmp_path / "gold.parquet", tmp_path / "rl.jsonl")
    (item,) = read_prompt_items(tmp_path / "rl.jsonl", lambda text: [1] * len(text), 999)
    assert item.task.marked == (("two cats", (ErrorSpan(4, 8, "major"),)), ("two dogs", ()))
    assert parse_tgt(render_tgt(item.task)) == item.task
    assert parse_tgt(render_tgt(item.task).replace('"major"', "3")) is None


def with_reference(judged, reference):
    return replace(judged, task=replace(judged.task, reference=reference))


def test_a_mixture_has_the_spans_of_all_its_judges():
    sources = read_sources([{"judge": "chrf"}, {"judge": "spans", "gates": {"length": {"slack": 4}}}])
    judged = with_reference(group_of(["two cats", "two dogs", "x" * 90, None]), "two dogs")
    mixture = open_mixture(sources, Host(is_own=False))
    (verdict,) = GatedJudge(mixture, read_gates({})).judge([judged])
    assert verdict.spans == ((ErrorSpan(4, 8, "major"),), (), None, None)
    assert verdict.statuses[2] is Status.WRONG_LENGTH
    other = Verdict((Status.SCORED,) * 4, (1.0,) * 4, spans=((), (ErrorSpan(0, 1, "minor"),), None, None))
    judge = MixtureJudge([Part(mixture, "a"), Part(Fixed(other), "b")])
    assert judge.judge([judged])[0].spans == ((ErrorSpan(4, 8, "major"),), (ErrorSpan(0, 1, "minor"),), None, None)
    assert joined_spans([(), ()], 4) == ()


class Fixed:
    name = "fixed"

    def __init__(self, verdict):
        self.verdict = verdict

    def judge(self, groups):
        return [self.verdict for _ in groups]


def test_a_server_sends_spans_and_leaves_the_field_out_without_any():
    body = score_body(group("g", "Good evening, Anna!", "Good day, Anna!"))
    body["groups"][0]["reference"] = "Good day, Anna!"
    (verdict,) = (
        make_client(build_hosted_judge(Settings(judge="spans"))).post("/v1/score", json=body).get_json()["verdicts"]
    )
    assert verdict["spans"] == [[{"start": 5, "end": 12, "severity": "major"}], []]
    (verdict,) = (
        make_client(build_hosted_judge(Settings(judge="chrf"))).post("/v1/score", json=body).get_json()["verdicts"]
    )
    assert "spans" not in verdict


def answered(verdict, edit=lambda fields: None):
    judged = group_of(["two cats", None])
    request = request_from_groups("r", [judged])
    fields = verdict_fields(as_on_the_wire(judged, request), verdict)
    edit(fields)
    return verdicts_from_answer(request, ScoreAnswer(request_id="r", verdicts=[fields]).model_dump_json().encode())


def as_on_the_wire(judged, request):
    ids = [candidate.candidate_id for candidate in request.groups[0].candidates]
    named = tuple(replace(one, candidate_id=name) for one, name in zip(judged.candidates, ids, strict=True))
    return replace(judged, candidates=named)


MARKED = Verdict(
    (Status.SCORED, Status.UNPARSABLE_CANDIDATE), (5.0, None), spans=((ErrorSpan(4, 8, "critical"),), None)
)


def test_spans_come_back_from_the_wire_in_the_order_of_the_candidates():
    def turn(fields):
        fields["candidates"].reverse()
        fields["spans"].reverse()

    assert answered(MARKED) == answered(MARKED, turn) == [MARKED]


@pytest.mark.parametrize(
    "spans",
    [
        [[]],
        [[{"start": 4, "end": 9, "severity": "major"}], None],
        [[{"start": 3, "end": 3, "severity": "minor"}], None],
    ],
)
def test_spans_on_the_wire_that_fit_no_translation_are_an_error(spans):
    with pytest.raises(AnswerError, match="error span"):
        answered(MARKED, lambda fields: fields.update(spans=spans))


@pytest.mark.parametrize(("start", "end", "severity"), [(3, 3, "minor"), (-1, 3, "minor"), (0, 1, "severe")])
def test_a_span_has_characters_and_a_severity(start, end, severity):
    with pytest.raises(ValueError, match=r"error span|severity"):
        ErrorSpan(start, end, severity)


def test_a_verdict_has_spans_of_all_candidates_or_none():
    with pytest.raises(ValueError, match="error spans of 1 candidates for 2 scores"):
        Verdict((Status.SCORED,) * 2, (1.0, 2.0), spans=((),))


def test_severities_not_given_have_the_weights_of_mqm():
    assert severity_weights({"minor": 2}) == {"minor": 2, "major": 5, "critical": 10}
    with pytest.raises(UserError, match="unknown severity 'mayor': did you mean 'major'"):
        severity_weights({"mayor": 2})
    with pytest.raises(UserError, match="severity minor has the weight -1; give a number at least 0"):
        severity_weights({"minor": -1})
