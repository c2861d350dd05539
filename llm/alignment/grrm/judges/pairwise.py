"""The pairwise judge: which of two translations is better, in one letter, whose log-odds add up to scores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from grrm.gqm.context import pair_prompt
from grrm.gqm.groups import Group, Status, Verdict
from grrm.judges.dedup import DistinctCandidates, Outcome, dedup_texts, expand_to_duplicates, ranking_of
from grrm.judges.generation import GeneratorJudge, GeneratorSettings, JudgeSampling, Question, Reply, ask
from grrm.judges.generative import GenerativeOptions
from grrm.judges.interface import Judge, TextGenerator
from grrm.judges.score_reading import TOP_LOGPROBS
from grrm.judges.spec import judge

Pair = tuple[int, int]  # indexes of distinct translations: A and B of a prompt
Odds = Mapping[Pair, float | Status]  # the log-odds that A is better, or why they are not known
SAMPLING = JudgeSampling(max_new_tokens=1, retries=0, top_logprobs=TOP_LOGPROBS)


@judge("pairwise", help="generative judge of two translations", needs="generator", compares_pairs=True)
class PairwiseOptions(GenerativeOptions):
    """Options of the pairwise judge.

    Its replies are one token, whose probabilities are read, so that `mode`, `max_new_tokens` and those of retries make
    no difference.
    """

    def sampling(self) -> JudgeSampling:
        return replace(super().sampling(), max_new_tokens=1, retries=0, top_logprobs=TOP_LOGPROBS)

    def over(self, generator: TextGenerator, settings: GeneratorSettings) -> Judge:
        return PairwiseJudge(generator, **settings)


@dataclass
class PairwiseJudge(GeneratorJudge):
    """Asks a generative judge behind `generator` about every two distinct translations, in both orders.

    With l_ij half the difference of the log-odds of `A` over `B` with i shown as A and with j shown as A, which cancels
    a preference for a position, and n candidates, the strength of i is s_i = sum_j l_ij / n.

    That is the least-squares fit of s_i - s_j to l_ij, the log-odds of Bradley and Terry (1952). Its score is 10 / (1 +
    exp(-s_i)), so an average candidate has 5. A group of n costs n (n - 1) prompts and as many tokens.

    A letter that is not among the most probable tokens counts as the least of these. If pairs have a prompt longer than
    `prompt_length`, no answer or neither letter, candidates with most such pairs are left out until none remains, with
    the status of the first.
    """

    sampling: JudgeSampling = SAMPLING
    name: str = "pairwise"

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept, from one batch of all groups' pairs."""
        plans = [dedup_texts(group, self.guard.is_safe) for group in groups]
        prompts = [
            dict(self._prompts(group, plan.texts)) if self.guard.is_safe(group.task.source) else {}
            for group, plan in zip(groups, plans, strict=True)
        ]
        fitting = [(g, pair) for g, of_group in enumerate(prompts) for pair, prompt in of_group.items() if prompt]
        questions = [Question(prompts[g][pair] or "", prompts[g][pair] or "", str, True) for g, pair in fitting]
        replies = dict(zip(fitting, ask(self.generator, questions, self.sampling, self.metrics), strict=True))
        return [
            self._verdict(group, plan, {pair: replies.get((g, pair)) for pair in prompts[g]})
            for g, (group, plan) in enumerate(zip(groups, plans, strict=True))
        ]

    def _prompts(self, group: Group, texts: Sequence[str]) -> Iterator[tuple[Pair, str | None]]:
        """Each pair's prompt, None where it is too long."""
        task = group.task
        source, *shown = [self.guard.escape(text) for text in (task.source, *texts)]
        sizes = [self.size(text) for text in shown]
        for first, second in permutations(range(len(texts)), 2):
            if not self.may_fit((sizes[first], sizes[second])):
                yield (first, second), None
                continue
            prompt = self.render(pair_prompt(source, (shown[first], shown[second]), task.src_lang, task.trg_lang))
            yield (first, second), prompt if self.fits(prompt) else None

    def _verdict(self, group: Group, plan: DistinctCandidates, replies: Mapping[Pair, Reply[str] | None]) -> Verdict:
        if not replies:
            reason = Status.SINGLE_CANDIDATE if len(plan.texts) < 2 else Status.UNSAFE_SOURCE
            return expand_to_duplicates(group, plan, [reason] * len(plan.texts))
        odds = {pair: _log_odds(reply) for pair, reply in replies.items()}
        outcomes = scores_of(odds, len(plan.texts))
        answered = [reply for reply in replies.values() if reply is not None]
        names = [group.candidates[members[0]].candidate_id for members in plan.members]
        valid = {pair: odd for pair, odd in odds.items() if not isinstance(odd, Status)}
        return expand_to_duplicates(
            group,
            plan,
            outcomes,
            tiers=ranking_of(outcomes),
            analysis="\n".join(
                f"{names[first]} over {names[second]}: {odd:+.3f}" for (first, second), odd in valid.items()
            ),
            attempts=sum(reply.attempts for reply in answered),
            tokens=sum(reply.tokens for reply in answered),
        )


def _log_odds(reply: Reply[str] | None) -> float | Status:
    """log p(A) - log p(B) of the reply's first token."""
    if reply is None:
        return Status.TOO_LONG
    if isinstance(reply.parsed, Status):
        return reply.parsed
    choices = [choice for choice in (reply.choices[0].choices if reply.choices else ()) if choice[1] > -math.inf]
    of_a, of_b = (_logprob(choices, letter) for letter in "AB")
    if of_a is None and of_b is None:
        return Status.JUDGE_UNPARSABLE
    least = min(logprob for _, logprob in choices)
    return (least if of_a is None else of_a) - (least if of_b is None else of_b)


def _logprob(choices: Sequence[tuple[str, float]], letter: str) -> float | None:
    """The log-probability of a letter, with and without its space; None where it is not among the choices.

    Summed relative to the largest one: servers write -9999 for an excluded token, whose probability is 0 in float64.
    """
    logprobs = [logprob for piece, logprob in choices if piece.strip() == letter]
    largest = max(logprobs, default=None)
    if largest is None:
        return None
    return largest + math.log(math.fsum(math.exp(logprob - largest) for logprob in logprobs))


def scores_of(odds: Odds, n_candidates: int) -> list[Outcome]:
    """The score of each candidate from all ordered pairs, or the status of one that is left out."""
    remaining = set(range(n_candidates))
    outcomes: dict[int, Outcome] = {}
    while failed := [
        (pair, odd) for pair, odd in odds.items() if remaining.issuperset(pair) and isinstance(odd, Status)
    ]:
        counts = Counter(index for pair, _ in failed for index in pair)
        worst = max(sorted(counts), key=lambda index: counts[index])
        outcomes[worst] = next(status for pair, status in failed if worst in pair)
        remaining.remove(worst)
    if len(remaining) == 1:
        outcomes[remaining.pop()] = next(odd for odd in odds.values() if isinstance(odd, Status))
    valid = {pair: odd for pair, odd in odds.items() if not isinstance(odd, Status)}
    for index in remaining:
        gains = (valid[index, other] - valid[other, index] for other in remaining if other != index)
        strength = math.fsum(gains) / (2 * len(remaining))
        of_other = math.exp(-abs(strength))  # exp(strength) of a strong one overflows
        outcomes[index] = 10 * (1.0 if strength >= 0 else of_other) / (1 + of_other)
    return [outcomes[index] for index in range(n_candidates)]
