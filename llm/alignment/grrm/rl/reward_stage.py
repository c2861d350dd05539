"""The reward stage: complete groups, before any balancing, get rewards, or statuses that explain why not.

Rewards come from a judge (verdicts that are shaped into rewards), a server of PaddleNLP's row protocol (final rewards),
or a rule that compares responses with the ground truth of their row, for training judges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from grrm.config import RLConfig
from grrm.gqm.groups import Group, Status, Verdict
from grrm.judges.interface import Judge
from grrm.rewards.client import RewardClient
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.group_filter import ConstantScoreAlarm
from grrm.rewards.rule_rewards import FINAL_RULES, parts_of, rule_of_row, rule_reward_function
from grrm.rewards.shaping import OverlongConfig, ShapedRewards, ShapingConfig, overlong_penalty, shape_rewards
from grrm.rl.records import Judged, Rolled, Scored
from grrm.rl.span_credit import SpanCredit, with_marks


def shaping_config(config: RLConfig) -> ShapingConfig:
    """Reward shaping as the argument file says; the overlong buffer counts response tokens."""
    overlong = OverlongConfig(
        max_resp_len=config.overlong_max_resp_len,
        buffer_len=config.overlong_reward_buffer,
        penalty_factor=config.overlong_penalty_factor,
        capped=config.overlong_penalty_capped,
    )
    return ShapingConfig(
        config.score_scale_factor,
        config.default_reward,
        overlong if config.enable_overlong_reward_buffer else None,
        unscored_pay_length=config.use_rule_reward,
        spans_count=config.span_weight > 0,
    )


class Rewarder(ABC):
    """Judges groups and gives them their rewards, by its `shaping` and, where there are verdicts, its `policy`."""

    shaping: ShapingConfig
    policy: FailurePolicy

    @abstractmethod
    def judge_groups(self, groups: Sequence[Rolled]) -> list[Judged]:
        """The judge's verdicts on the groups, or final rewards, in their order."""

    def shape(self, judged: Judged) -> ShapedRewards:
        """The rewards of a judged group. Raises RewardFailure when the failure policy says abort."""
        if judged.verdict is not None:
            shaped = shape_rewards(judged.rolled.group, judged.verdict, self.shaping, self.policy)
            severities = judged.severities if self.shaping.spans_count else None
            rows = zip(shaped.rewards, severities or (), strict=False)
            return replace(shaped, has_errors=any(reward is not None and row_T.any() for reward, row_T in rows))
        sent = judged.row_rewards or ()
        rewards = tuple(
            score - overlong_penalty(candidate.n_tokens, self.shaping.overlong)
            for score, candidate in zip(sent, judged.rolled.group.candidates, strict=True)
        )
        return ShapedRewards(rewards, sent, (Status.SCORED,) * len(sent))


def reward(rewarder: Rewarder, groups: Sequence[Rolled]) -> list[Scored]:
    """The groups with their rewards, without outputs of models. Raises what `rewarder` raises."""
    return [Scored(judged, rewarder.shape(judged)) for judged in rewarder.judge_groups(groups)]


@dataclass(slots=True)
class RewardStage(Rewarder):
    """Judges groups and shapes their scores into rewards.

    `judge` is a `RewardClient` or an in-process judge. Raises whatever the client raises when no verdict can be had
    (`RewardServerError`); it never invents a reward. With `credit` the error spans of verdicts, or those that
    people marked, become severities of tokens; their mean over a response is the measure `span_severity`.
    """

    judge: Judge
    shaping: ShapingConfig
    policy: FailurePolicy
    credit: SpanCredit | None = None
    alarm: ConstantScoreAlarm = field(default_factory=lambda: ConstantScoreAlarm("the judge"))

    def judge_groups(self, groups: Sequence[Rolled]) -> list[Judged]:
        """See `Rewarder`."""
        verdicts = self.judge.judge([rolled.group for rolled in groups])
        if len(verdicts) != len(groups):
            raise ValueError(f"the judge answered {len(verdicts)} verdicts for {len(groups)} groups")
        scored = (pair for verdict in verdicts for pair in zip(verdict.statuses, verdict.scores, strict=True))
        self.alarm.watch(score for status, score in scored if status is Status.SCORED and score is not None)
        if self.credit is None:
            return [Judged(rolled, verdict) for rolled, verdict in zip(groups, verdicts, strict=True)]
        verdicts = [with_marks(rolled.group, verdict) for rolled, verdict in zip(groups, verdicts, strict=True)]
        severities = self.credit(groups, verdicts)
        return list(map(_with_severities, groups, verdicts, severities))


