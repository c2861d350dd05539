"""The reward server's benchmark: real processes and sockets, and no answer goes unchecked."""

from __future__ import annotations

import json

import pytest

GROUPS, SAMPLES = 2, 3


@pytest.fixture
def bodies(import_benchmark):
    requests = import_benchmark("server_requests")
    groups = requests.make_groups(GROUPS, SAMPLES)
    return {"/": requests.rows_body(groups), "/v1/score": requests.score_body(groups)}


@pytest.mark.slow
def test_every_server_answers_both_protocols_and_is_told_beside_the_bare_application(server, tmp_path, capsys):
    size = ["--groups", str(GROUPS), "--samples", str(SAMPLES), "--connections", "1,3"]
    out = tmp_path / "result.json"
    server.main(["--rounds", "2", "--seconds", "0.1", *size, "--out", str(out)])
    result = json.loads(out.read_text())
    cheapest = result["cheapest_judge"]
    assert result["judges_ms"][cheapest] == min(result["judges_ms"].values())
    assert result["cheapest_judge_share"] > 0
    names = {"ours", f"ours-{cheapest}", "flask-waitress", *(["flask-gunicorn"] if server._gunicorn() else [])}
    wanted = {(name, path, number) for name in names for path in ("/", "/v1/score") for number in (1, 3)}
    wanted |= {("ours-repeated", "/v1/score", number) for number in (1, 3)}
    rows = {(row["server"], row["path"], row["connections"]): row for row in result["rows"]}
    assert rows.keys() == wanted
    for row in rows.values():
        assert row["requests"] >= 2 * row["connections"]
        assert row["requests_per_s"] > 0
        assert 0 < row["p50_ms"] <= row["p99_ms"]
    assert rows["flask-waitress", "/", 1]["relative_to_flask"] == 1
    assert len(capsys.readouterr().out.splitlines()) >= len(rows) + 5
    assert [row["connections"] for row in result["readiness"]] == [1, 3]
    assert all(row["probes"] > 0 and row["probe_p99_ms"] > 0 for row in result["readiness"])


def test_requests_carry_the_same_groups_in_both_protocols(bodies):
    rows, groups = json.loads(bodies["/"]), json.loads(bodies["/v1/score"])["groups"]
    candidates = [(group, candidate) for group in groups for candidate in group["candidates"]]
    assert [text.removesuffix("<|im_end|>") for text in rows["response"]] == [one["response"] for _, one in candidates]
    tasks = [json.loads(text.removesuffix("<|im_end|>")) for text in rows["tgt"]]
    assert tasks == [
        {key: group[key] for key in ("source", "src_lang", "trg_lang", "reference")} for group, _ in candidates
    ]


def test_a_server_that_does_not_start_is_told_with_what_it_said(server, tmp_path):
    with (
        pytest.raises(RuntimeError, match=r"broken ended with status 3 .*: no room"),
        server.serving("broken", ["-c", "print('no room'); raise SystemExit(3)"], tmp_path),
    ):
        pass
