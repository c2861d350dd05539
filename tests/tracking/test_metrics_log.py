"""metrics.jsonl: one object per step, readable whatever happened to the run."""

from __future__ import annotations

import json

import numpy as np
import pytest

from grrm.config import RLConfig
from grrm.errors import UserError
from grrm.gqm.groups import Status
from grrm.rewards.failure_policy import REMEDIES
from grrm.tracking.console import StepProgress
from grrm.tracking.metrics_log import MetricsLog, StepLines, read_metrics, read_step_lines
from grrm.tracking.rollout_dump import last_arguments, read_rollouts
from grrm.tracking.run_record import MANY_FAILURES, MAY_CHANGE, RunRecord


def test_steps_come_back_in_order_with_null_for_what_is_not_finite(tmp_path, caplog):
    log = MetricsLog(tmp_path)
    log.log(1, {"loss": np.float32(0.5), "kl": None})
    log.log(2, {"loss": float("nan"), "kl": 0.25, "step": 99})
    log.log(3, {"loss": 0.25})
    log.log(4, {"loss": float("inf")})
    assert [record.getMessage() for record in caplog.records] == ["loss is nan: written as null, now and later"]
    records = read_metrics(tmp_path)
    assert records == [
        {"step": 1, "loss": 0.5, "kl": None},
        {"step": 2, "loss": None, "kl": 0.25},
        {"step": 3, "loss": 0.25},
        {"step": 4, "loss": None},
    ]


def test_half_a_character_of_a_source_does_not_end_a_run(tmp_path):
    StepLines(tmp_path / "lines.jsonl").append([{"step": 1, "source": "grün \ud83d"}, {"step": 2, "source": "grün"}])
    assert [line["source"] for line in read_step_lines(tmp_path / "lines.jsonl")] == ["grün \ud83d", "grün"]


def test_resume_drops_the_steps_that_will_be_repeated(tmp_path):
    log = MetricsLog(tmp_path)
    for step in range(1, 6):
        log.log(step, {"loss": float(step)})
    resumed = MetricsLog(tmp_path, first_step=4)
    resumed.log(4, {"loss": 40.0})
    assert [(record["step"], record["loss"]) for record in read_metrics(tmp_path)] == [
        (1, 1.0),
        (2, 2.0),
        (3, 3.0),
        (4, 40.0),
    ]


def test_resume_leaves_earlier_lines_byte_for_byte(tmp_path):
    path, earlier = tmp_path / "metrics.jsonl", '{"step":1, "kl": 1e-5,"name":"\\u00e4 ä"}\n'
    path.write_text(f'{earlier}{{"step": 2}}\n{{"step": 1', encoding="utf-8")
    MetricsLog(tmp_path, first_step=2)
    assert path.read_text(encoding="utf-8") == earlier


def test_nothing_logged_is_an_empty_history_and_damage_is_an_error(tmp_path):
    assert read_metrics(tmp_path) == []
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\nrubbish\n')
    with pytest.raises(UserError, match=r"metrics.jsonl:2 is not JSON .*: remove the line"):
        read_metrics(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("[1]\n")
    with pytest.raises(UserError, match="not a JSON object with a step"):
        read_metrics(tmp_path)


# --- what a run says on the console beside its progress


def test_what_a_resumed_run_may_have_otherwise_are_keys():
    assert set(RLConfig.model_fields) >= MAY_CHANGE


def test_every_status_without_a_score_has_a_remedy():
    assert set(REMEDIES) == {status for status in Status if not status.is_scored}


def test_a_frequent_failure_is_told_when_it_becomes_frequent_and_not_at_every_step(capsys: pytest.CaptureFixture[str]):
    record = RunRecord(None, None, StepProgress(5, description="grpo"), 0)
    for step, share in enumerate((MANY_FAILURES, 0.44, 0.5, 0.0, 0.06), 1):
        record.metrics(step, {"status/missing_reference": share, "status/scored": 1 - share})
    said = [line for line in capsys.readouterr().err.splitlines() if "missing_reference" in line]
    assert [line.partition(":")[2] for line in said] == [
        f" step {step}, {share} of the samples are missing_reference: {REMEDIES[Status.MISSING_REFERENCE]}"
        for step, share in ((2, "44%"), (5, "6%"))
    ]


def test_a_resumed_run_names_settings_that_had_other_values(tmp_path, capsys: pytest.CaptureFixture[str]):
    def resume(first_step: int, **settings: object) -> str:
        config = RLConfig(use_rule_reward=True, rule_reward="ranking", output_dir=str(tmp_path), **settings)
        RunRecord.open(config, True, 4, first_step).close()
        return "".join(line for line in capsys.readouterr().err.splitlines() if "going on" in line)

    assert resume(1, max_steps=2, seed=1) == resume(3, max_steps=4, seed=1, save_steps=2, run_name="b") == ""
    on_two_ranks = {"gradient_accumulation_steps": 8, "per_device_train_batch_size": 2, "tensor_parallel_degree": 2}
    assert resume(3, seed=1, early_stopping_patience=9, reward_deadline_s=900.0, **on_two_ranks) == ""
    told = resume(4, max_steps=4, seed=2, learning_rate=1e-3)
    assert f"going on at step 4 of '{tmp_path}' with other values of " in told
    assert {"seed", "learning_rate"} == set(told.partition("values of ")[2].partition(":")[0].split(", "))
    assert resume(4, max_steps=4, seed=1) == ""


def test_a_run_without_a_dump_leaves_none_of_the_run_before(tmp_path):
    config = RLConfig(use_rule_reward=True, rule_reward="ranking", output_dir=str(tmp_path), seed=1, console_groups=0)
    record = RunRecord.open(config, True, 4, first_step=1)
    record.rollout(1, lambda: [{"step": 1}])
    record.close()
    RunRecord.open(config.model_copy(update={"dump_rollouts": False, "seed": 2}), True, 4, first_step=1).close()
    assert list(read_rollouts(tmp_path / "rollouts")) == []
    assert last_arguments(tmp_path / "rollouts")["seed"] == 2


def test_a_resumed_run_forgets_verdicts_on_groups_that_it_samples_again(tmp_path):
    opinions = tmp_path / "rejudged/chrf.jsonl"
    opinions.parent.mkdir()
    opinions.write_text("".join(json.dumps({"step": step, "group_id": "a"}) + "\n" for step in range(1, 5)))
    config = RLConfig(use_rule_reward=True, rule_reward="ranking", output_dir=str(tmp_path))
    RunRecord.open(config, True, 4, first_step=3).close()
    assert [json.loads(line)["step"] for line in opinions.read_text().splitlines()] == [1, 2]
