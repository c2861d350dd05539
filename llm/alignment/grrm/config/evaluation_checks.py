"""Evaluation of an RL run: which metrics it gives, which of them can choose a checkpoint, and what contradicts it."""

from __future__ import annotations

from collections.abc import Mapping, Set

from grrm.config.problems import Problems
from grrm.config.rl_config import RLConfig

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
