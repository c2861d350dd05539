"""Codes of how words are spelled, and how far candidates agree by them."""

from __future__ import annotations

import numpy as np
import pytest

from grrm.errors import UserError
from grrm.rl.growth.spelling import OWN_SHARE, Agreement, agreements, mean_codes, spelling_codes
from grrm.rl.growth.stream import JudgeTokens, candidate_places

TOKENS = JudgeTokens(begin=0, opens=(1, 2), end=3, asks=(4, 5), scores=(6, 7), stop=8)
TEXTS = ["", "", "", "", "", "", "3", "7", "", "cat", "cats", "dog", " dog", "do g"]


def test_products_of_codes_are_shared_ngrams():
    codes_VS = spelling_codes(TEXTS, 4096, seed=1)
    cat, cats, dog = codes_VS[9:12]
    assert cat @ cat == pytest.approx(6, abs=0.6)  # c a t ca at cat
    assert cat @ cats == pytest.approx(6, abs=0.6)
    assert cats @ cats == pytest.approx(9, abs=0.9)  # s ts ats besides
    assert cats @ dog == pytest.approx(0, abs=0.6)


def test_blanks_do_not_count_and_a_word_without_letters_is_nothing():
    codes_VS = spelling_codes(TEXTS, 16, seed=1)
    assert np.array_equal(codes_VS[11], codes_VS[12])
    assert np.array_equal(codes_VS[11], codes_VS[13])
    assert not codes_VS[:6].any()
    assert np.array_equal(codes_VS, spelling_codes(TEXTS, 16, seed=1))


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [
        ([0, 9, 1, 9, 10, 2, 11, 3], [slice(3, 5), slice(6, 7)]),
        ([0, 9, 1, 9, 10, 2, 11, 3, 4, 6], [slice(3, 5), slice(6, 7)]),
        ([0, 9, 1, 2, 11], [slice(4, 5)]),
        ([0, 9], []),
    ],
)
def test_candidates_are_what_stands_between_their_tokens(prompt, wanted):
    assert candidate_places(prompt, TOKENS) == wanted


def test_agreement_is_about_the_cosine_from_the_groups_mean():
    rng = np.random.default_rng(0)
    common_S = rng.normal(size=64)
    codes_TS = np.concatenate([common_S + scale * rng.normal(size=(6, 64)) for scale in (0.1, 0.5, 1.0, 3.0)])
    means_NS, all_S = mean_codes(codes_TS, [slice(6 * n, 6 * n + 6) for n in range(4)])
    assert np.allclose(all_S, codes_TS.mean(0))
    found_N = agreements(means_NS, all_S)
    squares_N = (means_NS**2).sum(1)
    assert np.allclose(found_N, means_NS @ all_S - all_S @ all_S - OWN_SHARE * (squares_N - squares_N.mean()))
    assert found_N.argmin() == 3  # what the others do not say
    assert found_N.mean() == pytest.approx(0, abs=1e-9)
    assert not agreements(np.stack([all_S] * 3), all_S).any()


def test_scales_are_measured_on_groups_that_differ():
    prompts = [[0, 9, 1, 9, 10, 2, 11, 3], [0, 9, 1, 11, 2, 10, 10, 3]]
    codes_VS = spelling_codes(TEXTS, 8, seed=1)
    agreement = Agreement.measure(codes_VS, np.arange(9, 12), prompts, TOKENS)
    assert (agreement.codes_VS[9:12] ** 2).mean() == pytest.approx(1)
    assert agreement.spread > 0
    with pytest.raises(UserError, match="no prompt has candidates that differ"):
        Agreement.measure(codes_VS, np.arange(9, 12), [[0, 9, 1, 9, 3], [0, 9, 1, 10, 2, 10, 3]], TOKENS)
