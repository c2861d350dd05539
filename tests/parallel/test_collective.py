"""An error on one rank is the same error on all of them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from grrm.errors import UserError
from grrm.parallel.data_ranks import CollectiveFailure, DataRanks, run_together


class Ranks:
    """Ranks as threads that meet at a barrier: a rank that does not come makes the others fail, not wait."""

    def __init__(self, size: int) -> None:
        self.size, self.records = size, [None] * size
        self.barrier = threading.Barrier(size, timeout=120)

    def rank(self, rank: int) -> ThreadRank:
        return ThreadRank(self, rank)


class ThreadRank:
    def __init__(self, ranks: Ranks, rank: int) -> None:
        self.ranks, self.rank, self.size = ranks, rank, ranks.size

    def gather(self, record):
        self.ranks.records[self.rank] = record
        self.ranks.barrier.wait()
        return list(self.ranks.records)


def on_every_rank(works, **options):
    """Results and exceptions of `run_together`, one thread per rank."""
    ranks, expected = Ranks(len(works)), (ValueError, OSError)
    with ThreadPoolExecutor(len(works)) as threads:
        outcomes = [
            threads.submit(run_together, "judging", work, ranks.rank(rank), expected, **options)
            for rank, work in enumerate(works)
        ]
        return [one.exception(120) or one.result() for one in outcomes]


def raising(error: Exception):
    def work():
        raise error

    return work


def test_each_rank_gets_its_own_result_when_nothing_fails():
    assert on_every_rank([lambda: "a", lambda: None, lambda: "c"]) == ["a", None, "c"]


def test_one_failure_is_raised_on_every_rank_with_the_same_words():
    outcomes = on_every_rank([lambda: 1, raising(OSError("server gone")), raising(ValueError("later"))])
    assert {type(outcome) for outcome in outcomes} == {CollectiveFailure}
    assert {str(outcome) for outcome in outcomes} == {"judging failed on rank 1 (2 of 3 ranks failed): server gone"}
    assert isinstance(outcomes[0], UserError)
    assert [type(outcome.__cause__) for outcome in outcomes] == [type(None), OSError, ValueError]


def test_failure_without_words_is_still_a_failure():
    outcomes = on_every_rank([lambda: 1, raising(ValueError())])
    assert [type(outcome) for outcome in outcomes] == [CollectiveFailure, CollectiveFailure]


def test_caller_chooses_what_is_raised():
    outcomes = on_every_rank([raising(ValueError("no")), lambda: 1], failure=RuntimeError)
    assert [type(outcome) for outcome in outcomes] == [RuntimeError, RuntimeError]


def test_defect_is_not_turned_into_a_sentence():
    with pytest.raises(KeyError, match="defect"):
        run_together("judging", raising(KeyError("defect")), DataRanks(0, 1), (ValueError,))


def test_one_process_needs_no_others():
    with pytest.raises(CollectiveFailure, match=r"^judging failed on rank 0: gone$"):
        run_together("judging", raising(ValueError("gone")), DataRanks(0, 1), (ValueError,))
    assert DataRanks(0, 1).gather({"a": 1}) == [{"a": 1}]
