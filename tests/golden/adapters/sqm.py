"""Single-translation judge: prompts and parsers."""

import re

from grrm.errors import UserError
from grrm.gqm import compat
from grrm.gqm.grammar import Rejection, parse_sqm
from grrm.gqm.prompts import sqm_prompt
from grrm.rewards.rule_rewards import single_score_reward


def prompt(row):
    try:
        return sqm_prompt(row["src_text"], row["mt_text"], row["src_lang"], row["trg_lang"])
    except UserError as error:
        raise KeyError(str(error)) from error


def compat_trainer_prompt(row):
    """The trainer's copy of the language table lacks Ukrainian."""
    if "uk" in (row["src_lang"], row["trg_lang"]):
        raise KeyError("uk")
    return prompt(row)


def score(row):
    parsed = parse_sqm(row["output_text"])
    return None if isinstance(parsed, Rejection) else parsed


def without_fraction(text):
    """The original's reward drops the fraction of a score; ours refuses it, on purpose."""
    return re.sub(r"\.[0-9]*\s*$", "", text)


def credit(row):
    return single_score_reward(without_fraction(row["solution_str"]), {"A": int(row["ground_truth"])}).score


FIXED = {
    "sqm.build_prompt": prompt,
    "rm_lib.single_get_prompt": prompt,
    "sqm.extract_score": score,
    "rm_lib.single_extract_score": score,
    "qe_score_reward._extract_score": lambda row: score({"output_text": without_fraction(row["output_text"])}),
    "qe_score_reward.score_reward_fn": credit,
}

COMPAT = {
    "rm_lib.single_get_prompt": compat_trainer_prompt,
    "sqm.extract_score": lambda row: compat.sqm_extract_score(row["output_text"]),
    "rm_lib.single_extract_score": lambda row: compat.sqm_extract_score(row["output_text"]),
}
