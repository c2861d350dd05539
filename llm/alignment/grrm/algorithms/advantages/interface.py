"""An advantage rule with its traits, its input, and the steps that all rules share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from grrm.rewards.failure_policy import FailureAction

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AdvantageInputs:
    """One global batch of judged responses; R indexes responses, T response tokens. No rule modifies it.

    rewards_R: reward of each response, NaN for a response without a usable score. Such a row is left out of
        every baseline and of whitening, and its advantages are 0.
    groups_R: integer naming the group (prompt) of each row; members need not be adjacent.
    mask_RT: 1 on response tokens, 0 on padding.
    kl_RT: log-probability of each token under the policy minus that under the reference, in nats, or None.
        What stands on padding is not read.
    kl_coeff: every token's reward is lowered by ``kl_coeff * kl``; 0 leaves the KL out of the reward.
    gamma: discount per token; only rules with the trait `per_token` accept another value than 1.
    values_RT: the critic's value of the state before each token, or None without a critic.
    gae_lambda: how far rewards reach back beyond the values, from 0 to 1; only gae reads it.
    clip_range_score: rules clip rewards to plus or minus this, behind `length_neutral` and `RunningMoments`; None
        leaves them alone.
    severities_RT: weight of the error span that each token is in, 0 outside of spans, or None where no judge marks
        errors; only rules with the trait `needs_spans` read it.
    span_weight: factor of the severities beside the advantage of the response.
    judged_R: True where the reward is a judge's score and not a fixed one in its place; None where all rewards are.
        Only `length_neutral` reads it.

    Raises ValueError if shapes disagree, a reward is infinite, a value is not finite, or ``kl_coeff`` is set without a
    finite KL.
    """

    rewards_R: npt.NDArray[Any]
    groups_R: npt.NDArray[Any]
    mask_RT: npt.NDArray[Any]
    kl_RT: npt.NDArray[Any] | None = None
    kl_coeff: float = 0.0
    gamma: float = 1.0
    clip_range_score: float | None = None
    values_RT: npt.NDArray[Any] | None = None
    gae_lambda: float = 1.0
    severities_RT: npt.NDArray[Any] | None = None
    span_weight: float = 0.0
    judged_R: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        n_rows = len(self.rewards_R)
        if np.shape(self.rewards_R) != (n_rows,) or np.shape(self.groups_R) != (n_rows,):
            raise ValueError("rewards_R and groups_R must be vectors of one length")
        if np.ndim(self.mask_RT) != 2 or len(self.mask_RT) != n_rows:
            raise ValueError(f"mask_RT must have shape [{n_rows}, T], not {np.shape(self.mask_RT)}")
        if np.isinf(self.rewards_R).any():
            raise ValueError("rewards_R holds an infinite reward; an unscored row is marked with NaN")
        self._check_kl()
        for name in ("values_RT", "severities_RT"):
            if getattr(self, name) is not None:
                self._check_tokens(name, getattr(self, name))

    def _check_kl(self) -> None:
        if self.kl_coeff == 0:
            return
        if self.kl_RT is None:
            raise ValueError(f"kl_coeff is {self.kl_coeff} but kl_RT is missing")
        self._check_tokens("kl_RT", self.kl_RT)

    def _check_tokens(self, name: str, numbers_RT: npt.NDArray[Any]) -> None:
        if np.shape(numbers_RT) != np.shape(self.mask_RT):
            raise ValueError(f"{name} has shape {np.shape(numbers_RT)}, mask_RT {np.shape(self.mask_RT)}")
        if not np.isfinite(np.asarray(numbers_RT)[self.valid_RT]).all():
            raise ValueError(f"{name} is not finite on a token of a scored response")

    @property
    def scores_R(self) -> FloatArray:
        """Rewards clipped to ``clip_range_score``, NaN where unscored."""
        rewards_R = np.array(self.rewards_R, dtype=np.float64)
        if self.clip_range_score is None:
            return rewards_R
        return np.clip(rewards_R, -self.clip_range_score, self.clip_range_score)

    @property
    def valid_RT(self) -> npt.NDArray[np.bool_]:
        """True on the response tokens of scored rows."""
        return np.asarray(self.mask_RT).astype(bool) & ~np.isnan(np.asarray(self.rewards_R, dtype=np.float64))[:, None]

    @property
    def kl_rewards_RT(self) -> FloatArray:
        """``-kl_coeff * kl`` on the tokens of scored rows, 0 elsewhere."""
        valid_RT = self.valid_RT
        if self.kl_coeff == 0 or self.kl_RT is None:
            return np.zeros(valid_RT.shape)
        return np.where(valid_RT, -self.kl_coeff * np.asarray(self.kl_RT, dtype=np.float64), 0.0)


@dataclass(frozen=True, eq=False)
class AdvantageRule:
    """An advantage rule and its traits, from which the configuration derives what it accepts and defaults to.

    function: from the judged batch to advantages [R, T].
    compares_with_group: a response is measured against the other samples of its prompt: `rollout_n` is at least 2, and
        rewards and advantages are not normalised otherwise as well (`normalize_reward`, `normalize_advantage`).
    divides_by: what scales the advantages: the standard deviation of the group or of the batch, or nothing.
    without_std: the rule that `norm_adv_by_std: false` asks for in place of one that divides by the group's.
    per_token: returns are built token by token, so `gamma` takes effect.
    kl_in_reward: the KL to the reference is by default a penalty inside the reward and not a loss.
    single_candidate: what becomes by default of a group with one distinct translation (key `failure_policy`).
    needs_critic: the rule reads values of a critic.
    needs_spans: the rule reads the error spans that a judge marks.
    """

    function: Callable[[AdvantageInputs], FloatArray]
    compares_with_group: bool = True
    divides_by: Literal["nothing", "group_std", "batch_std"] = "nothing"
    without_std: str | None = None
    per_token: bool = False
    kl_in_reward: bool = False
    single_candidate: FailureAction = FailureAction.CONTRAST
    needs_critic: bool = False
    needs_spans: bool = False

    def __call__(self, inputs: AdvantageInputs) -> FloatArray:
        """Return the advantages [R, T] of a batch."""
        return self.function(inputs)


ADVANTAGE_RULES: dict[str, AdvantageRule] = {}


def advantage_rule(**traits: Any) -> Callable[[Callable[[AdvantageInputs], FloatArray]], AdvantageRule]:
    """Register the decorated function under its name, with those `AdvantageRule` traits that are not the defaults.

    Raises ValueError for a name that is taken.
    """

    def register(function: Callable[[AdvantageInputs], FloatArray]) -> AdvantageRule:
        name = function.__name__
        if name in ADVANTAGE_RULES:
            raise ValueError(f"there is an advantage rule {name!r} already")
        ADVANTAGE_RULES[name] = AdvantageRule(function, **traits)
        return ADVANTAGE_RULES[name]

    return register


def sequence_scores(inputs: AdvantageInputs) -> FloatArray:
    """Return the undiscounted reward of each whole response [R]: clipped score minus ``kl_coeff`` times its summed KL.

    NaN where unscored. Raises ValueError if ``gamma`` is not 1, which has no meaning for a whole response.
    """
    if inputs.gamma != 1:
        raise ValueError(f"gamma is {inputs.gamma}, but this advantage rule scores whole responses: only 1 is possible")
    return inputs.scores_R + sum_rows(inputs.kl_rewards_RT)


def spread_over_tokens(values_R: FloatArray, mask_RT: npt.NDArray[Any]) -> FloatArray:
    """Give every response token of a row the row's value [R, T]; rows that are NaN become 0."""
    return np.where(np.asarray(mask_RT).astype(bool), np.nan_to_num(values_R)[:, None], 0.0)


def sum_rows(values_RT: FloatArray) -> FloatArray:
    """Sum over tokens, left to right, so that more padding does not change the rounding."""
    if values_RT.shape[1] == 0:
        return np.zeros(len(values_RT))
    return np.cumsum(values_RT, axis=1)[:, -1]
