"""Settings of the policy objective."""

from __future__ import annotations

from dataclasses import dataclass

from grrm.config.keys.objective import ObjectiveConfig
from grrm.errors import UserError, require_known

POLICY_LOSS_NAMES = ("token_clip", "gspo")
AGGREGATION_MODES = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
ROLLOUT_CORRECTIONS = ("none", "token", "sequence")
KL_ALIASES = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}
KL_TYPES = ("k1", "abs", "k2", "k3", "k1+", "abs+", "k3+", *KL_ALIASES, "low_var_kl+")


@dataclass(frozen=True)
class PolicyLossConfig:
    """What :func:`grrm.rl.losses.policy_objective` computes.

    policy_loss: "token_clip" (PPO's ratio per token) or "gspo" (one ratio per sequence).
    clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high].
    dual_clip: bound of ``ratio`` for negative advantages, above 1; None for none. token_clip only.
    log_ratio_clamp: bound of the absolute log ratio per token against overflow, None for none. gspo has its own of 10.
    loss_agg_mode: how tokens become one number; with gspo only for the other terms, its own is seq-mean-token-mean.
    pg_loss_coeff, kl_loss_coeff, entropy_coeff, sft_coeff: weights of the terms; entropy is subtracted.
    kl_type: estimator of the KL to the reference, see ``kl.py``.
    clip_range_score: bound of the k3 estimate per token, in nats.
    rollout_is: importance weights of the policy loss for the mismatch of engine and trainer, per "token" or per
    "sequence"; "none" for no weights. rollout_is_cap: largest weight.

    Raises UserError for a value outside its range.
    """

    policy_loss: str = "token_clip"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    log_ratio_clamp: float | None = 20.0
    loss_agg_mode: str = "token-mean"
    pg_loss_coeff: float = 1.0
    kl_loss_coeff: float = 0.0
    kl_type: str = "k3"
    clip_range_score: float = 10.0
    entropy_coeff: float = 0.0
    sft_coeff: float = 0.0
    rollout_is: str = "none"
    rollout_is_cap: float = 2.0

    @classmethod
    def of(cls, keys: ObjectiveConfig) -> PolicyLossConfig:
        """The policy loss as an argument file says."""
        return cls(
            policy_loss=keys.policy_loss,
            clip_low=keys.clip_range_ratio_low,
            clip_high=keys.clip_range_ratio_high,
            dual_clip=keys.dual_clip_ratio,
            loss_agg_mode=keys.loss_agg_mode,
            pg_loss_coeff=keys.pg_loss_coeff,
            kl_loss_coeff=keys.kl_loss_coeff,
            kl_type=keys.kl_type,
            clip_range_score=keys.clip_range_score,
            entropy_coeff=keys.entropy_coeff,
            sft_coeff=keys.sft_coeff,
            rollout_is=keys.rollout_is,
            rollout_is_cap=keys.rollout_is_cap,
        )

    @property
    def policy_agg_mode(self) -> str:
        """How the policy loss itself is aggregated: gspo has a mode of its own."""
        return "seq-mean-token-mean" if self.policy_loss == "gspo" else self.loss_agg_mode

    def __post_init__(self) -> None:
        require_known("policy_loss", self.policy_loss, POLICY_LOSS_NAMES)
        require_known("loss_agg_mode", self.loss_agg_mode, AGGREGATION_MODES)
        require_known("kl_type", self.kl_type, KL_TYPES)
        require_known("rollout_is", self.rollout_is, ROLLOUT_CORRECTIONS)
        _require("rollout_is_cap", self.rollout_is_cap, self.rollout_is_cap >= 1, "1 or more")
        _require("clip_low", self.clip_low, 0 <= self.clip_low <= 1, "between 0 and 1")
        _require("clip_high", self.clip_high, self.clip_high >= 0, "0 or more")
        _require("clip_range_score", self.clip_range_score, self.clip_range_score > 0, "above 0")
        if self.dual_clip is not None:
            _require("dual_clip", self.dual_clip, self.dual_clip > 1, "above 1, or left out")
            remedy = "left out with policy_loss gspo, which has no dual clip"
            _require("dual_clip", self.dual_clip, self.policy_loss != "gspo", remedy)
        if self.log_ratio_clamp is not None:
            _require("log_ratio_clamp", self.log_ratio_clamp, self.log_ratio_clamp > 0, "above 0, or left out")


def _require(name: str, value: float, is_right: bool, demand: str) -> None:
    if not is_right:
        raise UserError(f"{name} is {value}, but must be {demand}.")
