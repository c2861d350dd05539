"""Keys of an RL run's evaluation: how held-out rows are translated, and what may choose the best checkpoint."""

from __future__ import annotations

from functools import partial

import pytest

from grrm.errors import UserError


@pytest.fixture
def evaluated(prepared):
    return partial(prepared, evaluation_strategy="steps", eval_datasets="held_out.jsonl")


def test_without_keys_held_out_rows_are_translated_greedily_and_once_at_temperature_one(evaluated):
    config = evaluated(temperature=0.7)
    found = (config.eval_samples, config.eval_temperature, config.eval_top_p, config.eval_greedy)
    assert found == (1, 1.0, 1.0, True)


def test_evaluation_may_sample_from_the_nucleus_where_rollouts_may_not(evaluated):
    assert evaluated(eval_top_p=0.7).eval_top_p == 0.7
    with pytest.raises(UserError, match=r"top_p 0\.7 samples from another distribution"):
        evaluated(top_p=0.7)


@pytest.mark.parametrize(
    ("metric", "is_more_better"),
    [
        ("reward", True),
        ("eval_reward_greedy", True),
        ("chrf", True),
        ("eval_chrf_greedy", True),
        ("bleu_greedy", True),
        ("frac_duplicate", False),
        ("eval_frac_unrewarded", False),
    ],
)
def test_any_metric_chooses_the_best_checkpoint_the_right_way_round(evaluated, metric, is_more_better):
    chosen = {"load_best_model_at_end": True, "eval_steps": 10, "metric_for_best_model": metric}
    assert evaluated(**chosen).greater_is_better is is_more_better
    assert evaluated(**chosen, greater_is_better=not is_more_better).greater_is_better is not is_more_better


def test_do_eval_alone_evaluates_by_steps_as_in_paddlenlp(prepared):
    config = prepared(do_eval=True, eval_datasets="held_out.jsonl", early_stopping=True)
    assert (config.evaluation_strategy, config.early_stopping) == ("steps", True)


def test_a_length_is_better_only_by_what_the_user_says(evaluated):
    chosen = {"metric_for_best_model": "response_length_mean"}
    with pytest.raises(UserError, match="eval_response_length_mean needs greater_is_better: true or false"):
        evaluated(**chosen)
    assert evaluated(**chosen, greater_is_better=False).greater_is_better is False


@pytest.mark.parametrize(
    "changes",
    [
        {"metric_for_best_model": "comet"},
        {"metric_for_best_model": "chrf_greedy", "eval_greedy": False},
        {"metric_for_best_model": "bleu", "use_rule_reward": True},
        {"metric_for_best_model": "frac_duplicate", "eval_samples": 0},
        {"metric_for_best_model": "frac_duplicate", "eval_greedy": False},
    ],
)
def test_a_metric_that_the_evaluation_does_not_give_is_refused_with_those_that_it_does(evaluated, changes):
    told = rf"metric_for_best_model is {changes['metric_for_best_model']}, but evaluations give eval_reward, "
    with pytest.raises(UserError, match=told):
        evaluated(**changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"eval_samples": 0, "eval_greedy": False}, "leave nothing to evaluate"),
        ({"eval_samples": 0, "eval_top_p": 0.7}, "eval_top_p is of sampled translations"),
        ({"eval_temperature": 0}, "eval_temperature"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(evaluated, changes, told):
    with pytest.raises(UserError, match=told):
        evaluated(**changes)


def test_rows_held_out_beside_a_file_of_them_are_said_to_have_no_effect(evaluated):
    assert [one.split(" beside")[0] for one in evaluated(held_out=8).notices] == ["held_out has no effect"]
