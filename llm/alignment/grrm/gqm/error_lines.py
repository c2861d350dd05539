"""The protocol of a judge that marks errors: a translation in, a line for each of its errors out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from grrm.gqm.context import context_texts
from grrm.gqm.fences import fence_for
from grrm.gqm.grammar import MAX_SCORE, Mode, Rejection, RejectReason, behind_thoughts
from grrm.gqm.groups import TranslationTask
from grrm.gqm.languages import display_name
from grrm.gqm.prompts import context_block, fenced
from grrm.gqm.spans import MQM_WEIGHTS, SEVERITIES, ErrorSpan, Spans, spans_sorted

WORST = 25.0  # points of errors of a translation that scores 0 (Freitag et al. 2021)
_SEVERITY = rf"({'|'.join(SEVERITIES)})\b"
_BEGINNING = rf"[\s*\-•\d.)]*{_SEVERITY}"
_TIED = r"(?:\s+errors?)?(?:\s*\([^()]*\))?[\s*]*[:：\-–—][\s*]*"
_LINE = re.compile(rf"{_BEGINNING}{_TIED}(.*)", re.IGNORECASE)
_ANOTHER = re.compile(rf"\b{_SEVERITY}{_TIED}[\"“„«'‘「『]", re.IGNORECASE)  # error on the same line
_LIKE_A_LINE = re.compile(rf"{_BEGINNING}.*[\"“”„«»「」『』]", re.IGNORECASE)
_UP_TO_LAST, _UP_TO_FIRST = (re.compile(f"[\"“”„«»'‘’「『]({words})[\"“”„«»'‘’」』]") for words in (".+", ".+?"))
_DETECTED = r"(?:\s+(?:were\s+|was\s+)?(?:found|detected|identified))?[\s.!*。]*"
_NO_ERRORS = rf"no(?:\s+(?:{'|'.join(SEVERITIES)}))?[ -](?:errors?|issues?)"
_NOTHING = re.compile(rf"(?:none|nothing|no|n/a|[-–—]+|{_NO_ERRORS}|0(?: errors?)?){_DETECTED}", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?: errors?)?[\s.*。]*", re.IGNORECASE)  # of errors, which does not say where they are
_NONE = re.compile(rf"[\s*\-•]*no[ -]errors?{_DETECTED}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MarkedErrors:
    """The score of a translation and the places of its errors, by a reply."""

    score: float
    spans: Spans


def error_prompt(shown: TranslationTask, text: str) -> str:
    """The user turn that asks for the errors of one translation; its texts are escaped already.

    Raises UserError for an unknown language code.
    """
    context = shown.context or ()
    fence = fence_for([shown.source, text, *context_texts(context)])
    return (
        f"Mark the errors in a translation from {display_name(shown.src_lang)} into {display_name(shown.trg_lang)}: "
        "what is wrong, added, left untranslated, or no good language.\n"
        f"{context_block(context, fence)}Source text:\n{fenced(shown.source, fence)}\n"
        f"Translation text:\n{fenced(text, fence)}\n"
        "Answer with one line for each error: critical, major or minor, a colon, and in quotes the words of the "
        'translation that are wrong, or "" where something is missing. Answer No errors. if there are none.'
    )


def parse_errors(reply: str, translation: str, mode: Mode = "tolerant") -> MarkedErrors | Rejection:
    """Score and error spans of a translation from a reply about it. Never raises because of `reply`.

    The score is ``10 max(0, 1 - points / 25)``; minor errors have 1 point, major 5, critical 10 (MQM's weights).

    Each error marks the first occurrence of its words that no earlier one of the same words has. Words that are not in
    the translation, or none, lower the score and mark nothing.

    Both an error and the line that there are none, or neither, is no verdict. Nor is a severity with nothing or a
    number behind it, or with quoted words that it is not tied to, nor are two errors on a line. Thoughts up to
    `</think>` do not count.

    `exact` rejects other lines, too, which `tolerant` passes over, such as `critical: none` where there are errors.
    """
    errors: list[tuple[str, str]] = []
    says_none = has_severity_without = False
    for line in filter(None, map(str.strip, behind_thoughts(reply).splitlines())):
        error = _LINE.fullmatch(line)
        is_without = error is not None and _NOTHING.fullmatch(error[2]) is not None
        if _NONE.fullmatch(line):
            says_none = True
        elif is_without and mode != "exact":
            has_severity_without = True
        elif error and error[2] and not (is_without or _NUMBER.fullmatch(error[2]) or _ANOTHER.search(error[2])):
            errors.append((error[1].lower(), _words(error[2], translation)))
        elif mode == "exact" or error or _LIKE_A_LINE.match(line):
            return Rejection(RejectReason.MALFORMED_ERRORS, line[-80:])
    says_none |= has_severity_without and not errors
    if says_none == bool(errors):  # neither, or both
        return Rejection(RejectReason.MALFORMED_ERRORS if reply.strip() else RejectReason.EMPTY, reply.strip()[-80:])
    points = sum(MQM_WEIGHTS[severity] for severity, _ in errors)
    return MarkedErrors(MAX_SCORE * max(0.0, 1 - points / WORST), _located(errors, translation))


def _words(text: str, translation: str) -> str:
    """The quoted words of an error, "" for words that are not in the translation: more quotes may follow them."""
    for quoted in filter(None, (_UP_TO_LAST.search(text), _UP_TO_FIRST.search(text))):
        if quoted[1].strip() in translation:
            return quoted[1].strip()
    return ""


def _located(errors: list[tuple[str, str]], translation: str) -> Spans:
    """The spans of the words of each error."""
    spans, behind = list[ErrorSpan](), dict[str, int]()
    for severity, words in errors:
        start = translation.find(words, behind.get(words, 0)) if words else -1
        if start >= 0:
            behind[words] = start + len(words)
            spans.append(ErrorSpan(start, start + len(words), severity))
    return spans_sorted(spans)
