import json
import logging
import tracemalloc
from pathlib import Path

import pytest
from support.rows import write_jsonl

from grrm.data.convert import render_prompt
from grrm.data.dataset import IGNORED_LABEL, read_prompt_items, read_sft_items
from grrm.data.held_out import held_out_split
from grrm.data.row_tasks import any_task_of
from grrm.data.task_json import render_tgt
from grrm.errors import UserError
from grrm.evaluation.held_out_scores import has_reference
from grrm.gqm.groups import TranslationTask
from grrm.gqm.mt_prompts import mt_prompt

TASK = TranslationTask("Hi", "en", "de", "Hallo")
EOS = 2


def encode(text: str) -> list[int]:
    return list(text.encode())


def _write(path: Path, *rows: object) -> Path:
    return write_jsonl(path, rows)


def _row(prompt: object, tgt: object | None = None) -> dict[str, object]:
    return {"src": prompt, "tgt": render_tgt(TASK) if tgt is None else tgt, "extra": 1}


def test_prompts_come_with_ids_text_and_task(tmp_path: Path) -> None:
    path = _write(tmp_path / "x.jsonl", _row("ab"), _row(["cd"], [render_tgt(TASK)]))
    dataset = read_prompt_items(path, encode, max_prompt_len=5)
    assert [(i.index, i.prompt_ids, i.prompt_text, i.task) for i in dataset] == [
        (0, [97, 98], "ab", TASK),
        (1, [99, 100], "cd", TASK),
    ]
    assert len(dataset) == 2
    assert dataset[1].prompt_text == "cd"


def test_plain_text_is_the_reference_of_the_translation_prompt_before_it(tmp_path: Path) -> None:
    prompt = render_prompt(TASK, "Tower")
    path = _write(tmp_path / "x.jsonl", _row(prompt, "Hallo\n"), _row([prompt], [""]))
    plain, without = read_prompt_items(path, encode, max_prompt_len=500)
    assert (plain.task, plain.label) == (TASK, "Hallo\n")
    assert without.task == TranslationTask("Hi", "en", "de", None)


def test_any_label_is_taken_where_a_server_knows_what_it_is(tmp_path: Path) -> None:
    label = "(1) Michael is a knight\n(2) Zoey is a knight"
    path = _write(tmp_path / "x.jsonl", _row(["Who is a knight?"], [label]), _row("ab"))
    puzzle, translation = read_prompt_items(path, encode, 100, task_of=any_task_of)
    assert (puzzle.task, puzzle.label) == (TranslationTask("Who is a knight?", "", "", label), label)
    assert not has_reference(puzzle.task)
    assert (translation.task, translation.label) == (TASK, render_tgt(TASK))


def test_a_task_that_was_cut_short_is_not_taken_for_a_reference(tmp_path: Path) -> None:
    path = _write(tmp_path / "x.jsonl", _row(render_prompt(TASK, "Tower"), render_tgt(TASK)[:-5]))
    with pytest.raises(UserError, match="line 1: 'tgt' is not a translation task in JSON"):
        read_prompt_items(path, encode, 500)


@pytest.mark.parametrize("response", ["```\nHallo\n```", "Hi is a greeting.\n```text\nHallo\n```\n"])
def test_a_response_to_learn_is_not_taken_for_a_reference(tmp_path: Path, response: str) -> None:
    path = _write(tmp_path / "sft.jsonl", _row(render_prompt(TASK, "codeblock-think"), response))
    with pytest.raises(
        UserError, match=r"line 1: 'tgt' is not .*`grrm data convert --to rl` writes, not that of --to sft"
    ):
        read_prompt_items(path, encode, 500)
    (item,) = read_prompt_items(path, encode, 500, task_of=any_task_of)
    assert (item.label, has_reference(item.task)) == (response, False)
    about_code = TranslationTask("Type `x`", "en", "de", response.strip())
    path = _write(tmp_path / "plain.jsonl", _row(render_prompt(about_code, "Tower"), response))
    assert read_prompt_items(path, encode, 500)[0].task == about_code


