"""The scorers' programs by themselves, with stand-ins for the packages of their environments."""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from grrm.evaluation.programs import bleurt_program, comet_program

REQUEST = {"sources": ["a", "b"], "hypotheses": ["x", ""], "references": ["x", "y"]}


@pytest.fixture
def files(tmp_path):
    def write(model: str) -> tuple[str, str]:
        (tmp_path / "request.json").write_text(json.dumps(REQUEST | {"model": model}))
        return str(tmp_path / "request.json"), str(tmp_path / "answer.json")

    return write


def stand_in(monkeypatch, name: str, **contents: object) -> None:
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("has_gpu", [False, True])
def test_comet_downloads_a_name_opens_a_file_and_uses_the_gpu_there_is(monkeypatch, tmp_path, files, has_gpu):
    opened, calls = [], []

    def predict(rows, *, batch_size, gpus, progress_bar):
        calls.append((rows, gpus))
        return SimpleNamespace(scores=[1, 0.5])

    def load(path):
        opened.append(path)
        return SimpleNamespace(predict=predict)

    stand_in(monkeypatch, "torch", cuda=SimpleNamespace(is_available=lambda: has_gpu))
    stand_in(monkeypatch, "comet", download_model=lambda name: f"downloaded {name}", load_from_checkpoint=load)
    checkpoint = tmp_path / "model.ckpt"
    checkpoint.touch()
    for model in ("some/name", str(checkpoint)):
        request, answer = files(model)
        comet_program.main(request, answer)
        with open(answer) as file:
            assert json.load(file) == {"scores": [1.0, 0.5]}
    assert opened == ["downloaded some/name", str(checkpoint)]
    rows = [{"src": "a", "mt": "x", "ref": "x"}, {"src": "b", "mt": "", "ref": "y"}]
    assert calls == [(rows, int(has_gpu))] * 2


def test_bleurt_compares_candidates_with_references(monkeypatch, files):
    class Scorer:
        def __init__(self, checkpoint):
            assert checkpoint == "BLEURT-20"

        def score(self, *, references, candidates, batch_size):
            return [reference == candidate for reference, candidate in zip(references, candidates, strict=True)]

    stand_in(monkeypatch, "bleurt", score=SimpleNamespace(BleurtScorer=Scorer))
    request, answer = files("BLEURT-20")
    bleurt_program.main(request, answer)
    with open(answer) as file:
        assert json.load(file) == {"scores": [1.0, 0.0]}
