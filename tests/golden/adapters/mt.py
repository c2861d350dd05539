"""Translation prompts and the extraction of translations."""

from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.extraction import EXTRACTOR_TYPES, extract_translation
from grrm.gqm.languages import LANG_NAMES
from grrm.gqm.mt_prompts import MT_PROMPT_TYPES, mt_prompt, tower_prompt


def prompt(row):
    """Our one error under the three names the original has for it."""
    try:
        return mt_prompt(row["src_text"], row["src_lang"], row["trg_lang"], row["prompt_type"])
    except UserError as error:
        if row["prompt_type"] not in MT_PROMPT_TYPES:
            raise NotImplementedError(str(error)) from error
        if len(row["trg_lang"]) != 2:
            raise AssertionError(str(error)) from error
        raise KeyError(str(error)) from error


def compat_prompt(row):
    """The original ends Seed-X prompts with the target's name instead of its code."""
    text, code = prompt(row), row["trg_lang"]
    if row["prompt_type"] in ("seedx", "seedx-cot"):
        return text.removesuffix(f"<{code}>") + f"<{LANG_NAMES[code]}>"
    return text


def seedx_prompt(row):
    kind = "seedx-cot" if row.get("prompt_type") == "cot" else "seedx"
    return prompt(row | {"prompt_type": kind})


def scoring_text(row):
    """What the scalar reward model scores: Tower prompt, translation, end token; an unknown code is its own name."""
    text = tower_prompt(row["src_text"], *(LANG_NAMES.get(row[key], row[key]) for key in ("src_lang", "trg_lang")))
    chat = render_chatml(text) if row["chat_template"] else f"{text} "
    return f"{chat}{row['mt_text']}{row['eos_token']}"


def inference_answer(row):
    """Ours has None for every empty answer; the original has "" for these, which the vectors keep apart."""
    kind = row["prompt_type"] if row["prompt_type"] in EXTRACTOR_TYPES else "Tower"
    answer = extract_translation(row["text"], kind, strip_info_string=False)
    empty_is_text = kind in ("Tower", "Tower.lastl", "seedx") or (kind == "seedx-cot" and row["text"].strip())
    return "" if answer is None and empty_is_text else answer


def trainer_answer(row):
    try:
        return extract_translation(row["text"], row["extractor_type"], strip_info_string=False)
    except UserError as error:
        raise ValueError(str(error)) from error


FIXED = {
    "mt.get_prompt": prompt,
    "rm_lib.seedx_build_prompt": seedx_prompt,
    "seedx.get_prompt": seedx_prompt,
    "rm_lib.vanilla_rm_build_prompt": scoring_text,
    "mt.extract_answer": inference_answer,
    "rm_lib.extract": trainer_answer,
}

COMPAT = {"mt.get_prompt": compat_prompt}
