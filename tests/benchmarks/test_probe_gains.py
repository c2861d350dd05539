"""Probes of judges beside what policies gained from them."""

from __future__ import annotations

import json

import pytest


def scores(mean, decided=20):
    return {"all": {"right": {"mean": mean, "low": mean, "high": mean}, "decided": decided}}


def record(*shares):
    probes = {str(number): scores(share) for number, share in enumerate(shares)}
    few, none = scores(0.0, decided=3), {"all": {"right": None, "decided": 0}}
    return {"group_sizes": {"2": {"probes": {**probes, "few": few, "none": none}}, "4": {"probes": {"x": scores(0.9)}}}}


def policy(gain, greedy, copied):
    return {"learned": {"gain": gain, "greedy_gain": greedy}, "scores": {"greedy": {"copied": copied}}}


def test_worst_shares_are_compared_with_the_gains_of_the_policies_that_were_trained(import_benchmark):
    gains = import_benchmark("probe_gains")
    probes = {"judges": {"chrf": record(1.0, 0.9), "ranker": record(0.6), "gqm": record(0.1), "logprob": record(0.2)}}
    of_seed = {"grpo": policy(6.0, 1.0, 0.0), "grpo_ranker": policy(5.0, 0.5, 0.1)}
    of_seed["grpo_gqm_sft"] = policy(1.0, 0.7, 0.2)
    second = {"grpo": policy(8.0, 1.0, 0.0)}
    found = gains.correlations(probes, {"seeds": {"1": {"policies": of_seed}, "2": {"policies": second}}})
    assert set(found["judges"]) == {"chrf", "ranker", "gqm"}
    assert found["judges"]["chrf"] == {"worst share": 0.9, "sampled chrF": 7.0, "greedy chrF": 1.0, "copied": 0.0}
    assert found["tau_b"] == {"sampled chrF": 1.0, "greedy chrF": pytest.approx(1 / 3), "copied": -1.0}
    assert gains.correlations(probes, {"seeds": {"2": {"policies": second}}})["tau_b"]["copied"] is None


def test_files_of_probes_are_collected_by_name(import_benchmark, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(record(0.5) | {"options": {"model": "/runs/sft", "top_p": 1}}))
    gains, out = import_benchmark("probe_gains"), tmp_path / "out.json"
    gains.main(["collect", f"chrf={tmp_path / 'a.json'}", "--out", str(out)])
    assert json.loads((tmp_path / "out.json").read_text()) == {
        "judges": {"chrf": record(0.5) | {"options": {"model": "sft", "top_p": 1}}}
    }
