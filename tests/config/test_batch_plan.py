"""Batch arithmetic: counts that add up, and refusals that name values that fit."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.config.batch_plan import batch_plan, nearest_values, repeated_prompts
from grrm.errors import UserError


def settings(**changes):
    values = {
        "global_batch_size": 32,
        "global_mini_batch_size": 8,
        "global_gen_batch_size": -1,
        "update_iters": 2,
        "rollout_n": 4,
        "per_device_train_batch_size": 4,
        "max_prompt_len": 100,
        "max_dec_len": 20,
        "max_steps": 80,
        "num_train_epochs": 1.0,
        "dataloader_drop_last": False,
        "dynamic_sampling": False,
        "max_tokens_per_micro_batch": 0,
    }
    return SimpleNamespace(**{**values, **changes})


def test_fewer_prompts_than_a_batch_takes_are_said_to_repeat():
    plan = batch_plan(settings(), data_ranks=2)
    assert repeated_prompts(plan, 32) is None
    assert "31 prompts for a global_batch_size of 32: they repeat" in (repeated_prompts(plan, 31) or "")
    dynamic = batch_plan(settings(dynamic_sampling=True, global_gen_batch_size=64), data_ranks=2)
    assert "40 prompts for a global_gen_batch_size of 64" in (repeated_prompts(dynamic, 40) or "")


def test_too_few_prompts_for_a_batch_are_refused_where_the_rest_of_an_epoch_is_dropped():
    with pytest.raises(UserError, match=r"31 prompts do not fill a global_batch_size of 32.* lower global_batch_size"):
        batch_plan(settings(dataloader_drop_last=True), 2, n_train_prompts=31)
    passes = settings(dataloader_drop_last=True, dynamic_sampling=True, global_gen_batch_size=64)
    with pytest.raises(UserError, match=r"40 prompts do not fill a global_gen_batch_size of 64"):
        batch_plan(passes, 2, n_train_prompts=40)
    assert batch_plan(passes, 2, n_train_prompts=64).rollouts == 10


def test_counts_of_a_two_rank_run():
    plan = batch_plan(settings(), data_ranks=2)
    assert (plan.prompts_per_rollout_per_rank, plan.rows_per_rollout, plan.rows_per_rank) == (16, 128, 64)
    assert (plan.prompts_per_update, plan.rows_per_update, plan.updates_per_rollout) == (8, 32, 8)
    assert plan.micro_batches_per_update == 4
    assert (plan.rollouts, plan.optimizer_steps) == (10, 80)
    assert (plan.max_tokens_per_row, plan.max_tokens_per_rollout, plan.max_tokens_per_micro_batch) == (120, 15360, 480)


def test_mini_batch_minus_one_means_one_update_per_rollout_without_an_extra_rollout_n():
    plan = batch_plan(settings(global_mini_batch_size=-1, update_iters=1), data_ranks=2)
    assert plan.updates_per_rollout == 1
    assert plan.micro_batches_per_update * plan.micro_batch_rows * plan.data_ranks == plan.rows_per_rollout


def test_more_ranks_change_only_what_is_per_rank():
    one, two = batch_plan(settings(), 1), batch_plan(settings(), 2)
    assert one.micro_batches_per_update == 2 * two.micro_batches_per_update
    same = {name: getattr(one, name) for name in ("prompts_per_rollout_per_rank", "rows_per_rank")}
    assert replace(two, data_ranks=1, micro_batches_per_update=one.micro_batches_per_update, **same) == one


def test_length_from_epochs_counts_whole_rollouts():
    plan = batch_plan(settings(max_steps=-1, num_train_epochs=2.0), 1, n_train_prompts=100)
    assert (plan.rollouts, plan.optimizer_steps) == (6, 48)
    unknown = batch_plan(settings(max_steps=-1), 1)
    assert unknown.rollouts is None
    assert unknown.optimizer_steps is None


def test_epochs_are_as_many_passes_where_the_rest_of_each_is_dropped():
    changes = {"max_steps": -1, "num_train_epochs": 3.0, "global_batch_size": 32, "dataloader_drop_last": True}
    assert batch_plan(settings(**changes), 1, n_train_prompts=60).rollouts == 3  # of one whole batch each
    assert batch_plan(settings(**{**changes, "dataloader_drop_last": False}), 1, n_train_prompts=60).rollouts == 5


@pytest.mark.parametrize(
    ("changes", "ranks", "key", "remedy"),
    [
        ({"global_batch_size": 30}, 4, "global_batch_size 30", "28 or 32"),
        ({"global_mini_batch_size": 12}, 2, "global_mini_batch_size 12", "8 or 16"),
        ({"global_mini_batch_size": 0}, 2, "global_mini_batch_size 0", "use 2"),
        ({"global_mini_batch_size": 64}, 2, "global_mini_batch_size 64", "use 32"),
        ({"per_device_train_batch_size": 5}, 2, "per_device_train_batch_size 5", "4 or 8"),
        ({"per_device_train_batch_size": 99}, 2, "per_device_train_batch_size 99", "use 16"),
        ({"max_steps": 81}, 2, "max_steps 81", "80 or 88"),
        ({"global_gen_batch_size": 64}, 2, "global_gen_batch_size 64", "dynamic_sampling"),
        ({"global_gen_batch_size": 33, "dynamic_sampling": True}, 2, "global_gen_batch_size 33", "32 or 34"),
        ({"global_gen_batch_size": 0, "dynamic_sampling": True}, 2, "global_gen_batch_size is 0", "at least 1"),
    ],
)
def test_what_does_not_divide_is_refused_with_values_that_do(changes, ranks, key, remedy):
    with pytest.raises(UserError) as caught:
        batch_plan(settings(**changes), ranks)
    assert key in str(caught.value)
    assert remedy in str(caught.value)


def test_a_dataset_smaller_than_one_rollout_is_refused():
    with pytest.raises(UserError, match="31 prompts for -1 epochs do not fill one rollout"):
        batch_plan(settings(max_steps=-1, num_train_epochs=-1), 1, 31)
    with pytest.raises(UserError, match="31 prompts for 1 epochs do not fill one rollout of global_batch_size 32"):
        batch_plan(settings(max_steps=-1), 1, n_train_prompts=31)


def test_dynamic_sampling_may_generate_more_prompts_than_it_keeps():
    assert batch_plan(settings(global_gen_batch_size=48, dynamic_sampling=True), 2).prompts_generated_per_pass == 48


sizes = st.integers(1, 40)


@given(sizes, sizes, st.integers(1, 6), st.integers(1, 40), st.integers(1, 8), st.integers(1, 3))
def test_a_plan_covers_every_row_exactly_update_iters_times_or_is_refused(prompts, mini, n, micro, ranks, iters):
    wanted = settings(
        global_batch_size=prompts,
        global_mini_batch_size=mini,
        rollout_n=n,
        per_device_train_batch_size=micro,
        update_iters=iters,
        max_steps=-1,
    )
    divides = prompts % ranks == 0 and mini % ranks == 0 and prompts % mini == 0 and (mini // ranks * n) % micro == 0
    if not divides:
        with pytest.raises(UserError):
            batch_plan(wanted, ranks)
        return
    plan = batch_plan(wanted, ranks)
    rows = plan.micro_batch_rows * plan.micro_batches_per_update * plan.data_ranks * plan.updates_per_rollout
    assert rows == prompts * n * iters


@given(st.integers(-5, 200), st.integers(1, 30))
def test_nearest_values_fit_and_nothing_fits_closer(value, divisor):
    offered = [int(text) for text in re.findall(r"\d+", nearest_values(value, lambda x: x % divisor == 0, 300))]
    assert offered
    assert all(offer % divisor == 0 for offer in offered)
    reach = min(abs(offer - value) for offer in offered)
    assert not [x for x in range(1, 301) if x % divisor == 0 and abs(x - value) < reach]


def test_nearest_values_admits_when_nothing_fits():
    assert nearest_values(3, lambda _: False, 10) == "another size"


def test_a_size_far_too_large_is_refused_at_once():
    with pytest.raises(UserError, match=r"which has 4000000000 optimizer steps; use another size\."):
        batch_plan(settings(update_iters=10**9), 1)
