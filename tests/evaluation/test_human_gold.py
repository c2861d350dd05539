"""The arithmetic of a judge's card, against slow versions that follow the published definitions pair by pair."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from grrm.evaluation.candidate_pairs import calibrated_pairs
from grrm.evaluation.human_gold.agreement import agreement, pearson_by_row, tau_b
from grrm.evaluation.human_gold.card import annotators_agreement, mean_agreement, significance_clusters

NAN = math.nan


def random_scores(seed, n_sources=7, n_systems=5, *, levels=3, missing=0.15):
    """Gold scores with many ties and a judge's scores that follow them, some of either missing [P, G]."""
    generator = np.random.default_rng(seed)
    gold = generator.integers(0, levels, (n_sources, n_systems)).astype(float)
    judged = np.round(gold + generator.normal(0, 1, gold.shape), 1)
    for scores in (gold, judged):
        scores[generator.random(scores.shape) < missing] = NAN
    return gold, judged


def slow_pairs(gold, judged):
    """For each source its pairs as (gold difference, judged difference), where all four scores are there."""
    for golds, scores in zip(gold.tolist(), judged.tolist(), strict=True):
        scored = [(g, s) for g, s in zip(golds, scores, strict=True) if not math.isnan(g + s)]
        yield [(a[0] - b[0], a[1] - b[1]) for a, b in itertools.combinations(scored, 2)]


def slow_accuracy(pairs_by_source, epsilon):
    """Mean over sources with a pair of the share of pairs that are right at this threshold (Deutsch et al. 2023)."""
    accuracies = []
    for pairs in filter(None, pairs_by_source):
        right = 0
        for gold, judged in pairs:
            if abs(judged) <= epsilon:
                right += gold == 0
            else:
                right += gold * judged > 0
        accuracies.append(right / len(pairs))
    return sum(accuracies) / len(accuracies)


def slow_tau_b(pairs):
    agreed = sum(gold * judged > 0 for gold, judged in pairs) - sum(gold * judged < 0 for gold, judged in pairs)
    untied = [sum(pair[at] != 0 for pair in pairs) for at in (0, 1)]
    return agreed / math.sqrt(untied[0] * untied[1]) if all(untied) else None


def slow_pearson(first, second):
    pairs = [(x, y) for x, y in zip(first, second, strict=True) if not math.isnan(x + y)]
    if len({x for x, _ in pairs}) < 2 or len({y for _, y in pairs}) < 2:
        return None
    means = [sum(values) / len(pairs) for values in zip(*pairs, strict=True)]
    xs, ys = ([pair[at] - means[at] for pair in pairs] for at in (0, 1))
    squares = sum(x * x for x in xs) * sum(y * y for y in ys)
    return sum(x * y for x, y in zip(xs, ys, strict=True)) / math.sqrt(squares)


def slow_soft_accuracy(gold, judged):
    """Soft pairwise accuracy over all sign changes (Thompson et al. 2024)."""

    def p_value(differences):
        changes = list(itertools.product((-1, 1), repeat=len(differences)))
        sums = [sum(sign * d for sign, d in zip(signs, differences, strict=True)) for signs in changes]
        return sum(total >= sum(differences) - 1e-9 for total in sums) / len(changes)

    terms = []
    for i, j in itertools.combinations(range(gold.shape[1]), 2):
        both = [(g[i] - g[j], s[i] - s[j]) for g, s in zip(gold, judged, strict=True)]
        both = [pair for pair in both if not math.isnan(sum(pair))]
        if both:
            p_gold, p_judged = (p_value([pair[at] for pair in both]) for at in (0, 1))
            terms.append(1 - abs(p_gold - p_judged))
    return sum(terms) / len(terms)


def mean_defined(values):
    values = [value for value in values if value is not None]
    return sum(values) / len(values)


