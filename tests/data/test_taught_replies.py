"""What the converters teach earns full marks by the rule that their rows for reinforcement learning name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.rows import group, pair, write_parquet

from grrm.config.load import read_yaml
from grrm.data.annotation.relative import relative_groups
from grrm.data.convert import ConversionReport, convert_to_sft
from grrm.data.converters.gqm import convert_rl_gqm, convert_sft_gqm
from grrm.data.converters.mt import convert_sft_mt
from grrm.data.converters.sqm import convert_rl_sqm, convert_sft_sqm, rubric_judge
from grrm.errors import UserError
from grrm.gqm.extraction import extract_translation
from grrm.gqm.prompts import GQM_TASKS
from grrm.rewards.ranking_accuracy import RankingReward
from grrm.rewards.rule_rewards import RULE_REWARDS, rule_of_row

RECIPES = Path(__file__).parents[2] / "llm/config/qwen"
LONG = "Candidate B says all that the source says, C leaves a word out, and A is another sentence."
ANALYSES = {
    "none": "",
    "long": f"{LONG}\n\n{LONG}",
    "verdict only": "Scores: A: 3, B: 9, C: 7",  # the verdict that is written takes its place
}
FULL = {"ranking": 1.0, "ranking_score": 2.0, "score": 2.0, "score_ordering": 1.0, "single_score": 1.0, "grade": 1.0}
PREPARE: dict[str, Callable[[Path, Path], Path]] = {
    "as annotated": lambda groups, _: groups,
    "relative": lambda groups, out: relative_groups(groups, out).path,
    "aligned": lambda groups, out: relative_groups(groups, out, orders=1, analysis="alignment").path,
}


def lines(report: ConversionReport) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in report.path.read_text(encoding="utf-8").splitlines()]
    return {row["src"]: row for row in rows}


def groups(folder: Path, analysis: str) -> Path:
    rows = [{"trg_text": "r", "scores": scores, "analysis": analysis} for scores in ([3, 9, 7], [8, 8, 0])]
    sources = [{"src_text": text, "analyses": [analysis] * 3} for text in ("Hi", "Bye")]
    return write_parquet(
        folder / "groups.parquet", [group(**row, **source) for row, source in zip(rows, sources, strict=True)]
    )


def rewards(taught: ConversionReport, asked: ConversionReport, rule: str | None = None) -> list[RankingReward]:
    """Of each taught reply by `rule`, by default the one that the row with its prompt names."""
    rows, replies = lines(asked), lines(taught)
    assert replies.keys() <= rows.keys()
    named = [(rows[src], reply["tgt"]) for src, reply in replies.items()]
    return [RULE_REWARDS[rule or row["rule_reward"]](reply, row["tgt"]) for row, reply in named]


@pytest.mark.parametrize("prepare", PREPARE)
@pytest.mark.parametrize("analysis", ANALYSES)
@pytest.mark.parametrize("prompt_type", GQM_TASKS)
def test_verdicts_of_a_group_judge(tmp_path: Path, prompt_type: str, analysis: str, prepare: str) -> None:
    source = PREPARE[prepare](groups(tmp_path, ANALYSES[analysis]), tmp_path / "relative.parquet")
    taught = convert_sft_gqm(source, tmp_path / "sft.jsonl", prompt_type=prompt_type)
    asked = convert_rl_gqm(source, tmp_path / "rl.jsonl", prompt_type=prompt_type, shuffle_augment=2)
    assert [one.score for one in rewards(taught, asked)] == [FULL[prompt_type]] * 2
    (named,) = {row["rule_reward"] for row in lines(asked).values()}
    for rule in ("ranking_score", "ranking_score_no_cot", "score", "score_ordering", "ranking", "ranking_no_cot"):
        assert earned(taught, asked, rule) == [FULL[rule.removesuffix("_no_cot")] if fits(named, rule) else 0.0] * 2


def earned(taught: ConversionReport, asked: ConversionReport, rule: str) -> list[float]:
    """As `rewards`; 0 by a rule that cannot use the ground truth."""
    try:
        return [one.score for one in rewards(taught, asked, rule)]
    except UserError:
        return [0.0, 0.0]


def fits(named: str, rule: str) -> bool:
    """Whether an argument file may choose this rule for rows that name another one."""
    try:
        return rule_of_row(named, rule) is RULE_REWARDS[rule]
    except UserError as error:
        return f"they fit {named}" not in str(error)


def test_an_analysis_may_be_provoked_from_prompts_for_rankings() -> None:
    assert fits("ranking", "ranking_zero")
    assert fits("ranking_no_cot", "ranking_zero")
    assert not fits("ranking_score", "ranking_zero")


@pytest.mark.parametrize("analysis", ANALYSES)
def test_scores_of_a_judge_of_one_translation(tmp_path: Path, analysis: str) -> None:
    source = groups(tmp_path, ANALYSES[analysis] or "x")
    taught = convert_sft_sqm(source, tmp_path / "sft.jsonl", analyses_key="analyses" if ANALYSES[analysis] else None)
    asked = convert_rl_sqm(source, tmp_path / "rl.jsonl")
    assert [one.score for one in rewards(taught, asked)] == [FULL["single_score"]] * 6


def test_grades_of_a_rubric_judge(tmp_path: Path) -> None:
    source, judge = groups(tmp_path, "x"), rubric_judge()
    taught = convert_sft_sqm(source, tmp_path / "sft.jsonl", analyses_key=None, judge=judge)
    asked = convert_rl_sqm(source, tmp_path / "rl.jsonl", judge=judge)
    assert [one.score for one in rewards(taught, asked)] == pytest.approx([FULL["grade"]] * 6)
    recipe = read_yaml(RECIPES / "grade_tiny_argument.yaml")
    assert {row["rule_reward"] for row in lines(asked).values()} == {recipe["rule_reward"]}


@pytest.mark.parametrize("recipe", ["rlvr_grrm_argument", "rlvr_grrm_tiny_argument"])
def test_rule_of_the_recipes_rewards_what_their_commands_teach(tmp_path: Path, recipe: str) -> None:
    options = {"prompt_type": "score"} if "tiny" in recipe else {}
    analysis = "none" if "tiny" in recipe else "long"
    source = groups(tmp_path, ANALYSES[analysis])
    taught = convert_sft_gqm(source, tmp_path / "sft.jsonl", **options)
    asked = convert_rl_gqm(source, tmp_path / "rl.jsonl", **options)
    chosen = read_yaml(RECIPES / f"{recipe}.yaml").get("rule_reward")
    for src, row in lines(asked).items():
        assert rule_of_row(row["rule_reward"], chosen)(lines(taught)[src]["tgt"], row["tgt"]).score == 2.0


@pytest.mark.parametrize(
    ("recipe", "prompt_type"),
    [
        ("grpo_grrm_argument", "codeblock-think"),
        ("reinforce_plus_plus_grrm_argument", "codeblock-think"),
        ("gspo_grrm_tiny_argument", "codeblock-think"),
        ("grpo_grrm_tiny_argument", "Tower"),
        ("reinforce_plus_plus_grrm_tiny_argument", "Tower"),
    ],
)
def test_translations_that_are_taught_can_be_extracted(tmp_path: Path, recipe: str, prompt_type: str) -> None:
    source = write_parquet(tmp_path / "in.parquet", [pair(response="Hm.\n```\nHallo\n```")])
    reports = [convert_to_sft(source, tmp_path / "sft.jsonl", prompt_type)]
    if prompt_type == "codeblock-think":
        reports.append(convert_sft_mt(source, tmp_path / "mt.jsonl"))
    extractor = read_yaml(RECIPES / f"{recipe}.yaml")["extractor_type"]
    for report in reports:
        assert [extract_translation(row["tgt"], extractor) for row in lines(report).values()] == ["Hallo"]
