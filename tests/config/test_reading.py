"""An argument file and a command line as text: what can be read as which type, and what is told where it cannot."""

from __future__ import annotations

import copy
import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.argument_files import typed_values

from grrm import small_files
from grrm.config import RLConfig, SFTConfig
from grrm.config.key import keys_of
from grrm.config.load import parse_overrides, read_yaml
from grrm.config.values import convert
from grrm.errors import UserError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [1", "this is not valid YAML"),
        ("seed: 1\nseed: 2\n", "line 2: this is not valid YAML: the key 'seed' is given twice"),
        ("a: &a {k: 1}\nb:\n  <<: *a\n  k: 2\n  k: 3\n", "line 5: this is not valid YAML: the key 'k' is given twice"),
        ("a: &a {k: 1}\nb: {<<: *a, <<: *a}\n", "the key '<<' is given twice"),
        ("b: {<<: 1}\n", "line 1: this is not valid YAML: expected a mapping or list of mappings for merging"),
        ("a: " + "[" * 1_000, "is not valid YAML: its brackets are nested too deeply"),
        ("- a\n- b\n", "holds no settings"),
        ("", "holds no settings"),
        ("a: \x00", "is not valid YAML"),
        ("? [1, 2]\n: 3\n", "is not valid YAML"),
    ],
)
def test_unusable_yaml_is_one_sentence(tmp_path, content, message):
    path = tmp_path / "X.yaml"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        read_yaml(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["2026-11-29", "2026_11_29", "010", "1:30", "0x10"])
def test_what_only_yaml_takes_for_a_date_or_a_number_is_text_as_on_the_command_line(tmp_path, text):
    path = tmp_path / "X.yaml"
    path.write_text(f"run_name: {text}\n")
    assert read_yaml(path) == {"run_name": text}


def test_numbers_are_numbers(tmp_path):
    path = tmp_path / "X.yaml"
    path.write_text("a: [0, -7, +5, 1.5, .5, 5., 1.0e-5, .inf]\n")
    assert read_yaml(path) == {"a": [0, -7, 5, 1.5, 0.5, 5.0, 1e-5, float("inf")]}


def test_a_number_is_its_text_where_a_key_takes_text(tmp_path):
    path = tmp_path / "X.yaml"
    path.write_text("run_name: 1.10\nlora_target_modules: [5., a]\nlearning_rate: 1.0e-5\n")
    values = typed_values(SFTConfig, read_yaml(path))
    assert values == {"run_name": "1.10", "lora_target_modules": ["5.", "a"], "learning_rate": 1e-5}
    assert json.dumps(copy.deepcopy(read_yaml(path)["run_name"])) == "1.1"


def test_a_mapping_is_merged_into_others(tmp_path):
    path = tmp_path / "X.yaml"
    path.write_text(
        "a:\n  first: &a\n    <<: &o {k: 1, l: 1}\n    k: 2\n"
        "b: {k: 3, <<: *a, m: 3}\n"  # before the keys of `a` are read, which are below its own level
        "c: {<<: [*a, *o, {n: 4}]}\n"
    )
    a = {"k": 2, "l": 1}
    assert read_yaml(path) == {"a": {"first": a}, "b": {"k": 3, "l": 1, "m": 3}, "c": a | {"n": 4}}


def test_an_argument_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match=r"'no\.yaml' cannot be read: No such file"):
        read_yaml("no.yaml")
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"a: \xff\xfe")
    with pytest.raises(UserError, match="not UTF-8"):
        read_yaml(path)


@pytest.mark.parametrize("has_writer", [True, False])
def test_a_pipe_is_read_to_its_end_and_is_a_sentence_where_nothing_comes(tmp_path, monkeypatch, has_writer):
    path = tmp_path / "pipe.yaml"
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(path.write_text, "seed: 1\n" + "# more than a pipe holds\n" * 10_000 + "other: 2\n")
        assert read_yaml(path) == {"seed": 1, "other": 2}
        writing.result()
    monkeypatch.setattr(small_files, "WAIT_S", 0.05)
    writer = os.open(path, os.O_RDWR) if has_writer else None  # which writes nothing
    with pytest.raises(UserError, match=r"the argument file '.*pipe\.yaml' is a pipe to which nothing was written"):
        read_yaml(path)
    if writer is not None:
        os.close(writer)


def test_stray_words_on_the_command_line_are_refused():
    assert parse_overrides(["--a", "-1", "--b=x=y", "--c"]) == {"a": "-1", "b": "x=y", "c": True}
    with pytest.raises(UserError, match="Unexpected 'stray'"):
        parse_overrides(["--a", "1", "stray"])


@settings(max_examples=200)
@given(
    st.sampled_from(sorted(keys_of(RLConfig))),
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
)
def test_any_scalar_is_converted_or_refused_with_its_key(key, value):
    try:
        keys_of(RLConfig)[key].read(value)
    except UserError as error:
        message = str(error)
    else:
        message = f"{key} is fine"
    assert message.startswith(f"{key} is ")


@given(st.integers(-(10**20), 10**20))
def test_whole_numbers_survive_as_text(number):
    assert convert("max_steps", str(number), int) == convert("max_steps", number, int) == number


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("[{judge: chrf, weight: 0.3}]", list[dict[str, Any]], [{"judge": "chrf", "weight": 0.3}]),
        ('[{"judge": "chrf", "weight": 3e-1}]', list[dict[str, Any]], [{"judge": "chrf", "weight": 0.3}]),
        ("[http://a:1, http://b:2]", list[str], ["http://a:1", "http://b:2"]),
        ("{judge_timeout: drop_group}", dict[str, str], {"judge_timeout": "drop_group"}),
        ("{minor: 2}", dict[str, float], {"minor": 2.0}),
    ],
)
def test_lists_and_mappings_on_the_command_line_are_written_as_in_the_file(text, hint, value):
    assert convert("key", text, hint) == value
    with pytest.raises(UserError, match="key is"):
        convert("key", text[:-1], hint)


@pytest.mark.parametrize(
    ("text", "hint"), [("{minor: 1, minor: 2}", dict[str, float]), ("[" * 1_000, list[str])], ids=["twice", "deep"]
)
def test_a_key_given_twice_and_endless_nesting_are_refused_on_the_command_line_too(text, hint):
    with pytest.raises(UserError, match="key is"):
        convert("key", text, hint)
