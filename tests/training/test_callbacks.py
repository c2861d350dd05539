"""The cosine schedule with a floor."""

from __future__ import annotations

import logging
from contextlib import suppress
from types import SimpleNamespace

import paddle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paddle.distributed import fleet
from paddle.distributed.fleet.meta_optimizers.dygraph_optimizer import DygraphShardingOptimizer
from paddlenlp.trainer.trainer_utils import get_cosine_schedule_with_warmup
from support.rl_processes import TinyWorld, entry_command, metrics_of, one_rank, run, train_rl

from grrm.errors import UserError
from grrm.paddlenlp_api.files import logger
from grrm.training.callbacks import (
    DecaysToFloor,
    OptimizesTrainable,
    StopsAtDivergence,
    failures_in_log,
    floored_cosine,
    quiet_paddlenlp,
)


def test_it_rises_over_the_warmup_and_comes_down_to_the_floor():
    factors = [floored_cosine(step, warmup=2, total=10, floor=0.2) for step in range(11)]
    assert factors[:3] == [0.0, 0.5, 1.0]
    assert factors[6] == pytest.approx(0.6)
    assert factors[10] == pytest.approx(0.2)
    assert factors[2:] == sorted(factors[2:], reverse=True)


def test_a_run_whose_parts_are_timed_is_resumed(world: TinyWorld, tmp_path, monkeypatch):
    monkeypatch.setattr("paddlenlp.trainer.plugins.timer._GLOBAL_TIMERS", None)  # and again after the test
    for steps in ("1", "2"):
        train_rl(entry_command(world, tmp_path, max_steps=steps, save_steps="1", skip_profile_timer="false"))
    assert [line["step"] for line in metrics_of(tmp_path)] == [1, 2]


def test_a_finished_run_that_is_made_longer_learns_in_its_next_step(world: TinyWorld, tmp_path):
    """Its schedule had come down to 0, and PaddleNLP restores the rate beside the step."""
    longer = {"save_steps": "1", "save_total_limit": "4", "warmup_steps": "0", "lr_scheduler_type": "linear"}
    for steps in ("2", "4"):
        train_rl(entry_command(world, tmp_path, max_steps=steps, **longer))
    before, after = (paddle.load(str(tmp_path / f"checkpoint-{step}/model_state.pdparams")) for step in (2, 3))
    assert any((before[name] != after[name]).any() for name in before)


@given(st.integers(0, 20), st.integers(1, 100), st.sampled_from([0.25, 0.5, 1.5]))
def test_floor_of_nothing_is_the_schedule_of_paddlenlp(warmup, rest, num_cycles):
    theirs = get_cosine_schedule_with_warmup(1.0, warmup, warmup + rest, num_cycles)
    for step in range(warmup + rest + 1):
        assert floored_cosine(step, warmup, warmup + rest, 0.0, num_cycles) == pytest.approx(theirs.lr_lambda(step))


class PaddleTrainer:
    """What the mixin sees of PaddleNLP's Trainer."""

    def __init__(self, **args):
        self.min_learning_rate = args.pop("min_learning_rate")
        defaults = {"learning_rate": 1e-5, "warmup_steps": 0, "warmup_ratio": 0.0, "num_cycles": 0.5}
        self.args, self.lr_scheduler = SimpleNamespace(**{**defaults, **args}), None

    def create_scheduler(self, num_training_steps):
        return f"PaddleNLP's over {num_training_steps}"


class Trainer(DecaysToFloor, PaddleTrainer):
    pass


def test_trainer_steps_down_to_the_floor():
    trainer = Trainer(min_learning_rate=2e-6)
    schedule = trainer.create_scheduler(4)
    assert schedule is trainer.lr_scheduler
    rates = []
    for _ in range(5):
        rates.append(schedule.get_lr())
        schedule.step()
    assert rates == pytest.approx([1e-5, 8.828427e-6, 6e-6, 3.171573e-6, 2e-6])


def test_without_a_floor_the_schedule_is_paddlenlps():
    assert Trainer(min_learning_rate=None).create_scheduler(7) == "PaddleNLP's over 7"


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_loss_that_is_no_number_names_the_step_and_the_remedy(loss):
    trainer = StopsAtDivergence()
    trainer.state = SimpleNamespace(global_step=4)
    with pytest.raises(
        UserError, match=r"^the loss is (nan|inf) in step 5: training has diverged, lower learning_rate"
    ):
        trainer._check_loss_valid(loss)
    trainer._check_loss_valid(-0.5)


@pytest.mark.slow
def test_diverged_policy_stops_the_run_without_a_traceback(world: TinyWorld, tmp_path):
    # Without its averages Adam takes steps of the learning rate's size in every weight.
    settings = {"learning_rate": "10", "warmup_steps": "0", "adam_beta1": "0", "adam_beta2": "0", "max_steps": "30"}
    done = run(one_rank(entry_command(world, tmp_path, **settings, adam_epsilon="1e-30")), expect=2)
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert "diverged" in last


def test_a_log_file_on_a_full_disk_prints_no_traceback(tmp_path, capsys):
    (tmp_path / "trainer.log").symlink_to("/dev/full")
    quiet_paddlenlp(tmp_path, is_first=True)
    with pytest.raises(OSError, match="no room"), failures_in_log():
        raise OSError("no room")
    assert capsys.readouterr().err == ""
    logger.logger.handlers[-1].handle(logging.makeLogRecord({"msg": "%d steps", "args": ("some",)}))
    assert "Traceback" in capsys.readouterr().err  # a defect is told
    with suppress(OSError):  # for the line that is still to be written
        quiet_paddlenlp(tmp_path, is_first=False)


class StockTrainer:
    """What the mixin sees of PaddleNLP's Trainer."""

    optimizer = None

    def __init__(self, model):
        self.model = model

    def create_optimizer(self, lr_scheduler=None):
        if self.optimizer is None:
            self.optimizer = paddle.optimizer.AdamW(parameters=self.model.parameters())
        return self.optimizer


class TrainerOfSome(OptimizesTrainable, StockTrainer):
    pass


class FirstOfTwo:
    """The sharding ranks as the first of them sees them, which sends nothing."""

    get_sharding_parallel_world_size, get_sharding_parallel_rank = (lambda self: 2), (lambda self: 0)

    def get_sharding_parallel_group(self):
        return SimpleNamespace(nranks=2, ranks=[0, 1])


def test_sharding_gives_frozen_weights_no_gradient(monkeypatch):
    monkeypatch.setattr(fleet.fleet, "_user_defined_strategy", fleet.DistributedStrategy(), raising=False)
    monkeypatch.setattr(paddle.distributed, "reduce", lambda *args, **options: None)
    model = paddle.nn.Sequential(paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 2))
    frozen, trained = (list(layer.parameters()) for layer in model)
    for parameter in frozen:
        parameter.stop_gradient = True
    for parameter in model.parameters():
        parameter.main_grad = None  # as with amp_master_grad
    trainer = TrainerOfSome(model)
    optimizer, ranks = trainer.create_optimizer(), FirstOfTwo()
    assert trainer.create_optimizer() is optimizer
    optimizer = DygraphShardingOptimizer(optimizer, ranks)
    optimizer.reduce_gradients(optimizer._parameter_list, ranks)
    assert [parameter.main_grad for parameter in frozen] == [None, None]
    assert all(parameter.main_grad is not None for parameter in trained)