@pytest.mark.parametrize("seed", range(8))
def test_tie_calibrated_accuracy_is_the_best_of_all_thresholds(seed):
    gold, judged = random_scores(seed)
    pairs = list(slow_pairs(gold, judged))
    thresholds = sorted({0.0, *(abs(judged) for source in pairs for _, judged in source)})
    accuracies = [slow_accuracy(pairs, epsilon) for epsilon in thresholds]
    calibrated = calibrated_pairs(gold, judged)
    assert calibrated.accuracy == pytest.approx(max(accuracies), abs=1e-9)
    best = [
        epsilon for epsilon, accuracy in zip(thresholds, accuracies, strict=True) if accuracy > max(accuracies) - 1e-9
    ]
    assert calibrated.threshold == pytest.approx(best[0], abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_correlations_equal_those_counted_pair_by_pair(seed):
    gold, judged = random_scores(seed, n_sources=6)
    measured = agreement(gold, judged, n_resamples=100)
    assert measured.kendall_tau_b_by_source == pytest.approx(mean_defined(map(slow_tau_b, slow_pairs(gold, judged))))
    assert measured.pearson_by_source == pytest.approx(mean_defined(map(slow_pearson, gold, judged)))
    flat = gold.reshape(1, -1), judged.reshape(1, -1)
    assert measured.kendall_tau_b == pytest.approx(slow_tau_b(next(slow_pairs(*flat))))
    assert measured.pearson == pytest.approx(slow_pearson(flat[0][0], flat[1][0]))
    both = ~np.isnan(gold + judged)
    means = [[scores[both[:, at], at].mean() for at in range(gold.shape[1])] for scores in (gold, judged)]
    assert measured.pearson_of_systems == pytest.approx(slow_pearson(*means))
    assert measured.soft_pairwise_accuracy == pytest.approx(slow_soft_accuracy(gold, judged))
    assert measured.coverage == pytest.approx(both.sum() / (~np.isnan(gold)).sum())


def test_permutations_of_systems_are_those_that_the_metrics_task_draws():
    """mt-metrics-eval: 1000 rows of numbers from 0 to 1 in single precision, rounded, for the sources with gold."""
    gold, judged = (np.round(scores) for scores in random_scores(1, n_sources=40, n_systems=3, missing=0))
    signs = 2 * np.rint(np.random.default_rng(4).random((1000, 38), dtype=np.float32)) - 1
    terms = []
    for i, j in itertools.combinations(range(3), 2):
        apart = [(scores[2:, i] - scores[2:, j]) for scores in (gold, judged)]
        p_gold, p_judged = ((signs @ differences >= differences.sum()).mean() for differences in apart)
        terms.append(1 - abs(p_gold - p_judged))
    gold[:2] = NAN
    assert agreement(gold, judged).soft_pairwise_accuracy == pytest.approx(np.mean(terms), abs=1e-9)


@pytest.mark.parametrize("size", [2, 3, 40, 257])
def test_tau_b_of_long_lists_equals_that_of_all_pairs(size):
    generator = np.random.default_rng(size)
    gold, judged = generator.integers(0, 9, size).astype(float), generator.normal(size=size)
    gold[0] = 9.0  # varies
    pairs = [(gold[i] - gold[j], judged[i] - judged[j]) for i, j in itertools.combinations(range(size), 2)]
    assert tau_b(gold, judged) == pytest.approx(slow_tau_b(pairs))
    assert tau_b(gold, -gold) == pytest.approx(-1.0)
    assert tau_b(gold, np.ones(size)) is None


def test_a_judge_that_does_not_vary_ties_every_pair_and_has_no_correlation():
    gold = np.array([[1.0, 1.0, 2.0], [3.0, 4.0, 4.0]])
    measured = agreement(gold, np.full(gold.shape, 0.1))
    assert (measured.tie_calibrated_accuracy, measured.tie_threshold) == (pytest.approx(1 / 3), 0.0)
    correlations = (measured.pearson, measured.pearson_by_source, measured.kendall_tau_b)
    assert {*correlations, measured.kendall_tau_b_by_source, measured.pearson_of_systems} == {None}


def test_nothing_scored_is_no_agreement_and_not_zero():
    gold = np.array([[1.0, 2.0], [3.0, NAN]])
    measured = agreement(gold, np.full(gold.shape, NAN))
    assert (measured.tie_calibrated_accuracy, measured.interval, measured.pearson) == (None, None, None)
    assert (measured.soft_pairwise_accuracy, measured.coverage) == (None, 0.0)
    assert agreement(np.full(gold.shape, NAN), gold).coverage is None


def test_a_scale_changes_nothing_but_the_threshold():
    gold, judged = random_scores(3)
    plain, scaled = agreement(gold, judged), agreement(gold, 1024 * judged)
    assert scaled.tie_calibrated_accuracy == pytest.approx(plain.tie_calibrated_accuracy)
    assert scaled.tie_threshold == pytest.approx(1024 * plain.tie_threshold)
    assert (scaled.pearson, scaled.kendall_tau_b) == (pytest.approx(plain.pearson), pytest.approx(plain.kendall_tau_b))


def test_pearson_leaves_out_what_only_the_two_lists_together_lack():
    first, second = np.array([[1.0, 2.0, NAN, 4.0]]), np.array([[2.0, NAN, 1.0, 3.0]])
    assert pearson_by_row(first, second).tolist() == [pytest.approx(1.0)]


def test_judges_that_differ_by_chance_share_a_cluster_and_better_ones_do_not():
    generator = np.random.default_rng(1)
    gold = generator.normal(size=(150, 4))
    noise = {"good": 0.4, "as good": 0.4, "bad": 3.0}
    judges = {name: calibrated_pairs(gold, gold + generator.normal(0, sd, gold.shape)) for name, sd in noise.items()}
    clusters = significance_clusters(judges)
    assert clusters == {"good": 1, "as good": 1, "bad": 2}
    assert significance_clusters({**judges, "copy": judges["bad"]})["copy"] == 2
    assert significance_clusters({}) == {}


def test_the_permutation_test_is_over_all_swaps_of_pairs():
    """With few pairs the p-value is that of every swap: 1 of 2^5 swaps of five pairs reaches five wins."""
    gold = np.array([[0.0, 1.0]] * 5)
    judges = {"right": calibrated_pairs(gold, gold), "wrong": calibrated_pairs(gold, -gold)}
    assert significance_clusters(judges) == {"right": 1, "wrong": 2}  # p = 1/32
    fewer = {name: calibrated_pairs(gold[:4], sign * gold[:4]) for name, sign in (("right", 1), ("wrong", -1))}
    assert significance_clusters(fewer) == {"right": 1, "wrong": 1}  # p = 1/16


def test_the_ceiling_compares_each_annotator_with_the_mean_of_the_others():
    gold = np.array([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]])
    raters = {"a": gold, "b": gold * 2, "c": np.array([[3.0, 2.0, 1.0], [NAN, NAN, NAN]])}
    ceiling = annotators_agreement(raters)
    rest = [(raters["b"] + np.where(np.isnan(raters["c"]), raters["b"], raters["c"])) / 2]
    rest += [(raters["a"] + np.where(np.isnan(raters["c"]), raters["a"], raters["c"])) / 2, gold * 1.5]
    apart = [agreement(others, own) for others, own in zip(rest, raters.values(), strict=True)]
    assert ceiling.pearson == pytest.approx(np.mean([one.pearson for one in apart]))
    assert ceiling == mean_agreement(apart, of_all=False)
    assert (ceiling.interval, ceiling.tie_threshold) == (None, None)
    assert annotators_agreement({"a": gold}) is None
