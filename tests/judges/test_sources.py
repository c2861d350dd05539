"""What an argument file may say of the judges of a mixture."""

from __future__ import annotations

import pytest

from grrm.errors import UserError, UserErrors
from grrm.judges.sources import DEADLINE_S, read_sources


def read(**entry):
    return read_sources([entry])[0]


def test_defaults():
    source = read(judge="chrf")
    assert (source.title, source.weight, source.normalise, source.on_failure) == ("chrf", 1.0, "none", "leave_out")
    assert source.seconds is None


def test_what_answers_from_outside_has_a_deadline():
    assert read(judge="server", urls=["http://127.0.0.1:8731"]).seconds == DEADLINE_S
    assert read(judge="gqm", urls=["http://127.0.0.1:8000"], deadline_s=5).seconds == 5
    assert read(judge="json:loads").seconds == DEADLINE_S


def test_a_checkpoint_that_writes_here_cannot_be_interrupted_and_needs_the_device():
    local, served = read(judge="gqm", model="runs/grrm"), read(judge="gqm", model="grrm", urls=["http://127.0.0.1:1"])
    assert (local.seconds, local.needs_device) == (None, True)
    assert (served.seconds, served.needs_device) == (DEADLINE_S, False)
    assert read(judge="chrf", fallback={"judge": "sqm", "model": "runs/sqm"}).needs_device


def test_a_fallback_may_be_a_name():
    assert read(judge="json:loads", fallback="chrf").fallback.judge == "chrf"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"judge": "chr"}, "unknown judge 'chr': did you mean 'chrf'"),
        ({"judge": "no_such:judge"}, "there is no module 'no_such'"),
        ({"judge": "chrf", "wieght": 2}, "unknown key 'wieght'; did you mean 'weight'?"),
        ({"judge": "chrf", "weight": 0}, "weight is wrong: Input should be greater than 0"),
        ({"judge": "chrf", "weight": float("nan")}, "weight is wrong"),
        ({"judge": "chrf", "normalise": "max"}, "normalise is wrong: Input should be 'none', 'mean', 'std' or 'rank'"),
        ({"judge": "chrf", "deadline_s": 3}, "computes in this process and cannot be interrupted; remove deadline_s"),
        ({"judge": "chrf", "model": "x"}, "model has no effect with judge chrf"),
        ({"judge": "gqm"}, "judge gqm needs urls or model"),
        ({"judge": "gqm", "model": "x", "tokenizer": "y"}, "tokenizer has no effect without urls"),
        ({"judge": "gqm", "model": "x", "deadline_s": 3}, "cannot be interrupted; remove deadline_s"),
        ({"judge": "server", "model": "x"}, "model has no effect with judge server"),
        ({"judge": "gqm", "urls": ["nowhere"]}, "urls"),
        ({"judge": "gqm", "urls": ["http://a:1"], "options": {"permutation": 2}}, "did you mean 'permutations'"),
        ({"judge": "ranker"}, "judge ranker needs model"),
        ({"judge": "rm", "model": "x", "options": {"batch": 2}}, "did you mean 'batch_tokens'"),
        ({"judge": "server", "urls": ["http://a:1"], "options": {"a": 1}}, "set them there"),
        ({"judge": "chrf", "fallback": "chr"}, "fallback: unknown judge 'chr'"),
        ({"judge": "chrf", "fallback": {"judge": "bleu", "weight": 2}}, "fallback: weight is that of the judge it"),
        ({}, "judge is wrong: Field required"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(entry, message):
    with pytest.raises(UserError, match=message) as caught:
        read_sources([entry])
    assert str(caught.value).startswith("reward_sources, entry 1: ")


def test_all_mistakes_are_told_at_once():
    with pytest.raises(UserErrors) as caught:
        read_sources([{"judge": "chr"}, {"judge": "chrf"}, {"judge": "chrf", "options": {}}, {"judge": "rm"}])
    assert len(caught.value.sentences) == 3
    assert "2 judges called 'chrf'; give each a name" in str(caught.value)


def test_no_judge_is_a_mistake():
    with pytest.raises(UserError, match="names no judge"):
        read_sources([])
