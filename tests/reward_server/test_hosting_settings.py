"""Settings of the judge that a server hosts: which go together, and how options are written."""

from __future__ import annotations

import pytest

from grrm.entry import read_assignments
from grrm.errors import UserError
from grrm_reward_server.hosting import build_hosted_judge
from grrm_reward_server.settings import Settings, load_settings

NOWHERE = "http://127.0.0.1:1"


def assigned(*assignments):
    return read_assignments(assignments, "judge option")


def hosted(**values):
    return build_hosted_judge(Settings(**values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"judge": "gqm"}, "no model is named: .* with 'model', or a server with 'openai_urls'"),
        ({"judge": "chrf", "model": "x"}, "'model' has no effect, as judge 'chrf' has no model"),
        ({"judge": "chrf", "judge_deadline_s": 5.0}, "'judge_deadline_s' has no effect"),
        ({"judge": "sqm", "model": "x", "tokenizer": "y"}, "'tokenizer' has no effect, as the model is a checkpoint"),
        (
            {"judge": "gqm", "model": "x", "backend": "fastdeploy", "fastdeploy_options": {"tp": 2}},
            "unknown FastDeploy option 'tp'",
        ),
        ({"judge": "gqm", "openai_urls": ["judge"]}, "URL 'judge' is not of the form"),
        ({"judge": "gqm", "openai_urls": [NOWHERE], "openai_token_env": "NO_SUCH"}, "NO_SUCH of openai_token_env"),
        (
            {"judge": "gqm", "openai_urls": [NOWHERE], "chat_template": "checkpoint"},
            "needs the folder of its tokenizer",
        ),
        ({"judge": "gqm", "model": "/nowhere"}, "checkpoint folder '/nowhere' does not exist"),
        ({"judge": "gqm", "model": "/nowhere", "judge_options": {"permutation": 2}}, "did you mean 'permutations'"),
        ({"judge": "gqm", "openai_urls": [NOWHERE], "judge_options": {"prompt_length": 9}}, "needs the folder of the"),
        ({"judge": "chrf", "judge_options": {"round": True}}, "did you mean 'round_to_integer'"),
    ],
)
def test_settings_that_do_not_go_together_are_one_sentence(values, message):
    with pytest.raises(UserError, match=message) as caught:
        hosted(**values)
    assert "\n" not in str(caught.value)


def test_a_missing_paddle_is_named_with_the_way_around_it(monkeypatch, tmp_path):
    monkeypatch.setattr("grrm.engine.options.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'paddle-grrm\[cpu\]'.*'openai_urls'"):
        hosted(judge="gqm", model=str(tmp_path))


def test_options_on_the_command_line_replace_single_ones_of_the_file(tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text("judge: gqm\njudge_options:\n  permutations: 4\n  cache_size: 10\n")
    settings = load_settings(str(path), {"judge_options": assigned("permutations=2", "prompt-type=score")})
    assert settings.judge_options == {"permutations": 2, "cache_size": 10, "prompt_type": "score"}


@pytest.mark.parametrize("text", ["010", "1:30", "1_0", "0x10", "2026-11-29"])
def test_values_of_options_are_the_numbers_that_an_argument_file_reads(text):
    assert assigned(f"name={text}", "number=10") == {"name": text, "number": 10}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [("x", "has no value"), ("=1", "has no value"), ("x=[", "quote it"), ("x={a: 1, a: 2}", "quote it")],
)
def test_assignments_of_another_form_are_refused(assignment, message):
    with pytest.raises(UserError, match=message):
        assigned(assignment)
