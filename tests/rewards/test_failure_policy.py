import pytest

from grrm.errors import UserError
from grrm.gqm.groups import Status, Verdict
from grrm.rewards.failure_policy import (
    DEFAULT_ACTIONS,
    FailureAction,
    FailureBudget,
    FailurePolicy,
    RewardFailure,
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


def test_budget_stops_the_run_when_most_of_a_step_went_unjudged():
    budget = FailureBudget(max_fraction=0.5)
    budget.charge(judged(scored=5, judge_timeout=5))
    with pytest.raises(RewardFailure, match=r"6 of 10 candidates.*judge_timeout 4, judge_unparsable 2"):
        budget.charge(judged(scored=4, judge_timeout=4, judge_unparsable=2))


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
def test_budget_tells_why_replies_could_not_be_read(rejections, said):
    with pytest.raises(RewardFailure, match=said):
        FailureBudget().charge(judged(rejections, judge_unparsable=3))


def test_budget_accumulates_over_steps():
    budget = FailureBudget(max_fraction=None, max_count=3)
    budget.charge(judged(scored=1, judge_unparsable=2))
    budget.charge(judged(scored=1, judge_unparsable=1))
    budget.charge(judged(scored=8))  # at the limit, and nothing new went wrong
    with pytest.raises(RewardFailure, match="4 candidates"):
        budget.charge(judged(scored=1, judge_unparsable=1))
    assert budget.spent == 4


def test_resumed_budget_that_is_already_spent_stops_at_the_next_failure_not_before():
    FailureBudget(max_fraction=None, max_count=3, spent=4).charge(judged(scored=1))
    with pytest.raises(RewardFailure):
        FailureBudget(max_fraction=None, max_count=3, spent=3).charge(judged(judge_timeout=1))


def test_unskilled_policy_does_not_exhaust_the_budget():
    budget = FailureBudget(max_fraction=0.0, max_count=0)
    budget.charge(judged(unparsable_candidate=6, unsafe_candidate=1, single_candidate=9))
    assert budget.spent == 0


def test_empty_step_costs_nothing():
    FailureBudget(max_fraction=0.0, max_count=0).charge([])
