import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.prompts import GQM_TASKS, gqm_prompt, render_response


@pytest.mark.parametrize(("count", "limit"), [(0, 26), (1, 26), (27, 26), (9, 8)])
def test_group_sizes_that_cannot_be_compared_are_refused(count, limit):
    with pytest.raises(ValueError, match=f"2 to {limit} candidates, not {count}"):
        gqm_prompt("s", ["x"] * count, "en", "de", max_candidates=limit)


def test_largest_group_names_its_last_candidate_z():
    assert "Translation Z:\n```\n25\n```\n" in gqm_prompt("s", [str(i) for i in range(26)], "en", "de")


@pytest.mark.parametrize(
    "call", [lambda: gqm_prompt("s", "xy", "en", "de", "rank"), lambda: render_response("", [], "x")]
)
def test_unknown_prompt_type_names_the_known_ones(call):
    with pytest.raises(UserError, match="score, ranking, ranking_score"):
        call()


@pytest.mark.parametrize("scores", [[11, 1], [-1, 1], [7.5, 1], [1] * 27])
def test_scores_a_judge_must_not_learn_are_refused(scores):
    with pytest.raises(ValueError, match="integers from 0 to 10"):
        render_response("", scores)


@given(st.text(), st.sampled_from(sorted(GQM_TASKS)))
def test_prompt_carries_every_text_verbatim(text, prompt_type):
    assert f"```\n{text}\n```" in gqm_prompt("s", [text, "y"], "en", "de", prompt_type)


def test_chat_template_has_no_system_message():
    assert render_chatml("hi") == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