@dataclass(slots=True)
class RowRewardStage(Rewarder):
    """Rewards from a server that speaks PaddleNLP's row protocol only.

    Its rewards are used unscaled. The protocol has no statuses, so a failure that the server reports as 0 cannot be
    distinguished from a score of 0. Overlong penalties are subtracted as usual. `eos_text` is behind each response that
    has ended, and shows the server which were cut off.
    """

    client: RewardClient
    shaping: ShapingConfig
    eos_text: str

    def judge_groups(self, groups: Sequence[Rolled]) -> list[Judged]:
        """The server's rewards; there is no verdict."""
        items = [rolled.item for rolled in groups for _ in rolled.token_ids]
        scores = iter(
            self.client.score_rows(
                src=[item.prompt_text for item in items],
                tgt=[item.label for item in items],
                response=[
                    candidate.response + self.eos_text * (reason == "stop")
                    for rolled in groups
                    for candidate, reason in zip(rolled.group.candidates, rolled.finish_reasons, strict=True)
                ],
            )
        )
        return [Judged(rolled, row_rewards=tuple(next(scores) for _ in rolled.group.candidates)) for rolled in groups]


@dataclass(slots=True)
class RuleRewardStage(Rewarder):
    """Rewards by ranking accuracy (RLVR); the group's reference is the ground truth, the gold scores or ranking.

    An invalid verdict has the status UNPARSABLE_CANDIDATE instead of a score, and the failure policy decides its
    reward: by default the fixed reward, 0 unless set, as in the reference. For valid ones the measure `ranking_reward`
    is the share of candidate pairs ordered as in the ground truth, and `score_reward` the credit for the scores, if
    the rule uses them. A rule of FINAL_RULES gives rewards without a verdict.

    `rule` is the argument file's, None to use the one that each row names.
    """

    rule: str | None
    shaping: ShapingConfig
    policy: FailurePolicy

    def judge_groups(self, groups: Sequence[Rolled]) -> list[Judged]:
        """The rule's verdicts and measures. Raises UserError for a ground truth that cannot be read."""
        return [self._judged(rolled) for rolled in groups]

    def _judged(self, rolled: Rolled) -> Judged:
        ground_truth = _ground_truth(rolled.group)
        rule = rule_of_row(rolled.group.task.data_source, self.rule)
        results = [rule(candidate.response, ground_truth) for candidate in rolled.group.candidates]
        parts = {
            part: [getattr(result, part) if result.valid_answer else None for result in results]
            for part in parts_of(rule)
        }
        if rule in map(rule_reward_function, FINAL_RULES):
            return Judged(rolled, row_rewards=tuple(result.score for result in results), measures=parts)
        scores = tuple(result.score if result.valid_answer else None for result in results)
        return Judged(rolled, Verdict(tuple(result.status for result in results), scores), measures=parts)


def _with_severities(rolled: Rolled, verdict: Verdict, severities: list[NDArray[Any]]) -> Judged:
    spans = verdict.spans or (None,) * len(severities)
    means = [
        None if own is None or not len(row_T) else float(row_T.mean())
        for own, row_T in zip(spans, severities, strict=True)
    ]
    return Judged(rolled, verdict, measures={"span_severity": means}, severities=severities)


def reads_responses(config: RLConfig) -> str:
    """Name the setting whose parser has to accept a response before it can have a score, for an error message."""
    if not config.use_rule_reward:
        return f"extractor_type {config.extractor_type} or the judge"
    return "rule_reward" if config.rule_reward is None else f"rule_reward {config.rule_reward}"


def _ground_truth(group: Group) -> str:
    if group.task.reference is None:
        raise ValueError(f"group {group.group_id!r} has no ground truth")
    return group.task.reference
