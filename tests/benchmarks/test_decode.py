"""The comparison of engines takes turns, reports medians and leaves out what does not run."""

from __future__ import annotations

import json
import sys

import pytest

ECHO = """
import json, sys
print("noise"), print("@@ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    print("@@" + json.dumps({"seconds": asked["batch"] * asked["new"] / 50}), flush=True)
"""


def test_engines_take_turns_and_medians_are_written(decode, tmp_path, monkeypatch, capsys):
    (tmp_path / "smol").mkdir()
    (tmp_path / "smol/model.safetensors").touch()
    monkeypatch.setenv("PEERS_HOME", str(tmp_path))
    real, asked = decode.Worker, []

    def worker(command):
        ours = {precision: name for name, precision in decode.OURS.items()}
        name = next((name for name in decode.PEERS if name in command), None) or ours[command[-1]]
        made = real([sys.executable, "-c", "" if name == "openvino-bf16" else ECHO])
        answer = made.seconds
        made.seconds = lambda case: asked.append(name) or answer(case)
        return made

    monkeypatch.setattr(decode, "Worker", worker)
    monkeypatch.setattr(decode, "is_supported", lambda engine: engine != "transformers-bf16")
    decode.main(["--rounds", "2", "--out", str(tmp_path / "result.json")])
    rows = json.loads((tmp_path / "result.json").read_text())["rows"]
    speeds = {(row["engine"], row["batch"], row.get("apart")): row["tokens_per_s"] for row in rows}
    assert speeds["ours-fp32", 8, None] == speeds["transformers-fp32", 32, None] == pytest.approx(50)
    assert {row["engine"] for row in rows} == {
        *(f"{name}{end}" for name in ("ours-fp32", "ours-bf16", "ours-int8") for end in ("", "-shared", "-apart")),
        *("transformers-fp32", "llama.cpp-bf16", "openvino-fp32", "openvino-fp32-shared"),
    }
    ours = ["ours-fp32", "ours-bf16", "ours-int8"]
    assert asked[3:9] == [*ours, "transformers-fp32", "llama.cpp-bf16", "openvino-fp32"]
    assert "openvino-bf16 is left out: status 0" in capsys.readouterr().out


@pytest.mark.parametrize("native", [True, False])
def test_what_a_processor_would_only_emulate_is_not_compared(decode, monkeypatch, native):
    monkeypatch.setattr("grrm_csrc.blas.is_native", lambda precision: native and precision == "bfloat16")
    names = ("ours-fp32", "ours-bf16", "ours-bf16-2ranks", "ours-int8")
    assert [decode.is_supported(name) for name in names] == [True, native, native, False]
