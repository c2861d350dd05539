"""Advantages by plain loops over groups, responses and tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Rewards = list[float]  # of the responses of a step, NaN without one


@dataclass
class Rollout:
    """The responses of a rollout in order: reward, group, length; KL terms, a critic's values, severities per token."""

    rewards: Rewards
    groups: list[int]
    lengths: list[int]
    kl: list[np.ndarray]
    arguments: dict[str, Any]
    values: list[np.ndarray] = field(default_factory=list)
    severities: list[np.ndarray] = field(default_factory=list)
    fixed: list[bool] = field(default_factory=list)  # a reward that stands for a score; none is where this is empty

    @property
    def scored(self) -> list[int]:
        """The responses that have a reward."""
        return [i for i, reward in enumerate(self.rewards) if not math.isnan(reward)]

    def clipped(self, i: int) -> float:
        """The reward of response i within clip_range_score."""
        bound = self.arguments["clip_range_score"]
        return max(-bound, min(bound, self.rewards[i]))

    def score(self, i: int) -> float:
        """The clipped reward of response i less the KL of all its tokens."""
        return self.clipped(i) - self.arguments["kl_coeff"] * float(self.kl[i].sum())

    def others(self, i: int) -> list[float]:
        """Scores of the members of the group of response i that have one."""
        return [self.score(j) for j in self.scored if self.groups[j] == self.groups[i]]


@dataclass
class Moments:
    """Mean and variance over all rewards of a run, as PaddleNLP merges them batch by batch."""

    mean: float = 0.0
    variance: float = 1.0
    count: int = 0

    def normalised(self, rewards: Rewards) -> Rewards:
        """The rewards by the moments that have taken them in."""
        scored = [reward for reward in rewards if not math.isnan(reward)]
        if scored:
            mean, variance = np.mean(scored), np.var(scored, ddof=1) if len(scored) > 1 else 0.0
            total, delta = self.count + len(scored), np.mean(scored) - self.mean
            spread = self.variance * self.count + variance * len(scored)
            self.variance = (spread + delta**2 * self.count * len(scored) / total) / total
            self.mean = (self.mean * self.count + mean * len(scored)) / total
            self.count = total
        return [(reward - self.mean) / (math.sqrt(self.variance) + 1e-8) for reward in rewards]


Rule = Callable[[Rollout], list[np.ndarray]]


def advantages(rollout: Rollout, rule: Rule, moments: Moments) -> list[np.ndarray]:
    """Advantages of every token of every response, 0 without a reward."""
    if rollout.arguments["length_neutral_rewards"]:
        rollout.rewards = without_length(rollout)
    if rollout.arguments["normalize_reward"]:
        rollout.rewards = moments.normalised(rollout.rewards)
    tokens = rule(rollout)
    if rollout.arguments["normalize_advantage"]:
        tokens = _whitened(tokens, rollout.scored, lambda variance: math.sqrt(variance) + 1e-8)
    return tokens


def without_length(rollout: Rollout) -> Rewards:
    """Scores less what a regression on the log of the length, both from their group's mean, predicts.

    Groups of equal scores have no part in it.
    """
    logs, rewards = [math.log(max(length, 1)) for length in rollout.lengths], rollout.rewards
    judged = [i for i in rollout.scored if not (rollout.fixed and rollout.fixed[i])]
    scores = {group: {rewards[i] for i in judged if rollout.groups[i] == group} for group in rollout.groups}
    judged = [i for i in judged if len(scores[rollout.groups[i]]) > 1]

    def centred(values: list[float], i: int) -> float:
        own = [values[j] for j in judged if rollout.groups[j] == rollout.groups[i]]
        return values[i] - float(np.mean(own))

    lengths = {i: centred(logs, i) for i in judged}
    spread = sum(value**2 for value in lengths.values())
    slope = sum(centred(rewards, i) * lengths[i] for i in lengths) / spread if spread else 0.0
    return [reward - slope * lengths.get(i, 0.0) for i, reward in enumerate(rewards)]


