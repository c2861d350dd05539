"""The comparison of judges: turns, milliseconds of a group, ratios of a round, and judges that do what is described."""

from __future__ import annotations

import os


def test_judges_take_turns_and_are_told_relative_to_the_one_that_writes(judge_group, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    calls: list[tuple[str, int]] = []
    judges = {name: lambda n_groups, name=name: calls.append((name, n_groups)) for name in judge_group.JUDGES}

    def clocked(judge, n_groups):
        judge(n_groups)
        name, turn = calls[-1][0], sum(call == calls[-1] for call in calls)
        seconds = n_groups * turn * (20.0 if name == "gqm" else 1.0)
        return {"seconds": seconds, "cpu_seconds": seconds if name == "gqm" else 2 * seconds}

    monkeypatch.setattr(judge_group, "clocked", clocked)
    rows = judge_group.measure(judges, "float32", [4, 32], 3)
    warm, first = calls[:3], calls[3:6]
    assert warm == [(name, 1) for name in judge_group.JUDGES]
    assert first == [(name, 4) for name in judge_group.JUDGES]
    assert len(calls) == 3 + 2 * 3 * 3
    found = {(row["engine"], row["batch"]): row for row in rows}
    assert {engine for engine, _ in found} == {"ranker-none-fp32", "ranker-group-fp32", "gqm-fp32"}
    ranker, gqm = found["ranker-none-fp32", 32], found["gqm-fp32", 32]
    assert (ranker["milliseconds_per_group"], ranker["cpu_milliseconds_per_group"]) == (2000.0, 4000.0)
    assert (ranker["relative_to_gqm"], ranker["cpu_relative_to_gqm"]) == (0.05, 0.1)
    assert (gqm["relative_to_gqm"], gqm["rounds"], gqm["threads"]) == (1.0, 3, 1)


def test_the_judges_read_and_write_what_is_described(judge_group, monkeypatch):
    from support import rl_processes

    sizes = {key: value for key, value in rl_processes.MODEL.items() if key not in ("model_type", "architectures")}
    sizes |= {"vocab_size": 64, "max_position_embeddings": 512}
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    monkeypatch.setattr("grrm.models.cpu_layers.use_cpu_layers", lambda *_: None)  # it changes classes for good
    judges = judge_group.build_judges("float32", sizes, new_tokens=3)
    assert tuple(judges) == judge_group.JUDGES
    for name in judge_group.JUDGES[:2]:
        scores = judges[name](2)
        assert [len(one) for one in scores] == [8, 8]
        assert len({*scores[0], *scores[1]}) == 16
    assert [len(one) for one in judges["gqm"](2)] == [3, 3]
