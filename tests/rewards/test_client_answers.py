"""Answers that do not fit the request: never a number, always asked again."""

from __future__ import annotations

import json
import math

import pytest
from support.reward_protocol import check_right, client, edited, make_groups, ok, raw, right_answer

from grrm.http_client.exchange import DEADLINE_HEADER
from grrm.rewards.client import RewardServerError


def truncated(handler, body):
    content = json.dumps(right_answer(body)).encode()
    handler.reply(200, content[: len(content) // 2], Content_Length=str(len(content)))
    handler.close_connection = True


def set_score(value):
    return lambda answer: answer["verdicts"][0]["candidates"][0].update(score=value)


def swap_groups(answer):
    first, second = answer["verdicts"][:2]
    first["group_id"], second["group_id"] = second["group_id"], first["group_id"]


BAD_ANSWERS = {
    "garbage": (raw(b"<html>hello</html>"), "malformed"),
    "empty": (raw(b""), "malformed"),
    "json of another kind": (raw(b"[1, 2]"), "malformed"),
    "not utf-8": (raw(b'"\xff\xfe"'), "malformed"),
    "truncated": (truncated, "connection failed|malformed"),
    "NaN score": (edited(set_score(math.nan)), r"verdicts\[0\].candidates\[0\].score"),
    "infinite score": (edited(set_score(math.inf)), "score"),
    "text score": (edited(set_score("7")), "score"),
    "boolean score": (edited(set_score(True)), "score"),
    "score out of range": (edited(set_score(10.5)), "score"),
    "negative score": (edited(set_score(-0.1)), "score"),
    "null score of a scored candidate": (edited(set_score(None)), "cannot carry"),
    "number for a failed candidate": (
        edited(lambda a: a["verdicts"][0]["candidates"][0].update(status="judge_timeout")),
        "cannot carry",
    ),
    "unknown status": (edited(lambda a: a["verdicts"][0]["candidates"][0].update(status="fine")), "status"),
    "missing candidate": (
        edited(lambda a: a["verdicts"][1]["candidates"].pop()),
        "lacks 1 of the candidates of group 'g1', for example '1/1'",
    ),
    "repeated candidate": (
        edited(lambda a: a["verdicts"][0]["candidates"].append(a["verdicts"][0]["candidates"][0])),
        "repeats",
    ),
    "missing group": (edited(lambda a: a["verdicts"].pop()), "lacks 1 of the groups, for example 'g1'"),
    "unknown group": (
        edited(lambda a: a["verdicts"].append(a["verdicts"][0] | {"group_id": "stranger"})),
        "unknown groups, for example 'stranger'",
    ),
    "wrong request id": (edited(lambda a: a.update(request_id="other")), "request 'other'"),
    "groups swapped": (edited(swap_groups), "lacks 2 of the candidates of group 'g0', for example '0/0'"),
    "ranking of a stranger": (
        edited(lambda a: a["verdicts"][0].update(ranking=[["0/0"], ["0/9"]])),
        "group 'g0': the ranking",
    ),
    "ranking with a repetition": (
        edited(lambda a: a["verdicts"][0].update(ranking=[["0/0"], ["0/1", "0/0"]])),
        "group 'g0': the ranking",
    ),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_bad_answer_is_retried_and_then_an_error_never_a_number(start, name):
    step, message = BAD_ANSWERS[name]
    server, groups = start(*[step] * 4, ok), make_groups(2)
    asking = client(server.url)
    with pytest.raises(RewardServerError, match=message) as caught:
        asking.score(groups)
    assert len(server.asked) == 3
    assert caught.value.attempt == 3
    assert caught.value.server == server.url
    assert caught.value.group_ids == ("g0", "g1")
    check_right(groups, asking.score(groups))  # after one more of them


def test_everything_a_judge_says_of_a_group_arrives_in_any_order(start):
    def say_more(answer):
        answer["verdicts"].reverse()
        verdict = answer["verdicts"][1]
        ids = [candidate["candidate_id"] for candidate in verdict["candidates"]]
        verdict["candidates"].reverse()
        verdict |= {"ranking": [ids[1:], ids[:1]], "analysis": "The rest is better.", "attempts": 2, "tokens": 7}
        verdict["rejections"] = ["empty"]

    groups = make_groups(2)
    verdicts = client(start(edited(say_more)).url).score(groups)
    check_right(groups, verdicts)
    own = [candidate.candidate_id for candidate in groups[0].candidates]
    said = verdicts[0]
    assert said.ranking == (tuple(own[1:]), tuple(own[:1]))
    assert (said.analysis, said.attempts, said.tokens, said.rejections) == ("The rest is better.", 2, 7, ("empty",))
    assert verdicts[1].ranking is None


def partial(edit=lambda answer: None):
    """HTTP 504 with the verdict of the first group alone, after `edit(answer)`."""

    def step(handler, body):
        answer = right_answer(body)
        del answer["verdicts"][1:]
        answer |= {"error_code": 504, "error_msg": "the deadline came"}
        edit(answer)
        handler.reply(504, answer)

    return step


def asked_for(server) -> list[list[str]]:
    return [[group["group_id"] for group in json.loads(body)["groups"]] for _, body, _ in server.asked]


def test_what_was_done_at_the_deadline_is_kept_and_only_the_rest_asked_for_again(start):
    server, groups = start(partial(), partial(), ok), make_groups(4)
    check_right(groups, client(server.url).score(groups))
    assert asked_for(server) == [["g0", "g1", "g2", "g3"], ["g1", "g2", "g3"], ["g2", "g3"]]
    assert float(server.asked[0][2][DEADLINE_HEADER]) == pytest.approx(119)


UNUSABLE = {
    "of another request": lambda answer: answer.update(request_id="other"),
    "of a stranger": lambda answer: answer["verdicts"][0].update(group_id="stranger"),
    "of a group twice": lambda answer: answer["verdicts"].append(answer["verdicts"][0]),
    "without a candidate": lambda answer: answer["verdicts"][0]["candidates"].pop(),
    "of nothing": lambda answer: answer["verdicts"].clear(),
    "of another kind": lambda answer: answer.update(verdicts=7),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_partial_answer_that_does_not_fit_keeps_nothing(start, name):
    server, groups = start(partial(UNUSABLE[name]), ok), make_groups(3)
    check_right(groups, client(server.url).score(groups))
    assert asked_for(server) == [["g0", "g1", "g2"]] * 2
