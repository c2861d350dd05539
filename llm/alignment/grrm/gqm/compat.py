"""The original tools' parsers and extractors, reproduced with their quirks for comparison.

Nothing here guards a training run: scores may lie outside 0 to 10 and identifiers may be wrong or missing. Use
`grrm.gqm.grammar` and `grrm.gqm.extraction` instead, unless old numbers have to be reproduced.
None always means what it meant there: the text could not be parsed.
"""

from __future__ import annotations

from grrm.gqm.groups import ranking_to_scores
from grrm.gqm.languages import CANDIDATE_IDS, MAX_CANDIDATES_TRAINED


def last_line(text: str) -> str:
    """The last line of the stripped text, stripped."""
    return text.strip().rpartition("\n")[2].strip()


def _int_or_none(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def parse_score_text(text: str, *, skip_empty: bool = False) -> dict[str, int] | None:
    """`B: 6, A: 5` as a dictionary. Quirk: of a repeated id the last score wins, and any id will do."""
    items = [item.split(":") for item in text.strip().split(",") if item.strip() or not skip_empty]
    scores: dict[str, int] = {}
    for item in items:
        score = _int_or_none(item[1]) if len(item) == 2 else None
        if score is None:
            return None
        scores[item[0].strip()] = score
    return scores


def _positional_scores(line: str) -> list[int] | None:
    # Quirk: whatever stands before the last colon of an item is ignored, so scores go by position.
    scores = [_int_or_none(item.split(":")[-1]) for item in line.split(",")]
    return [score for score in scores if score is not None] if None not in scores else None


def _ranking_scores(line: str, n_candidates: int, ids: tuple[str, ...]) -> list[int] | None:
    tiers = [{item.strip() for item in tier.split("=")} for tier in line.split(">")]
    complete = sum(map(len, tiers)) == n_candidates and all(line.count(id_) == 1 for id_ in ids[:n_candidates])
    if "<" in line or not complete:
        return None
    scores = ranking_to_scores(line)
    return [scores[id_] for id_ in ids[:n_candidates]] if set(ids[:n_candidates]) <= set(scores) else None


def gqm_extract_score(text: str, prompt_type: str, n_candidates: int) -> list[int] | None:
    """The inference tool's group parser: scores in candidate order, ranking tiers counted from 0."""
    line, ids = last_line(text), CANDIDATE_IDS[:MAX_CANDIDATES_TRAINED]
    scores: list[int] | None = None
    if prompt_type == "score":
        scores = _positional_scores(line)
    elif prompt_type == "ranking":
        scores = _ranking_scores(line, n_candidates, ids)
    elif prompt_type == "ranking_score":
        by_id = parse_score_text(line) or {}
        ids = ids[: len(by_id)]
        scores = [by_id[id_] for id_ in ids] if set(ids) <= set(by_id) else None
    return scores if scores is not None and len(scores) == n_candidates else None


def group_extract_scores(text: str, prompt_type: str, n_candidates: int) -> list[int] | None:
    """The trainer's group parser: ranking tiers counted from 1, empty items skipped, extra ids ignored."""
    line = last_line(text)
    if prompt_type == "score":
        scores = _positional_scores(line)
        return scores if scores is not None and len(scores) == n_candidates else None
    if prompt_type == "ranking":
        scores = _ranking_scores(line, n_candidates, CANDIDATE_IDS)
        return None if scores is None else [score + 1 for score in scores]
    ids = CANDIDATE_IDS[:n_candidates]
    by_id = parse_score_text(line, skip_empty=True) if prompt_type == "ranking_score" else None
    return [by_id[id_] for id_ in ids] if by_id is not None and set(ids) <= set(by_id) else None


def sqm_extract_score(text: str) -> int | None:
    """The score on the last line. Quirk: of a text of one line only the last character is read ("85" gives 5)."""
    text = text.strip()
    return _int_or_none(last_line(text) if "\n" in text else text[-1:])
