"""Keys of the RL objective: algorithm, baseline, policy loss, KL terms, early stopping."""

from __future__ import annotations

from typing import ClassVar, Literal

from grrm.algorithms import ALGORITHMS
from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.algorithms.policy_losses import POLICY_LOSSES
from grrm.algorithms.policy_losses.interface import Aggregation
from grrm.config.key import Section, key, refused

KlType = Literal["k1", "abs", "k2", "k3", "k1+", "abs+", "k3+", "kl", "mse", "low_var_kl", "low_var_kl+"]

Schedule = Literal["linear", "cosine", "constant", "constant_with_warmup", "polynomial"]


class PolicyLossConfig(Section):
    """Settings of `grrm.rl.losses.objective`. Outside an argument file make it with `policy_loss_config`."""

    title: ClassVar[str] = "Policy loss"

    policy_loss: str = key(
        None, "the loss of a token, see the table of policy losses", means="from rl_algorithm", choices=POLICY_LOSSES
    )
    loss_agg_mode: Aggregation = key(None, "how token losses are aggregated over a batch", means="what the paper says")
    pg_loss_coeff: float = key(1.0, "weight of the policy loss", ge=0, le=10**6)
    clip_range_ratio: float = key(0.2, "clip range of the policy ratio around 1", gt=0, le=100)
    clip_range_ratio_low: float = key(None, "lower clip range", means="clip_range_ratio", gt=0, le=1)
    clip_range_ratio_high: float = key(None, "upper clip range", means="clip_range_ratio", gt=0, le=100)
    dual_clip_ratio: float | None = key(
        None, "bound on the ratio where the advantage is negative, e.g. 3", gt=1, le=10**6
    )
    sapo_tau_pos: float = key(1.0, "how sharply sapo's gate closes where the advantage is positive", gt=0, le=10**3)
    sapo_tau_neg: float = key(1.05, "how sharply sapo's gate closes elsewhere", gt=0, le=10**3)
    clip_range_score: float = key(
        10.0, "rewards, and the KL estimate k3 of a token in nats, are clipped to plus and minus this", gt=0, le=10**6
    )
    kl_loss_coeff: float = key(
        None,
        "weight of the KL to the reference policy as a loss",
        means="0 with use_kl_in_reward, else 0.001",
        ge=0,
        le=10**6,
    )
    kl_type: KlType = key(
        "k3", "estimator of the KL loss; with + the gradient is that of k2; that of abs is a sign, noise at the start"
    )
    entropy_coeff: float = key(0.0, "weight of the entropy bonus", ge=-(10**6), le=10**6)
    sft_coeff: float = key(
        0.0, "weight of the advantage-weighted likelihood of better-than-average samples", ge=0, le=10**6
    )
    rollout_is: Literal["auto", "none", "token", "sequence"] = key(
        "auto",
        "importance weights for the mismatch of engine and trainer; auto: token with int8, servers or rollout_ahead",
    )
    rollout_is_mode: Literal["truncate", "mask"] = key(
        "truncate", "weights beyond the bounds: set to the bound, or to 0, which takes the token or response out"
    )
    rollout_is_cap: float = key(2.0, "upper bound of these weights", ge=1, le=10**6)
    rollout_is_floor: float = key(0.0, "lower bound of these weights", ge=0, le=1)


