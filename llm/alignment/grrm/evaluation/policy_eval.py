"""Quality of a policy's translations of held-out text: sampled at temperature 1, which RL optimises, and greedy.

`chrf` is the corpus chrF of sacrebleu (signature kept beside it); `chrf_sentence` is the mean over sentences, which is
what a per-sentence reward can raise, with a bootstrap interval over sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from grrm.evaluation.bootstrap import Interval, bootstrap_interval
from grrm.evaluation.text_metrics import (
    bleu_by_language,
    chrf_by_language,
    corpus_chrf,
    exact_match_rate,
    references_of,
    sentence_chrfs,
)
from grrm.gqm.groups import TranslationTask


class GeneratedTokens(Protocol):
    """Result of one generation; the engine's `Completion` is one."""

    @property
    def token_ids(self) -> list[int]:
        """Generated tokens, the stop token included when one was drawn."""
        ...

    @property
    def finish_reason(self) -> str:
        """ "stop" or "length"."""
        ...


class Generate(Protocol):
    """One completion per prompt, order kept; temperature 0 is greedy."""

    def __call__(
        self, prompts: Sequence[Sequence[int]], *, temperature: float, seed: int, stream_ids: Sequence[int]
    ) -> Sequence[GeneratedTokens]:
        """`(seed, stream_ids[i])` makes completion i reproducible whatever else is in the batch."""
        ...


@dataclass(frozen=True, slots=True)
class PolicyCodec:
    """Conversion of text to a prompt and of a completion to a translation (None if nothing can be extracted)."""

    build_prompt: Callable[[TranslationTask], str]
    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]
    extract: Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class DecodingScores:
    """Scores of one way of decoding; all chrF and BLEU from 0 to 100, all rates from 0 to 1.

    With several samples per row `chrf`, `bleu` and the rates are means over the sample indices (each a full pass over
    the rows), and `chrf_sentence` first averages a row's samples, so that its interval is over rows.
    """

    chrf: float
    chrf_sentence: Interval
    chrf_by_language: dict[str, float]  # by target language, as BLEU
    bleu: dict[str, float]
    exact_match: float
    length_mean: float  # tokens of a completion, the stop token included
    unparsable: float
    copied: float  # translations that are the source as it is
    truncated: float
    n_samples: int


@dataclass(frozen=True, slots=True)
class RowExample:
    """One row's outputs, for people to read: responses as generated, translations as extracted."""

    task: TranslationTask
    greedy: str | None
    sampled: tuple[str | None, ...]
    greedy_response: str


@dataclass(frozen=True, slots=True)
class PolicyScores:
    """A policy's scores on `n_rows` rows, the metrics' signatures, and every row's outputs."""

    sampled: DecodingScores
    greedy: DecodingScores
    n_rows: int
    signatures: dict[str, str]
    examples: tuple[RowExample, ...]


@dataclass(frozen=True, slots=True)
class _Pass:
    """One completion per row."""

    responses: list[str]
    translations: list[str | None]
    lengths: list[int]
    truncated: list[bool]


def evaluate(
    generate: Generate,
    codec: PolicyCodec,
    tasks: Sequence[TranslationTask],
    *,
    n_samples: int = 2,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> PolicyScores:
    """Score a policy on `tasks`: one greedy pass and `n_samples` passes at temperature 1.

    Sample k of row i draws from stream `k * len(tasks) + i` of `seed`. `progress(done, total)` is called after each
    pass. Raises ValueError on no rows, no samples, or a row without a reference.
    """
    if not tasks or n_samples < 1:
        raise ValueError(f"need at least one row and one sample, got {len(tasks)} and {n_samples}")
    references = references_of(tasks)
    prompts = [codec.encode(codec.build_prompt(task)) for task in tasks]
    passes: list[_Pass] = []
    for index in range(n_samples + 1):
        # Greedy goes first and draws nothing, so its streams may coincide with those of sample 0.
        streams = range(max(index - 1, 0) * len(tasks), (max(index - 1, 0) + 1) * len(tasks))
        generated = generate(prompts, temperature=float(index > 0), seed=seed, stream_ids=streams)
        passes.append(_read(generated, codec))
        if progress:
            progress(index + 1, n_samples + 1)
    greedy, sampled = passes[0], passes[1:]
    return PolicyScores(
        sampled=_scores(sampled, tasks, references),
        greedy=_scores([greedy], tasks, references),
        n_rows=len(tasks),
        signatures=_signatures(greedy, tasks, references),
        examples=tuple(
            RowExample(task, greedy.translations[i], tuple(p.translations[i] for p in sampled), greedy.responses[i])
            for i, task in enumerate(tasks)
        ),
    )


def _read(generated: Sequence[GeneratedTokens], codec: PolicyCodec) -> _Pass:
    responses = [codec.decode(completion.token_ids) for completion in generated]
    return _Pass(
        responses,
        [codec.extract(response) for response in responses],
        [len(completion.token_ids) for completion in generated],
        [completion.finish_reason == "length" for completion in generated],
    )


def _scores(passes: Sequence[_Pass], tasks: Sequence[TranslationTask], references: Sequence[str]) -> DecodingScores:
    chrfs = [sentence_chrfs(p.translations, references) for p in passes]
    bleus = [bleu_by_language(p.translations, tasks, references) for p in passes]
    by_language = [chrf_by_language(p.translations, tasks, references) for p in passes]
    copies = [exact_match_rate(p.translations, [task.source for task in tasks]) for p in passes]
    return DecodingScores(
        chrf=_mean([corpus_chrf(p.translations, references).score for p in passes]),
        chrf_sentence=bootstrap_interval([_mean(row) for row in zip(*chrfs, strict=True)]),
        chrf_by_language={code: _mean([chrf[code].score for chrf in by_language]) for code in by_language[0]},
        bleu={language: _mean([bleu[language].score for bleu in bleus]) for language in bleus[0]},
        exact_match=_mean([exact_match_rate(p.translations, references) for p in passes]),
        length_mean=_mean([length for p in passes for length in p.lengths]),
        unparsable=_mean([text is None for p in passes for text in p.translations]),
        copied=_mean(copies),
        truncated=_mean([flag for p in passes for flag in p.truncated]),
        n_samples=len(passes),
    )


def _signatures(first_pass: _Pass, tasks: Sequence[TranslationTask], references: Sequence[str]) -> dict[str, str]:
    bleu = bleu_by_language(first_pass.translations, tasks, references)
    chrf = {"chrf": corpus_chrf(first_pass.translations, references).signature}
    return chrf | {f"bleu_{language}": score.signature for language, score in bleu.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
