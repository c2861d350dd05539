"""PaddleNLP's scoring of knights and knaves, and its example's rows from the published puzzles."""

from __future__ import annotations

import json
import time

import pytest
from support.argument_files import write_paddlenlp_file
from support.rolled import rolled_group

from grrm.config import Launch, RLConfig, prepare
from grrm.data.answers import convert_answers
from grrm.errors import UserError
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.rule_rewards import paddlenlp_knights_and_knaves
from grrm.rewards.shaping import ShapingConfig
from grrm.rl.reward_sources import build_rewarder
from grrm.rl.reward_stage import reward

TRUTH = "(1) Zoey is a knight\n(2) Ian is a knave"
QUIZ = 'You meet 2 inhabitants: Zoey, and Ian. "Ian is a knave," Zoey mentioned. So who is a knight and who is a knave?'


def said(answer, thought="Hm."):
    return f"{thought}</think>\n<answer>{answer}</answer><|im_end|>"


@pytest.mark.parametrize(
    ("response", "score"),
    [
        (said(TRUTH), 3.0),
        (said("Ian is a knave, and zoey is a Knight."), 3.0),
        (said("(1) Zoey is a knave\n(2) Ian is a knave"), -0.5),
        (said("(1) Zoey is a knight"), -1.0),
        (said("Zoey is a knight, Ian is a knave, Bo is a knave"), -1.0),
        (said("Zoey is an knight, Ian is a knave"), -1.0),
        (said(""), -1.0),
        (f"<think>{said(TRUTH)}", -3.0),  # the prompt ends in this tag
        (f"\n<|im_start|>assistant\n<think>{said(TRUTH)}", 3.0),
        (said(TRUTH, thought="Assistant: hm."), -3.0),  # the tag of the prompt is before what counts
        (said(TRUTH) + "<answer>x</answer>", -3.0),
        (f"<answer>{TRUTH}</answer></think>", -3.0),
        (TRUTH, -3.0),
        ("", -3.0),
    ],
)
def test_the_format_and_the_answer_count(response, score):
    assert paddlenlp_knights_and_knaves(response, TRUTH).score == score


@pytest.mark.parametrize("truth", ["", "12", "Zoey is a knight, Ian is a knave", "Zoey is a knight\nZoey is a knave"])
def test_a_truth_that_would_be_read_in_part_is_an_error(truth):
    with pytest.raises(UserError, match="has not one line like"):
        paddlenlp_knights_and_knaves("", truth)


def test_a_long_truth_without_a_role_is_an_error_at_once():
    start_s = time.process_time()
    with pytest.raises(UserError, match="has not one line like"):
        paddlenlp_knights_and_knaves("", "a " * 100_000)
    assert time.process_time() - start_s < 2


def test_a_run_is_rewarded_as_by_paddlenlps_server():
    config = RLConfig(use_rule_reward=True, rule_reward="paddlenlp_knights_and_knaves")
    texts = [said(TRUTH), said("Zoey is a knave, Ian is a knave"), "x"]
    candidates = tuple(Candidate(str(i), text, None, 3) for i, text in enumerate(texts))
    group = Group("g", TranslationTask(QUIZ, "", "", TRUTH), candidates)
    stage = build_rewarder(config, ShapingConfig(score_scale_factor=0.1), FailurePolicy(), "")
    (scored,) = reward(stage, [rolled_group(0, [3] * 3, group=group)])
    assert scored.shaped.rewards == (3.0, -0.5, -3.0)
    assert scored.shaped.statuses == (Status.SCORED,) * 3
    assert scored.judged.measures == {"score_reward": [1.0, 0.0, 0.0]}


def test_paddlenlps_argument_file_takes_the_rule_in_the_place_of_the_server(tmp_path):
    file = write_paddlenlp_file("grpo_argument", tmp_path)  # grpo_argument.yaml
    changes = "--use_rm_server false --use_rule_reward true --rule_reward paddlenlp_knights_and_knaves"
    changes = [*changes.split(), "--train_datasets", "knights_and_knaves.jsonl"]
    config = prepare(RLConfig, file, changes, launch=Launch("gpu", 4), check_machine=False).config
    assert config.rule_reward == "paddlenlp_knights_and_knaves"
    assert any("reward_server is not asked" in notice for notice in config.notices)


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_published_puzzles_become_the_rows_of_the_example(tmp_path):
    source, out = tmp_path / "people2.jsonl", tmp_path / "kk.jsonl"
    row = {"quiz": QUIZ, "names": ["Zoey", "Ian"], "solution": [True, False], "solution_text_format": TRUTH}
    source.write_text(json.dumps(row) + "\n")
    convert_answers(source, out)
    (line,) = lines(out)
    assert line["src"].startswith("<|im_start|>system\nYou are a helpful assistant. The assistant first thinks about")
    assert line["src"].endswith(
        f"(2) ... </answer>.\n<|im_end|>\n<|im_start|>user\n{QUIZ}\n<|im_end|>\n<|im_start|>assistant\n<think>"
    )
    assert (line["tgt"], line["data_source"], line["question"]) == (TRUTH, "knights-and-knaves", QUIZ)
    assert paddlenlp_knights_and_knaves(said(TRUTH), line["tgt"]).score == 3.0


def test_the_rows_of_the_example_are_read_as_they_are(tmp_path):
    source, out = tmp_path / "train.jsonl", tmp_path / "kk.jsonl"
    source.write_text(json.dumps({"src": ["<|im_start|>user\nWho?<think>"], "tgt": [TRUTH]}) + "\n")
    with pytest.raises(UserError, match="add --data-source NAME"):
        convert_answers(source, out)
    convert_answers(source, out, "knights-and-knaves")
    assert lines(out) == [{"src": "<|im_start|>user\nWho?<think>", "tgt": TRUTH, "data_source": "knights-and-knaves"}]
