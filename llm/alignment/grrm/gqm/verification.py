"""The verifier's protocol (TinyV): a question, its true answer and a model's answer in, `True` or `False` out.

The prompts are what the released verifiers were trained on, byte for byte.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Literal, get_args

from grrm.errors import require_known
from grrm.gqm.fences import skeleton
from grrm.gqm.grammar import Rejection, RejectReason

VerifierPromptType = Literal["tinyv", "tinyv-qwen3"]
VERIFIER_PROMPT_TYPES: tuple[str, ...] = get_args(VerifierPromptType)
_HEADS: Mapping[str, str] = {
    "tinyv": (
        "You are an AI tasked with identifying false negatives in answer verification. A false negative occurs when a "
        "model's answer is essentially correct but is marked as incorrect due to minor discrepancies or formatting "
        "issues. Your job is to analyze the given question, ground truth answer, and model answer to determine if the "
        "model's answer is actually correct despite appearing different from the ground truth."
    ),
    "tinyv-qwen3": (
        "You are an AI tasked with identifying if the model's answer is correct compared to the ground truth answer "
        "despite appearing different from the ground truth."
    ),
}
_TAG = re.compile(r"<[\s/]*(?:question|ground_truth_answer|model_answer)\b", re.IGNORECASE)
_WORD = re.compile(r"\w+(?:['’]t\b)?|[.,;:!?()\n]")
_CLAUSE_ENDS = frozenset((*".,;:!?()\n", "and", "but", "because", "hence", "so", "therefore", "thus"))
_HEDGES = frozenset(("barely", "far", "hardly", "neither", "no", "nowhere", "rarely", "scarcely", "seldom"))
_FILLERS = frozenset(("all", "as", "at", "be", "been", "to"))  # between a negation and what it negates


def verifier_prompt(question: str, truth: str, answer: str, prompt_type: str = "tinyv") -> str:
    """The user turn that asks whether the answer is right; texts go in once and as they are.

    Raises UserError for an unknown prompt type.
    """
    require_known("verifier_prompt", prompt_type, VERIFIER_PROMPT_TYPES)
    return (
        f"{_HEADS[prompt_type]}\n\n<question>{question}</question>\n\n"
        f"<ground_truth_answer>{truth}</ground_truth_answer>\n\n<model_answer>{answer}</model_answer>\n\n"
        'Return "True" if the model\'s answer is correct, otherwise return "False".'
    )


def leaves_its_tag(text: str) -> bool:
    """True if the text reads as holding a tag of the prompt, with which it could bring a true answer of its own."""
    return any(_TAG.search(reading) is not None for reading in (skeleton(text, {}), skeleton(text)))


def parse_verification(text: str, think: bool = False) -> bool | Rejection:
    """The answer in a verifier's reply: True or False, read as whole words in any case.

    Of a model that thinks, only what is behind `</think>` counts, and of that what follows `Answer:` up to the next
    one; without `</think>` there must be one, and no `<think>`.

    A word that is negated (`not at all true`, `cannot be true`) counts for the other one. A reply with neither word,
    with both, or with one in doubt (`hardly true`, a negation further off in the clause of `true`) is rejected. Never
    raises.
    """
    said = text
    if think:
        _, closing, behind = text.rpartition("</think>")
        is_thought = not closing and "<think>" in text
        said = "" if is_thought else _conclusion(behind) or (behind if closing else "")
    if not said.strip():
        return Rejection(RejectReason.EMPTY, text.strip()[-80:])
    values = set(_values(said))
    value = values.pop() if len(values) == 1 else None
    return Rejection(RejectReason.MALFORMED_ANSWER, said.strip()[-80:]) if value is None else value


def _values(said: str) -> Iterator[bool | None]:
    """Yield the value of each `true` and `false`, None where that is in doubt."""
    distance, is_hedged = math.inf, False  # words, but for fillers, since the clause's last negation
    words = [word.lower() for word in _WORD.findall(said)]
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if word in ("true", "false"):
            is_negated = distance <= 1
            in_doubt = is_hedged or following == "?" or (word == "true" and 1 < distance < math.inf)
            yield None if in_doubt else (word == "true") is not is_negated
        if word in _CLAUSE_ENDS or word in ("true", "false"):
            distance, is_hedged = math.inf, False
        elif word in ("not", "never", "cannot") or word.endswith(("n't", "n’t")):
            distance = 0
        else:
            distance += word not in _FILLERS
            is_hedged = is_hedged or word in _HEDGES


def contains_true(text: str, think: bool = False) -> bool:
    """Read a reply as the original does: `true` anywhere in it, as part of another word as well."""
    return "true" in (_conclusion(text) if think else text).lower()


def _conclusion(text: str) -> str:
    """The final answer of a thinking model, "" where it does not get there."""
    pieces = text.split("Answer:")
    return pieces[1] if len(pieces) > 1 else text.partition("</think>")[2]
