"""The judge's prompts, group-wise (GQM) and one translation at a time (SQM), and the replies they ask for.

The wording and every blank line are a wire format: released checkpoints were trained on these bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from grrm.errors import require_known
from grrm.gqm.groups import ContextSegment, ranking_line
from grrm.gqm.languages import CANDIDATE_IDS, display_name

FENCE = "```"

GQM_TASKS: dict[str, str] = {
    "score": "Finally, score the candidates with integer scores on a scale from 0 to 10.",
    "ranking": "Finally, rank the candidates in order of quality from best to worst.",
    "ranking_score": "Finally, rank and score the candidates with integer scores on a scale from 0 to 10.",
}
GQM_EXAMPLES: dict[str, str] = {
    "score": "Output the scores on the last line, for example: `A: 4, B: 9, C: 7, D: 9`.",
    "ranking": "Output the rankings in descending order on the last line, for example: `B > A = D > C`.",
    "ranking_score": (
        "At the end section, first output the rankings in descending order, for example: `B > A = D > C`. "
        "Then, on the last line, output the scores, for example: `B: 9, A: 7, D: 7, C: 2`."
    ),
}
CONTEXT_HEAD = "As context, the preceding segments of the document with their translations, not to be judged:\n\n"
RANKING_HEADER = "### Final Ranking:"
SCORES_HEADER = "### Scores:"
_DECISIVE = {True: re.compile(r"[0-9]+"), False: re.compile(r"[A-Z>=]")}  # of a line of scores, of a ranking
_VERDICT_WORDS = ("Score", "score", "Scoring", "scoring", "Ranking", "ranking")
Span = tuple[int, int]


def fenced(text: str, fence: str = FENCE) -> str:
    """`text` between two fence lines, verbatim: see `grrm.gqm.fences` for how texts of strangers are put here."""
    return f"{fence}\n{text}\n{fence}\n"


def check_prompt_type(prompt_type: str) -> str:
    """`prompt_type` itself; UserError if there is no such GQM prompt."""
    require_known("GQM prompt_type", prompt_type, GQM_TASKS)
    return prompt_type


def gqm_prompt(
    source: str,
    candidates: Sequence[str],
    src_lang: str,
    trg_lang: str,
    prompt_type: str = "ranking_score",
    add_example: bool = False,
    *,
    max_candidates: int = len(CANDIDATE_IDS),
    fence: str = FENCE,
    context: Sequence[ContextSegment] = (),
) -> str:
    """The user turn that asks for a comparison of all candidates, named A, B, C … in the order given.

    The segments of `context` come before the source (see `context_block`). Languages are codes or display names.
    Raises UserError for an unknown code or prompt type, ValueError for fewer than two candidates (nothing to compare)
    or more than `max_candidates`.
    """
    if not 2 <= len(candidates) <= max_candidates:
        raise ValueError(f"a group prompt takes 2 to {max_candidates} candidates, not {len(candidates)}")
    task = GQM_TASKS[check_prompt_type(prompt_type)]
    if add_example:
        task = f"{task} {GQM_EXAMPLES[prompt_type]}"
    head = (
        f"Given a source text in {display_name(src_lang)} and multiple translation candidates in "
        f"{display_name(trg_lang)}. Perform a step by step analysis and comparison of the translation quality "
        f"for the candidates. {task}"
    )
    return head + _texts(source, candidates, fence, context)


def pairwise_prompt(source: str, candidates: tuple[str, str], src_lang: str, trg_lang: str, fence: str = FENCE) -> str:
    """The user turn that asks which of two translations, named A and B, is better, for a reply of one letter.

    Raises UserError for an unknown language code.
    """
    head = (
        f"Given a source text in {display_name(src_lang)} and two translations in {display_name(trg_lang)}. "
        "Which translation is better? Answer with its letter only."
    )
    return head + _texts(source, candidates, fence)


def context_block(context: Sequence[ContextSegment], fence: str = FENCE) -> str:
    """The segments before the source and their translations, for a prompt; empty without any.

    Their headers are lines that no text between fences can imitate: the guard escapes them.
    """
    shown = [
        f"Source text:\n{fenced(source, fence)}"
        + ("" if translation is None else f"Translation text:\n{fenced(translation, fence)}")
        for source, translation in context
    ]
    return CONTEXT_HEAD + "\n".join(shown) + "\n" if shown else ""


def _texts(source: str, candidates: Sequence[str], fence: str, context: Sequence[ContextSegment] = ()) -> str:
    return f"\n\n{context_block(context, fence)}Source text:\n{fenced(source, fence)}\n" + "".join(
        f"Translation {candidate_id}:\n{fenced(text, fence)}"
        for candidate_id, text in zip(CANDIDATE_IDS, candidates, strict=False)
    )


def sqm_prompt(
    source: str,
    translation: str,
    src_lang: str,
    trg_lang: str,
    fence: str = FENCE,
    context: Sequence[ContextSegment] = (),
) -> str:
    """The user turn that asks for a score of one translation. Unlike GQM's there is no blank line before the source.

    `context` as in `gqm_prompt`. Raises UserError for an unknown language code.
    """
    return (
        f"Given a source text in {display_name(src_lang)} and a translation text in {display_name(trg_lang)}. "
        "Perform a step by step analysis of translation quality and assign a score on a scale from 0 to 10.\n"
        f"{context_block(context, fence)}Source text:\n{fenced(source, fence)}\n"
        f"Translation text:\n{fenced(translation, fence)}"
    )


def render_response(analysis: str, scores: Sequence[float], prompt_type: str = "ranking_score") -> str:
    """The reply a judge is trained to give: the analysis as it is, then ranking and scores of candidates A, B, …

    `score` lists the scores in candidate order; `ranking_score` in the order of the ranking. Raises ValueError
    for more scores than identifiers or a score that is not an integer from 0 to 10, UserError for a prompt type
    that does not exist.
    """
    check_prompt_type(prompt_type)
    if len(scores) > len(CANDIDATE_IDS) or any(score != int(score) or not 0 <= score <= 10 for score in scores):
        raise ValueError(f"scores must be at most {len(CANDIDATE_IDS)} integers from 0 to 10, not {list(scores)}")
    by_id = {candidate_id: int(score) for candidate_id, score in zip(CANDIDATE_IDS, scores, strict=False)}
    if prompt_type == "score":
        return f"{analysis}\n\n{_score_line(by_id)}\n"
    ranked = f"{analysis}\n\n{RANKING_HEADER}\n\n{ranking_line(by_id)}\n"
    if prompt_type == "ranking":
        return ranked
    best_first = dict(sorted(by_id.items(), key=lambda item: (-item[1], item[0])))
    return f"{ranked}\n{SCORES_HEADER}\n\n{_score_line(best_first)}\n"


def without_verdict(analysis: str) -> str:
    """The stripped analysis, without its last line if that speaks of scores or a ranking."""
    lines = analysis.strip().splitlines()
    if lines and any(word in lines[-1] for word in _VERDICT_WORDS):
        lines.pop()
    return "\n".join(lines)


def decisive_spans(verdict: str) -> list[Span]:
    """The characters, as [start, end), in which a verdict of `render_response` says which candidate is better.

    The letters and signs of the ranking and the digits of the scores; all else follows from them or from the form.
    """
    spans, start = list[Span](), 0
    for line in verdict.splitlines(keepends=True):
        if not line.startswith("#"):
            matches = _DECISIVE[":" in line].finditer(line)
            spans += [(start + match.start(), start + match.end()) for match in matches]
        start += len(line)
    return spans


def _score_line(by_id: dict[str, int]) -> str:
    return ", ".join(f"{candidate_id}: {score}" for candidate_id, score in by_id.items())
