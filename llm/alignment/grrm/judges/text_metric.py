"""A judge without a model: sentence-level chrF or BLEU against the task's reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

from grrm.errors import UserError, require_known
from grrm.gqm.groups import Group, Status, Verdict, tiers_of
from grrm.gqm.languages import base_code
from grrm.judges.dedup import dedup_texts, expand_to_duplicates
from grrm.judges.interface import Judge
from grrm.judges.spec import JudgeOptions, Process, judge

# Languages written without spaces between words (Korean: words carry particles). sacrebleu has a tokenizer of its own
# for Chinese; the ones for Japanese and Korean need packages of compiled dictionaries, and a score that depends on
# which packages are installed would not be comparable, so those are scored on characters.
BLEU_TOKENIZERS = {**dict.fromkeys(("zh", "yue"), "zh"), **dict.fromkeys(("ja", "ko", "th", "lo", "km", "my"), "char")}
DEFAULT_BLEU_TOKENIZER = "13a"

SentenceMetric = Callable[[str, str], float]  # (translation, reference) -> 0 to 100, higher is better


def bleu_tokenizer(trg_lang: str) -> str:
    """Sacrebleu's tokenizer for a target language, a code or a name; "13a" where words are written apart."""
    return BLEU_TOKENIZERS.get(base_code(trg_lang), DEFAULT_BLEU_TOKENIZER)


def _chrf(trg_lang: str, word_order: int = 0) -> SentenceMetric:
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF(word_order=word_order)
    return lambda translation, reference: float(metric.sentence_score(translation, [reference]).score)


def _bleu(trg_lang: str) -> SentenceMetric:
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(effective_order=True, tokenize=bleu_tokenizer(trg_lang))
    return lambda translation, reference: float(metric.sentence_score(translation, [reference]).score)


# Name -> what makes the metric for a target language, a code or a name; "" is a language that is not known.
METRICS: dict[str, Callable[[str], SentenceMetric]] = {
    "chrf": _chrf,
    "chrf++": partial(_chrf, word_order=2),
    "bleu": _bleu,
}


def sentence_metric(name: str, trg_lang: str) -> SentenceMetric:
    """The metric called `name` for a target language. Raises UserError on an unknown name or a missing package."""
    require_known("metric", name, METRICS)
    try:
        return METRICS[name](trg_lang)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise UserError(
            f"The {name} judge needs the package {package}; install it with `pip install 'paddle-grrm[metrics]'`."
        ) from error


@judge("text_metric", *METRICS, help="text metric against the reference", reference="needed")
class TextMetricOptions(JudgeOptions):
    """Options of a text metric; one that is a judge by its own name takes no other `metric`."""

    metric: str = "chrf"
    round_to_integer: bool = False

    def open(self, process: Process) -> Judge:
        """Open the judge. Raises UserError as `TextMetricJudge`."""
        if process.name not in METRICS:
            return TextMetricJudge(self.metric, self.round_to_integer)
        if "metric" in self.model_fields_set and self.metric != process.name:
            raise UserError(f"Judge {process.name!r} cannot take metric {self.metric!r}; leave out one of the two.")
        return TextMetricJudge(process.name, self.round_to_integer)


@dataclass
class TextMetricJudge:
    """Scores 0 to 10: the sentence metric (0 to 100) divided by 10, no text generated.

    `metric` is "chrf" (characters up to 6-grams, Popović 2015), "chrf++" (with word bigrams) or "bleu" (effective
    order, exponential smoothing, tokenizer by target language). `round_to_integer` gives whole scores like a
    generative judge. A task without reference, or with a blank one, leaves its candidates MISSING_REFERENCE. Raises
    UserError on an unknown metric or when sacrebleu is not installed.
    """

    metric: str = "chrf"
    round_to_integer: bool = False
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.metric
        # Of so many languages only: clients of a server may name any.
        self._metric_for = lru_cache(maxsize=64)(partial(sentence_metric, self.metric))
        self._metric_for("en")  # what is missing or unknown is reported when the judge is built, not at a request

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept; each distinct translation is scored once."""
        return [self._judge_group(group) for group in groups]

    def _judge_group(self, group: Group) -> Verdict:
        distinct = dedup_texts(group)
        reference = group.task.reference
        if reference is None or not reference.strip():
            return expand_to_duplicates(group, distinct, [Status.MISSING_REFERENCE] * len(distinct.texts))
        metric = self._metric_for(group.task.trg_lang)
        scores = [self._score(metric, text, reference) for text in distinct.texts]
        return expand_to_duplicates(group, distinct, scores, tiers=tiers_of(scores) or None)

    def _score(self, metric: SentenceMetric, translation: str, reference: str) -> float:
        # Rounding in the metric can exceed 100 by an ulp or two.
        score = min(10.0, metric(translation, reference) / 10)
        return float(round(score)) if self.round_to_integer else score
