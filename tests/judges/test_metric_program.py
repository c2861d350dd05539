"""The program of the learned metrics by itself, with stand-ins for the packages of its environments."""

from __future__ import annotations

import contextlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from grrm.judges.programs import metric_program

ROWS = [("a", "x", "x"), ("b", "", None)]


def stand_in(monkeypatch, name: str, **contents: object) -> None:
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("has_gpu", [False, True])
def test_comet_downloads_a_name_opens_a_file_and_uses_the_gpu_there_is(monkeypatch, tmp_path, has_gpu):
    opened, calls = [], []

    def predict(rows, *, batch_size, gpus, progress_bar):
        calls.append((rows, batch_size, gpus))
        return SimpleNamespace(scores=[1, 0.5])

    def load(path):
        opened.append(path)
        return SimpleNamespace(predict=predict)

    stand_in(monkeypatch, "torch", cuda=SimpleNamespace(is_available=lambda: has_gpu))
    stand_in(monkeypatch, "comet", download_model=lambda name: f"downloaded {name}", load_from_checkpoint=load)
    checkpoint = tmp_path / "model.ckpt"
    checkpoint.touch()
    for model in ("some/name", str(checkpoint)):
        assert metric_program.open_comet(model, 4)(ROWS) == [1, 0.5]
    assert opened == ["downloaded some/name", str(checkpoint)]
    assert calls == [([{"src": "a", "mt": "x", "ref": "x"}, {"src": "b", "mt": ""}], 4, int(has_gpu))] * 2


class Tensor(np.ndarray):
    """The part of a tensor that the program uses."""

    def to(self, device):
        return self

    def float(self):
        return self


def test_metricx_reads_the_error_off_the_first_position(monkeypatch):
    seen, n_logits = [], metric_program._EXTRA_ID_10 + 1

    class Tokenizer:
        @classmethod
        def from_pretrained(cls, name, **_):
            seen.append(name)
            return cls()

        def __call__(self, text, **_):
            seen.append(text)
            return {"input_ids": [len(text), 1]}  # 1 ends a text

        def pad(self, batch, return_tensors):
            seen.append(batch["input_ids"])
            return SimpleNamespace(to=lambda device: {"input_ids": np.array(batch["input_ids"])})

    class Network:
        @classmethod
        def from_pretrained(cls, name, **_):
            seen.append(name)
            return cls()

        def to(self, device):
            return self

        eval = lambda self: self  # noqa: E731

        def __call__(self, input_ids, decoder_input_ids):
            logits = np.full((len(input_ids), 1, n_logits), 99.0).view(Tensor)
            logits[:, 0, -1] = [-1.0, 30.0][: len(input_ids)]
            return SimpleNamespace(logits=logits)

    stand_in(monkeypatch, "transformers", AutoTokenizer=Tokenizer, MT5ForConditionalGeneration=Network)
    cuda = SimpleNamespace(is_available=lambda: False)
    zeros = lambda shape, **_: np.zeros(shape)  # noqa: E731
    stand_in(monkeypatch, "torch", cuda=cuda, zeros=zeros, long=int, no_grad=contextlib.nullcontext, clamp=np.clip)
    assert metric_program.open_metricx("folder+tokens", 2)(ROWS) == [0.0, 25.0]
    texts = ["source: a candidate: x reference: x", "source: b candidate: "]
    assert seen == ["tokens", "folder", *texts, [[len(text)] for text in texts]]
