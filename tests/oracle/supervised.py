"""The losses of SFT, DPO and reward models over all rows of an optimizer step, and the steps of AdamW."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import autograd.numpy as np
from autograd import make_vjp
from autograd.tracer import getval
from oracle import adamw
from oracle.comparison import Comparison
from oracle.qwen2 import Weights, rows_of, token_scores
from oracle.ranker import Group, scores_of
from oracle.run_files import Arrays, Run, State
from tokenizers import Tokenizer

LEAST_DIFFERENCE = 0.05
LANGUAGES = {"en": "English", "de": "German", "es": "Spanish"}
Loss = Callable[[Weights], "tuple[Any, dict[str, Any]]"]  # with logged terms


@dataclass
class SupervisedOracle:
    """Goes through a run whose every optimizer step takes all rows of its data, so that their order is no matter."""

    run: Run
    loss_of: Callable[[Run], Loss]
    first: int = 0  # the earliest step whose weights are known: a new head's are random
    comparison: Comparison = field(default_factory=Comparison)

    def check(self) -> Comparison:
        """Recompute every step."""
        arguments, loss_of = self.run.arguments, self.loss_of(self.run)
        n_rows = len(rows_in(Path(arguments["train_datasets"])))
        assert n_rows == arguments["per_device_train_batch_size"] * arguments["gradient_accumulation_steps"]
        for step in range(self.first, arguments["max_steps"]):
            self._step(step, loss_of)
        return self.comparison

    def _step(self, n_done: int, loss_of: Loss) -> None:
        arguments, logged = self.run.arguments, self.run.metrics[n_done + 1]
        begin, theirs = self.run.state(n_done), self.run.state(n_done + 1)
        terms: dict[str, Any] = {}

        def loss(weights: Arrays) -> Any:
            value, named = loss_of(weights)
            terms.update({name: getval(part) for name, part in named.items()})
            return value

        backward, value = make_vjp(loss)(begin.weights)
        gradient = {name: part for name, part in backward(1.0).items() if name not in frozen(arguments, begin)}
        self.comparison.add("loss", value, logged["loss"])
        for name in terms.keys() & logged.keys():
            self.comparison.add(name, terms[name], logged[name])
        rate = adamw.learning_rate(arguments, n_done)
        self.comparison.add("learning rate", adamw.learning_rate(arguments, n_done + 1), logged["learning_rate"])
        ours = adamw.step(begin, gradient, rate, arguments)
        self.comparison.add_changes(begin, ours, theirs, arguments["adam_beta1"])


def frozen(arguments: dict[str, Any], state: State) -> set[str]:
    """Weights that nothing moves: a constant in all scores."""
    return {name for name in state.weights if name in ("head.bias", "head.score.bias")}


def rows_in(path: Path) -> list[dict[str, Any]]:
    """The lines of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def sft(run: Run) -> Loss:
    """Negative log-likelihood per token with a label, over all rows."""
    encode, end = _tokenizer(run)
    prompts, responses = [], []
    for row in rows_in(Path(run.arguments["train_datasets"])):
        ids = [*encode(row["src"]), *encode(row["tgt"]), end]
        n = 1 if run.arguments["train_on_prompt"] else len(encode(row["src"]))
        prompts.append(ids[:n])
        responses.append(ids[n:])
    rows = rows_of(prompts, responses)

    def loss(weights: Weights) -> tuple[Any, dict[str, Any]]:
        logprobs, _ = token_scores(weights, run.config, rows)
        return -np.sum(np.where(rows.mask_RT, logprobs, 0.0)) / rows.mask_RT.sum(), {}

    return loss


