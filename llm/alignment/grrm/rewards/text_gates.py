"""Gates on what a translation must contain: glossary terms, placeholders, a form of address; and on its length."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from grrm.errors import UserError, require_known
from grrm.gqm.groups import Status, TranslationTask
from grrm.gqm.languages import base_code, language_code
from grrm.gqm.terms import SUFFIX, missing_terms, terms_in

# A tag by its name, without attributes; entities; {0}, {{name}}, ${name}; %s, %1$d, %(name)s.
_PLACEHOLDER = re.compile(
    r"(?P<tag></?[A-Za-z][\w:.-]*)(?:\s[^<>]*)?(?P<closed>/?)>|&(?:[A-Za-z]+|#\d+);"
    r"|\$?\{\{?[^{}\s][^{}]*\}?\}|\{\}|(?<!\d)%(?:\d+\$|\(\w+\))?[-+#0]*\d*(?:\.\d+)?l{0,2}[sdufxXgc@]"
)
# Of the two forms of address, the words of the one that a text in the other does not have. A word with a capital counts
# with it only, and not where a sentence begins.
FORMALITY: Mapping[str, Mapping[str, str]] = {
    "de": {
        "formal": "du dich dir dein deine deinen deinem deiner deines euch euer eure euren eurem eurer",
        "informal": "Sie Ihnen Ihr Ihre Ihren Ihrem Ihrer Ihres",
    },
    "fr": {"formal": "tu te toi tes", "informal": "vous votre vos vôtre vôtres"},
    "es": {
        "formal": "tú ti tus contigo vosotros vosotras vuestro vuestra vuestros vuestras",
        "informal": "usted ustedes",
    },
    "it": {"formal": "tu ti te tuo tua tuoi tue", "informal": "Lei Suo Sua Suoi Sue"},
    "nl": {"formal": "je jij jou jouw jullie", "informal": "u uw"},
    "pt": {"formal": "tu te ti teu tua teus tuas contigo", "informal": "senhor senhora"},
    "ru": {
        "formal": "ты тебя тебе тобой твой твоя твоё твои твоего твоей твоих",
        "informal": "Вы Вас Вам Вами Ваш Ваша Ваше Ваши Вашего Вашей Ваших",
    },
}


def require_number(gate: Any, name: str, low: float, high: float = float("inf")) -> None:
    """Raise UserError unless the option `name` of a gate is a number from `low` to `high`."""
    value = getattr(gate, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        limits = f"at least {low:g}" if high == float("inf") else f"from {low:g} to {high:g}"
        raise UserError(f"Option {name!r} of a gate is {value!r}; give a number {limits}.")


@dataclass(frozen=True)
class TermsGate:
    """The translation has the glossary's terms: at least `share` of those of the task that occur in its source.

    Words are the same whatever their case, and up to endings of `suffix` letters (see `has_term`). Tasks without terms
    pass.
    """

    status: ClassVar[Status] = Status.MISSING_TERM
    share: float = 1.0
    suffix: int = SUFFIX

    def __post_init__(self) -> None:
        require_number(self, "share", 0, 1)
        require_number(self, "suffix", 0, 8)

    def passes(self, task: TranslationTask, text: str) -> bool:
        required = terms_in(task.source, task.terms, self.suffix)
        n_missing = len(missing_terms(required, text, self.suffix))
        return len(required) - n_missing >= self.share * len(required)


@dataclass(frozen=True)
class PlaceholdersGate:
    """The translation has the placeholders of its source, as many times, and no others; their order does not count.

    They are tags, whatever their attributes, entities, `{0}`, `{name}`, `${name}`, `%s`, `%1$d` and `%(name)s`.
    """

    status: ClassVar[Status] = Status.WRONG_PLACEHOLDERS

    def passes(self, task: TranslationTask, text: str) -> bool:
        return placeholders(text) == placeholders(task.source)


def placeholders(text: str) -> Counter[str]:
    """The placeholders of a text, tags without their attributes."""
    return Counter(
        f"{match['tag']}{match['closed']}>" if match["tag"] else match[0] for match in _PLACEHOLDER.finditer(text)
    )


@dataclass(frozen=True)
class LimitGate:
    """The translation has at most `characters` characters and `lines` lines; None for no limit.

    Raises UserError without any limit.
    """

    status: ClassVar[Status] = Status.OVER_LIMIT
    characters: int | None = None
    lines: int | None = None

    def __post_init__(self) -> None:
        limits = [name for name in ("characters", "lines") if getattr(self, name) is not None]
        if not limits:
            raise UserError("Gate 'limit' has no limit; give its option characters or lines.")
        for name in limits:
            require_number(self, name, 1)

    def passes(self, task: TranslationTask, text: str) -> bool:
        is_short = self.characters is None or len(text.strip()) <= self.characters
        return is_short and (self.lines is None or len(text.strip().splitlines()) <= self.lines)


@dataclass(frozen=True)
class FormalityGate:
    """The translation has none of the words of the other form of address than `level`, `formal` or `informal`.

    `words` are the words to refuse by language, in place of those of `FORMALITY`; languages in neither pass. A word
    with a capital is refused with the capital only, and not where a sentence begins; another one in any case.
    """

    status: ClassVar[Status] = Status.WRONG_FORMALITY
    level: str = "formal"
    words: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_known("level of formality", str(self.level), ("formal", "informal"))
        are_lists = isinstance(self.words, Mapping) and all(
            isinstance(own, list) and own and all(isinstance(word, str) and word.strip() for word in (name, *own))
            for name, own in self.words.items()
        )
        if not are_lists:
            raise UserError(
                f"Option 'words' of a gate is {self.words!r}; give a list of words for each language, 'no' in quotes."
            )

    def passes(self, task: TranslationTask, text: str) -> bool:
        language, base = language_code(task.trg_lang), base_code(task.trg_lang)
        chosen = {language_code(name): tuple(own) for name, own in self.words.items()}
        usual = tuple(FORMALITY.get(base, {}).get(self.level, "").split())
        words = chosen.get(language) or chosen.get(base) or usual
        return not words or _any_of(words).search(text) is None


@cache
def _any_of(words: tuple[str, ...]) -> re.Pattern[str]:
    capital = "|".join(re.escape(word) for word in words if word[0].isupper())
    other = "|".join(re.escape(word) for word in words if not word[0].isupper())
    parts = [rf"(?<=[^.!?:\s\"'»„“(¿¡-]\s)(?:{capital})"] * bool(capital) + [rf"(?i:{other})"] * bool(other)
    return re.compile(rf"(?<!\w)(?:{'|'.join(parts)})(?!\w)")
