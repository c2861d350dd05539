"""Rounds of asking a policy again for translations that cannot be extracted."""

from grrm.gqm.chat import render_chatml
from grrm.gqm.extraction import draw_translations, extract_translation
from grrm.gqm.mt_prompts import mt_prompt
from grrm.inference.translate import FAILED_TRANSLATION


def translate(row):
    kind, n = row["prompt_type"], row["sampling_n"]
    prompts = [render_chatml(mt_prompt(source, row["src_langs"], row["trg_langs"], kind)) for source in row["src_list"]]
    calls = []

    def draw(rows, *, temperature, attempt):
        sampling = {"temperature": temperature, "top_p": row["top_p"], "max_tokens": row["max_new_tokens"], "n": n}
        calls.append({"n_prompts": len(rows)} | sampling)
        return [[reply_to(prompts[i], row["script"]) for _ in range(n)] for i in rows]

    found = draw_translations(
        len(prompts),
        draw,
        lambda reply: extract_translation(reply, kind),
        temperature=row["temperature"],
        retries=row["retry"],
    )
    responses = [[FAILED_TRANSLATION if text is None else text for text in draws.translations] for draws in found]
    raw_outputs = [list(draws.replies) for draws in found]
    if n == 1:
        responses, raw_outputs = [each[0] for each in responses], [each[0] for each in raw_outputs]
    return {"result": {"responses": responses, "raw_outputs": raw_outputs}, "calls": calls}


def reply_to(prompt, script):
    """The next reply of the script's source that occurs in the prompt."""
    return next(replies for source, replies in script.items() if source in prompt).pop(0)


FIXED = {"mt.func_call": translate}
