"""Checks of how rollouts are drawn and by whom, and of the evaluation: its metrics, and which chooses a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Set

from grrm.config.keys.rollout import RolloutServersConfig
from grrm.config.problems import Problems
from grrm.config.stage_config import RLConfig
from grrm.http_client.pool import checked_url


def check_sampling(config: RLConfig, problems: Problems) -> None:
    """Notes ways of drawing that the policy ratio or the weights of `rollout_is` do not account for."""
    for key in ("top_p", "repetition_penalty"):
        value = getattr(config, key)
        if value != 1.0 and config.rollout_is != "none":
            problems.add(
                f"{key} {value:g} cannot be combined with rollout_is {config.rollout_is}, whose weights are of the "
                "whole distribution while tokens beyond the likeliest are never drawn; set it to 1, or set rollout_is: "
                "none."
            )
        elif value != 1.0 and not config.allow_biased_sampling:
            problems.add(
                f"{key} {value:g} samples from another distribution than the one whose probabilities enter the "
                "policy ratio; set it to 1, or set allow_biased_sampling: true to accept the bias."
            )


def check_token_budget(config: RLConfig, problems: Problems) -> None:
    """Notes a budget too small for a row, and what counts on the same micro-batches on every rank."""
    budget, longest = config.max_tokens_per_micro_batch, config.max_prompt_len + config.max_dec_len
    if not budget:
        return
    if budget < longest:
        problems.add(
            f"max_tokens_per_micro_batch {budget} has no room for a row of max_prompt_len + max_dec_len {longest} "
            "tokens; raise it, or lower these."
        )
    counting = {
        "sequence_parallel": config.sequence_parallel,
        "sharding stage2": "stage2" in config.sharding,
        "sharding_parallel_config overlap": "overlap" in config.sharding_parallel_config,
        "data_parallel_config overlap": "overlap" in config.data_parallel_config,
    }
    for name, is_on in counting.items():
        if is_on:
            problems.add(
                f"max_tokens_per_micro_batch gives ranks different numbers of micro-batches, which {name} counts on; "
                "turn it off, or use per_device_train_batch_size."
            )


def check_tensor_rollouts(config: RLConfig, problems: Problems) -> None:
    """Notes a number of ranks that sample together which is not that of the tensor ranks, and what they cannot do."""
    ranks, degree = config.rollout_tensor_parallel_degree, max(config.tensor_parallel_degree, 1)
    if ranks in (-1, 1):
        return
    if ranks != degree:
        problems.add(
            f"rollout_tensor_parallel_degree {ranks} must be tensor_parallel_degree {degree}, whose ranks then sample "
            "with their parts of the weights, or 1, each with all of them."
        )
    conflicts = {
        f"rollout_quant_type {config.rollout_quant_type}": bool(config.rollout_quant_type),
        f"rollout_backend {config.rollout_backend}": config.rollout_backend != "paddle",
    }
    for name, is_set in conflicts.items():
        if is_set:
            problems.add(
                f"rollout_tensor_parallel_degree {ranks} is not supported with {name}; set it to 1, or turn that off."
            )


def check_rollout_servers(config: RLConfig, explicit: Set[str], problems: Problems) -> None:
    """Notes servers that are missing, unused or malformed, and what they would do otherwise than asked."""
    if config.rollout_backend == "paddle":
        for key in sorted(explicit & set(RolloutServersConfig.model_fields) - {"rollout_backend"}):
            problems.add(f"{key} has no effect without rollout_backend fastdeploy or vllm; set one or remove the key.")
        return
    if not config.rollout_servers:
        problems.add(f"rollout_backend {config.rollout_backend} needs rollout_servers; give their URLs.")
    for url in config.rollout_servers or ():
        with problems.noted():
            checked_url(url, "rollout_servers", "http://127.0.0.1:8000")
    if config.rollout_quant_type:
        problems.add(f"rollout_quant_type has no effect with rollout_backend {config.rollout_backend}; remove the key.")
    for key in ("rollout_ahead", "rollout_max_staleness"):
        if config.rollout_servers_sleep and getattr(config, key):
            problems.add(
                f"{key} {getattr(config, key)} uses servers while the policy trains; set it to 0, or "
                "rollout_servers_sleep: false."
            )
    if config.rollout_backend == "fastdeploy" and config.min_dec_len:
        problems.add(
            f"min_dec_len {config.min_dec_len} is not kept by FastDeploy for stop tokens other than the checkpoint's "
            "own; set min_dec_len: 0."
        )
    if config.rollout_backend == "vllm" and config.temperature != 1:
        problems.add(
            f"temperature {config.temperature:g} is not supported with rollout_backend vllm, whose log-probabilities "
            "are those at temperature 1; set temperature: 1."
        )


TEXT_METRICS = ("eval_chrf", "eval_bleu")


def held_out_metrics(config: RLConfig) -> dict[str, bool | None]:
    """The metrics of the evaluation that `config` asks for, and whether more is better; None where it depends.

    Those against references need held-out rows that have some.
    """
    metrics: dict[str, bool | None] = {"eval_reward": True}
    if not config.use_rule_reward:  # a judge's ground truth is no translation
        metrics |= dict.fromkeys(TEXT_METRICS, True)
    metrics["eval_response_length_mean"] = None
    if config.eval_greedy:
        metrics |= {f"{name}_greedy": more for name, more in metrics.items()}
    if config.eval_greedy + config.eval_samples > 1:
        metrics["eval_frac_duplicate"] = False
    return {**metrics, "eval_frac_unrewarded": False}


def has_held_out(config: RLConfig) -> bool:
    """True if there are rows to evaluate."""
    return bool(config.eval_datasets or config.held_out)


def held_out_rows(config: RLConfig, n_rows: int) -> int:
    """The rows that a training file of `n_rows` gives up for evaluation: a tenth at most, and a batch is left."""
    if config.eval_datasets:
        return 0
    return min(config.held_out, n_rows // 10, max(0, n_rows - config.global_batch_size))


def best_metric(config: RLConfig) -> str | None:
    """The metric that chooses the best checkpoint, by its whole name; None where none does."""
    name = config.metric_for_best_model
    return None if name is None else f"eval_{name.removeprefix('eval_')}"


def check_evaluation(config: RLConfig, explicit: Set[str], problems: Problems) -> None:
    """Check the decoding of held-out rows, and the metric that chooses the best checkpoint."""
    if not (config.eval_samples or config.eval_greedy):
        problems.add("eval_samples 0 and eval_greedy false leave nothing to evaluate; set one of them.")
    if not config.eval_samples:
        for key in sorted(explicit & {"eval_temperature", "eval_top_p"}):
            problems.add(f"{key} is of sampled translations; remove the key, or set eval_samples to 1 or more.")
    if config.eval_on_start and not has_held_out(config):
        problems.add("eval_on_start needs held-out rows to evaluate; set eval_datasets or held_out.")
    if config.held_out and config.use_rule_reward:
        problems.add(
            "held_out knows sources of translation tasks, not those inside a judge's prompts; give eval_datasets."
        )
    if config.held_out and config.eval_datasets:
        problems.notice("held_out has no effect beside eval_datasets, whose rows are evaluated.")
    best = best_metric(config)
    if best is not None or config.load_best_model_at_end:
        _check_best(config, best, held_out_metrics(config), problems)


def _check_best(config: RLConfig, best: str | None, metrics: Mapping[str, bool | None], problems: Problems) -> None:
    if best is None or best not in metrics:
        problems.add(
            f"metric_for_best_model is {config.metric_for_best_model}, but evaluations give {', '.join(metrics)}; name "
            "one of them."
        )
    elif metrics[best] is None and config.greater_is_better is None:
        problems.add(f"metric_for_best_model {best} needs greater_is_better: true or false.")
