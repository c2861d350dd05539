"""A verifier behind a server that is killed while a run asks it."""

from __future__ import annotations

import pytest
from support.completions_server import CompletionsServer

from grrm.engine.openai_text import OpenAITextGenerator
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask
from grrm.judges.verified import VerifiedJudge
from grrm.judges.verifier import VerifierJudge
from grrm.rewards.answers import gsm8k
from grrm.rewards.failure_policy import FailurePolicy, RewardFailure
from grrm.rewards.shaping import ShapingConfig, shape_rewards
from grrm.rewards.verified import VerifierMix

GROUP = Group(
    "g",
    TranslationTask("2 + 2?", "en", "en", "4"),
    tuple(Candidate(str(i), text, text, 3) for i, text in enumerate(("#### 4", "#### 4.0001", "#### 5"))),
)


@pytest.fixture
def verifier():
    """A judge of a server that says True of what begins like the truth, and the server."""
    with CompletionsServer(lambda body, _: str("<model_answer>4" in body["prompt"])) as server:
        generator = OpenAITextGenerator(
            [server.url], attempts=2, backoff_initial_s=0.01, unanswered="mark", deadline_s=3.0
        )
        yield VerifierJudge(generator), server
        generator.close()


def rewards(verdict, policy):
    return shape_rewards(GROUP, verdict, ShapingConfig(), policy).rewards


def test_right_answers_keep_their_reward_and_the_policy_decides_about_the_others(verifier):
    model, server = verifier
    judge = VerifiedJudge(model, gsm8k, VerifierMix("addon", 0.5))
    assert judge.judge([GROUP])[0].scores == (10.0, 5.0, 0.0)
    server.close()
    model.generator.close()  # the connections that a killed process would have reset
    (verdict,) = judge.judge([GROUP])
    assert verdict.statuses == (Status.SCORED, Status.JUDGE_UNREACHABLE, Status.JUDGE_UNREACHABLE)
    found = rewards(verdict, FailurePolicy())
    assert found[0] == 10 * ShapingConfig().score_scale_factor
    assert found[1:] == (None, None)
    with pytest.raises(RewardFailure):
        rewards(verdict, FailurePolicy.from_mapping({"judge_unreachable": "abort"}))
