"""What a run leaves for people to look at: curves in a tracker, a log file, and a console without chatter."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from support.rl_processes import TinyWorld, entry_command, metrics_of, one_rank, run

SECRET = "key-of-the-user"


@pytest.fixture(scope="module")
def seen(world: TinyWorld, tmp_path_factory: pytest.TempPathFactory):
    """(output folder, stdout, stderr) of a run with the default tracker and a KL term in the reward."""
    output = tmp_path_factory.mktemp("seen")
    command = entry_command(
        world,
        output,
        "reinforce_plus_plus_grrm_tiny_argument.yaml",
        report_to="visualdl",
        max_steps="2",
        warmup_steps="0",
        kl_coeff="0.001",
        wandb_api_key=SECRET,
    )
    done = run(one_rank(command))
    return output, done.stdout, done.stderr


def test_visualdl_has_the_metrics_of_metrics_jsonl_below_the_output_folder(seen) -> None:
    from visualdl import LogReader

    output, _, _ = seen
    (file,) = output.glob("runs/*/vdlrecords.*.log")
    reader = LogReader(file_path=str(file))
    metrics = metrics_of(output)
    for name in ("loss", "reward_mean", "response_length_mean", "kl", "frac_zero_variance", "entropy"):
        curve = [(point.id, point.value) for point in reader.get_data("scalar", f"train/{name}")]
        assert [step for step, _ in curve] == [1, 2]
        assert [value for _, value in curve] == pytest.approx([line[name] for line in metrics], abs=1e-6)


def test_no_file_of_a_run_has_the_key_of_a_tracker(seen) -> None:
    output, *printed = seen
    files = [path for path in output.rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert SECRET not in "".join(printed)


def test_console_shows_steps_and_leaves_the_rest_to_the_log_file(seen) -> None:
    output, stdout, stderr = seen
    assert "reinforce_plus_plus: step 1/2 loss" in stderr
    assert " kl " in stderr
    for chatter in ("INFO", "DEBUG", "Configuration Arguments"):
        assert chatter not in stdout + stderr
    log = (output / "trainer.log").read_text(encoding="utf-8")
    assert "INFO ***** Running training *****" in log
    assert "DEBUG" not in log
    assert "\x1b" not in log


def test_log_file_is_the_first_ranks_and_moves_with_the_run(tmp_path: Path) -> None:
    from paddlenlp.utils.log import logger

    from grrm.training.callbacks import quiet_paddlenlp

    before = logger.logger.level, logger.handler.level
    try:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            quiet_paddlenlp(tmp_path / name, is_first=True)
            logger.info(f"said in {name}")
        quiet_paddlenlp(tmp_path, is_first=False)
        logger.info("said on another rank")
    finally:
        for handler in [known for known in logger.logger.handlers if isinstance(known, logging.FileHandler)]:
            logger.logger.removeHandler(handler)
        logger.logger.setLevel(before[0])
        logger.handler.setLevel(before[1])
    texts = {str(path.relative_to(tmp_path)): path.read_text().split(" INFO ")[1:] for path in tmp_path.rglob("*.log")}
    assert texts == {"one/trainer.log": ["said in one\n"], "two/trainer.log": ["said in two\n"]}
