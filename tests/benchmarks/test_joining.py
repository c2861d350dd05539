"""The comparison of judges that take turns and judges that share a batch: who is asked what, and what is told."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace


def test_two_groups_arrive_beside_the_many_and_are_told_relative_to_turns(joining, monkeypatch, tmp_path, capsys):
    asked = []
    now = [0.0]
    lock = threading.Lock()

    def takes(seconds_a_group):
        def judge(groups):
            with lock:
                asked.append(len(groups))
                now[0] += seconds_a_group * len(groups)

        return judge

    monkeypatch.setattr(joining.time, "process_time", lambda: now[0])
    monkeypatch.setattr(joining, "open_engine", lambda n_layers: None)
    monkeypatch.setattr(joining, "services", lambda *_: {"turns": takes(1.0), "shared": takes(0.5)})
    out = tmp_path / "joining.json"
    joining.main(["--layers", "2", "--new", "3", "--out", str(out)])
    result = json.loads(out.read_text())
    assert (result["layers"], result["new_tokens"], len(result["rows"])) == (2, 3, 2)
    assert sorted(asked) == sorted([2, 2, 64, 64] + [64, 2] * 2)
    by_service = {row["service"]: row for row in result["rows"]}
    assert by_service["turns"]["two_relative_to_turns"] == 1.0
    assert by_service["shared"]["many_alone_s"] == 32.0
    assert capsys.readouterr().out.count("two_relative_to_turns") == 2


def test_both_services_host_the_judge(joining):
    class Engine:
        max_prompt_tokens = step_tokens = 1024

        def generate(self, prompts, params, numbers):
            return [SimpleNamespace(token_ids=[0] * params.max_new_tokens) for _ in prompts]

    judges = joining.services(Engine(), 3)
    assert list(judges) == ["turns", "shared"]
    assert [verdict.scores for verdict in judges["turns"](joining.make_groups(0, 2))] == [(5.0,), (5.0,)]
