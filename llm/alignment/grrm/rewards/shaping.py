"""From a judge's verdict to the rewards of a group's rows."""

from __future__ import annotations

from collections.abc import Sequence
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

    rewards: None where the row must leave baseline and loss, and for every row when the group is `dropped`.
    judged: the scaled scores before penalties, None without a score.
    penalties: amounts >= 0 that were subtracted; 0 without a score, unless such a row pays for its length.
    filled: substitutes for missing scores, before penalties; rows with None paid no penalty.
    """

    rewards: tuple[float | None, ...]
    judged: tuple[float | None, ...]
    penalties: tuple[float, ...]
    statuses: tuple[Status, ...]
    dropped: bool = False
    filled: tuple[float | None, ...] | None = None

    @property
    def before_penalties(self) -> tuple[float | None, ...]:
        """The rewards without their length penalties: what decides whether a group carries a signal."""
        instead = self.rewards if self.filled is None else self.filled
        return tuple(
            None if reward is None else other if judged is None else judged
            for reward, judged, other in zip(self.rewards, self.judged, instead, strict=True)
        )


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
    _abort_if_configured(group, verdict, actions)
    dropped = FailureAction.DROP_GROUP in actions
    instead = _instead_of_scores(judged, actions, config)
    pays = {None, FailureAction.LOWEST, *(FailureAction if config.unscored_pay_length else ())}
    penalties = tuple(
        overlong_penalty(n_tokens, config.overlong) if action in pays else 0.0
        for action, n_tokens in zip(actions, _penalised_lengths(group, config), strict=True)
    )
    filled = tuple(None if action is None else instead[action] for action in actions)
    rewards: list[float | None] = []
    for value, other, penalty, action in zip(judged, filled, penalties, actions, strict=True):
        base = other if value is None else value
        if dropped or base is None:
            rewards.append(None)
        else:
            rewards.append(base if action is FailureAction.CONTRAST else base - penalty)
    return ShapedRewards(tuple(rewards), judged, penalties, verdict.statuses, dropped, filled)


def _instead_of_scores(
    judged: Sequence[float | None], actions: Sequence[FailureAction | None], config: ShapingConfig
) -> dict[FailureAction, float | None]:
    """Return each action's substitute for a missing score, before penalties; None for no reward."""
    middle = MAX_SCORE / 2 * config.score_scale_factor
    has_contrast = FailureAction.PENALTY in actions and middle > config.default_reward
    return {
        **dict.fromkeys(FailureAction),
        FailureAction.PENALTY: config.default_reward,
        FailureAction.LOWEST: min((value for value in judged if value is not None), default=None),
        FailureAction.CONTRAST: middle if has_contrast else None,
    }


def _abort_if_configured(group: Group, verdict: Verdict, actions: list[FailureAction | None]) -> None:
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
