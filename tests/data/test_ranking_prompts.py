"""Judge prompts with ground truths, as the RL trainer reads them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support.rows import group, write_jsonl, write_parquet

from grrm.data.converters.gqm import convert_rl_gqm
from grrm.data.dataset import PromptItem, read_prompt_items
from grrm.data.row_tasks import ranking_of
from grrm.errors import UserError
from grrm.gqm.groups import TranslationTask
from grrm.rewards.rule_rewards import rule_of_row

PROMPT = "Given a source text in English and multiple translation candidates in German. Perform"


def encode(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def written(folder: Path, *rows: dict) -> Path:
    path = folder / "rl_gqm.jsonl"
    return write_jsonl(path, rows)


def read(path: Path, rule: str | None = "ranking_score") -> list[PromptItem]:
    def check(task: TranslationTask) -> None:
        rule_of_row(task.data_source, rule)("", task.reference or "")

    return read_prompt_items(path, encode, 10_000, task_of=ranking_of, check=check)


def test_rule_by_which_taught_replies_earn_nothing_is_refused(tmp_path: Path) -> None:
    row = {"src": PROMPT, "tgt": '{"A": 1, "B": 2}', "rule_reward": "ranking_score_no_cot"}
    assert read(written(tmp_path, row), rule=None)[0].task.data_source == "ranking_score_no_cot"
    with pytest.raises(UserError, match=r"line 1: rule_reward is ranking_score, .* they fit ranking_score_no_cot"):
        read(written(tmp_path, row))
    with pytest.raises(UserError, match=r"unknown rule reward 'ranking_skore': did you mean 'ranking_score'"):
        read(written(tmp_path, row | {"rule_reward": "ranking_skore"}), rule=None)


@pytest.mark.parametrize("prompt_type", ["ranking", "ranking_score"])
def test_lines_of_the_converter_are_read(tmp_path: Path, prompt_type: str) -> None:
    source = write_parquet(tmp_path / "in.parquet", [group(), group(src_text="Bye", trg_lang="zh")])
    lines = convert_rl_gqm(source, tmp_path / "out.jsonl", prompt_type=prompt_type, subgroup_augment=1)
    dataset = read(lines.path, rule=prompt_type)
    assert len(dataset) == 4
    assert [item.index for item in dataset] == [0, 1, 2, 3]
    assert {(item.task.src_lang, item.task.trg_lang) for item in dataset} == {
        ("English", "German"),
        ("English", "Chinese"),
    }
    for item, line in zip(dataset, lines.path.read_text(encoding="utf-8").splitlines(), strict=True):
        row = json.loads(line)
        assert (item.prompt_text, item.task.source, item.task.reference) == (row["src"], row["src"], row["tgt"])
        assert item.prompt_ids == encode(row["src"])


def test_prompt_of_other_words_names_no_languages(tmp_path: Path) -> None:
    task = read(written(tmp_path, {"src": "Rank these.", "tgt": '{"A": 1, "B": 2}'}))[0].task
    assert (task.src_lang, task.trg_lang, task.source) == ("", "", "Rank these.")


@pytest.mark.parametrize(
    ("tgt", "rule", "sentence"),
    [
        ('{"source":"x","src_lang":"en","trg_lang":"de","reference":"y"}', "ranking_score", "does not name the"),
        ("A > B", "ranking_score", "cannot be read as JSON"),
        ('{"A": 11, "B": 2}', "ranking_score_no_cot", "holds 11 where a whole score from 0 to 10 must be"),
        ("A > C", "ranking", "does not name the candidates"),
        ("", "ranking_zero", "does not name the candidates"),
        ("A ? B", "ranking_no_cot", "does not name the candidates"),
    ],
)
def test_ground_truth_that_the_rule_cannot_use_is_told_with_its_line(
    tmp_path: Path, tgt: str, rule: str, sentence: str
) -> None:
    good = {"src": PROMPT, "tgt": '{"A": 1, "B": 2}'}
    with pytest.raises(UserError, match=rf"rl_gqm.jsonl line 2: The ground truth .* {sentence}") as caught:
        read(written(tmp_path, good, {"src": PROMPT, "tgt": tgt}), rule=rule)
    assert "\n" not in str(caught.value)


def test_empty_prompt_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 1 has an empty prompt"):
        read(written(tmp_path, {"src": "", "tgt": '{"A": 1, "B": 2}'}))


@pytest.mark.parametrize("unit", ["Given a source text in ", " and multiple translation candidates in "])
def test_a_long_source_that_repeats_the_prompt_is_read_at_once(unit: str) -> None:
    start_s = time.process_time()
    task = ranking_of({}, f"Given a source text in x{unit * 10_000}", "B > A", "tgt")
    assert time.process_time() - start_s < 2
    assert (task.src_lang, task.trg_lang) == ("", "")
