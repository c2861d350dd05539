"""Single-translation judge: prompts and parsers."""

from grrm.errors import UserError
from grrm.gqm import compat
from grrm.gqm.grammar import Rejection, parse_sqm
from grrm.gqm.prompts import sqm_prompt


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


FIXED = {
    "sqm.build_prompt": prompt,
    "rm_lib.single_get_prompt": prompt,
    "sqm.extract_score": score,
    "rm_lib.single_extract_score": score,
}

COMPAT = {
    "rm_lib.single_get_prompt": compat_trainer_prompt,
    "sqm.extract_score": lambda row: compat.sqm_extract_score(row["output_text"]),
    "rm_lib.single_extract_score": lambda row: compat.sqm_extract_score(row["output_text"]),
    "qe_score_reward._extract_score": lambda row: compat.qe_extract_score(row["output_text"]),
    "qe_score_reward.score_reward_fn": lambda row: compat.qe_score_reward(row["solution_str"], row["ground_truth"]),
}
