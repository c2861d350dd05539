import random
import re
from collections import Counter
from pathlib import Path

import pytest

from grrm.data.corpora.cldr import LANGUAGES
from grrm.data.corpora.pairs import SeenTexts
from grrm.data.corpora.phrase import Draws, Side
from grrm.data.corpora.phrases import KINDS, build_phrases, phrase_rows
from grrm.data.parquet import TranslationRow, read_rows
from grrm.errors import UserError

# What CLDR's gaps look like when they are printed: unit ids, lone currency codes, unfilled patterns.
GAP = re.compile(r"\b[a-z]+-[a-z]+-?[a-z]*\b(?=$| )|\bX[A-Z]{2}\b|[{}\[\]]|None")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[TranslationRow], list[TranslationRow]]:
    files = build_phrases(tmp_path_factory.mktemp("phrases"), train_rows=6_000, heldout_rows=600, seed=3)
    assert (files.n_train, files.n_heldout) == (6_000, 600)
    return read_rows(files.train), read_rows(files.heldout)


def test_rows_pair_english_with_every_other_language_both_ways(
    corpus: tuple[list[TranslationRow], list[TranslationRow]],
) -> None:
    for rows in corpus:
        pairs = {(row.src_lang, row.trg_lang) for row in rows}
        assert pairs == {pair for other in LANGUAGES[1:] for pair in (("en", other), (other, "en"))}


def test_no_two_files_share_a_text(tmp_path: Path) -> None:
    files = build_phrases(tmp_path, train_rows=3_000, heldout_rows=300, dev_rows=300, seed=3)
    texts = [
        {text for row in read_rows(path) for text in (row.src_text, row.trg_text)}
        for path in (files.train, files.heldout, files.dev)
    ]
    assert files.n_dev == 300
    assert sum(map(len, texts)) == len(set().union(*texts))


def test_the_sides_never_draw_the_same_content_whatever_the_seed() -> None:
    """A day trained on in a caption or a moment must not be held out by itself, so single values are compared."""
    values: dict[Side, set[str]] = {"train": set(), "heldout": set(), "dev": set()}
    for side, content in values.items():
        for seed in (0, 1):
            draws = Draws(random.Random(seed), side)
            for make, _ in KINDS.values():
                for _ in range(150):
                    content.update(make(draws).content)
    assert min(map(len, values.values())) > 500
    assert sum(map(len, values.values())) == len(set().union(*values.values()))


def test_rows_are_different_translated_and_free_of_gaps(
    corpus: tuple[list[TranslationRow], list[TranslationRow]],
) -> None:
    for rows in corpus:
        assert len(set(rows)) == len(rows)
        for row in rows:
            assert row.src_text != row.trg_text
            for text, language in ((row.src_text, row.src_lang), (row.trg_text, row.trg_lang)):
                assert text == text.strip()
                assert "  " not in text
                assert not re.search(r"[\u00a0\u202f\u2009\u00ad]", text)
                assert not re.search(r"(length|area|mass|volume|duration|speed|power|energy|digital)-[a-z]", text)
                if language in ("zh", "ko"):
                    assert not re.search(r"[a-z]{2}", text), row


def test_sources_are_short_and_of_many_kinds(corpus: tuple[list[TranslationRow], list[TranslationRow]]) -> None:
    words = [len(row.src_text.split()) for row in corpus[0] if row.src_lang == "en"]
    assert 3 <= sum(words) / len(words) <= 6
    assert max(words) <= 16
    assert max(Counter(re.sub(r"\d", "0", row.src_text) for row in corpus[0]).values()) < 0.03 * len(corpus[0])


def test_every_kind_can_be_worded_in_every_language() -> None:
    for make, _ in KINDS.values():
        draws = Draws(random.Random(5), "train")
        for language in LANGUAGES:
            assert any(make(draws).render(language) for _ in range(20))


def test_same_arguments_same_rows_other_seed_other_rows(tmp_path: Path) -> None:
    files = [
        build_phrases(tmp_path / name, 200, 20, languages=("en", "de", "zh"), seed=seed)
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert files[0].train.read_bytes() == files[1].train.read_bytes()
    assert files[0].heldout.read_bytes() == files[1].heldout.read_bytes()
    assert not set(read_rows(files[0].train)) & set(read_rows(files[2].train))


def test_all_pairs_include_those_without_english(tmp_path: Path) -> None:
    files = build_phrases(tmp_path, 300, 5, languages=("de", "fr", "ko"), pairs="all")
    assert {(row.src_lang, row.trg_lang) for row in read_rows(files.train)} == {
        (a, b) for a in ("de", "fr", "ko") for b in ("de", "fr", "ko") if a != b
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train_rows": 0}, "train_rows is 0; ask for at least one row"),
        ({"heldout_rows": -1}, "heldout_rows is -1"),
        ({"dev_rows": -1}, "dev_rows is -1"),
        ({"languages": ("en",)}, "must be at least two different ones"),
        ({"languages": ("en", "de", "de")}, "must be at least two different ones"),
        ({"languages": ("de", "fr")}, "lack en; add it"),
        ({"languages": ("en", "ja")}, "language 'ja' is not in the corpora"),
    ],
)
def test_senseless_settings_are_one_sentence(tmp_path: Path, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_phrases(tmp_path, **arguments)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_place_of_the_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*file/heldout\.parquet"):
        build_phrases(tmp_path / "file", train_rows=2, heldout_rows=2)


def test_more_rows_than_phrases_is_an_error_not_an_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grrm.data.corpora.phrases.KINDS", {"percentage": KINDS["percentage"]})
    assert next(phrase_rows([("en", "de")], seed=0, side="train")).src_text.endswith("%")
    with pytest.raises(UserError, match=r"only \d+ different train phrases were found where 5000 were asked for"):
        build_phrases(tmp_path, train_rows=5_000, languages=("en", "de"))


def test_no_held_out_text_stands_inside_a_training_text(tmp_path):
    files = build_phrases(tmp_path, 3000, 200, ["en", "de", "zh"], seed=4)
    training = {text for row in read_rows(files.train) for text in (row.src_text, row.trg_text)}
    for row in read_rows(files.heldout):
        for text in (row.src_text, row.trg_text):
            whole = re.compile(rf"(?<![0-9A-Za-zÀ-ɏ]){re.escape(text)}(?![0-9A-Za-zÀ-ɏ])")
            assert not any(whole.search(other) for other in training if text in other), text


@pytest.mark.parametrize(
    ("text", "is_seen"),
    [
        ("May 28", True),  # on its own inside a date
        ("May 2", False),  # cuts a number
        ("15 miles", True),
        ("5 miles", False),
        ("5月28日", True),  # no blanks, so nothing to cut
        ("15 mile", False),
        ("июня", True),
        ("июн", False),
    ],
)
def test_text_inside_another_counts_as_seen_unless_it_cuts_a_word(text, is_seen):
    rows = [
        TranslationRow("May 28, 2031", "2031年5月28日", "en", "zh"),
        TranslationRow("15 miles", "8 июня", "en", "ru"),
    ]
    assert (text in SeenTexts(rows)) is is_seen
