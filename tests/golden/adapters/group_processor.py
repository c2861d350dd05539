"""Whole reward paths: from a batch of responses and the judge's replies to rewards.

FIXED runs our judge and shaping in the reference's configuration (compat grammar, no retries, default reward for every
failure, shared length of duplicates); COMPAT runs the reference's arithmetic. Tokens are characters.
"""

from support import reference_rewards as compat
from support.reference_parsers import extract

from grrm.gqm.compat import group_extract_scores, sqm_extract_score
from grrm.gqm.fences import FENCED
from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.judges.dedup import DistinctJudge, dedup_texts, subgroup
from grrm.judges.generation import JudgeSampling
from grrm.judges.gqm import GQMJudge, GQMOptions
from grrm.judges.interface import GeneratedText
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.overlong import OverlongConfig
from grrm.rewards.shaping import ShapingConfig, shape_rewards


class Replies:
    """The judge: replies in the order of the prompts; one character is one token."""

    def __init__(self, texts):
        self.texts = list(texts)
        self.prompts = []

    def generate_text(self, prompts, *, temperature, top_p=1.0, max_new_tokens, seeds=None):
        self.prompts += prompts
        return [GeneratedText(self.texts.pop(0), "stop", 1) for _ in prompts]

    def count_tokens(self, prompt):
        return len(prompt)


def fixed_group(row):
    config = compat.ReferenceConfig(**row["config"])
    items = [compat.ReferenceItem(**item) for item in row["items"]]
    rows_by_uid = {}
    for i, item in enumerate(items):
        rows_by_uid.setdefault(item.uid, []).append(i)
    groups = [as_group(uid, rows, items, config.extractor_type) for uid, rows in rows_by_uid.items()]
    generator = Replies(row["judge_outputs"])
    judge = GQMJudge(
        generator,
        prompt_length=config.prompt_length,
        options=GQMOptions(
            prompt_type=config.group_prompt_type,
            add_example=config.group_add_example,
            mode="compat",
            max_candidates=26,
            too_long="refuse",
        ),
        sampling=JudgeSampling(retries=0),
    )
    shaping = ShapingConfig(
        config.score_scale_factor,
        config.default_reward,
        OverlongConfig.from_mapping(config.overlong_buffer),
        duplicates_share_length=True,
    )
    scores = [None] * len(items)
    kept, zero = [], []
    for group, verdict, rows in zip(groups, DistinctJudge(judge).judge(groups), rows_by_uid.values(), strict=True):
        shaped = shape_rewards(group, verdict, shaping, FailurePolicy.reference())
        for i, reward in zip(rows, shaped.rewards, strict=True):
            scores[i] = reward
        distinct = dedup_texts(group, FENCED.is_safe)
        dup_map = [[rows[k] for k in copies] for copies in distinct.members]
        if judge.plan(subgroup(group, [copies[0] for copies in distinct.members])).prompt is None:
            zero += dup_map + [[rows[k]] for k in sorted(distinct.excluded)]
        else:
            kept.append(
                {
                    "uid": [group.group_id],
                    "dup_map": dup_map,
                    "candidate_lens": [group.candidates[copies[0]].n_tokens for copies in distinct.members],
                }
            )
    return {
        "prompts": generator.prompts,
        "kept_groups": kept,
        "zero_groups": zero,
        "total_size": len(items),
        "scores": scores,
    }


def as_group(uid, rows, items, extractor_type):
    src_lang, _, trg_lang = items[rows[0]].lang_pair.partition("-")
    first = items[rows[0]]
    task = TranslationTask(first.src_text, first.src_lang or src_lang, first.trg_lang or trg_lang)
    candidates = tuple(
        Candidate(
            str(i),
            items[i].response,
            extract(items[i].response, extractor_type),
            items[i].valid_len,
        )
        for i in rows
    )
    return Group(uid, task, candidates)


def compat_group(row):
    config = compat.ReferenceConfig(**row["config"])
    items = [compat.ReferenceItem(**item) for item in row["items"]]
    groups = compat.reference_groups(config, items, len)
    asked = [group for group in groups if group.prompt is not None]
    judged = [
        group_extract_scores(text, config.group_prompt_type, len(group.dup_map))
        for text, group in zip(row["judge_outputs"], asked, strict=True)
    ]
    return {
        "prompts": [group.prompt for group in asked],
        "kept_groups": [
            {"uid": [group.uid], "dup_map": group.dup_map, "candidate_lens": group.candidate_lens} for group in asked
        ],
        "zero_groups": [
            rows for group in groups if group.prompt is None for rows in [*group.dup_map, *([i] for i in group.invalid)]
        ],
        "total_size": len(items),
        "scores": compat.reference_group_rewards(config, groups, judged, len(items)),
    }


def compat_single(row):
    config = compat.ReferenceConfig(**row["config"])
    items = [compat.ReferenceItem(**item) for item in row["items"]]
    prompts = compat.reference_single_prompts(config, items, len)
    judged = {i: sqm_extract_score(text) for i, text in zip(prompts, row["judge_outputs"], strict=True)}
    return {
        "prompts": list(prompts.values()),
        "kept_indices": list(prompts),
        "total_size": len(items),
        "scores": compat.reference_single_rewards(config, items, judged),
    }


FIXED = {"GroupRewardModelProcessor": fixed_group}
COMPAT = {"GroupRewardModelProcessor": compat_group, "RewardModelProcessor": compat_single}
