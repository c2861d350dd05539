"""An RL run recomputed from what it left behind: rewards, advantages, log-probs, losses, gradients, AdamW's steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd import grad, make_vjp
from oracle import adamw
from oracle.advantages import Moments, Rollout, advantages, padded
from oracle.comparison import Comparison
from oracle.critic import CriticOracle
from oracle.objective import Inputs, Terms, objective
from oracle.qwen2 import Rows, rows_of, token_scores
from oracle.registered import advantage_rule, aggregation, policy_loss
from oracle.rewards import NAN, group_rewards, length_penalty
from oracle.run_files import Arrays, Run, State
from oracle.spans import severities

# Advantage rule, policy loss, and how the paper aggregates it.
ALGORITHMS = {
    "grpo": ("grpo", "token_clip", "token-mean"),
    "gspo": ("grpo", "gspo", "seq-mean-token-mean"),
    "cispo": ("grpo", "cispo", "token-mean"),
    "gmpo": ("grpo", "gmpo", "seq-mean-token-mean"),
    "sapo": ("grpo", "sapo", "seq-mean-token-mean"),
    "dr_grpo": ("dr_grpo", "token_clip", "seq-mean-token-sum-norm"),
    "reinforce_plus_plus": ("reinforce_plus_plus", "token_clip", "token-mean"),
    "ppo": ("gae", "token_clip", "token-mean"),
}
LOGGED = (
    "pg_loss", "sft_loss", "kl", "entropy", "pg_clipfrac", "pg_clipfrac_lower", "ppo_kl", "ratio_mean", "ratio_max",
    "rollout_is_mean", "rollout_is_capped", "rollout_is_floored", "rollout_is_max",
)  # fmt: skip


@dataclass
class RlOracle:
    """Goes through a run rollout by rollout, from the weights that the run itself had at the start of each."""

    run: Run
    comparison: Comparison = field(default_factory=Comparison)
    seen: dict[str, float] = field(default_factory=dict)  # what happened in the run: a check of nothing is none
    moments: Moments = field(default_factory=Moments)

    def __post_init__(self) -> None:
        self.arguments = _with_algorithm(self.run.arguments, self.run.settings)
        self.reference = self.run.state(0).weights
        self.critic = None
        if self.arguments["advantage_rule"] == "gae":
            self.critic = CriticOracle(self.run, self.arguments, self.comparison)

    def check(self) -> Comparison:
        """Recompute every rollout and update."""
        starts = sorted(self.run.rollouts)
        previous = self.run.state(0)
        for start, end in zip(starts, [*starts[1:], self.arguments["max_steps"] + 1], strict=True):
            state = self._state(start - 1)
            engine = previous if self.arguments["rollout_ahead"] else state
            self._rollout(start, end, state, engine.weights)
            previous = state
        return self.comparison

    def _state(self, step: int) -> State:
        """The policy after `step` steps of the run; in the first ones its optimizer may rest."""
        return replace(self.run.state(step), step=max(0, step - self.arguments.get("critic_warmup", 0)))

    def _rollout(self, start: int, end: int, state: State, engine: Arrays) -> None:
        groups = self.run.rollouts[start]
        rows = self._rows(groups)
        tokens = {
            name: self._logprobs(weights, rows)
            for name, weights in (("old", state.weights), ("engine", engine), ("reference", self.reference))
        }
        if (drawn := self.run.drawn_before(start)) is not None:
            self.comparison.add("log-probs, engine", tokens["engine"][rows.mask_RT], drawn)
        rollout = self._rewarded(start, groups, rows, tokens["old"] - tokens["reference"])
        mask = rows.mask_RT & ~np.isnan(rollout.rewards)[:, None]
        if self.critic is not None:
            self.critic.start(start - 1)
            rollout.values = self.critic.rows(rows, [one["values"] for group in groups for one in group["candidates"]])
        rule = advantage_rule(self.arguments["advantage_rule"])
        per_token = padded(advantages(rollout, rule, self.moments), rows.mask_RT.shape)
        self._note_rewards(groups, rollout)
        self._compare_advantages(groups, per_token, rows)
        inputs = Inputs(**tokens, advantages=per_token, mask=mask, width=self.arguments["max_dec_len"],
                        arguments=self.arguments)  # fmt: skip
        if self.critic is not None:
            self.critic.aim(start, rollout, mask)
        begin = state
        for step, part in zip(range(start, end), self._minibatches(len(mask)), strict=True):
            if self.critic is not None:
                self._note("values clipped", self.critic.update(step, _part(rows, part), part))
            if step > self.arguments.get("critic_warmup", 0):
                state = self._update(step, state, _part(rows, part), _of(inputs, part))
        self.comparison.add_changes(begin, state, self._state(end - 1), self.arguments["adam_beta1"])
        if self.critic is not None:
            self.critic.finish(end - 1)

    def _rows(self, groups: list[dict[str, Any]]) -> Rows:
        prompts, responses = [], []
        for group in groups:
            prompt = self.run.prompts[group["source"], group["src_lang"], group["trg_lang"]]
            for candidate in group["candidates"]:
                prompts.append(prompt)
                responses.append(candidate["token_ids"])
        return rows_of(prompts, responses)

    def _logprobs(self, weights: Arrays, rows: Rows) -> np.ndarray:
        return token_scores(weights, self.run.config, rows, self.arguments["temperature"])[0]

    def _rewarded(self, step: int, groups: list[dict[str, Any]], rows: Rows, kl_RT: np.ndarray) -> Rollout:
        """Rewards, compared with the dump and the metrics; the KL that may be in them, with the dump."""
        rewards = [reward for group in groups for reward in group_rewards(group["candidates"], self.arguments)]
        every = [one for group in groups for one in group["candidates"]]
        lengths = rows.mask_RT.sum(axis=1)
        self.comparison.add("reward", rewards, [NAN if one["reward"] is None else one["reward"] for one in every])
        logged = self.run.metrics[step]
        self.comparison.add("mean and std of rewards", [np.nanmean(rewards), np.nanstd(rewards)],
                            [logged["reward_mean"], logged["reward_std"]])  # fmt: skip
        kl = [kl_T[:n] for kl_T, n in zip(kl_RT, lengths, strict=True)]
        if self.arguments["kl_coeff"]:
            for kl_T, one in zip(kl, every, strict=True):
                self.comparison.add("log-probs, policy - reference", kl_T, one["kl"], scale=1.0)
                self._note("kl in reward", np.abs(kl_T).max())
        index = [position for position, group in enumerate(groups) for _ in group["candidates"]]
        fixed = [one["score"] is None for one in every]
        return Rollout(
            rewards, index, list(lengths), kl, self.arguments, severities=self._severities(every), fixed=fixed
        )

    def _severities(self, candidates: list[dict[str, Any]]) -> list[np.ndarray]:
        """The weights of error spans per token, compared with the dump; none where the run did not read them."""
        if candidates[0]["severities"] is None:
            return []
        weights = self.arguments["span_severities"]
        rows = [severities(one, self.run.tokenizer.decode, weights) for one in candidates]
        for row, one in zip(rows, candidates, strict=True):
            self.comparison.add("reward", row, one["severities"])
            self._note("error spans", row.max(initial=0.0))
        return rows

    def _note_rewards(self, groups: list[dict[str, Any]], rollout: Rollout) -> None:
        """Note what the rewards of this rollout exercise."""
        bound, rewards = self.arguments["clip_range_score"], np.asarray(rollout.rewards)
        scored = [np.count_nonzero(~np.isnan(rewards[np.asarray(rollout.groups) == g])) for g in range(len(groups))]
        statuses = [one["status"] for group in groups for one in group["candidates"]]
        self._note("unscored", np.isnan(rewards).sum())
        self._note("groups of one", scored.count(1))
        self._note("duplicates", statuses.count("duplicate"))
        self._note("penalised", statuses.count("unparsable_candidate"))
        self._note("penalty of length", max(length_penalty(n, self.arguments) for n in rollout.lengths))
        self._note("beyond clip_range_score", (np.abs(rewards[~np.isnan(rewards)]) > bound).sum())
        self._note("all below max_dec_len", max(rollout.lengths) < self.arguments["max_dec_len"])
        self._note("several lengths", len(set(rollout.lengths)) > 4)

    def _compare_advantages(self, groups: list[dict[str, Any]], values_RT: np.ndarray, rows: Rows) -> None:
        every = [one for group in groups for one in group["candidates"]]
        means = values_RT.sum(axis=1) / rows.mask_RT.sum(axis=1)
        written = [np.nan if one["advantage"] is None else one["advantage"] for one in every]
        self.comparison.add("advantage", np.where(np.isnan(written), np.nan, means), written)
        assert not values_RT[np.isnan(written)].any()

    def _minibatches(self, n_rows: int) -> Iterator[slice]:
        """The rows of each update of a rollout, in order."""
        arguments = self.arguments
        prompts, size = arguments["global_batch_size"], arguments["global_mini_batch_size"]
        per_update = (prompts if size == -1 else size) * arguments["rollout_n"]
        for _ in range(arguments["update_iters"]):
            for first in range(0, n_rows, per_update):
                yield slice(first, first + per_update)

    def _update(self, step: int, state: State, rows: Rows, inputs: Inputs) -> State:
        """One optimizer step, its logged terms compared."""

        def scores(weights: Arrays) -> Any:
            return anp.stack(token_scores(weights, self.run.config, rows, self.arguments["temperature"]))

        backward, both = make_vjp(scores)(state.weights)
        terms = self._objective(both, inputs)
        gradient = backward(grad(lambda both_2RT: self._objective(both_2RT, inputs).loss)(both))
        rate = adamw.learning_rate(self.arguments, step - 1)
        self._compare_terms(step, terms)
        norm = adamw.global_norm(gradient)
        self._note("gradient clipped", 0 < self.arguments["max_grad_norm"] < norm)
        self._note("decay", rate * self.arguments["weight_decay"])
        return adamw.step(state, self._trained(gradient), rate, self.arguments)

    def _objective(self, both_2RT: Any, inputs: Inputs) -> Terms:
        name = self.arguments["policy_loss"]
        mode = aggregation(name, self.arguments["loss_agg_mode"])
        return objective(both_2RT[0], both_2RT[1], inputs, policy_loss(name), mode)

    def _compare_terms(self, step: int, terms: Terms) -> None:
        logged, add = self.run.metrics[step], self.comparison.add
        add("loss", float(terms.loss), logged["loss"], terms.scales["loss"])
        for name in LOGGED:
            if name in logged:
                add(name, float(terms.metrics.get(name, 0.0)), logged[name], max(terms.scales.get(name, 0.0), 0.1))
        for name in ("pg_clipfrac", "pg_clipfrac_lower", "rollout_is_capped", "rollout_is_floored", "sft_loss"):
            self._note(name, float(terms.metrics.get(name, 0.0)))
        add("learning rate", adamw.learning_rate(self.arguments, step), logged["learning_rate"])

    def _trained(self, gradient: Arrays) -> Arrays:
        """Without the frozen layers."""
        n = self.arguments["frozen_layers"]
        parts = ["embed_tokens", *(f".layers.{layer}." for layer in range(n))] if n else []
        return {name: value for name, value in gradient.items() if not any(part in name for part in parts)}

    def _note(self, name: str, value: float) -> None:
        self.seen[name] = max(self.seen.get(name, 0.0), float(value))


def _with_algorithm(arguments: dict[str, Any], chosen: dict[str, str]) -> dict[str, Any]:
    """What the algorithm prescribes and the user did not choose, whatever the run made of it."""
    names = ("advantage_rule", "policy_loss", "loss_agg_mode")
    prescribed: dict[str, Any] = dict(zip(names, ALGORITHMS[arguments["rl_algorithm"]], strict=True))
    if arguments["rl_algorithm"] == "grpo" and arguments["norm_adv_by_std"] is False:
        prescribed["advantage_rule"] = "grpo_no_std"
    prescribed["policy_loss"] = loss = chosen.get("policy_loss", prescribed["policy_loss"])
    prescribed |= {f"clip_range_ratio_{end}": arguments["clip_range_ratio"] for end in ("low", "high")}
    prescribed["loss_agg_mode"] = aggregation(loss, prescribed["loss_agg_mode"])
    return {**arguments, **{name: value for name, value in prescribed.items() if name not in chosen}}


def _part(rows: Rows, part: slice) -> Rows:
    return Rows(*(table[part] for table in rows))


def _of(inputs: Inputs, part: slice) -> Inputs:
    tables = {name: getattr(inputs, name)[part] for name in ("old", "engine", "reference", "advantages", "mask")}
    return Inputs(**tables, width=inputs.width, arguments=inputs.arguments)