def test_over_long_prompts_are_left_out_and_counted_never_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = _write(tmp_path / "x.jsonl", _row("abc"), _row("abcd"), _row("ab"))
    with caplog.at_level(logging.WARNING):
        dataset = read_prompt_items(path, encode, max_prompt_len=3)
    assert [item.prompt_text for item in dataset] == ["abc", "ab"]
    assert [item.index for item in dataset] == [0, 1]
    assert "1 of 3 rows are longer than max_prompt_len = 3" in caplog.text


def test_other_keys_can_be_chosen(tmp_path: Path) -> None:
    path = _write(tmp_path / "x.jsonl", {"prompt": "ab", "label": render_tgt(TASK)})
    assert len(read_prompt_items(path, encode, 9, prompt_key="prompt", response_key="label")) == 1


def test_sft_labels_are_masked_on_the_prompt_and_end_with_eos(tmp_path: Path) -> None:
    dataset = read_sft_items(_write(tmp_path / "x.jsonl", _row("ab", "xy")), encode, EOS, max_length=5)
    item = dataset[0]
    assert item.input_ids == [97, 98, 120, 121, EOS]
    assert item.labels == [IGNORED_LABEL, IGNORED_LABEL, 120, 121, EOS]
    assert (item.prompt_len, item.prompt_text, item.index) == (2, "ab", 0)


def test_sft_learns_all_tokens_behind_the_first_when_it_trains_on_prompts(tmp_path: Path) -> None:
    path = _write(tmp_path / "x.jsonl", _row("ab", "xy"))
    (item,) = read_sft_items(path, encode, EOS, max_length=5, train_on_prompt=True)
    assert item.input_ids == [97, 98, 120, 121, EOS]
    assert (item.labels, item.prompt_len) == ([IGNORED_LABEL, 98, 120, 121, EOS], 1)
    assert item.prompt_text == "ab"


def test_rows_share_the_ids_of_their_tokens(tmp_path: Path) -> None:
    def new_ids(text: str) -> list[int]:
        return [1000 + code for code in encode(text)]

    path = _write(tmp_path / "rl.jsonl", *(_row(f"a prompt {n}") for n in range(50)))
    prompts = [item.prompt_ids for item in read_prompt_items(path, new_ids, 4096)]
    path = _write(tmp_path / "sft.jsonl", *(_row(f"a prompt {n}", "an answer") for n in range(50)))
    responses = [item.input_ids[:-1] for item in read_sft_items(path, new_ids, eos_id=2, max_length=4096)]
    for rows in (prompts, responses):
        tokens = [token for row in rows for token in row]
        assert len({id(token) for token in tokens}) == len(set(tokens)) < len(tokens)


def test_sft_counts_the_end_token_in_the_length(tmp_path: Path) -> None:
    path = _write(tmp_path / "x.jsonl", _row("ab", "xy"), _row("a", "x"))
    dataset = read_sft_items(path, encode, EOS, max_length=4)
    assert [item.prompt_text for item in dataset] == ["a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no lines"),
        (b"\n \n", "has no lines"),
        (b'{"src": "a"\n', "line 1 is not JSON"),
        (b'{"src": "\xff", "tgt": ""}\n', "is not UTF-8 text in line 1"),
        (b"[1]\n", "line 1 is not a JSON object"),
        (b'{"src": "a"}\n', r"line 1 has no key 'tgt' \(found: src\)"),
        (b'\n{"src": ["a", "b"], "tgt": ""}\n', "line 2: 'src' must be text"),
        (b'{"src": "a", "tgt": "plain"}\n', "line 1: 'tgt' is not a translation task"),
        (
            json.dumps(_row("\U0001f600")).encode() + b'\n{"src": "a", "tgt": ["\\ud800"]}\n',
            r"line 2 has '\\ud800', half of a character; mend or remove the line",
        ),
    ],
)
def test_a_bad_file_is_one_sentence_with_file_and_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        read_prompt_items(path, encode, 100)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_a_line_that_does_not_end_is_one_sentence_and_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"src": "' + b"a" * 60_000_000 + b'"}\n')
    tracemalloc.start()
    with pytest.raises(UserError, match="line 1 is longer than 16777216 bytes; give text with line feeds"):
        read_prompt_items(path, encode, 100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


def test_a_missing_file_and_all_too_long_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_sft_items(tmp_path / "no.jsonl", encode, EOS, 10)
    path = _write(tmp_path / "x.jsonl", _row("abc"))
    with pytest.raises(UserError, match="all 1 rows are longer than max_prompt_len = 2 tokens; raise the limit"):
        read_prompt_items(path, encode, 2)


def test_unicode_line_separators_inside_text_do_not_split_a_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(_row("a\u2028b\x85c"), ensure_ascii=False) + "\n", encoding="utf-8")
    assert read_prompt_items(path, encode, 100)[0].prompt_text == "a\u2028b\x85c"


