"""BLEURT scores, run by the interpreter of an environment that has bleurt: REQUEST.json in, ANSWER.json out."""

from __future__ import annotations

import json
import sys


def main(request_path: str, answer_path: str) -> None:
    """`model` is the folder of a BLEURT checkpoint."""
    from bleurt import score  # type: ignore[import-not-found,unused-ignore]

    with open(request_path, encoding="utf-8") as file:
        request = json.load(file)
    scorer = score.BleurtScorer(request["model"])
    found = scorer.score(references=request["references"], candidates=request["hypotheses"], batch_size=64)
    with open(answer_path, "w", encoding="utf-8") as file:
        json.dump({"scores": [float(value) for value in found]}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