def dpo(run: Run) -> Loss:
    """The preference loss per pair, and the likelihood of the chosen response per token."""
    arguments = run.arguments
    groups = [group for group, _ in _groups(run, with_end=True)]
    prompts = [prompt for prompt, responses in groups for _ in responses]
    rows = rows_of(prompts, [response for _, responses in groups for response in responses])
    lengths = rows.mask_RT.sum(axis=1)

    def totals(weights: Weights) -> Any:
        return np.sum(np.where(rows.mask_RT, token_scores(weights, run.config, rows)[0], 0.0), axis=1)

    reference = totals(run.state(0).weights)
    per = lengths if arguments["dpo_loss"] == "ipo" else 1.0

    def loss(weights: Weights) -> tuple[Any, dict[str, Any]]:
        now = totals(weights)
        gain = (now - reference) / per
        preference = np.mean(preference_loss(gain[0::2] - gain[1::2], arguments))
        chosen = -np.sum(now[0::2]) / lengths[0::2].sum() * arguments["sft_loss_ratio"]
        beta = arguments["dpo_beta"]
        terms = {f"{arguments['dpo_loss']}_loss": preference, "sft_loss": chosen}
        terms |= {f"rewards/{name}": beta * np.mean(gain[n::2]) for n, name in enumerate(("chosen", "rejected"))}
        return preference + chosen, terms

    return loss


def preference_loss(gain: Any, arguments: dict[str, Any]) -> Any:
    """Of log-ratio differences: Rafailov's, with Mitchell's smoothing; Zhao's hinge; Azar's IPO."""
    beta, smoothing = arguments["dpo_beta"], arguments["dpo_label_smoothing"]
    if arguments["dpo_loss"] == "hinge":
        return np.maximum(0.0, 1 - beta * gain)
    if arguments["dpo_loss"] == "ipo":
        return (gain - 1 / (2 * beta)) ** 2
    return (1 - smoothing) * softplus(-beta * gain) + smoothing * softplus(beta * gain)


def reward_model(run: Run) -> Loss:
    """Bradley-Terry over the pairs of all groups, and the squared error of differences from a group's mean."""
    arguments = run.arguments
    rows = _groups(run, with_end=arguments["reward_model"] == "pairwise")
    groups, gold = [group for group, _ in rows], [np.array(scores) for _, scores in rows]
    weight = arguments["squared_weight"]

    def loss(weights: Weights) -> tuple[Any, dict[str, Any]]:
        scores = scores_of(weights, run.config, groups, arguments)
        pairs, squares, place = [], [], 0
        for gold_G in gold:
            scores_G = np.stack(scores[place : place + len(gold_G)])
            place += len(gold_G)
            for i, j in zip(*np.nonzero(gold_G[:, None] - gold_G[None] > LEAST_DIFFERENCE), strict=True):
                pairs.append(softplus(scores_G[j] - scores_G[i]))
            off = scores_G - np.mean(scores_G) - (gold_G - gold_G.mean())
            squares.append(np.sum(off**2))
        return sum(pairs) / len(pairs) + weight * sum(squares) / place, {}

    return loss


def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""
    return np.logaddexp(0.0, x)


def _groups(run: Run, *, with_end: bool) -> list[tuple[Group, list[float]]]:
    """Prompt, responses and gold of every row, be it a pair or scored translations."""
    encode, end = _tokenizer(run)
    groups = []
    for row in rows_in(Path(run.arguments["train_datasets"])):
        if "chosen" in row:
            prompt, texts, gold = row["prompt"], [row["chosen"], row["rejected"]], [1.0, 0.0]
        else:
            source, target = LANGUAGES[row["src_lang"]], LANGUAGES[row["trg_lang"]]
            prompt = (
                f"Translate the following text from {source} into {target}:\n{source}: {row['src_text']}\n{target}:"
            )
            texts, gold = row["mt_texts"], [score / run.arguments["gold_scale"] for score in row["scores"]]
        rendered = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
        responses = [[*encode(text), *([end] if with_end else [])] for text in texts]
        groups.append(((encode(rendered), responses), gold))
    return groups


def _tokenizer(run: Run) -> tuple[Callable[[str], list[int]], int]:
    """Text to ids, and the id of the end of a text."""
    tokenizer = Tokenizer.from_file(str(run.model / "tokenizer.json"))
    end = json.loads((run.model / "tokenizer_config.json").read_text())["eos_token"]
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids, tokenizer.token_to_id(end)
