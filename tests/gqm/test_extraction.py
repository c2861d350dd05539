import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.errors import UserError
from grrm.gqm.extraction import EXTRACTOR_TYPES, extract_translation

BLOCKS = ("codeblock", "codeblock-think")
PIECES = st.sampled_from(["```", "\n", "text", "你好", " ", "<answer>", "</answer>", "[COT]", "zh\n", "`"])


@given(st.one_of(st.text(), st.lists(PIECES, max_size=12).map("".join)), st.sampled_from(EXTRACTOR_TYPES))
def test_a_translation_is_stripped_text_or_none(response, extractor_type):
    found = extract_translation(response, extractor_type)
    assert found is None or (found and found == found.strip() and found in response)


EMPTY_ANSWERS = {
    "codeblock": "```\n\n```",
    "codeblock-think": "```\n\n```",
    "SSR": "<answer> </answer>",
    "seedx-cot": "[COT] why",
}


@pytest.mark.parametrize("extractor_type", EXTRACTOR_TYPES)
def test_empty_answers_are_no_translation(extractor_type):
    for response in ("", " \n\t ", EMPTY_ANSWERS.get(extractor_type, "\n")):
        assert extract_translation(response, extractor_type) is None


@pytest.mark.parametrize("extractor_type", BLOCKS)
@pytest.mark.parametrize(
    ("block", "translation"),
    [
        ("```zh\n你好\n```", "你好"),
        ("```text\nHello there.\n```", "Hello there."),
        ("```\nHello\nthere\n```", "Hello\nthere"),
        ("```Hello```", "Hello"),
        ("```Hello there\nfriend\n```", "Hello there\nfriend"),
        ("```text\n```", None),
        ("``` text\nHello there.\n```", "Hello there."),
    ],
)
def test_language_tag_of_a_fence_is_not_part_of_the_translation(extractor_type, block, translation):
    assert extract_translation(f"thinking\n{block}\n", extractor_type) == translation


def test_info_string_is_kept_on_request():
    assert extract_translation("```zh\n你好\n```", "codeblock", strip_info_string=False) == "zh\n你好"


def test_training_wants_one_block_inference_takes_the_last():
    two = "first\n```\na\n```\nthen\n```\nb\n```"
    assert [extract_translation(two, kind) for kind in BLOCKS] == [None, "b"]


@pytest.mark.parametrize("extractor_type", BLOCKS)
@pytest.mark.parametrize("response", ["no block", "```\nopen", "open ```", "```\na\n``` and more"])
def test_text_without_a_final_block_has_no_translation(extractor_type, response):
    assert extract_translation(response, extractor_type) is None


@pytest.mark.parametrize(
    ("extractor_type", "response", "translation"),
    [
        ("line", "think\n answer \n", "answer"),
        ("Tower.lastl", "think\n answer \n", "answer"),
        ("oneline", " answer ", "answer"),
        ("oneline", "two\nlines", None),
        ("none", " two\nlines ", "two\nlines"),
        ("SSR", "<think>r</think><answer> a </answer><answer>b</answer>", "a"),
        ("SSR", "<answer>open", None),
        ("SSR", "a</answer><answer>", None),
        ("seedx-cot", "answer\n[COT] why [COT]", "answer"),
        ("seedx-cot", "answer", "answer"),
    ],
)
def test_other_types(extractor_type, response, translation):
    assert extract_translation(response, extractor_type) == translation


def test_unknown_type_names_the_known_ones():
    with pytest.raises(UserError, match=r"did you mean 'codeblock'\? Known: line, codeblock"):
        extract_translation("x", "block")
