"""Ground truth for a judge's answer: gold scores `{"A": 8, "B": 3}` or a gold ranking `A > B`.

A defect in it would give every answer to the row the same wrong reward, so it stops the run instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from grrm.errors import UserError
from grrm.gqm.grammar import MAX_SCORE
from grrm.gqm.languages import CANDIDATE_IDS
from grrm.gqm.rankings import ranking_to_scores

GroundTruth = Mapping[str, float] | str  # a string holds the scores as JSON, or a ranking


def gold_scores(ground_truth: GroundTruth) -> dict[str, int]:
    """Gold scores by candidate, from a mapping or its JSON text.

    Raises UserError unless the candidates are A, B, … without a gap, each once, and their scores whole numbers from
    0 to 10, which is all that an answer can hold. One candidate is allowed: such a row just rewards nothing.
    """
    scores: object = _read_json(ground_truth) if isinstance(ground_truth, str) else ground_truth
    if not isinstance(scores, Mapping):
        raise _error(ground_truth, "holds no scores")
    _check_candidates(list(scores), ground_truth)
    return {candidate_id: _integer_score(score, ground_truth) for candidate_id, score in scores.items()}


def gold_ranking(ground_truth: GroundTruth) -> dict[str, int]:
    """Gold order by candidate, higher is better, from a ranking `B > A = C` or from scores as in `gold_scores`.

    Raises UserError for a ranking that is not one of the candidates A, B, … without a gap, each once.
    """
    if not isinstance(ground_truth, str) or ground_truth.lstrip().startswith("{"):
        return gold_scores(ground_truth)
    _check_candidates([name.strip() for tier in ground_truth.split(">") for name in tier.split("=")], ground_truth)
    return ranking_to_scores(ground_truth)


def _read_json(text: str) -> object:
    def without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
        _check_candidates([name for name, _ in pairs], text)
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=without_repetition)
    except (ValueError, RecursionError) as error:  # not JSON, a number of thousands of digits, or brackets without end
        raise _error(text, "cannot be read as JSON") from error


def _check_candidates(names: Sequence[object], ground_truth: object) -> None:
    ids = set(CANDIDATE_IDS[: len(names)])
    if not names or set(names) != ids or len(names) != len(ids):
        raise _error(ground_truth, "does not name the candidates A, B, … without a gap, each once")


def _integer_score(score: object, ground_truth: object) -> int:
    if isinstance(score, (int, float)) and not isinstance(score, bool) and 0 <= score <= MAX_SCORE:
        integer = int(score)
        if integer == score:
            return integer
    raise _error(ground_truth, f"holds {repr(score)[:40]} where a whole score from 0 to {MAX_SCORE:.0f} must be")


def _error(ground_truth: object, defect: str) -> UserError:
    text = repr(ground_truth)[:200]
    return UserError(
        f"The ground truth {text} {defect}; "
        'give scores like {"A": 8, "B": 3}, or for a reward on the ranking alone a ranking like \'A > B\'.'
    )
