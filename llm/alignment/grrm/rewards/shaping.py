"""From a judge's verdict to the rewards of a group's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grrm.gqm.grammar import MAX_SCORE
from grrm.gqm.groups import Group, Status, Verdict
from grrm.rewards.failure_policy import FailureAction, FailurePolicy, RewardFailure


@dataclass(frozen=True, slots=True)
class OverlongConfig:
    """The ramp: 0 up to `max_resp_len - buffer_len` tokens, then linear up to `penalty_factor` at `max_resp_len`.

    Beyond that it stays there if `capped`, and rises on as it does in DAPO if not. `buffer_len` is at least 1.
    """

    max_resp_len: int
    buffer_len: int
    penalty_factor: float = 1.0
    capped: bool = True


def overlong_penalty(n_tokens: int, config: OverlongConfig | None) -> float:
    """Return the penalty of a response of `n_tokens` tokens: 0 to `penalty_factor`, or more if uncapped.

    factor * min(1, (L - (max_resp_len - len)) / len) above the threshold, else 0 (GRRM's recipe); without `capped` the
    ramp has no such end (DAPO, arXiv 2503.14476, as GRRM's trainer has it). 0 without a configuration.
    """
    if config is None:
        return 0.0
    ramp = max(n_tokens - (config.max_resp_len - config.buffer_len), 0) / config.buffer_len
    return config.penalty_factor * (min(1.0, ramp) if config.capped else ramp)


@dataclass(frozen=True, slots=True)
class ShapingConfig:
    """reward = score * `score_scale_factor` - length penalty; a penalised row without a score gets `default_reward`.

    Every response pays for its own length, copies of a translation too. With `unscored_pay_length` the penalty is
    subtracted from the fixed reward too, as in DAPO: otherwise a response cut off at the limit may earn more than one
    just below. `spans_count` says that error spans lower the advantages of their tokens.
    """

    score_scale_factor: float = 0.1
    default_reward: float = 0.0
    overlong: OverlongConfig | None = None
    unscored_pay_length: bool = False
    spans_count: bool = True


@dataclass(frozen=True, slots=True)
class ShapedRewards:
    """A group's rewards, aligned with its candidates (length G).

    rewards: None where the row must leave baseline and loss, and for every row when the group is `dropped`.
    judged: the scaled scores before penalties, None without a score.
    filled: substitutes for missing scores, before penalties; rows with None paid no penalty.
    has_errors: tokens of a row with a reward are in error spans, which the advantage rule reads beside the rewards.
    """

    rewards: tuple[float | None, ...]
    judged: tuple[float | None, ...]
    statuses: tuple[Status, ...]
    dropped: bool = False
    filled: tuple[float | None, ...] | None = None
    has_errors: bool = False

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
    paying = FailureAction if config.unscored_pay_length else (FailureAction.LOWEST,)
    pays = {None, *paying} - {FailureAction.CONTRAST}
    penalties = tuple(
        overlong_penalty(candidate.n_tokens, config.overlong) if action in pays else 0.0
        for action, candidate in zip(actions, group.candidates, strict=True)
    )
    filled = tuple(None if action is None else instead[action] for action in actions)
    bases = (other if value is None else value for value, other in zip(judged, filled, strict=True))
    rewards = tuple(
        None if dropped or base is None else base - penalty for base, penalty in zip(bases, penalties, strict=True)
    )
    return ShapedRewards(rewards, judged, verdict.statuses, dropped, filled)


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
