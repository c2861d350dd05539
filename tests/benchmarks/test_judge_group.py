"""The comparison of judges: judges that do what is described."""

from __future__ import annotations

import os


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
