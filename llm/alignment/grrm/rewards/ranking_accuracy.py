"""Rule rewards that train a judge: how well the ranking and the scores it wrote agree with gold ones.

An answer is checked strictly first: a judge is only rewarded for what its readers will be able to parse. The original
also accepts identifiers scored twice (the last score counts), scores outside 0 to 10, any number that Python's `int`
reads, and other blanks than one space around `>` and `=`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from grrm.errors import UserError
from grrm.gqm.compat import last_line
from grrm.gqm.grammar import MAX_SCORE, Rejection, parse_verdict
from grrm.gqm.groups import Status, Tiers, ranking_to_scores, tiers_of
from grrm.gqm.languages import CANDIDATE_IDS
from grrm.gqm.prompts import RANKING_HEADER, SCORES_HEADER

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


MARGIN_CREDIT: Mapping[float, float] = {0: 1.0, 1: 0.6, 2: 0.2}  # by error of the score difference; others earn 0
MIN_ANALYSIS_CHARS = 50  # per candidate, for `ranking_reward_zero`


@dataclass(frozen=True, slots=True)
class RankingReward:
    """The reward of one answer and its parts; none is above 0 for an answer that is not valid.

    `ranking_reward` and `score_reward` lie in [0, 1]; `score` is what to train on: their sum, or the ranking's alone
    where no scores are asked for. `ranking_reward` is None where there is nothing to rank. `failure` is
    why the rule could not tell whether the answer is right.
    """

    score: float
    valid_answer: bool
    ranking_reward: float | None = 0.0
    score_reward: float = 0.0
    failure: Status | None = None

    @property
    def status(self) -> Status:
        """SCORED for a valid answer; otherwise the rule's failure, or UNPARSABLE_CANDIDATE."""
        return Status.SCORED if self.valid_answer else self.failure or Status.UNPARSABLE_CANDIDATE


INVALID = RankingReward(0.0, False)


def ordering_agreement(test: Mapping[str, float], reference: Mapping[str, float]) -> float:
    """The fraction of candidate pairs that stand in the same relation (above, below, tied) in both.

    A tie against a strict order is an error. 0 unless both hold the same candidates, at least two.
    """
    return _mean_over_pairs(test, reference, lambda of_test, of_ref: float(_sign(of_test) == _sign(of_ref)))


def margin_agreement(test: Mapping[str, float], reference: Mapping[str, float]) -> float:
    """The mean over candidate pairs of the credit for the difference of their scores.

    Credit 1, 0.6, 0.2 where the differences are 0, 1, 2 apart, else 0, so that a shift of all scores costs nothing.
    0 unless both hold the same candidates, at least two.
    """
    return _mean_over_pairs(test, reference, lambda of_test, of_ref: MARGIN_CREDIT.get(abs(of_test - of_ref), 0.0))


def _sign(difference: float) -> int:
    return (difference > 0) - (difference < 0)


def _mean_over_pairs(
    test: Mapping[str, float], reference: Mapping[str, float], credit: Callable[[float, float], float]
) -> float:
    pairs = list(combinations(sorted(reference), 2))
    if not pairs or set(test) != set(reference):
        return 0.0
    return sum(credit(test[a] - test[b], reference[a] - reference[b]) for a, b in pairs) / len(pairs)


def is_ranking_of(line: str, n_candidates: int) -> bool:
    """True if `line` ranks the candidates A, B, … (at least one), each once, spaced like `B > A = C`."""
    names = [name.strip() for tier in line.split(">") for name in tier.split("=")]
    is_complete = sorted(names) == list(CANDIDATE_IDS[:n_candidates])
    return is_complete and re.fullmatch("[A-Z](?: [>=] [A-Z])*", line) is not None


def ranking_score_reward(response: str, ground_truth: GroundTruth) -> RankingReward:
    """Reward in [0, 2] for a response of analysis, header, ranking, header and scores.

    score = (ordering_agreement + margin_agreement) (GRRM, reward of the judge's second stage).

    The response has at least five lines that are not blank, the last of them the scores and the third from the end the
    ranking, in the order of the scores; headers are free, as is the order within a tie. A single candidate is valid,
    but earns nothing. Raises UserError for a ground truth that is not scores.
    """
    gold = gold_scores(ground_truth)
    lines = [line.strip() for line in response.split("\n") if line.strip()]
    if len(lines) < 5:
        return INVALID
    return _reward_of_scores(lines[-3], lines[-1], gold)


