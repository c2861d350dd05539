"""What a judge's prompts share, and a tokenizer that has it as single tokens."""

from itertools import chain
from pathlib import Path

import pytest

from grrm.data.bpe import add_words, train_bpe
from grrm.data.judge_frames import prompt_frames_of, response_frames_of
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.prompts import gqm_prompt, render_response, sqm_prompt

TEXTS = ["Guten Tag", "Hallo", "3. Mai 2024", "zwei"]


def prompt_of(kind: str, n: int) -> str:
    if kind == "sqm":
        return render_chatml(sqm_prompt("Good day", TEXTS[0], "en", "fr"))
    return render_chatml(gqm_prompt("Good day", TEXTS[:n], "en", "fr", "score"))


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bpe")
    return train_bpe([prompt_of("gqm", 4), prompt_of("sqm", 1), *TEXTS], folder, 600, ["<|im_start|>user\n"])


@pytest.mark.parametrize(("kind", "n"), [("gqm", 4), ("gqm", 2), ("sqm", 1)])
def test_judge_prompt_is_its_frames_and_the_words_in_between(words: Path, tmp_path: Path, kind: str, n: int) -> None:
    tokenizer = add_words(words, tmp_path, prompt_frames_of(kind, 4), response_frames_of(kind, 4))
    before = add_words(words, tmp_path / "unchanged", [], [])
    prompt = prompt_of(kind, n)
    frames = {tokenizer.token_to_id(frame) for frame in prompt_frames_of(kind, 4)}
    ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == prompt
    assert sum(token in frames for token in ids) == 4 + n
    own = [before.encode(text).ids for text in (" English", " French", "Good day", *TEXTS[:n])]
    assert [token for token in ids if token not in frames] == list(chain.from_iterable(own))


def test_verdict_is_one_token_before_each_score_and_survives_decoding(words: Path, tmp_path: Path) -> None:
    tokenizer = add_words(words, tmp_path, prompt_frames_of("gqm", 4), response_frames_of("gqm", 4))
    verdict = render_response("", [9, 0, 5], "score")
    ids = tokenizer.encode(verdict, add_special_tokens=False).ids
    assert len(ids) == 3 * 2 + 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == verdict
    assert response_frames_of("sqm", 1) == ["\n\n"]


def test_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the tokenizer in .* cannot be read"):
        add_words(tmp_path, tmp_path / "out", [], [])
