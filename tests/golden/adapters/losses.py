"""Golden rows of policy losses with their gradients, aggregation, the SFT term and KL estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle

from grrm.algorithms.policy_losses import LossInputs
from grrm.config.derive_objective import policy_loss_config
from grrm.rl.losses.aggregation import aggregate, count_denominators
from grrm.rl.losses.objective import kl_penalty, policy_objective, positive_advantage_nll


def _tensor(values: Any) -> paddle.Tensor:
    return paddle.to_tensor(np.array(values, dtype=np.float64))


def _trainable(values: Any) -> paddle.Tensor:
    tensor = _tensor(values)
    tensor.stop_gradient = False
    return tensor


def _gradient(loss: paddle.Tensor, logprobs_RT: paddle.Tensor) -> list[list[float]]:
    loss.backward()
    return logprobs_RT.grad.tolist()


def _objective(row: dict[str, Any], names: tuple[str, str], metrics: dict[str, str], **settings: Any) -> dict[str, Any]:
    logprobs_RT = _trainable(row[names[0]])
    ref_RT = _tensor(row["ref_log_prob"]) if "ref_log_prob" in row else None
    inputs = LossInputs(
        logprobs_RT, _tensor(row[names[1]]), _tensor(row["advantages"]), _tensor(row["mask"]), ref_logprobs_RT=ref_RT
    )
    output = policy_objective(inputs, policy_loss_config(**settings))
    result = {"loss": float(output.loss), f"grad_{names[0]}": _gradient(output.loss, logprobs_RT)}
    return result | {name: float(output.metrics[ours]) for name, ours in metrics.items()}


def _verl_objective(row: dict[str, Any], metrics: dict[str, str], **settings: Any) -> dict[str, Any]:
    clips = {"clip_range_ratio_low": row["clip_ratio_low"], "clip_range_ratio_high": row["clip_ratio_high"]}
    return _objective(row, ("log_prob", "old_log_prob"), metrics, **clips, **settings)


def _sum_over_rows(row: dict[str, Any], mask_RT: Any) -> float:
    """By what verl's gen_rm branch is larger: its seq-mean-token-sum-norm takes no mean over the rows."""
    n_rows = np.asarray(mask_RT).astype(bool).any(axis=1).sum()
    return float(max(n_rows, 1)) if row["mode"] == "seq-mean-token-sum-norm" else 1.0


def _aggregate(loss_RT: paddle.Tensor, mask_RT: paddle.Tensor, mode: str) -> paddle.Tensor:
    """Of a whole batch."""
    return aggregate(loss_RT, mask_RT, mode, count_denominators(mask_RT.numpy(), mask_RT.numpy()).of(mode))


def _agg_loss(row: dict[str, Any]) -> float:
    ours = float(_aggregate(_tensor(row["loss_mat"]), _tensor(row["mask"]), row["mode"]))
    return ours * _sum_over_rows(row, row["mask"])


def _gspo_loss(row: dict[str, Any]) -> dict[str, Any]:
    return _verl_objective(row, {"pg_clipfrac": "pg_clipfrac", "ppo_kl": "ppo_kl"}, policy_loss="gspo")


def _ppo_loss(row: dict[str, Any]) -> dict[str, Any]:
    metrics = {name: name for name in ("pg_clipfrac", "ppo_kl", "pg_clipfrac_lower")}
    ours = _verl_objective(row, metrics, dual_clip_ratio=row["clip_ratio_c"], loss_agg_mode=row["mode"])
    times = _sum_over_rows(row, row["mask"])
    gradient_RT = times * np.array(ours["grad_log_prob"])
    return ours | {"loss": times * ours["loss"], "grad_log_prob": gradient_RT.tolist()}


def _actor_total_loss(row: dict[str, Any]) -> dict[str, Any]:
    return _verl_objective(
        row,
        {"pg_loss": "pg_loss", "sft_loss": "sft_loss", "kl_loss": "kl"},
        policy_loss="gspo",
        loss_agg_mode=row["mode"],
        sft_coeff=row["sft_coef"],
        kl_loss_coeff=row["kl_loss_coef"],
        kl_type=row["kl_loss_type"],
    )


def _paddlenlp_actor_loss(row: dict[str, Any]) -> dict[str, Any]:
    clips = {"clip_range_ratio_low": row["clip_low"], "clip_range_ratio_high": row["clip_high"]}
    return _objective(row, ("log_probs", "old_log_probs"), {}, **clips)


def _sft_loss(row: dict[str, Any]) -> dict[str, Any]:
    logprobs_RT = _trainable(row["log_prob"])
    nll_RT, positive_RT = positive_advantage_nll(logprobs_RT, _tensor(row["advantages"]), _tensor(row["mask"]))
    loss = _aggregate(nll_RT, positive_RT, row["mode"]) * _sum_over_rows(row, positive_RT)
    return {"loss": float(loss), "grad_log_prob": _gradient(loss, logprobs_RT)}


def _kl_penalty(row: dict[str, Any]) -> list[list[float]]:
    return kl_penalty(_tensor(row["logprob"]), _tensor(row["ref_logprob"]), row["kind"]).tolist()


def _kl_loss(row: dict[str, Any]) -> float:
    kl_RT = kl_penalty(_tensor(row["log_probs"]), _tensor(row["ref_log_probs"]), "k3", row["clip_range_score"])
    return float(_aggregate(kl_RT, _tensor(row["mask"]), "token-mean"))


FIXED = {
    "verl.agg_loss": _agg_loss,
    "verl.gspo_loss": _gspo_loss,
    "verl.ppo_loss": _ppo_loss,
    "verl.actor_total_loss": _actor_total_loss,
    "verl.policy_sft_loss": _sft_loss,
    "verl.kl_penalty": _kl_penalty,
    "paddlenlp.ppo_actor_loss": _paddlenlp_actor_loss,
    "paddlenlp.kl_loss": _kl_loss,
}
