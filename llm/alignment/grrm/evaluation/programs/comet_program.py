"""COMET scores, run by the interpreter of an environment that has unbabel-comet: REQUEST.json in, ANSWER.json out."""

from __future__ import annotations

import json
import os
import sys


def main(request_path: str, answer_path: str) -> None:
    """`model` is a checkpoint file, or a name that COMET downloads."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    from comet import download_model, load_from_checkpoint  # type: ignore[import-not-found,unused-ignore]

    with open(request_path, encoding="utf-8") as file:
        request = json.load(file)
    name = request["model"]
    model = load_from_checkpoint(name if os.path.isfile(name) else download_model(name))
    columns = (request["sources"], request["hypotheses"], request["references"])
    # Not strict: the environment's Python may be older than the one this project asks for.
    rows = [{"src": source, "mt": text, "ref": reference} for source, text, reference in zip(*columns)]  # noqa: B905
    gpus = 1 if torch.cuda.is_available() else 0
    found = model.predict(rows, batch_size=16, gpus=gpus, progress_bar=False)
    with open(answer_path, "w", encoding="utf-8") as file:
        json.dump({"scores": [float(score) for score in found.scores]}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
