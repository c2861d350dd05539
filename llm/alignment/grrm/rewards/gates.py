"""Gates: what a translation must pass before a judge is asked, against rewards that are won by not translating.

Each is a rule on the source and one translation, without a model or a reference; what fails one has the gate's status
and no score. Thresholds are generous: a gate is for what is wrong beyond doubt.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache
from typing import Any, ClassVar, Protocol

from grrm.errors import UserError, require_known
from grrm.gqm.groups import Status, TranslationTask
from grrm.gqm.languages import LANG_NAMES, base_code, language_code
from grrm.http_client.exchange import clean_text
from grrm.rewards.text_gates import FormalityGate, LimitGate, PlaceholdersGate, TermsGate, require_number


class Gate(Protocol):
    """A rule that a translation passes or fails."""

    status: ClassVar[Status]

    def passes(self, task: TranslationTask, text: str) -> bool:
        """True unless `text` is no translation of the task's source beyond doubt."""
        ...


@dataclass(frozen=True)
class LanguageGate:
    """The translation is in the target language, as far as it can be told (library lingua).

    It fails where another language is more probable by more than `margin`. Texts of fewer than `min_letters` letters,
    and target languages that lingua does not know, pass. Looked for are the languages of `LANG_NAMES` and the task's
    own. Raises UserError when lingua is not installed.
    """

    status: ClassVar[Status] = Status.WRONG_LANGUAGE
    margin: float = 0.5
    min_letters: int = 12

    def __post_init__(self) -> None:
        require_number(self, "margin", 0, 1)
        require_number(self, "min_letters", 0)
        _lingua()

    def passes(self, task: TranslationTask, text: str) -> bool:
        target, source = _lingua_name(task.trg_lang), _lingua_name(task.src_lang)
        if target is None or _n_letters(text) < self.min_letters:
            return True
        detector = _detector(frozenset(name for name in (target, source) if name is not None))
        values = {x.language.name: x.value for x in detector.compute_language_confidence_values(clean_text(text))}
        return bool(max(values.values(), default=0.0) - values.get(target, 0.0) <= self.margin)


@dataclass(frozen=True)
class LengthGate:
    """The translation is about as long as its source: `low` to `high` times its width, give or take `slack`.

    Width counts characters, those of Chinese, Japanese and Korean twice.
    """

    status: ClassVar[Status] = Status.WRONG_LENGTH
    low: float = 0.3
    high: float = 3.0
    slack: int = 20

    def __post_init__(self) -> None:
        require_number(self, "low", 0)
        require_number(self, "high", self.low)
        require_number(self, "slack", 0)

    def passes(self, task: TranslationTask, text: str) -> bool:
        width, of_source = _width(text), _width(task.source)
        return self.low * of_source - self.slack <= width <= self.high * of_source + self.slack


@dataclass(frozen=True)
class CopyGate:
    """The translation is not its source: fewer than `share` of its runs of five letters or digits are the source's.

    Case, spaces and punctuation do not count. Texts of fewer than `min_letters` letters pass, which may be names, and
    so do tasks whose two languages are the same.
    """

    status: ClassVar[Status] = Status.SOURCE_COPY
    share: float = 0.8
    min_letters: int = 12

    def __post_init__(self) -> None:
        require_number(self, "share", 0, 1)
        require_number(self, "min_letters", 0)

    def passes(self, task: TranslationTask, text: str) -> bool:
        if language_code(task.src_lang) == language_code(task.trg_lang) or _n_letters(text) < self.min_letters:
            return True
        runs = _runs(_squeezed(text), 5)
        of_source = set(_runs(_squeezed(task.source), 5))
        return sum(run in of_source for run in runs) < self.share * len(runs)


@dataclass(frozen=True)
class RepetitionGate:
    """The translation does not repeat itself: of its runs of eight characters at most `share` more are repeated ones
    than of its source's, each run after its first occurrence counting as one. Shorter than `min_runs` runs it passes.
    """

    status: ClassVar[Status] = Status.REPETITION
    share: float = 0.4
    min_runs: int = 24

    def __post_init__(self) -> None:
        require_number(self, "share", 0, 1)
        require_number(self, "min_runs", 1)

    def passes(self, task: TranslationTask, text: str) -> bool:
        runs = _runs(text, 8)
        return len(runs) < self.min_runs or _repeated(runs) - _repeated(_runs(task.source, 8)) <= self.share


GATES: Mapping[str, type[Any]] = {
    "language": LanguageGate,
    "length": LengthGate,
    "copy": CopyGate,
    "repetition": RepetitionGate,
    "terms": TermsGate,
    "placeholders": PlaceholdersGate,
    "limit": LimitGate,
    "formality": FormalityGate,
}


@dataclass(frozen=True)
class Gates:
    """Several gates, in order."""

    gates: tuple[Gate, ...] = field(default=())

    def fault(self, task: TranslationTask, text: str) -> Status | None:
        """The status of the first gate that `text` fails; None where it passes all, or answers a question."""
        if not task.is_translation:
            return None
        return next((gate.status for gate in self.gates if not gate.passes(task, text)), None)


def read_gates(values: Mapping[str, Any]) -> Gates:
    """Gates by name with their options, a mapping or nothing: `{"language": None, "length": {"high": 4}}`.

    Raises UserError for a name or an option that does not exist, a value that is wrong, and a library that is missing.
    """
    gates = []
    for name, options in values.items():
        require_known("gate", name, GATES)
        if not isinstance(options, Mapping | None):
            raise UserError(f"Gate {name!r} has the options {options!r}; give a mapping of options, or nothing.")
        for option in options or {}:
            require_known(f"option of gate {name!r}", option, [entry.name for entry in fields(GATES[name])])
        gates.append(GATES[name](**(options or {})))
    return Gates(tuple(gates))


def _n_letters(text: str) -> int:
    return sum(map(str.isalpha, text))


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text.strip())


def _squeezed(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _runs(text: str, length: int) -> list[str]:
    return [text[i : i + length] for i in range(max(len(text) - length + 1, 0))]


def _repeated(runs: list[str]) -> float:
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def _lingua() -> Any:
    try:
        import lingua
    except ModuleNotFoundError as error:
        raise UserError(
            "The gate 'language' needs the package lingua; install it with `pip install 'paddle-grrm[gates]'`."
        ) from error
    return lingua


@lru_cache(maxsize=4096)
def _lingua_name(lang: str) -> str | None:
    """Lingua's name of a language, given as a code or a name; None where it has none."""
    codes = {language.name: language.iso_code_639_1.name.lower() for language in _lingua().Language.all()}
    code = base_code(lang)
    return next((name for name, other in codes.items() if code.lower() in (other, name.lower())), None)


@cache
def _detector(names: frozenset[str]) -> Any:
    lingua = _lingua()
    usual = {name for code in LANG_NAMES if (name := _lingua_name(code)) is not None}
    if names <= usual and names:
        return _detector(frozenset())
    languages = [getattr(lingua.Language, name) for name in sorted(usual | names)]
    return lingua.LanguageDetectorBuilder.from_languages(*languages).build()