def ranking_score_reward_no_cot(response: str, ground_truth: GroundTruth) -> RankingReward:
    """As `ranking_score_reward`, for a response without an analysis: two lines, the ranking and the scores.

    Each may have its header of `render_response` above it, as judges are taught.
    """
    gold = gold_scores(ground_truth)
    lines = _without_headers(response, RANKING_HEADER, SCORES_HEADER)
    if len(lines) != 2:
        return INVALID
    return _reward_of_scores(lines[0], lines[1], gold)


def _without_headers(response: str, *headers: str) -> list[str]:
    """The lines of a response; of one in which each line has its header, those below the headers."""
    lines = [line.strip() for line in response.strip().split("\n")]
    filled = [line for line in lines if line]
    return filled[1::2] if tuple(filled[::2]) == headers else lines


def score_reward(response: str, ground_truth: GroundTruth) -> RankingReward:
    """As `ranking_score_reward`, for the scores on the last line alone, whatever stands before it.

    What a judge is asked for with prompt type `score`, for which the original has no reward.
    """
    gold = gold_scores(ground_truth)
    scores = _read_scores(last_line(response), len(gold))
    return INVALID if scores is None else _both_agreements(scores, gold)


def score_ordering_reward(response: str, ground_truth: GroundTruth) -> RankingReward:
    """As `score_reward`, for the order of the scores alone, of which the truth may be a ranking: ordering_agreement.

    Margins reward scores that are alike where the judge is in doubt; the order alone rewards a decision.
    """
    gold = gold_ranking(ground_truth)
    scores = _read_scores(last_line(response), len(gold))
    if scores is None:
        return INVALID
    ordering = ordering_agreement(scores, gold)
    return RankingReward(ordering, True, ordering)


def _reward_of_scores(ranking_line: str, score_line: str, gold: Mapping[str, int]) -> RankingReward:
    scores = _read_scores(score_line, len(gold))
    if scores is None or not is_ranking_of(ranking_line, len(gold)):
        return INVALID
    if _tiers(ranking_to_scores(ranking_line)) != _tiers(scores):
        return INVALID
    return _both_agreements(scores, gold)


def _both_agreements(scores: Mapping[str, float], gold: Mapping[str, int]) -> RankingReward:
    ordering, margin = ordering_agreement(scores, gold), margin_agreement(scores, gold)
    return RankingReward(ordering + margin, True, ordering, margin)


def _read_scores(line: str, n_candidates: int) -> Mapping[str, float] | None:
    verdict = parse_verdict(line, n_candidates, "score")
    if isinstance(verdict, Rejection) or verdict.scores is None:
        return None
    return dict(zip(CANDIDATE_IDS[:n_candidates], verdict.scores, strict=True))


def _tiers(scores: Mapping[str, float]) -> Tiers:
    return tiers_of([scores[candidate_id] for candidate_id in sorted(scores)])


def ranking_reward(response: str, ground_truth: GroundTruth) -> RankingReward:
    """Reward in [0, 1] for the ranking on the last line, whatever stands before it.

    score = ordering_agreement. The ground truth is a ranking, or scores that imply one.
    Raises UserError for a ground truth that is neither.
    """
    return ranking_reward_no_cot(last_line(response), ground_truth)


def ranking_reward_no_cot(response: str, ground_truth: GroundTruth) -> RankingReward:
    """As `ranking_reward`, for a response that is one line: the ranking, which may have its header above it."""
    gold = gold_ranking(ground_truth)
    line = "\n".join(_without_headers(response, RANKING_HEADER))
    if not is_ranking_of(line, len(gold)):
        return INVALID
    ordering = ordering_agreement(ranking_to_scores(line), gold)
    return RankingReward(ordering, True, ordering)


def ranking_reward_zero(response: str, ground_truth: GroundTruth) -> RankingReward:
    """As `ranking_reward`, for training without a first stage, where an analysis has to be provoked.

    Before the ranking must stand at least 50 characters per candidate, and the ranking must occur only once.
    """
    line = last_line(response)
    analysis = response.strip().removesuffix(line).strip()
    is_too_short = len(analysis) < MIN_ANALYSIS_CHARS * len(gold_ranking(ground_truth))
    if is_too_short or response.count(line) != 1:
        return INVALID
    return ranking_reward_no_cot(line, ground_truth)