def padded(rows: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Rows of different lengths in one table, 0 beyond them."""
    table = np.zeros(shape)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return table


def _per_response(rollout: Rollout, value: Callable[[int], float]) -> list[np.ndarray]:
    scored = set(rollout.scored)
    return [np.full(n, value(i) if i in scored else 0.0) for i, n in enumerate(rollout.lengths)]


def _deviation(rollout: Rollout, i: int) -> float:
    """From the mean of the group; exactly 0 where all are equal."""
    return -float(np.mean([other - rollout.score(i) for other in rollout.others(i)]))


def grpo(rollout: Rollout) -> list[np.ndarray]:
    def value(i: int) -> float:
        others = rollout.others(i)
        return _deviation(rollout, i) / (np.std(others, ddof=1) + 1e-6) if len(others) > 1 else 0.0

    return _per_response(rollout, value)


def with_spans(base: Rule) -> Rule:
    def rule(rollout: Rollout) -> list[np.ndarray]:
        scored, weight = set(rollout.scored), rollout.arguments["span_weight"]
        tokens = base(rollout)
        for i, row in enumerate(tokens):
            for t in range(len(row)) if i in scored else ():
                row[t] -= weight * rollout.severities[i][t]
        return tokens

    return rule


def without_std(rollout: Rollout) -> list[np.ndarray]:
    return _per_response(rollout, lambda i: _deviation(rollout, i))


def rloo(rollout: Rollout) -> list[np.ndarray]:
    def value(i: int) -> float:
        others = rollout.others(i)
        n = len(others)
        return _deviation(rollout, i) * n / (n - 1) if n > 1 else 0.0

    return _per_response(rollout, value)


def reinforce_plus_plus(rollout: Rollout) -> list[np.ndarray]:
    scored, coefficient, gamma = set(rollout.scored), rollout.arguments["kl_coeff"], rollout.arguments["gamma"]
    tokens = []
    for i, n in enumerate(rollout.lengths):
        returns = np.zeros(n)
        following = 0.0
        for t in reversed(range(n)) if i in scored else ():
            reward = -coefficient * rollout.kl[i][t] + (rollout.clipped(i) if t == n - 1 else 0.0)
            following = returns[t] = reward + gamma * following
        tokens.append(returns)
    return _whitened(tokens, rollout.scored, lambda variance: math.sqrt(variance + 1e-8))


def gae(rollout: Rollout) -> list[np.ndarray]:
    scored, arguments = set(rollout.scored), rollout.arguments
    gamma, decay = arguments["gamma"], arguments["gamma"] * arguments["gae_lambda"]
    tokens = []
    for i, n in enumerate(rollout.lengths):
        row, following, value_after = np.zeros(n), 0.0, 0.0
        for t in reversed(range(n)) if i in scored else ():
            reward = -arguments["kl_coeff"] * rollout.kl[i][t] + (rollout.clipped(i) if t == n - 1 else 0.0)
            following = row[t] = reward + gamma * value_after - rollout.values[i][t] + decay * following
            value_after = rollout.values[i][t]
        tokens.append(row)
    return tokens


def reinforce_plus_plus_baseline(rollout: Rollout) -> list[np.ndarray]:
    compared = [i for i in rollout.scored if len(rollout.others(i)) > 1]
    tokens = _per_response(rollout, lambda i: _deviation(rollout, i))
    return _whitened(tokens, compared, lambda variance: math.sqrt(variance + 1e-8))


def _whitened(tokens: list[np.ndarray], rows: list[int], scale: Callable[[float], float]) -> list[np.ndarray]:
    """Mean 0 and variance 1 over the tokens of these rows, 0 elsewhere."""
    every = np.concatenate([tokens[i] for i in rows]) if rows else np.zeros(0)
    if every.size < 2:
        return [np.zeros_like(row) for row in tokens]
    mean, divisor = every.mean(), scale(every.var(ddof=1))
    chosen = set(rows)
    return [(row - mean) / divisor if i in chosen else np.zeros_like(row) for i, row in enumerate(tokens)]


RULES: dict[str, Rule] = {
    "grpo": grpo,
    "grpo_no_std": without_std,
    "grpo_spans": with_spans(grpo),
    "grpo_spans_no_std": with_spans(without_std),
    "dr_grpo": without_std,
    "rloo": rloo,
    "reinforce_plus_plus": reinforce_plus_plus,
    "reinforce_plus_plus_baseline": reinforce_plus_plus_baseline,
    "gae": gae,
}
