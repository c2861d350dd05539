"""Options of judges with a model, checked when they are read from a YAML file or a command line."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, get_args, get_origin, get_type_hints

from grrm.errors import UserError, require_known
from grrm.gqm.grammar import Mode
from grrm.gqm.languages import CANDIDATE_IDS
from grrm.gqm.mt_prompts import MTPromptType
from grrm.gqm.verification import VerifierPromptType
from grrm.judges.generation import JudgeSampling
from grrm.judges.score_reading import TOP_LOGPROBS, ScoreReading
from grrm.rewards.answers import RuleName
from grrm.rewards.verified import VerifierMix, VerifierSetup

MAX_PERMUTATIONS = 64
TRAINED_CANDIDATES = 8  # GRRM was trained on groups of two to eight and knows the names A to H only


@dataclass(frozen=True)
class GenerativeOptions:
    """Options of every generative judge; a wrong type or value raises UserError.

    `prompt_length` and `max_new_tokens` limit the judge's prompt and reply, in its tokens: a longer prompt gives the
    status TOO_LONG, a longer reply is resampled. `mode` is the grammar of replies. The first reply is sampled at
    `temperature`, up to `retries` more at `retry_temperature`.
    """

    prompt_length: int = 2048
    max_new_tokens: int = 8192
    mode: Mode = "tolerant"
    temperature: float = 0.0
    top_p: float = 1.0
    retries: int = 6
    retry_temperature: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, expected in get_type_hints(type(self)).items():
            object.__setattr__(self, name, _checked(name, getattr(self, name), expected))
        self._require_range("prompt_length", 1)
        self._require_range("max_new_tokens", 1)
        self._require_range("temperature", 0)
        self._require_range("retry_temperature", 0)
        self._require_range("retries", 0)
        self._require_range("top_p", 0, 1)
        if self.top_p == 0:
            raise UserError("Judge option 'top_p' is 0; give a number above 0, at most 1.")

    def sampling(self) -> JudgeSampling:
        """The sampling options."""
        return JudgeSampling(
            self.temperature, self.top_p, self.max_new_tokens, self.retries, self.retry_temperature, self.seed
        )

    def _require_range(self, name: str, low: float, high: float | None = None) -> None:
        value = getattr(self, name)
        if not low <= value <= (sys.float_info.max if high is None else high):
            limits = f"at least {low}" if high is None else f"from {low} to {high}"
            raise UserError(f"Judge option {name!r} is {value!r}; give a number {limits}.")


@dataclass(frozen=True)
class SQMOptions(GenerativeOptions):
    """Options of a judge that writes scores.

    `score_reading` "text" takes the score that the reply has, "expected" the mean of all scores by their probability
    in its place (see `expected_scores`), which needs an engine that gives log-probabilities.
    """

    score_reading: ScoreReading = "text"

    def sampling(self) -> JudgeSampling:
        """The sampling options."""
        is_text = self.score_reading == "text"
        return super().sampling() if is_text else replace(super().sampling(), top_logprobs=TOP_LOGPROBS)


@dataclass(frozen=True)
class PairwiseOptions(GenerativeOptions):
    """Options of the pairwise judge.

    Its replies are one token, whose probabilities are read, so that `mode`, `max_new_tokens` and those of retries make
    no difference.
    """

    def sampling(self) -> JudgeSampling:
        """The sampling options."""
        return replace(super().sampling(), max_new_tokens=1, retries=0, top_logprobs=TOP_LOGPROBS)


@dataclass(frozen=True)
class RubricOptions(GenerativeOptions):
    """Options of the rubric judge: as in RRM, unparsable replies are resampled up to three times."""

    max_new_tokens: int = 2048
    retries: int = 3
    retry_temperature: float = 0.3


@dataclass(frozen=True)
class VerifierOptions(RubricOptions):
    """Options of the verifier, by default those of the released TinyV-1.5B.

    `verifier_prompt` is the wording that the model was trained with, `think` is for models that reason first; these
    need a `max_new_tokens` of 512. `mode` "exact" and "tolerant" are the same.
    """

    max_new_tokens: int = 8
    verifier_prompt: VerifierPromptType = "tinyv"
    think: bool = False


@dataclass(frozen=True)
class RuleOptions:
    """Options of a rule beside a verifier or a rubric judge: the rule, and how both become one reward.

    `setup` and `verifier_weight` are those of `VerifierMix`. With `shows_solution` the model sees the whole solution
    and not the answer that the rule found.
    """

    rule: RuleName = "normalised"
    setup: VerifierSetup = "tinyv_only"
    verifier_weight: float = 1.0
    shows_solution: bool = False


@dataclass(frozen=True)
class RuleVerifierOptions(RuleOptions, VerifierOptions):
    """Options of a rule and a verifier as one judge."""

    def __post_init__(self) -> None:
        super().__post_init__()
        VerifierMix(self.setup, self.verifier_weight)


@dataclass(frozen=True)
class RuleRubricOptions(RuleOptions, RubricOptions):
    """Options of a rule and a rubric judge as one judge."""

    def __post_init__(self) -> None:
        super().__post_init__()
        VerifierMix(self.setup, self.verifier_weight)


@dataclass(frozen=True)
class GQMOptions(SQMOptions):
    """Options of the group judge.

    `shuffle` and `permutations` work against position bias (see `PermutingJudge`), `cache_size` is the number of
    verdicts remembered, 0 for none. Above `max_candidates` distinct translations, by default the eight that GRRM was
    trained with, a group is judged in chunks or gets a status (`too_many`: "chunk" or "refuse"); where the prompt is
    too long, the longest candidates are left out or the whole group gets the status (`too_long`: "drop_longest" or
    "refuse"). With `show_copies` a translation is shown as often as it was sampled, where all copies fit into
    `max_candidates` and the prompt: how often is evidence too.
    """

    prompt_type: Literal["ranking_score", "score", "ranking"] = "ranking_score"
    add_example: bool = False
    shuffle: bool = False
    permutations: int = 1
    cache_size: int = 0
    max_candidates: int = TRAINED_CANDIDATES
    too_many: Literal["chunk", "refuse"] = "chunk"
    too_long: Literal["drop_longest", "refuse"] = "drop_longest"
    show_copies: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.score_reading == "expected" and self.prompt_type == "ranking":
            raise UserError(
                "Judge option 'score_reading' is 'expected', but replies of prompt_type 'ranking' have no scores; "
                "give prompt_type 'score' or 'ranking_score'."
            )
        self._require_range("permutations", 1, MAX_PERMUTATIONS)
        self._require_range("cache_size", 0)
        self._require_range("max_candidates", 2, len(CANDIDATE_IDS))


@dataclass(frozen=True)
class RewardModelOptions:
    """Options of a judge that is a reward model; a wrong type or value raises UserError.

    `prompt_type` is the translation prompt that it was trained with, None for the one that its folder records, else
    Tower. `batch_tokens` is how many tokens of groups are batched together. Without `any_language_pair`, language pairs
    that it was not trained on get no score. `score_scale` multiplies differences from the group's mean before scores
    are clipped to 0 to 10.
    """

    prompt_type: MTPromptType | None = None
    batch_tokens: int = 8192
    any_language_pair: bool = False
    score_scale: float = 1.0

    def __post_init__(self) -> None:
        for name, expected in get_type_hints(type(self)).items():
            object.__setattr__(self, name, _checked(name, getattr(self, name), expected))
        if self.batch_tokens < 1:
            raise UserError(f"Judge option 'batch_tokens' is {self.batch_tokens}; give a number at least 1.")
        if not 0 < self.score_scale <= sys.float_info.max:
            raise UserError(f"Judge option 'score_scale' is {self.score_scale!r}; give a number above 0.")


@dataclass(frozen=True)
class LearnedMetricOptions:
    """Options of a learned metric; a wrong type or value raises UserError.

    `environment` is the folder of the environment that `grrm scorer install` made, "" for `.venv-NAME` here;
    `batch_size` is the number of texts per batch.
    """

    environment: str = ""
    batch_size: int = 16

    def __post_init__(self) -> None:
        for name, expected in get_type_hints(type(self)).items():
            _checked(name, getattr(self, name), expected)
        if self.batch_size < 1:
            raise UserError(f"Judge option 'batch_size' is {self.batch_size}; give a number at least 1.")


Options = TypeVar("Options", GenerativeOptions, SQMOptions, GQMOptions, RewardModelOptions, LearnedMetricOptions)


def read_options(kind: type[Options], values: Mapping[str, object]) -> Options:
    """`kind` from plain values by name. Raises UserError that names the nearest known option or the value wanted."""
    for name in values:
        require_known("judge option", name, [field.name for field in dataclasses.fields(kind)])
    return kind(**values)  # type: ignore[arg-type]


def _checked(name: str, value: object, expected: type) -> object:
    """`value` as the option's type: a whole number is also a float, true and false are no numbers."""
    if type(None) in get_args(expected):
        if value is None:
            return None
        (expected,) = (kind for kind in get_args(expected) if kind is not type(None))
    if get_origin(expected) is Literal:
        if value not in get_args(expected):
            raise UserError(f"Judge option {name!r} is {value!r}; give one of {', '.join(get_args(expected))}.")
        return value
    if expected is float and type(value) is int:
        return float(value)
    if type(value) is not expected:
        wanted = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[expected]
        raise UserError(f"Judge option {name!r} is {value!r}; give {wanted}.")
    return value
