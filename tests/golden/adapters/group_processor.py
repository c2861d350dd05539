"""Whole reward paths: from a batch of responses and the judge's replies to rewards.

Our judge and shaping run in the reference's configuration: compat grammar, no retries, default reward for every
failure; copies of a translation have the length of the first. Tokens are characters.
"""

from golden.adapters.overlong import recipe_ramp
from support.text_models import TextModel

from grrm.gqm.extraction import extract_translation
from grrm.gqm.fences import FENCED
from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.judges.dedup import DistinctJudge, dedup_texts, subgroup
from grrm.judges.generation import JudgeSampling
from grrm.judges.gqm import GQMJudge, GQMOptions
from grrm.rewards.failure_policy import DEFAULT_ACTIONS, FailureAction, FailurePolicy
from grrm.rewards.shaping import ShapingConfig, shape_rewards

PENALISE_ALL = FailurePolicy(dict.fromkeys(DEFAULT_ACTIONS, FailureAction.PENALTY))


def group_rewards(row):
    config, items = row["config"], row["items"]
    rows_by_uid = {}
    for i, item in enumerate(items):
        rows_by_uid.setdefault(item["uid"], []).append(i)
    groups = [as_group(uid, rows, items, config.get("extractor_type", "line")) for uid, rows in rows_by_uid.items()]
    outputs = iter(row["judge_outputs"])
    generator = TextModel(lambda prompt: next(outputs))
    judge = GQMJudge(
        generator,
        prompt_length=config["prompt_length"],
        options=GQMOptions(
            prompt_type=config.get("group_prompt_type", "ranking_score"),
            add_example=config.get("group_add_example", False),
            mode="compat",
            max_candidates=26,
            too_long="refuse",
        ),
        sampling=JudgeSampling(retries=0),
    )
    shaping = ShapingConfig(
        config.get("score_scale_factor", 0.1),
        config.get("default_reward", 0.0),
        recipe_ramp(config.get("overlong_buffer")),
    )
    scores = [None] * len(items)
    kept, zero = [], []
    for group, verdict, rows in zip(groups, DistinctJudge(judge).judge(groups), rows_by_uid.values(), strict=True):
        shaped = shape_rewards(group, verdict, shaping, PENALISE_ALL)
        for i, reward in zip(rows, shaped.rewards, strict=True):
            scores[i] = reward
        distinct = dedup_texts(group, FENCED.is_safe)
        dup_map = [[rows[k] for k in copies] for copies in distinct.members]
        if judge.plan(subgroup(group, [copies[0] for copies in distinct.members])).prompt is None:
            zero += dup_map + [[rows[k]] for k in sorted(distinct.excluded)]
        else:
            lengths = [group.candidates[copies[0]].n_tokens for copies in distinct.members]
            kept.append({"uid": [group.group_id], "dup_map": dup_map, "candidate_lens": lengths})
    return {
        "prompts": generator.prompts,
        "kept_groups": kept,
        "zero_groups": zero,
        "total_size": len(items),
        "scores": scores,
    }


def translation(response, extractor_type):
    """With `none` the original takes an empty response for a translation."""
    if extractor_type == "none":
        return response.strip()
    return extract_translation(response, extractor_type, strip_info_string=False)


def as_group(uid, rows, items, extractor_type):
    first = items[rows[0]]
    src_lang, _, trg_lang = first.get("lang_pair", "").partition("-")
    task = TranslationTask(first["src_text"], first.get("src_lang") or src_lang, first.get("trg_lang") or trg_lang)
    texts = {i: translation(items[i]["response"], extractor_type) for i in rows}
    length_of = {texts[i]: items[i]["valid_len"] for i in reversed(rows)}
    candidates = tuple(Candidate(str(i), items[i]["response"], text, length_of[text]) for i, text in texts.items())
    return Group(uid, task, candidates)


FIXED = {"GroupRewardModelProcessor": group_rewards}
