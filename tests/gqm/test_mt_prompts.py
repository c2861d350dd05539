import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.languages import LANG_NAMES
from grrm.gqm.mt_prompts import MT_PROMPT_TYPES, mt_prompt, recover_mt_task, tower_prompt

RECOVERABLE = [kind for kind in MT_PROMPT_TYPES if kind != "SSR"]
TEMPLATES = {
    "bare": str,
    "chatml": render_chatml,
    "with a system message": lambda text: f"<|im_start|>system\nTranslate well.<|im_end|>\n{render_chatml(text)}",
    "inst": lambda text: f"<s>[INST] {text} [/INST]",
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("prompt_type", RECOVERABLE)
@given(source=st.text(), pair=st.lists(st.sampled_from(sorted(LANG_NAMES)), min_size=2, max_size=2))
def test_task_is_recovered_from_its_prompt(template, prompt_type, source, pair):
    kept = source.replace("\n", " ") if prompt_type.startswith("Tower") else source
    assert recover_mt_task(template(mt_prompt(source, *pair, prompt_type))) == (kept, *pair)


@pytest.mark.parametrize("prompt_type", RECOVERABLE)
def test_source_that_quotes_a_prompt_or_a_fence_is_recovered_whole(prompt_type):
    inner = mt_prompt("inner", "en", "zh", "codeblock-think") + render_chatml(mt_prompt("x", "de", "fr", "seedx"))
    kept = inner.replace("\n", " ") if prompt_type.startswith("Tower") else inner
    assert recover_mt_task(render_chatml(mt_prompt(inner, "en", "de", prompt_type))) == (kept, "en", "de")


def test_names_without_a_code_come_back_as_names():
    assert recover_mt_task(mt_prompt("s", "Klingon", "de")) == ("s", "Klingon", "de")


@pytest.mark.parametrize("text", ["", "Translate this.", mt_prompt("s", "en", "de", "SSR")])
def test_text_without_a_task_gives_none(text):
    assert recover_mt_task(text) is None


@given(st.text())
def test_recovery_never_raises(text):
    assert recover_mt_task(text) is None


def test_seed_x_ends_with_the_code_not_the_name():
    assert mt_prompt("Hi", "en", "zh", "seedx") == "Translate the following English sentence into Chinese:\nHi <zh>"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("s", "en", "Chinese", "seedx"), "needs the target language as a code, not 'Chinese'"),
        (("s", "en", "xx"), "unknown language 'xx'"),
        (("s", "en", "de", "bogus"), "codeblock-think, Tower"),
    ],
)
def test_prompts_that_do_not_exist_are_refused_in_one_sentence(arguments, message):
    with pytest.raises(UserError, match=message):
        mt_prompt(*arguments)


def test_tower_prompt_takes_names_as_they_are():
    assert tower_prompt("a\nb", "xx", "German") == "Translate the following text from xx into German:\nxx: a b\nGerman:"


def test_many_heads_without_an_end_do_not_take_quadratic_time() -> None:
    text = "Translate the following English sentence into German:\n" * 20_000  # one backtracking pattern needs an hour
    assert recover_mt_task(text) is None
