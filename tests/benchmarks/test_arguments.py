"""What benchmarks are asked for, and what they need of others."""

from __future__ import annotations

import pytest

PEERS = ["decode", "gguf_parity", "growth", "grpo_step", "parity", "ranker_step"]


@pytest.mark.parametrize("name", PEERS)
def test_without_what_it_is_compared_with_a_line_says_how_to_get_it(
    import_benchmark, name, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("PEERS_HOME", str(tmp_path))
    figure = ["--figure", str(tmp_path / "growth.png")] if name == "growth" else []
    import_benchmark(name).main(["--out", str(tmp_path / "result.json"), *figure])
    assert "run `bash benchmarks/peers/set_up.sh` first" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "wrong", "remedy"),
    [
        ("logprob", ["--forms", "half"], "--forms some of chunked,chunked-bf16,twice"),
        ("logprob", ["--tokens", "0"], "--forms some of chunked,chunked-bf16,twice"),
        ("ranker_step", ["--compare", "pairs"], "--compare some of none,group"),
        ("ranker_step", ["--steps", "0"], "--compare some of none,group"),
        ("ranker_step", ["--threads", "0"], "--compare some of none,group"),
        ("judge_group", ["--precisions", "int8"], "--precisions some of float32,bfloat16"),
        ("judge_group", ["--rounds", "0"], "--precisions some of float32,bfloat16"),
        ("judge_group", ["--batches", "1,0"], "--precisions some of float32,bfloat16"),
        ("grpo_step", ["--models", "large"], "--models some of tiny,smol"),
        ("grpo_step", ["--rounds", "0"], "--models some of tiny,smol"),
        ("joining", ["--layers", "0"], ""),
    ],
)
def test_what_cannot_be_measured_is_refused(import_benchmark, name, wrong, remedy, capsys):
    with pytest.raises(SystemExit):
        import_benchmark(name).main(wrong)
    assert remedy in capsys.readouterr().err
