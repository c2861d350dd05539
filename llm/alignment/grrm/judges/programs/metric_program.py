"""Learned metrics, run by the interpreter of an environment that has one: `metric_program.py KIND MODEL BATCH_SIZE`.

Once the model is loaded it writes the line `{"ready": true}`, then for each line `{"id": …, "rows": [[source,
translation, reference or null], …]}` the line `{"id": …, "scores": […]}`; where that fails, one with `error` instead.
It ends with its input. What libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable, List, Optional, Sequence, Tuple

Row = Tuple[str, str, Optional[str]]
Score = Callable[[List[Row]], Sequence[float]]
_EXTRA_ID_10 = 250089  # the token of mT5 whose logit at the first position MetricX was trained to give as the error


def open_comet(model: str, batch_size: int) -> Score:
    """COMET and CometKiwi: a checkpoint file, or a name that COMET downloads."""
    import torch
    from comet import download_model, load_from_checkpoint

    loaded = load_from_checkpoint(model if os.path.isfile(model) else download_model(model))
    gpus = 1 if torch.cuda.is_available() else 0

    def score(rows: List[Row]) -> Sequence[float]:
        data = [{"src": src, "mt": mt} if ref is None else {"src": src, "mt": mt, "ref": ref} for src, mt, ref in rows]
        return list(loaded.predict(data, batch_size=batch_size, gpus=gpus, progress_bar=False).scores)

    return score


def open_bleurt(model: str, batch_size: int) -> Score:
    """BLEURT: the folder of a checkpoint."""
    from bleurt import score as bleurt

    scorer = bleurt.BleurtScorer(model)

    def score(rows: List[Row]) -> Sequence[float]:
        references, candidates = [ref for _, _, ref in rows], [mt for _, mt, _ in rows]
        return list(scorer.score(references=references, candidates=candidates, batch_size=batch_size))

    return score


def open_metricx(model: str, batch_size: int) -> Score:
    """MetricX-24 (hybrid): a folder or a hub's name; gives an error from 0 to 25, with or without a reference."""
    import torch
    from transformers import AutoTokenizer, MT5ForConditionalGeneration

    name, _, tokenizer_name = model.partition("+")
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_name or "google/mt5-xl", legacy=False, use_fast=False)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = MT5ForConditionalGeneration.from_pretrained(name, torch_dtype="auto").to(device).eval()

    def text_of(source: str, translation: str, reference: Optional[str]) -> str:
        text = f"source: {source} candidate: {translation}"
        return text if reference is None else f"{text} reference: {reference}"

    def score(rows: List[Row]) -> Sequence[float]:
        scores: List[float] = []
        for start in range(0, len(rows), batch_size):
            texts = [text_of(*row) for row in rows[start : start + batch_size]]
            ids = [tokenizer(text, max_length=1536, truncation=True)["input_ids"][:-1] for text in texts]  # no </s>
            batch = tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(device)
            first = torch.zeros((len(ids), 1), dtype=torch.long, device=device)
            with torch.no_grad():
                logits = network(**batch, decoder_input_ids=first).logits
            scores += torch.clamp(logits[:, 0, _EXTRA_ID_10].float(), 0, 25).tolist()
        return scores

    return score


KINDS = {"comet": open_comet, "cometkiwi": open_comet, "bleurt": open_bleurt, "metricx": open_metricx}


def main(kind: str, model: str, batch_size: str) -> int:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer

    def say(answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        score = KINDS[kind](model, int(batch_size))
    except Exception as error:  # noqa: BLE001 - told to whoever started this program
        say({"error": _sentence(error)})
        return 1
    say({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            say({"id": request["id"], "scores": [float(value) for value in score(request["rows"])]})
        except Exception as error:  # noqa: BLE001 - of this request; the next one may be fine
            say({"id": request["id"], "error": _sentence(error)})
    return 0


def _sentence(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
