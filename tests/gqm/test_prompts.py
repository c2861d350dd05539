import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.prompts import GQM_TASKS, gqm_prompt, render_response, sqm_prompt


def test_group_prompt_is_the_wire_format():
    assert gqm_prompt("s{0}", ["x", "y\nz"], "en", "Chinese") == (
        "Given a source text in English and multiple translation candidates in Chinese. Perform a step by step "
        "analysis and comparison of the translation quality for the candidates. Finally, rank and score the candidates "
        "with integer scores on a scale from 0 to 10.\n\nSource text:\n```\ns{0}\n```\n\n"
        "Translation A:\n```\nx\n```\nTranslation B:\n```\ny\nz\n```\n"
    )


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


def test_example_is_appended_to_the_task():
    plain, example = (gqm_prompt("s", ["x", "y"], "en", "de", "ranking", add) for add in (False, True))
    assert "best to worst.\n\nSource" in plain
    assert "best to worst. Output the rankings in descending order on the last line" in example


def test_single_prompt_has_no_blank_line_before_the_source():
    assert "from 0 to 10.\nSource text:\n```\ns\n```\n\nTranslation text:\n```\nt\n```\n" in sqm_prompt(
        "s", "t", "en", "de"
    )


def test_rendered_responses():
    scores = [7, 9, 2, 7]
    assert render_response("why", scores, "score") == "why\n\nA: 7, B: 9, C: 2, D: 7\n"
    assert render_response("why", scores, "ranking") == "why\n\n### Final Ranking:\n\nB > A = D > C\n"
    assert render_response("why", scores) == (
        "why\n\n### Final Ranking:\n\nB > A = D > C\n\n### Scores:\n\nB: 9, A: 7, D: 7, C: 2\n"
    )


@pytest.mark.parametrize("scores", [[11, 1], [-1, 1], [7.5, 1], [1] * 27])
def test_scores_a_judge_must_not_learn_are_refused(scores):
    with pytest.raises(ValueError, match="integers from 0 to 10"):
        render_response("", scores)


@given(st.text(), st.sampled_from(sorted(GQM_TASKS)))
def test_prompt_carries_every_text_verbatim(text, prompt_type):
    assert f"```\n{text}\n```" in gqm_prompt("s", [text, "y"], "en", "de", prompt_type)


def test_chat_template_has_no_system_message():
    assert render_chatml("hi") == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
