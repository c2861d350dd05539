"""PaddleNLP's own reward protocol: `POST /` takes a RowsRequest and answers a RowsAnswer.

Unknown fields are ignored, as the stock server ignores them.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, FiniteFloat

from grrm.rewards.messages import Language, Texts, WireModel


class RowsRequest(WireModel):
    """PaddleNLP's rows: templated prompts, labels and responses; the server checks that the lengths are equal."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    src: Texts
    tgt: Texts
    response: Texts


class RowsAnswer(WireModel):
    """PaddleNLP's answer: `error_code` 0 and one number per row; any other code means that the numbers mean nothing."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    error_code: int
    error_msg: str
    score: Annotated[list[FiniteFloat], Field(fail_fast=True)]


class RowTask(WireModel):
    """Fields that the converters write into `tgt` so that the judge knows the task; other fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    source: str
    src_lang: Language
    trg_lang: Language
    reference: str | None = None
    terms: Any = None  # what `gqm.terms.read_terms` reads
