"""From a judge's verdict to the rewards of a group's rows."""

from __future__ import annotations

from dataclasses import dataclass

from grrm.gqm.grammar import MAX_SCORE
from grrm.gqm.groups import Group, Status, Verdict
from grrm.rewards.failure_policy import FailureAction, FailurePolicy, RewardFailure
from grrm.rewards.overlong import OverlongConfig, overlong_penalty


@dataclass(frozen=True, slots=True)
class ShapingConfig:
    """reward = score * `score_scale_factor` - length penalty; a penalised row without a score gets `default_reward`.

    `duplicates_share_length` reproduces the reference, where all copies of a translation pay the penalty of the
    first copy; by default every response pays for its own length. With `unscored_pay_length` the penalty is subtracted
    from the fixed reward too, as in DAPO: otherwise a response cut off at the limit may earn more than one just below.
    """

    score_scale_factor: float = 0.1
    default_reward: float = 0.0
    overlong: OverlongConfig | None = None
    duplicates_share_length: bool = False
    unscored_pay_length: bool = False


@dataclass(frozen=True, slots=True)
class ShapedRewards:
    """A group's rewards, aligned with its candidates (length G).

    `rewards[i]` is None where the row must leave baseline and loss, and for every row when the group is `dropped`.
    `judged[i]` is the scaled score before penalties (None without a score); `penalties[i]` >= 0 was subtracted from
    it (0 where there was no score, unless such rows pay for their length). `fixed_reward` is what rows without a score
    got before penalties; None says that they paid none.
    """

    rewards: tuple[float | None, ...]
    judged: tuple[float | None, ...]
    penalties: tuple[float, ...]
    statuses: tuple[Status, ...]
    dropped: bool = False
    fixed_reward: float | None = None

    @property
    def before_penalties(self) -> tuple[float | None, ...]:
        """The rewards without their length penalties: what decides whether a group carries a signal."""
        return tuple(
            None if reward is None else self._before_penalty(reward, judged)
            for reward, judged in zip(self.rewards, self.judged, strict=True)
        )

    def _before_penalty(self, reward: float, judged: float | None) -> float:
        if judged is not None:
            return judged
        return reward if self.fixed_reward is None else self.fixed_reward


def shape_rewards(group: Group, verdict: Verdict, config: ShapingConfig, policy: FailurePolicy) -> ShapedRewards:
    """Rewards of one group: scaled scores minus length penalties, and the policy's action where there is no score.

    Raises ValueError when the verdict does not fit the group, RewardFailure when the policy says abort.
    """
    if len(verdict.scores) != len(group.candidates):
        raise ValueError(
            f"group {group.group_id!r} has {len(group.candidates)} candidates, its verdict {len(verdict.scores)}"
        )
    judged = tuple(None if score is None else score * config.score_scale_factor for score in verdict.scores)
    actions = [None if status.is_scored else policy.action(status) for status in verdict.statuses]
    _abort_if_told(group, verdict, actions)
    dropped = FailureAction.DROP_GROUP in actions
    penalties = tuple(
        0.0 if value is None and not config.unscored_pay_length else overlong_penalty(n_tokens, config.overlong)
        for value, n_tokens in zip(judged, _penalised_lengths(group, config), strict=True)
    )
    middle = MAX_SCORE / 2 * config.score_scale_factor
    has_contrast = FailureAction.PENALTY in actions and middle > config.default_reward
    rewards: list[float | None] = []
    for value, penalty, action in zip(judged, penalties, actions, strict=True):
        if action is FailureAction.CONTRAST and has_contrast and not dropped:
            rewards.append(middle)
        elif dropped or action in (FailureAction.MASK, FailureAction.CONTRAST):
            rewards.append(None)
        elif value is None:
            rewards.append(config.default_reward - penalty)
        else:
            rewards.append(value - penalty)
    fixed_reward = config.default_reward if config.unscored_pay_length else None
    return ShapedRewards(tuple(rewards), judged, penalties, verdict.statuses, dropped, fixed_reward)


def _abort_if_told(group: Group, verdict: Verdict, actions: list[FailureAction | None]) -> None:
    if FailureAction.ABORT in actions:
        position = actions.index(FailureAction.ABORT)
        raise RewardFailure(
            f"Candidate {group.candidates[position].candidate_id!r} of group {group.group_id!r} has no score "
            f"({verdict.statuses[position].value}) and the failure policy says to stop there."
        )


def _penalised_lengths(group: Group, config: ShapingConfig) -> list[int]:
    """Tokens each candidate pays for: its own, or those of the first candidate with the same translation."""
    if not config.duplicates_share_length:
        return [candidate.n_tokens for candidate in group.candidates]
    first_copy: dict[str | None, int] = {}
    return [first_copy.setdefault(candidate.translation, candidate.n_tokens) for candidate in group.candidates]
