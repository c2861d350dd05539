"""Held-out translations of a policy in training, in numbers: the judge's reward and, beside it, what is no judge's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from grrm.evaluation.text_metrics import bleu_by_language, corpus_chrf, duplicate_share, references_of
from grrm.gqm.groups import TranslationTask

MIN_COMPARED, MOST = 10, 0.9
GREEDY = "_greedy"  # ends the names of what greedy translations get; samples' have no ending


@dataclass(frozen=True, slots=True)
class TranslatedPrompt:
    """A held-out prompt with its translations, of which the greedy one, if there is one, is the first.

    `rewards` are the judge's, None where it gave none; `lengths` are tokens of the `responses`, for the record.
    """

    task: TranslationTask
    translations: tuple[str | None, ...]
    rewards: tuple[float | None, ...]
    lengths: tuple[int, ...]
    responses: tuple[str, ...] = ()


def compares_only(prompts: Sequence[TranslatedPrompt]) -> bool:
    """Return whether a judge's rewards only compare the translations of a prompt with each other.

    Then the mean of a prompt's rewards is the same whatever the translations are, as with a reward model or a mixture
    that normalises, and no reward says whether a policy is better than an earlier one.

    It takes MIN_COMPARED prompts of different rewards to tell; as clips and penalties move some means, MOST of them
    have to agree. Where every prompt has the same rewards nothing can be said.
    """
    rewards = [tuple(reward for reward in prompt.rewards if reward is not None) for prompt in prompts]
    differing = [of_prompt for of_prompt in rewards if len(set(of_prompt)) > 1]
    if len(differing) < MIN_COMPARED or len(set(differing)) == 1:
        return False
    means = [*map(fmean, differing)]
    usual = median(means)
    return sum(math.isclose(mean, usual, abs_tol=1e-6) for mean in means) >= MOST * len(means)


def has_reference(task: TranslationTask) -> bool:
    """Return whether there is a translation to compare with; the label of another task has no language."""
    return bool(task.is_translation and task.reference and task.reference.strip())


def held_out_scores(prompts: Sequence[TranslatedPrompt], *, has_greedy: bool, has_references: bool) -> dict[str, float]:
    """Metrics by name, of samples and, if `has_greedy`, of greedy translations; all prompts have as many of each.

    `eval_reward` is the judge's mean reward, NaN without any, and `eval_frac_unrewarded` the share without one.
    `eval_frac_duplicate` is the share of samples that repeat the greedy translation or an earlier sample. Without
    samples these are of the greedy translations.

    If prompts have a reference (`has_references` is False for references that are no translations), `eval_chrf` is
    their corpus chrF, `eval_bleu` their corpus BLEU, as a mean over target languages, both 0 to 100 and means over
    passes, one translation of each prompt. Raises ValueError on no prompts.
    """
    if not prompts:
        raise ValueError("there are no held-out prompts to score")
    columns = range(len(prompts[0].translations))
    sampled = columns[1:] if has_greedy and len(columns) > 1 else columns
    scores = _scores(prompts, sampled, has_references)
    unrewarded = sum(prompt.rewards[column] is None for prompt in prompts for column in sampled)
    scores["eval_frac_unrewarded"] = unrewarded / (len(prompts) * len(sampled))
    if has_greedy:
        scores |= {f"{name}{GREEDY}": value for name, value in _scores(prompts, columns[:1], has_references).items()}
    repeated = duplicate_share([prompt.translations for prompt in prompts])
    return scores if repeated is None else {**scores, "eval_frac_duplicate": repeated}


def _scores(prompts: Sequence[TranslatedPrompt], columns: Sequence[int], has_references: bool) -> dict[str, float]:
    """Scores of one way of decoding: the translations in `columns`."""
    rewards = [prompt.rewards[column] for prompt in prompts for column in columns]
    scores = {
        "eval_reward": _mean([reward for reward in rewards if reward is not None]),
        "eval_response_length_mean": _mean([prompt.lengths[column] for prompt in prompts for column in columns]),
    }
    scored = [prompt for prompt in prompts if has_reference(prompt.task)] if has_references else []
    if scored:
        tasks = [prompt.task for prompt in scored]
        references = references_of(tasks)
        passes = [[prompt.translations[column] for prompt in scored] for column in columns]
        scores["eval_chrf"] = _mean([corpus_chrf(texts, references).score for texts in passes])
        bleus = [bleu_by_language(texts, tasks, references) for texts in passes]
        scores["eval_bleu"] = _mean([score.score for by_language in bleus for score in by_language.values()])
    return scores


def console_line(n_prompts: int, scores: Mapping[str, float]) -> str:
    """An evaluation in a line."""
    parts = []
    for title, name, digits in (("reward", "eval_reward", 3), ("chrF", "eval_chrf", 1), ("BLEU", "eval_bleu", 1)):
        if name in scores:
            greedy = scores.get(f"{name}{GREEDY}")
            notes = [] if greedy is None else [f"greedy {greedy:.{digits}f}"]
            unrewarded = scores.get("eval_frac_unrewarded", 0.0) if title == "reward" else 0.0
            notes += [f"{unrewarded:.0%} have none"] if unrewarded else []
            beside = f" ({', '.join(notes)})" if notes else ""
            parts.append(f"{title} {scores[name]:.{digits}f}{beside}")
    if "eval_frac_duplicate" in scores:
        parts.append(f"{scores['eval_frac_duplicate']:.0%} of samples identical")
    parts.append(f"{scores['eval_response_length_mean']:.1f} tokens")
    return f"{n_prompts} held-out prompts: {', '.join(parts)}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