class ObjectiveConfig(PolicyLossConfig):
    """Algorithm, advantages, and what the losses of PaddleNLP have beside the policy loss."""

    title: ClassVar[str] = "Objective"

    rl_algorithm: str = key("grpo", "selects an advantage rule, a policy loss and their defaults", choices=ALGORITHMS)
    advantage_rule: str = key(
        None,
        "how advantages are computed from rewards, see the table of rules",
        means="from rl_algorithm",
        choices=ADVANTAGE_RULES,
    )
    norm_adv_by_std: bool = key(
        None,
        "divide advantages by the group's standard deviation; false turns grpo into grpo_no_std",
        means="from the rule",
    )
    normalize_reward: bool = key(
        None,
        "rewards less their running mean, over their running deviation; for rules that do not compare with the group",
        means="false",
    )
    normalize_advantage: bool = key(
        None,
        "normalise advantages over the batch; for rules that do not compare with the group",
        means="true with a critic, else false",
    )
    length_neutral_rewards: bool = key(
        False, "take out of rewards what the length of a response predicts within the groups of a batch"
    )
    gamma: float = key(1.0, "discount per token; for rules with returns per token", gt=0, le=1)
    use_kl_in_reward: bool = key(
        None, "lower the reward of each token by the KL to the reference policy", means="from the rule"
    )
    kl_coeff: float = key(
        None, "weight of the KL in the reward", means="0.02 with use_kl_in_reward, else 0", ge=0, le=10**6
    )
    span_weight: float = key(
        0.1, "weight of error spans beside the advantage of the response; for rules that need spans", ge=0, le=10**6
    )
    span_severities: dict[str, float] = key(
        {},
        "what an error span of each severity costs a token; for the same rules",
        means="minor 1, major 5, critical 10",
    )
    ptx_coeff: float = key(
        0.0,
        "weight of a pre-training loss",
        by=refused("there is no pre-training loss; sft_coeff is the likelihood term of the GRRM recipe"),
    )
    use_fp32_compute: bool = key(
        True,
        "compute losses in float32",
        by=refused("rewards, advantages and losses are always computed in float32; remove the key"),
    )
    min_learning_rate: float | None = key(None, "final learning rate of the cosine schedule", means="0")
    decay_steps: int | None = key(None, "steps until then", by=refused("schedules span the whole run; remove the key"))


class StoppingConfig(Section):
    """Conditions on which a run ends early."""

    title: ClassVar[str] = "Early stopping"

    early_stopping: bool = key(
        False, "stop when eval_reward no longer improves; off where the judge only compares within groups"
    )
    early_stopping_patience: int = key(
        4, "evaluations without improvement before the run stops", unit="evaluations", ge=1, le=10**6
    )
    early_stopping_threshold: float = key(0.0, "minimum improvement over the best")
    logprob_gap_limit: float | None = key(
        None,
        "stop when the mean difference of engine and trainer log-probs exceeds this",
        means="rollout_check_limit where servers have the current weights",
        unit="nats per token",
        gt=0,
        le=10**6,
    )


class CriticConfig(Section):
    """Keys of PPO's critic."""

    title: ClassVar[str] = "Critic"

    critic_model_name_or_path: str | None = key(
        None,
        "the critic's backbone, with its value head if the folder has one (a critic or a pairwise reward model)",
        means="actor_model_name_or_path",
        names="model",
    )
    critic_tokenizer_alpha: float | None = key(
        None, "factor of its tokenizer", by=refused("the critic reads the policy's tokens; remove the key")
    )
    critic_learning_rate: float = key(None, "its learning rate", means="learning_rate", ge=0, le=10)
    critic_weight_decay: float = key(None, "its weight decay", means="weight_decay", ge=0)
    critic_lr_scheduler_type: Schedule = key(None, "its learning rate schedule", means="lr_scheduler_type")
    critic_warmup_ratio: float = key(None, "share of the steps used for its warm-up", means="warmup_ratio", ge=0, le=1)
    critic_warmup: int = key(0, "first steps in which only the critic is trained", unit="steps", ge=0, le=10**9)
    critic_recompute: bool = key(None, "recompute its layers in the backward pass", means="recompute")
    critic_recompute_granularity: Literal["full", "full_attn", "core_attn"] = key("full", "what of them is recomputed")
    critic_min_learning_rate: float | None = key(None, "final learning rate of its cosine schedule", means="0")
    critic_decay_steps: int | None = key(
        None, "steps until then", by=refused("schedules span the whole run; remove the key")
    )
    gae_lambda: float = key(
        0.95, "how far rewards reach back beyond the critic's values: 0 one step, 1 the whole response", ge=0, le=1
    )
    clip_range_value: float = key(
        5.0, "values are clipped to plus and minus this around those of the rollout", gt=0, le=10**6
    )
    use_tgt_len_value: bool = key(
        False,
        "give it the length of the reference",
        by=refused("a value follows from prompt and response alone; remove the key"),
    )
