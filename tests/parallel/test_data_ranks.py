"""A rank does not wait for ever, and the ranks are read off the training arguments."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

from grrm.parallel import data_ranks
from grrm.parallel.data_ranks import DataRanks, deadline

HANGS = """
import threading, time
from grrm.parallel.data_ranks import deadline

def waits_for_nobody():
    threading.Event().wait(120)

with deadline(0.3):
    waits_for_nobody()
print("went on")
"""
IN_TIME = """
import time
from grrm.parallel.data_ranks import deadline

with deadline(0.5):
    pass
try:
    with deadline(0.5):
        raise ValueError
except ValueError:
    pass
time.sleep(0.8)
print("went on")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


def test_block_that_hangs_is_aborted_with_its_stack():
    done = run(HANGS)
    assert done.returncode != 0
    assert "went on" not in done.stdout
    assert "in waits_for_nobody" in done.stderr


def test_block_that_ends_or_raises_in_time_leaves_no_alarm_behind():
    done = run(IN_TIME)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "went on\n"


def test_deadline_can_be_entered_without_a_stderr_of_its_own(capsys):
    with deadline(30):
        pass


def test_topology_comes_from_the_training_arguments():
    tensor = {"tensor_parallel_degree": 2, "tensor_parallel_rank": 0, "pipeline_parallel_degree": -1}
    ranks = DataRanks.of(SimpleNamespace(dataset_rank=1, dataset_world_size=2, world_size=4, **tensor), timeout_s=5.0)
    assert ranks == DataRanks(1, 2, 4, 5.0, tensor_rank=0, tensor_size=2)
    assert ranks.processes() == DataRanks(2, 4, 4, 5.0)
    stages = tensor | {"pipeline_parallel_degree": 2, "pipeline_parallel_rank": 1}
    ranks = DataRanks.of(SimpleNamespace(dataset_rank=0, dataset_world_size=1, world_size=4, **stages))
    assert (ranks.tensor_rank, ranks.tensor_size) == (2, 4)
    undivided = {"tensor_parallel_degree": -1, "pipeline_parallel_degree": -1}
    alone = SimpleNamespace(dataset_rank=0, dataset_world_size=1, world_size=0, **undivided)
    assert DataRanks.of(alone).gather("x") == ["x"]


def test_peers_of_one_data_rank_speak_with_one_voice(monkeypatch):
    import paddle.distributed as dist

    def all_gather_object(gathered, own):
        gathered.extend([(1, "b"), (0, "a"), (1, "b of a tensor-parallel peer"), (0, "a of another")])

    monkeypatch.setattr(data_ranks, "barrier", lambda world_size, timeout_s: None)
    monkeypatch.setattr(dist, "all_gather_object", all_gather_object)
    assert DataRanks(0, 2, world_size=4).gather("a") == ["a", "b"]
