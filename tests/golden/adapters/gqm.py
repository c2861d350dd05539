"""Group judge: prompts, parsers, helpers."""

from grrm.errors import UserError
from grrm.gqm import compat, languages, prompts
from grrm.gqm.grammar import Rejection, RejectReason, parse_verdict
from grrm.gqm.groups import ranking_line, ranking_to_scores


def as_value_error(call):
    """Our one-sentence errors for what the original reports as ValueError."""
    try:
        return call()
    except UserError as error:
        raise ValueError(str(error)) from error


def lang_display(row):
    try:
        return languages.display_name(row["code"])
    except UserError as error:
        raise KeyError(row["code"]) from error


def named_prompt(row, max_candidates):
    return as_value_error(
        lambda: prompts.gqm_prompt(
            row["source_text"],
            row["mt_texts"],
            row["source_lang"],
            row["target_lang"],
            row["prompt_type"],
            row.get("add_example", False),
            max_candidates=max_candidates,
        )
    )


def inference_prompt(row):
    return named_prompt(row, languages.MAX_CANDIDATES_TRAINED)


def trainer_prompt(row):
    return named_prompt(row, len(languages.CANDIDATE_IDS))


def compat_prompt(build):
    """The original formats an empty group without complaint; ours refuses it."""

    def call(row):
        if row["mt_texts"]:
            return build(row)
        return build(row | {"mt_texts": ["x", "y"]}).removesuffix(
            "Translation A:\n```\nx\n```\nTranslation B:\n```\ny\n```\n"
        )

    return call


def built_prompt(row):
    try:
        names = {"source_lang": languages.display_name(row["src_lang"])}
        names["target_lang"] = languages.display_name(row["trg_lang"])
    except UserError as error:
        raise KeyError(str(error)) from error
    return inference_prompt(row | names | {"source_text": row["src_text"]})


def parse_exact(row, worst_tier):
    """Scores of an accepted reply; of a ranking its tiers, counted upwards from `worst_tier`."""
    try:
        parsed = parse_verdict(row["output_text"], row["expected_num"], row["prompt_type"])
    except UserError:
        return None  # the original answers an unknown prompt type like an unparsable reply
    if isinstance(parsed, Rejection):
        # The original never compares the ranking with the scores; ours must, so here the two differ on purpose.
        compared = parsed.reason is RejectReason.CONTRADICTION
        return (
            compat.gqm_extract_score(row["output_text"], row["prompt_type"], row["expected_num"]) if compared else None
        )
    if parsed.scores is not None:
        return parsed.scores
    height = {index: worst_tier + h for h, tier in enumerate(reversed(parsed.ranking)) for index in tier}
    return [height[index] for index in range(row["expected_num"])]


FIXED = {
    "gqm.get_prompt": inference_prompt,
    "rm_lib.group_get_prompt": trainer_prompt,
    "gqm.build_prompt": built_prompt,
    "gqm.lang_display": lang_display,
    "gqm.extract_score": lambda row: parse_exact(row, worst_tier=0),
    "rm_lib.group_extract_scores": lambda row: parse_exact(row, worst_tier=1),
    "helpers.ranking_to_scores": lambda row: ranking_to_scores(row["ranking"]),
    "helpers.score_to_rank": lambda row: ranking_line(row["scores"]),
}

COMPAT = {
    "gqm.get_prompt": compat_prompt(inference_prompt),
    "rm_lib.group_get_prompt": compat_prompt(trainer_prompt),
    "gqm.build_prompt": compat_prompt(built_prompt),
    "gqm.extract_score": lambda row: compat.gqm_extract_score(
        row["output_text"], row["prompt_type"], row["expected_num"]
    ),
    "rm_lib.group_extract_scores": lambda row: compat.group_extract_scores(
        row["output_text"], row["prompt_type"], row["expected_num"]
    ),
    "helpers.parse_score_text": lambda row: compat.parse_score_text(row["text"]),
}
