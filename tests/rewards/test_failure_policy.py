import pytest

from grrm.errors import UserError
from grrm.gqm.groups import Status, Verdict
from grrm.rewards.failure_policy import (
    DEFAULT_ACTIONS,
    FailureAction,
    FailurePolicy,
    RewardFailure,
    check_failures,
)


def test_every_status_without_a_score_has_an_action():
    assert set(DEFAULT_ACTIONS) == {status for status in Status if not status.is_scored}


def test_bad_candidates_are_punished_and_judge_failures_masked_by_default():
    policy = FailurePolicy()
    assert policy.action(Status.UNPARSABLE_CANDIDATE) is FailureAction.PENALTY
    assert policy.action(Status.SINGLE_CANDIDATE) is FailureAction.MASK
    assert policy.action(Status.JUDGE_UNPARSABLE) is FailureAction.MASK


def test_mapping_overrides_only_what_it_names():
    policy = FailurePolicy.from_mapping({"judge_timeout": "drop_group"})
    assert policy.action(Status.JUDGE_TIMEOUT) is FailureAction.DROP_GROUP
    assert policy.action(Status.UNPARSABLE_CANDIDATE) is FailureAction.PENALTY


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"judge_timout": "mask"}, "'judge_timeout'"),
        ({"judge_timeout": "masked"}, "'mask'"),
        ({"scored": "mask"}, "unknown failure_policy status 'scored'"),
        ({"judge_timeout": 7}, "unknown failure_policy action 7"),
    ],
)
def test_unknown_name_is_an_error_that_suggests_known_ones(options, hint):
    with pytest.raises(UserError) as error:
        FailurePolicy.from_mapping(options)
    assert hint in str(error.value)


@pytest.mark.parametrize("status", DEFAULT_ACTIONS)
def test_lowest_may_be_chosen_for_every_status_and_is_no_default(status):
    policy = FailurePolicy.from_mapping({status.value: "lowest"})
    assert policy.action(status) is FailureAction.LOWEST
    assert DEFAULT_ACTIONS[status] is not FailureAction.LOWEST


def test_contrast_is_refused_for_any_status_but_that_of_a_lone_translation():
    with pytest.raises(UserError, match="judge_timeout: contrast is for single_candidate only"):
        FailurePolicy.from_mapping({"judge_timeout": "contrast"})


def judged(rejections=(), **counts):
    """A verdict of so many candidates of each status."""
    statuses = [Status(name) for name, count in counts.items() for _ in range(count)]
    scores = tuple(5.0 if status.is_scored else None for status in statuses)
    return [Verdict(tuple(statuses), scores, rejections=rejections)]


def test_the_run_stops_when_most_of_a_step_went_unjudged():
    check_failures(judged(scored=5, judge_timeout=5), 0.5)
    with pytest.raises(RewardFailure, match=r"6 of 10 candidates.*judge_timeout 4, judge_unparsable 2"):
        check_failures(judged(scored=4, judge_timeout=4, judge_unparsable=2), 0.5)
    check_failures(judged(judge_timeout=4), None)


@pytest.mark.parametrize(
    ("rejections", "said"),
    [
        (
            ("truncated", "truncated", "empty"),
            r"unparsable 3; 2 replies rejected: truncated\), .*; raise the judge's max_",
        ),
        (("missing_id",), r"unparsable 3; 1 replies rejected: missing_id\), .*; mend the judge and resume"),
        ((), r"\(judge_unparsable 3\), .*; mend the judge and resume"),
    ],
)
def test_the_message_tells_why_replies_could_not_be_read(rejections, said):
    with pytest.raises(RewardFailure, match=said):
        check_failures(judged(rejections, judge_unparsable=3), 0.5)


def test_unskilled_policy_is_no_failure_of_the_judge():
    check_failures(judged(unparsable_candidate=6, unsafe_candidate=1, single_candidate=9), 0.0)


def test_empty_step_is_no_failure():
    check_failures([], 0.0)
