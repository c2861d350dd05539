import re
from pathlib import Path

import pytest

from grrm.data.corpora.pairs import CorpusFiles
from grrm.data.corpora.terms import Entry, build_terms, term_entries
from grrm.data.parquet import TranslationRow, read_rows
from grrm.errors import UserError


@pytest.fixture(scope="module")
def entries() -> dict[str, Entry]:
    return {entry["en"]: entry for entry in term_entries()}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CorpusFiles:
    return build_terms(tmp_path_factory.mktemp("terms"), seed=2)


def test_both_sources_are_there_in_many_languages(entries: dict[str, Entry]) -> None:
    assert entries["Germany"]["zh"] == "德国"
    assert entries["Swiss Franc"]["it"] == "franco svizzero"
    assert entries["Password change"]["fr"] == "Modification du mot de passe"
    assert entries["Password change"]["zh"] == "密码修改"
    assert sum(len(entry) == 10 for entry in entries.values()) > 1_000


def test_entries_are_de_duplicated_across_catalogues(entries: dict[str, Entry]) -> None:
    folded = [text.casefold() for text in entries]
    assert len(set(folded)) == len(folded)


def test_placeholders_markup_and_untranslated_texts_are_left_out(entries: dict[str, Entry]) -> None:
    for entry in entries.values():
        assert not [text for text in entry.values() if re.search(r"%\(|%s|%d|[{}<>\n]", text)]
        assert re.search(r"[\u0400-\u04ff]", entry.get("ru", "я"))
        assert re.search(r"[\u4e00-\u9fff]", entry.get("zh", "中"))
        assert all(text.strip() for text in entry.values())


def test_an_entry_is_trained_on_or_held_out_as_a_whole(files: CorpusFiles) -> None:
    train, heldout = read_rows(files.train), read_rows(files.heldout)
    assert (len(train), len(heldout)) == (files.n_train, files.n_heldout)
    assert len(train) > 20_000
    assert len(heldout) == 1_000
    train_texts = {text for row in train for text in (row.src_text, row.trg_text)}
    assert not [row for row in heldout if row.src_text in train_texts or row.trg_text in train_texts]
    assert not {_english(row).casefold() for row in heldout} & {_english(row).casefold() for row in train}


def test_other_settings_hold_out_the_same_terms(tmp_path: Path, files: CorpusFiles) -> None:
    small = build_terms(tmp_path, train_rows=50, heldout_rows=None, languages=("en", "de", "nl"), seed=2)
    assert small.n_train == 50
    trained = {_english(row).casefold() for row in read_rows(files.train)}
    heldout = {_english(row).casefold() for row in read_rows(small.heldout)}
    assert heldout
    assert not heldout & trained


def _english(row: TranslationRow) -> str:
    return row.src_text if row.src_lang == "en" else row.trg_text


def test_same_arguments_same_rows(tmp_path: Path) -> None:
    a, b = (build_terms(tmp_path / name, 100, 10, languages=("en", "ko")) for name in "ab")
    assert a.train.read_bytes() == b.train.read_bytes()
    assert a.heldout.read_bytes() == b.heldout.read_bytes()


def test_senseless_settings_and_a_missing_django_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="heldout_rows is 0"):
        build_terms(tmp_path, heldout_rows=0)
    monkeypatch.setattr("grrm.data.corpora.terms.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install django"):
        build_terms(tmp_path)