@pytest.mark.parametrize(("val_size", "n_held"), [(0.25, 5), (4, 4), (0.01, 1)])
def test_a_share_or_a_number_of_rows_is_held_out(val_size, n_held):
    train, held_out = held_out_split(range(20), lambda row: row, val_size, seed=1)
    assert len(held_out) == n_held
    assert sorted([*train, *held_out]) == list(range(20))


def bracketed(messages) -> str:
    if any("refused" in message["content"] for message in messages):
        raise ValueError("is refused by the template")
    return "".join(f"[{message['role']}]{message['content']}" for message in messages) + "[assistant]"


def chat(*contents: str, **keys: object) -> dict[str, object]:
    """A user's and an assistant's messages in turn."""
    roles = ["user", "assistant"] * len(contents)
    return {"messages": [{"role": role, "content": text} for role, text in zip(roles, contents, strict=False)]} | keys


def test_messages_are_a_prompt_and_its_response_by_the_tokenizers_template(tmp_path: Path) -> None:
    path = _write(tmp_path / "x.jsonl", chat("Hi", "Hallo"), chat("a", "b", "c", tgt="d"), _row("e", "f"))
    items = read_sft_items(path, encode, EOS, 500, render=bracketed)
    assert [(item.prompt_text, item.input_ids[item.prompt_len : -1], item.is_chat) for item in items] == [
        ("[user]Hi[assistant]", encode("Hallo"), True),
        ("[user]a[assistant]b[user]c[assistant]", encode("d"), True),
        ("e", encode("f"), False),
    ]


def test_messages_of_a_translation_prompt_are_a_task(tmp_path: Path) -> None:
    prompt = mt_prompt("Hi", "en", "de", "Tower")
    path = _write(tmp_path / "x.jsonl", chat(prompt, "Hallo"), chat(prompt, tgt=""), chat("?", tgt=render_tgt(TASK)))
    items = read_prompt_items(path, encode, 500, render=bracketed)
    assert [item.task for item in items] == [TASK, TranslationTask("Hi", "en", "de", None), TASK]
    assert items[0].prompt_text == f"[user]{prompt}[assistant]"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (chat("Hi"), "has no key 'tgt'"),
        ({"messages": "Hi"}, "'messages' is not a list of messages with role and content; mend or remove the line"),
        ({"messages": [{"role": "user"}]}, "'messages' is not a list of messages with role and content"),
        ({"messages": []}, "'messages' has no message of the user"),
        ({"messages": [{"role": "system", "content": "x"}]}, "'messages' has no message of the user"),
        (chat("refused", "b"), "'messages' is refused by the template"),
    ],
)
def test_a_chat_that_cannot_be_read_is_told_by_its_line(tmp_path: Path, row: dict[str, object], message: str) -> None:
    path = _write(tmp_path / "x.jsonl", chat("a", "b"), row)
    with pytest.raises(UserError, match=f"x.jsonl line 2:? {message}"):
        read_sft_items(path, encode, EOS, 500, render=bracketed)


def test_messages_need_a_template(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 1 has messages, for which there is no chat template; give src and tgt"):
        read_sft_items(_write(tmp_path / "x.jsonl", chat("a", "b")), encode, EOS, 500)
