"""Translation prompts of the preference pipeline (EAX): templates with `{}` for the source text.

Languages are named by the ten of TOWER_LANGS; any other string stands in the prompt as it is, a code as well. Unlike
the `Tower` prompt, these hold a source of several lines as it is.
"""

from __future__ import annotations

import re

from grrm.gqm.languages import LANG_NAMES, TOWER_LANGS

HOLE = "{}"
_LETTER = re.compile(r"\b[ST]\b")
# What stands in the place of S and T below are the names of the languages.
_DIVERSE = (
    "Translate the below text from S to T.\nSource: {}\nTarget:",
    "Source: {}\nYour task is to translate the following text from S into T.\nTarget:",
    "Please provide a translation from S to T for the following text:\n{}\nTarget:",
    "Source: {}\nTranslate the source text from S to T.\nTarget:",
    "Please translate the following text:\nS Source: {}\nT Target:",
    "Source: {}\nTranslate from S to T.\nTarget:",
    "Please translate this text from S into T.\nSource: {}\nTarget:",
    "Translate this S text into T:\nSource: {}\nTranslation:",
    "S Source: {}\nT Translation:",
    "Translate the following text from S to T:\nText: {}\nAnswer:",
    "Translate the following S source text to T:\nS: {}\nT:",
    "Source: {}\nCan you translate the given text from S into T?\nTarget:",
    "Translate the text below from S to T:\n{}\nTarget Translation:",
    "Write a translation of the given text from S to T.\nS: {}\nT:",
    "Source: {}\nGiven the text in S, translate it into T.\nTarget:",
    "Write the text in S in T.\nSource: {}\nTarget:",
    "From S to T, translate the text:\nSource: {}\nTarget:",
    "Source: {}\nProvide a translation of the given text from S to T.\nTarget:",
    "Make a translation of the given text from S to T.\nS: {}\nT:",
    "S: {}\nT:",
)


def pair_language_name(lang: str) -> str:
    """The name of one of the ten languages from its code; any other string as it is."""
    return LANG_NAMES[lang] if lang in TOWER_LANGS else lang


def pair_template(src_lang: str, trg_lang: str) -> str:
    """The template that a policy is sampled with, and that pairs are trained on by default."""
    return _named("Translate the following text from S into T:\nS: {}\nT:", src_lang, trg_lang)


def diverse_templates(src_lang: str, trg_lang: str) -> tuple[str, ...]:
    """Twenty wordings of the request, of which one is drawn per pair."""
    return tuple(_named(template, src_lang, trg_lang) for template in _DIVERSE)


def anchored_template(src_lang: str, trg_lang: str, ref_lang: str) -> str:
    """The template of a translation with another language's version beside the source (EAxT).

    Its first `{}` is for the source, its second for that version.
    """
    src, trg, ref = map(pair_language_name, (src_lang, trg_lang, ref_lang))
    return (
        f"Given a {src} text and its {ref} version as a reference, translate the source text into {trg}.\n"
        f"{src} Source: {{}}\n{ref} Reference: {{}}\n{trg} Translation:"
    )


def fill(template: str, *texts: str) -> str:
    """The template with a text in the place of each `{}`, braces in the texts left alone.

    Raises ValueError for another number of texts than places.
    """
    pieces = template.split(HOLE)
    if len(pieces) != len(texts) + 1:
        raise ValueError(f"{len(texts)} texts for {len(pieces) - 1} places in {template!r}")
    return pieces[0] + "".join(text + piece for text, piece in zip(texts, pieces[1:], strict=True))


def _named(template: str, src_lang: str, trg_lang: str) -> str:
    src, trg = pair_language_name(src_lang), pair_language_name(trg_lang)
    words = {"S": src, "T": trg}
    return _LETTER.sub(lambda letter: words[letter[0]], template)
