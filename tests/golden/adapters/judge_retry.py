"""Rounds of asking a judge again: which prompts go out at which temperature, and what is left in the end.

The vectors' replies are bare lines that only the original's parsers take, so these read them with the compat parsers.
"""

from grrm.gqm.chat import render_chatml
from grrm.gqm.compat import gqm_extract_score, sqm_extract_score
from grrm.gqm.grammar import Rejection, RejectReason
from grrm.gqm.prompts import gqm_prompt, sqm_prompt
from grrm.judges.generation import JudgeSampling, Question, ask
from grrm.judges.interface import GeneratedText


class Script:
    """Replies by the source text that occurs in the prompt, and a record of the calls."""

    def __init__(self, replies):
        self.replies = replies
        self.calls = []

    def generate_text(self, prompts, *, temperature, top_p, max_new_tokens, seeds):
        call = {"n_prompts": len(prompts), "temperature": temperature, "top_p": top_p, "max_tokens": max_new_tokens}
        self.calls.append(call | {"n": None})
        return [GeneratedText(self._reply(prompt), "stop", 1) for prompt in prompts]

    def _reply(self, prompt):
        return next(replies for source, replies in self.replies.items() if source in prompt).pop(0)


def run(row, make_prompt, parse):
    questions = []
    for i, (source, translations) in enumerate(zip(row["src_list"], row["mt_list"], strict=True)):
        prompt = render_chatml(make_prompt(source, translations, row["src_langs"], row["trg_langs"]))
        questions.append(Question(str(i), prompt, or_rejection(parse, translations)))
    sampling = JudgeSampling(row["temperature"], row["top_p"], row["max_new_tokens"], row["retry"])
    script = Script(row["script"])
    replies = ask(script, questions, sampling)
    scores = [None if isinstance(reply.parsed, Rejection) else reply.parsed for reply in replies]
    return {"result": {"scores": scores, "responses": [reply.text for reply in replies]}, "calls": script.calls}


def or_rejection(parse, translations):
    def read(text):
        scores = parse(text, translations)
        return Rejection(RejectReason.MALFORMED_SCORES, text) if scores is None else scores

    return read


def group(row):
    return run(row, gqm_prompt, lambda text, texts: gqm_extract_score(text, "ranking_score", len(texts)))


def single(row):
    return run(row, sqm_prompt, lambda text, _: sqm_extract_score(text))


COMPAT = {"gqm.func_call": group, "sqm.func_call": single}
