"""Teaching a model to expect in every candidate of a judge's prompt what the reference has there.

A judge can tell a right word from a wrong one if it knows which was to come. The labels (`grrm.data.prompt_labels`)
say so behind each token of every candidate: what the reference continues with, at the place that corresponds.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from tqdm import tqdm

from grrm.data.atomic import atomic_path
from grrm.data.convert import ConversionReport
from grrm.data.converters.groups import read_scored_groups
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.languages import CANDIDATE_IDS
from grrm.gqm.prompts import FENCE, fenced, gqm_prompt, render_response, sqm_prompt

_TOLD = ("src_text", "src_lang", "trg_lang", "mt_texts", "scores")
Shown = Sequence[tuple[str, str]]  # what the prompt calls a candidate, and its text


@dataclass(frozen=True, slots=True)
class WordPlaces:
    """A tokenizer, as this converter needs it: ids of a text, the character after each of them, the end of a reply."""

    encode: Callable[[str], list[int]]
    ends: Callable[[str], list[int]]
    stop: int


def convert_sft_expected(
    parquet: Path, out: Path, places: WordPlaces, *, singles: int = 4, seed: int = 0
) -> ConversionReport:
    """Write `src`, `tgt` and `labels` lines: each group's prompt, and those of `singles` of its candidates alone.

    `tgt` is the verdict without an analysis, and with nothing behind its last score. Raises UserError for an `out`
    that does not end with .jsonl, and as `iter_raw_rows` does.
    """
    if out.suffix != ".jsonl":
        raise UserError(f"{out} does not end with .jsonl; labels are written as JSON lines only")
    if singles < 0:
        raise UserError(f"singles is {singles}; it must be 0 or more")
    groups, rejected = read_scored_groups(parquet)
    rng = random.Random(seed)
    written = 0
    with atomic_path(out) as temporary, temporary.open("w", encoding="utf-8") as file:
        for group in tqdm(groups, desc=f"label {parquet.name}", unit="group", disable=None):
            for prompt, response, shown in _prompts_of(group, singles, rng):
                labels = list(expected_in(prompt, shown, group["trg_text"], places))
                file.write(json.dumps({"src": prompt, "tgt": response, "labels": labels}, ensure_ascii=False) + "\n")
                written += 1
    return ConversionReport(out, written, rejected)


def _prompts_of(group: Mapping[str, Any], singles: int, rng: random.Random) -> Iterator[tuple[str, str, Shown]]:
    """Prompt, verdict and candidates of the group, then of some of its candidates alone."""
    source, src_lang, trg_lang, texts, scores = (group[name] for name in _TOLD)
    prompt = render_chatml(gqm_prompt(source, texts, src_lang, trg_lang, "score"))
    verdict = render_response("", scores, "score").rstrip("\n")
    yield prompt, verdict, list(zip(CANDIDATE_IDS, texts, strict=False))
    for index in rng.sample(range(len(texts)), min(singles, len(texts))):
        prompt = render_chatml(sqm_prompt(source, texts[index], src_lang, trg_lang))
        yield prompt, f"\n\n{scores[index]}", [("text", texts[index])]


def expected_in(prompt: str, shown: Shown, reference: str, places: WordPlaces) -> Iterator[tuple[int, int]]:
    """The labels of a prompt that ends with these candidates, each with what the prompt calls it.

    Raises UserError for a tokenizer that has a token across the beginning or the end of a candidate.
    """
    ids, ends, wanted = places.encode(prompt), places.ends(prompt), places.encode(reference)
    for start, (_, text) in zip(_starts(prompt, shown), shown, strict=True):
        inside = [position for position, end in enumerate(ends) if start < end <= start + len(text)]
        if not {start, start + len(text)} <= set(ends):
            raise UserError(
                "this tokenizer has tokens that reach over the beginning or the end of a candidate: make one that has "
                "the prompts' fixed parts as words with `python -m grrm.demo.prepare_judge reader`"
            )
        if inside:
            expected = expected_tokens([ids[position] for position in inside], wanted, places.stop)
            yield from zip((inside[0] - 1, *inside), expected, strict=True)


def expected_tokens(candidate: Sequence[int], reference: Sequence[int], stop: int) -> list[int]:
    """What the reference has for each token of the candidate and for its end, one more than the candidate has.

    By the longest blocks of tokens that both have (Ratcliff and Obershelp): the token itself where they agree, the
    reference's at that place where they differ, the next of the reference where the candidate has one too many or
    left some out.
    """
    theirs, ours = [*candidate, stop], [*reference, stop]
    expected = [stop] * len(theirs)
    left_out: dict[int, int] = {}
    for kind, start, end, other, other_end in SequenceMatcher(None, theirs, ours, autojunk=False).get_opcodes():
        if kind == "insert":
            left_out[start] = ours[other]
        for at in range(start, end):
            ahead = other if kind == "delete" else min(other + at - start, other_end - 1)
            expected[at] = ours[min(ahead, len(ours) - 1)]
    for at, token in left_out.items():
        if at < len(expected):
            expected[at] = token
    return expected


def _starts(prompt: str, shown: Shown) -> list[int]:
    """Where the candidates' texts begin; found from the prompt's end, as the source may look like a candidate."""
    starts: list[int] = []
    limit = len(prompt)
    for name, text in reversed(shown):
        head = f"Translation {name}:\n"
        limit = prompt.rindex(head + fenced(text), 0, limit)
        starts.append(limit + len(head) + len(f"{FENCE}\n"))
    return starts[::-1]
