"""Sentences of README and docs with measured numbers, as benchmarks/results has them.

A page has to hold each of its statements, with any line breaks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from published import PROBE_PAGE, REAL_PAGE, RESULTS_PAGE, gain_of, interval, real, real_gains, result, spread
from titles import JUDGES, POLICIES, README

Statement = tuple[str, str]  # a page, and what it says


def statements() -> Iterator[Statement]:
    """All of them."""
    yield from _readmes()
    for text in (*_in_short(), *_printed()):
        yield RESULTS_PAGE, text
    yield from ((REAL_PAGE, text) for text in _real())
    yield from (("docs/reward_protocols.md", text) for text in _attacked())
    yield from _studied()
    yield from _memory_and_joining()


def _gain(policy: str, key: str = "gain") -> float:
    value: float = result("demo")["learned"][policy][key]
    return value


def _share() -> str:
    return f"{100 * _gain('grpo_ranker') / _gain('grpo'):.0f} %"


def _readmes() -> Iterator[Statement]:
    ranker, metric, greedy = (
        f"{gain:+.1f}" for gain in (_gain("grpo_ranker"), _gain("grpo"), _gain("grpo_ranker", "greedy_gain"))
    )
    drop = f"{-_gain('grpo_consensus', 'greedy_gain'):.1f}"
    english, chinese = README
    yield english, f"{_share()} of the sampled gain of chrF against the reference ({ranker} of {metric})"
    yield english, f"greedy improves by {greedy}. Consensus improves sampled chrF, but greedy drops by {drop}"
    yield chinese, f"采样增益的 {_share()}（{ranker}，后者为 {metric}），贪心提高 {greedy}"
    yield chinese, f"贪心下降 {drop}"
    judges = real("judges")
    names = ("gqm_sft_expected", "gqm_sft_permuted", "consensus")
    pairs = [f"{100 * judges[name]['heldout']['accuracy_ties_half']['mean']:.0f} %" for name in names]
    learned = {name: record["learned"] for name, record in real("policies").items() if "learned" in record}
    gains = zip(real_gains("grpo_gqm_sft"), real_gains("grpo"), strict=True)
    shares = [f"{100 * gain['mean'] / of_metric['mean']:.0f}" for gain, of_metric in gains]
    lost = [f"{-gain['mean']:.1f}" for gain in real_gains("grpo_gqm_sft", "greedy_")]
    neutral = [result("real_policies")["seeds"][seed]["gqm_length_neutral"]["learned"] for seed in ("2", "3")]
    gained = [f"{gain_of(learned, 'greedy_')['mean']:.1f}" for learned in neutral]
    yield (
        english,
        f"orders {pairs[0]} of held-out pairs as chrF does "
        f"({pairs[1]} over four orders; consensus, mean chrF to the others, {pairs[2]})",
    )
    short = result("real_policies")["seeds"]["4"]["policies"]
    of_sqm, of_gqm = (f"{short[name]['learned']['gain']:+.1f}" for name in ("grpo_sqm", "grpo_gqm_sft"))
    yield english, f"sampled {of_sqm}, GQM {of_gqm}"
    yield chinese, f"采样增益 {of_sqm}，GQM 为 {of_gqm}"
    yield english, f"{' and '.join(shares)} % of chrF's sampled gain; greedy drops by {' and '.join(lost)}"
    yield (
        chinese,
        f"有 {pairs[0]} 与 chrF 一致（四种顺序平均为 {pairs[1]}；共识，即与其他样本的平均 chrF，为 {pairs[2]}）",
    )
    yield english, f"rises by {' and '.join(gained)} (seeds 2, 3): not significant"
    yield chinese, f"提高 {' 和 '.join(gained)}（种子 2 和 3）。这些贪心变化均不显著"
    yield chinese, f"采样增益的 {' % 和 '.join(shares)} %，贪心下降 {' 和 '.join(lost)}"
    drop = f"{-learned['grpo_consensus']['greedy_gain']:.1f}"
    without = result("real_policies")["seeds"]["3"]["consensus_length_neutral"]["learned"]
    less = f"{-without['greedy_gain']:.1f}"
    yield english, f"greedy drops by {drop}, with length-neutral rewards by {less}"
    yield chinese, f"译文会变长：贪心下降 {drop}，用与长度无关的奖励则下降 {less}"
    parameters = result("tiny_step")["workload"]["parameters"]
    yield english, f"policy of {parameters / 1e6:.1f} million parameters"


def _real() -> Iterator[str]:
    judges = {name: record["heldout"] for name, record in real("judges").items()}
    sqm, permuted, single = (judges[name] for name in ("sqm_expected", "gqm_sft_permuted", "gqm_sft_expected"))
    pairs = (record["all_pairs"]["mean"] for record in (permuted, sqm))
    yield f"{interval(permuted['above_base'], '+.3f')}, the same groups resampled"
    yield "orders ranks {:.3f} of all pairs right, the SQM {:.3f}".format(*pairs)
    yield f"writes {permuted['tokens']['mean']:.0f} tokens a group instead of {sqm['tokens']['mean']:.0f}"
    yield f"In one order the difference is not significant: {interval(single['above_base'], '+.3f')}"
    beside = result("real_rm")["judges"]
    shares = (f"{beside[name]['heldout']['accuracy_ties_half']['mean']:.3f}" for name in ("consensus", "logprob"))
    yield "consensus orders {} of the pairs, log-probability {}".format(*shares)
    yield from _rewarded()
    learned = {name: record["learned"] for name, record in real("policies").items() if "learned" in record}
    yield f"and greedy ones lose {-learned['grpo_consensus']['greedy_gain']:.1f} points"
    for name, gain in (("grpo_gqm_sft", "the gain with chrF"), ("grpo_ranker", "that gain")):
        yield f"{100 * learned[name]['gain'] / learned['grpo']['gain']:.0f} % of {gain}"
    seeds = result("real_policies")["seeds"]
    few = seeds["2"]["gqm_of_3200_groups"]["learned"]
    lost = interval(gain_of(few, "greedy_"), "+.2f")
    yield f"gains {_named(few, 'sampled')}, and loses greedy beyond its interval: {lost}"
    second = seeds["2"]["gqm_length_neutral"]["learned"]
    yield f"then gains {_named(second, 'sampled')} and {_named(second, 'greedy', 'greedy_')}"
    more = {way: interval(gain, "+.2f") for way, gain in seeds["4"]["gqm_above_gqm_sft"].items()}
    yield f"sampled {more['sampled']}, greedy {more['greedy']}, the\n  same rows resampled"
    share, of_sft = (
        f"{100 * seeds['4']['policies'][name]['learned']['share_of_metric']:.0f}"
        for name in ("grpo_gqm", "grpo_gqm_sft")
    )
    yield f"{share} instead of {of_sft} % of chrF's gain"
    alone = result("real_sqm")["judges"]["sqm_expected"]["heldout"]["accuracy_ties_half"]
    pairs = interval(alone, ".3f").replace("to ", "to\n  ")
    yield f"orders {pairs} of the pairs by expected scores, a GQM"
    of_sqm = seeds["4"]["policies"]["grpo_sqm"]["learned"]["share_of_metric"]
    yield f"as much as after RLVR, {100 * of_sqm:.0f} % of\n  chrF's gain"


def _rewarded() -> Iterator[str]:
    """Pairs and ties of the GQM before and after RLVR."""
    judges = {name: record["heldout"] for name, record in result("real_rlvr")["judges"].items()}
    pairs = {name: f"{record['accuracy_ties_half']['mean']:.3f}" for name, record in judges.items()}
    gains = {name: interval(record.get("above_sft"), "+.3f").rstrip(")") for name, record in judges.items()}
    above = {name: gain.replace(" (", ", ") for name, gain in gains.items()}
    yield f"rise from {pairs['gqm_sft']} to {pairs['gqm']} ({above['gqm']}, the same groups resampled)"
    yield f"ties fall from {100 * judges['gqm_sft']['tied']:.0f} to {100 * judges['gqm']['tied']:.0f} %"
    yield f"Expected scores do not gain ({pairs['gqm_sft_expected']} and {pairs['gqm_expected']})"
    yield f"four orders lose ({pairs['gqm_sft_permuted']} and {pairs['gqm_permuted']}: {above['gqm_permuted']})"


def _studied() -> Iterator[Statement]:
    human, demo = (result(name)["seeds"]["1"] for name in ("probe_study_human", "probe_study"))
    yield PROBE_PAGE, f"gain is {_tau(human, 'sampled')} sampled, {_tau(human, 'greedy')} greedy"
    yield PROBE_PAGE, f"On the demo's text it is {_tau(demo, 'sampled')} sampled and {_tau(demo, 'greedy')} greedy"
    copied = {name: max(row["copied"], row["copied in samples"]) for name, row in demo["judges"].items()}
    yield PROBE_PAGE, f"{100 * copied['embedding_std']:.0f} % of greedy translations became copies"
    tokens = {name: f"{row['tokens']:.0f}" for name, row in human["judges"].items()}
    longer = ", ".join(tokens[name] for name in ("consensus", "ranker_none", "ranker_group"))
    yield PROBE_PAGE, f"({longer} tokens; SFT {human['sft']['sampled']['length_mean']:.0f})"


def _tau(seed: Mapping[str, Any], way: str) -> str:
    return f"{seed['tau_b'][f'{way} chrF']:.2f}"


def _named(learned: Mapping[str, Any], name: str, decoding: str = "") -> str:
    gain = gain_of(learned, decoding)
    return f"{gain['mean']:+.2f} {name} ({gain['low']:+.2f} to {gain['high']:+.2f})"


def _attacked() -> Iterator[str]:
    record = result("attacked_judge")
    escaped, shown = (f"{100 * record[kind]['wins']:.0f}" for kind in ("escaped", "as it is"))
    yield f"in {escaped} % with one, as in {shown} % without escaping"
    yield f"{len(record['attacks']) - 1} attacks in the worst candidate"
    yield f"highest score in {100 * record['without attack']:.0f} % of groups without an attack"
    changes = (record["escaped"], record["attacks"]["harmless words"]["escaped"])
    moved, harmless = (f"{change['others_change']:.1f}" for change in changes)
    yield f"Scores of the others move by {moved} of 10, with harmless words by {harmless}"


def _difference(policy: str, decoding: str = "") -> dict[str, float]:
    return gain_of(result("demo")["learned"][policy], decoding)


def _in_short() -> Iterator[str]:
    learned, ranking = result("demo")["learned"], result("demo")["ranking"]
    ranker, metric, consensus = (learned[policy] for policy in ("grpo_ranker", "grpo", "grpo_consensus"))
    greedy = _difference("grpo_ranker", "greedy_")
    yield f"improves sampled chrF by {ranker['gain']:+.2f}"
    yield f"standard deviation over seeds ({ranker['sd']:.2f})"
    yield f"greedy chrF by {greedy['mean']:+.2f} ({greedy['low']:+.2f} to {greedy['high']:+.2f})"
    yield f"{_share()} of the gain with chrF against the reference as the reward ({metric['gain']:+.2f}; greedy"
    yield f"greedy {metric['greedy_gain']:+.2f})"
    yield f"improves sampled chrF by {consensus['gain']:+.2f} but lowers greedy chrF by {-consensus['greedy_gain']:.2f}"
    yield f"The ranker's sampled gain is {_share()} of the metric's"
    words = {
        "ranker_none": "{} for the ranker that scores each candidate independently",
        "ranker_group": "{} for the one that compares candidates",
        "consensus": "{} for consensus",
    }
    for judge, text in words.items():
        values = ranking[judge]["heldout"]["correlation"]["values"]
        low, high = f"{min(values):.2f}", f"{max(values):.2f}"
        yield text.format(low if low == high else f"{low} to {high}")


def _printed() -> Iterator[str]:
    demo = result("demo")
    for policy, title in POLICIES.items():
        scores = [spread(demo[key][policy], 1) for key in ("chrf", "chrf_greedy")]
        exact = spread(demo["exact_match_greedy"][policy], 1, 100)
        yield f"│ {title} │ {scores[0]} │ {scores[1]} │ {exact} % │"
    for judge, title in JUDGES.items():
        scores = demo["ranking"][judge]["heldout"]
        pairs, correlation = (spread(scores[key], 3) for key in ("accuracy", "correlation"))
        yield f"{title}: {pairs} of the pairs in order, correlation within a group {correlation}"
    for policy, scores in demo["learned"].items():
        gain, greedy = (interval(_difference(policy, decoding), "+.2f") for decoding in ("", "greedy_"))
        side = "not below" if scores["greedy_not_below"] else "BELOW"
        more = f"more than twice the standard deviation over seeds, {scores['sd']:.2f}"
        assert scores["above_spread"]
        yield f"{POLICIES[policy]}: sampled chrF {gain} against SFT, {more}; greedy {greedy}, {side} SFT"


def _memory_and_joining() -> Iterator[Statement]:
    shared = [row for row in result("joining")["rows"] if row["service"] == "shared"]
    two, many = ([row[key] for row in shared] for key in ("two_relative_to_turns", "many_relative_to_alone"))
    words = f"two groups beside 64 take {100 * two[0]:.0f} % of their time with sequential requests"
    yield "docs/server.md", f"{words}, the 64 take {100 * (many[0] - 1):.0f} % longer"
    alone, tensor, sequence = result("tensor_memory")["rows"]
    yield (
        "docs/train.md",
        f"{alone['growth_mib']:,} MiB in one process, {tensor['growth_mib']:,} on each of two tensor ranks "
        f"({tensor['of_one_process']:.2f} of that), {sequence['growth_mib']:,} with sequence parallelism "
        f"({sequence['of_one_process']:.2f}). Up to the end of the backward pass: "
        f"{alone['growth_before_optimizer_mib']:,}, {tensor['growth_before_optimizer_mib']:,} and "
        f"{sequence['growth_before_optimizer_mib']:,}",
    )
