"""Cold start of a small judge: scores alone as the response, and a label for every word of a candidate.

What a judge of a few million parameters does not learn from four digits a group, it learns from being told about each
word whether the reference has it in that place. The labels stand inside the prompt (`grrm.data.prompt_labels`), so
the judge never has to write them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from grrm.data.atomic import atomic_path
from grrm.data.convert import ConversionReport
from grrm.data.parquet import iter_raw_rows
from grrm.data.prompt_labels import Span
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.languages import CANDIDATE_IDS
from grrm.gqm.prompts import FENCE, fenced, gqm_prompt, render_response, sqm_prompt

KINDS = ("gqm", "sqm")
RIGHT, WRONG = "+", "-"
_COLUMNS = ("src_text", "trg_text", "src_lang", "trg_lang", "mt_texts", "scores")
Shown = list[tuple[str, str, int]]  # what the prompt calls a candidate, its text and its score
_WORD = re.compile(r"\s*(?:[^\W\d_\u4e00-\u9fff]+|.)", re.DOTALL)  # digits and Chinese one by one, as small models see


def convert_sft_dense(parquet: Path, out: Path, kind: str) -> ConversionReport:
    """Write `src`, `tgt` and `labels` lines for the groups of `grrm data groups`, one per candidate for kind "sqm".

    `src` is the judge's prompt (type `score`) in ChatML, `tgt` the verdict without analysis. Labels say of every word
    of a candidate whether the reference has it (`+` or `-`), and where the next candidate begins what the last was
    worth, 10 as 9. Raises UserError for an unknown kind, an `out` that does not end with .jsonl, and as
    `iter_raw_rows` does.
    """
    if kind not in KINDS:
        raise UserError(f"{kind!r} is no kind of judge: use one of {', '.join(KINDS)}")
    if out.suffix != ".jsonl":
        raise UserError(f"{out} does not end with .jsonl; labels are written as JSON lines only")
    rows_of = _group_rows if kind == "gqm" else _single_rows
    written = 0
    with atomic_path(out) as temporary, temporary.open("w", encoding="utf-8") as file:
        for _, (source, reference, src_lang, trg_lang, texts, scores) in iter_raw_rows(parquet, _COLUMNS):
            for prompt, response, shown in rows_of(source, src_lang, trg_lang, texts, scores):
                row = {"src": prompt, "tgt": response, "labels": labels_of(prompt, shown, reference)}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                written += 1
    return ConversionReport(out, written, ())


def _group_rows(
    source: str, src_lang: str, trg_lang: str, texts: Sequence[str], scores: Sequence[int]
) -> Iterator[tuple[str, str, Shown]]:
    prompt = render_chatml(gqm_prompt(source, texts, src_lang, trg_lang, "score"))
    yield prompt, render_response("", scores, "score"), list(zip(CANDIDATE_IDS, texts, scores, strict=False))


def _single_rows(
    source: str, src_lang: str, trg_lang: str, texts: Sequence[str], scores: Sequence[int]
) -> Iterator[tuple[str, str, Shown]]:
    for text, score in zip(texts, scores, strict=True):
        yield render_chatml(sqm_prompt(source, text, src_lang, trg_lang)), f"\n\n{score}", [("text", text, score)]


def labels_of(prompt: str, shown: Shown, reference: str) -> list[Span]:
    """The labels of a prompt that ends with these candidates; the last one's score is the response's to say."""
    spans: list[Span] = []
    starts = _starts(prompt, shown)
    for number, (start, (_, text, _)) in enumerate(zip(starts, shown, strict=True)):
        if number:
            _, _, score = shown[number - 1]
            spans.append((start - 1, start, str(min(score, 9))))
        spans += ((start + at, start + end, RIGHT if right else WRONG) for at, end, right in compare(text, reference))
    return spans


def _starts(prompt: str, shown: Shown) -> list[int]:
    """Where the candidates' texts begin; found from the prompt's end, as the source may look like a candidate."""
    starts: list[int] = []
    limit = len(prompt)
    for name, text, _ in reversed(shown):
        head = f"Translation {name}:\n"
        limit = prompt.rindex(head + fenced(text), 0, limit)
        starts.append(limit + len(head) + len(f"{FENCE}\n"))
    return starts[::-1]


def compare(text: str, reference: str) -> Iterator[tuple[int, int, bool]]:
    """The words of `text` with the space before them as `(start, end, whether the reference has them in this order)`.

    By the longest blocks of words that both have (Ratcliff and Obershelp).
    """
    words, others = list(_WORD.finditer(text)), [word.group().strip() for word in _WORD.finditer(reference)]
    matcher = SequenceMatcher(None, [word.group().strip() for word in words], others, autojunk=False)
    right = {place for block in matcher.get_matching_blocks() for place in range(block.a, block.a + block.size)}
    return ((word.start(), word.end(), place in right) for place, word in enumerate(words))
