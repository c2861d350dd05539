"""The corpus of Home Assistant's interface, from a wheel of a few strings."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.command_line import invoke

from grrm.data.corpora.homeassistant import build_homeassistant
from grrm.data.corpora.pairs import CorpusFiles
from grrm.data.corpora.translations import letters_of, parse_pairs
from grrm.data.parquet import TranslationRow, count_rows, read_rows
from grrm.errors import UserError

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def write_wheel(path: Path, texts: Mapping[str, Mapping[str, object]], component: str = "lamp") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for locale, content in texts.items():
            archive.writestr(f"homeassistant/components/{component}/translations/{locale}.json", json.dumps(content))
        archive.writestr("homeassistant/components/lamp/strings.json", '{"no": "not a translation at all"}')
    return path


def many(language: str) -> dict[str, object]:
    """300 strings of five words, some of which differ in case and signs only."""
    return {
        f"{a} {b} {end}": {"text": f"{language} {a} and {b} lamps{end}".replace("en ", "")}
        for a in NUMBERS
        for b in NUMBERS
        for end in ("", "!", ", please")
    }


def rows_of(files: CorpusFiles) -> dict[str, list[TranslationRow]]:
    return {path.stem: read_rows(path) for path in (files.train, files.heldout, files.dev)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = {locale: many(locale) for locale in ("en", "de", "es", "zh-Hans")}
    return write_wheel(tmp_path_factory.mktemp("wheel") / "homeassistant.whl", texts)


def test_no_two_files_share_a_text_by_its_letters(wheel: Path, tmp_path: Path) -> None:
    rows = rows_of(build_homeassistant(tmp_path, parse_pairs("en-de,en-es,zh-en"), wheel))
    letters = [{letters_of(text) for row in side for text in row[:2]} for side in rows.values()]
    assert min(map(len, letters)) > 5
    assert sum(map(len, letters)) == len(set().union(*letters))
    assert {(row.src_lang, row.trg_lang) for row in rows["train"]} == {("en", "de"), ("en", "es"), ("zh", "en")}
    row = next(row for row in rows["train"] if row.src_lang == "zh")
    assert row.src_text == f"zh-Hans {row.trg_text}"


def test_what_is_held_out_is_held_out_whatever_the_pairs_words_and_seed(wheel: Path, tmp_path: Path) -> None:
    first = rows_of(build_homeassistant(tmp_path / "a", [("en", "de")], wheel))
    other = rows_of(build_homeassistant(tmp_path / "b", [("en", "es")], wheel, min_words=5, seed=7))
    for side in ("heldout", "dev"):
        assert {row.src_text for row in other[side]} <= {row.src_text for row in first[side]}
        assert not {row.src_text for row in first[side]} & {row.src_text for row in other["train"]}


def test_the_same_arguments_give_the_same_rows_in_a_shuffled_order(wheel: Path, tmp_path: Path) -> None:
    a, b, c = (
        rows_of(build_homeassistant(tmp_path / name, [("en", "de"), ("en", "es")], wheel, seed=seed))
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert a == b
    assert a["train"] != c["train"]
    assert a["train"] != sorted(a["train"])
    assert sorted(a["train"]) == sorted(c["train"])


def test_the_most_frequent_translation_stands_for_a_text(tmp_path: Path) -> None:
    english = dict.fromkeys("abcd", "Turn on the lamp") | {"e": "The other lamp is on"}
    german = {"a": "Lampe an", "b": "Schalte die Lampe ein", "c": "Schalte die Lampe ein", "d": "turn on the LAMP."}
    german["e"] = "Die andere Lampe ist an"
    wheel = write_wheel(tmp_path / "x.whl", {"en": english, "de": german})
    rows = [row for side in rows_of_all(tmp_path / "out", wheel).values() for row in side]
    assert sorted(row.trg_text for row in rows) == ["Die andere Lampe ist an", "Schalte die Lampe ein"]


def rows_of_all(folder: Path, wheel: Path, **settings: object) -> dict[str, list[TranslationRow]]:
    """The rows of those files that there are: a corpus of few strings may have none to hold out."""
    build_homeassistant(folder, [("en", "de")], wheel, **settings)  # type: ignore[arg-type]
    return {path.stem: read_rows(path) for path in folder.glob("*.parquet") if count_rows(path)}


@pytest.mark.parametrize(
    ("english", "german", "kept", "kept_with_placeholders"),
    [
        ("The lamp {name} is on", "Die Lampe {name} ist an", False, True),
        ("The lamp {name} is on", "Die Lampe {namen} ist an", False, False),
        ("The lamp {name} is on", "Die Lampe ist an", False, False),
        ("Read [the manual]({url}) of it", "Lies [das Handbuch]({url}) dazu", False, False),
        ("See https://example.org for the lamp", "Siehe https://example.org zur Lampe", False, False),
        ("[%key:component::lamp::title%] is on now", "Die Lampe ist jetzt an", False, False),
        ("Two lines\nof a lamp", "Zwei Zeilen\neiner Lampe", False, False),
        ("The lamp is on", "  Die Lampe ist an ", True, True),
        ("Too few words", "Zu wenige Wörter", False, False),
        ("Lamp of type HX-12", "Lamp of type HX-13", False, False),
    ],
)
def test_what_is_kept(tmp_path: Path, english: str, german: str, kept: bool, kept_with_placeholders: bool) -> None:
    others = many("en"), many("de")
    wheel = write_wheel(tmp_path / "x.whl", {"en": {"it": english} | others[0], "de": {"it": german} | others[1]})
    for keep, expected in ((False, kept), (True, kept_with_placeholders)):
        rows = rows_of_all(tmp_path / str(keep), wheel, keep_placeholders=keep).values()
        found = [row for side in rows for row in side if row.src_text == english]
        assert [row.trg_text for row in found] == [german.strip()] * expected


def test_the_command_writes_what_was_asked_for_and_where_it_comes_from(wheel: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--pairs", "en-de", "--from", str(wheel), "--train-rows", "50", "--dev-rows", "2"]
    done = invoke("data", "corpus", "homeassistant", out, *options)
    assert f"{out / 'train.parquet'}: 50 rows" in done.output
    source = json.loads((out / "source.json").read_text())
    assert source["licence"] == "Apache-2.0"
    assert source["rows"]["train"] == {"en-de": 50}
    assert source["rows"]["dev"] == {"en-de": 2}
    assert list(source["files"]) == ["homeassistant.whl"]
    assert "2025.3.4" not in source["origin"], "the wheel may be of any version"
    invoke("data", "corpus", "phrases", out, "--train-rows", 2, "--heldout-rows", 2)
    assert not (out / "source.json").exists(), "the licence is of other rows"


def test_rows_of_an_earlier_corpus_do_not_stay(wheel: Path, tmp_path: Path) -> None:
    build_homeassistant(tmp_path, [("en", "de")], wheel)
    assert "dev" in rows_of_all(tmp_path, write_wheel(tmp_path / "same.whl", {"en": many("en"), "de": many("de")}))
    few = {"en": {"a": "Turn on the lamp"}, "de": {"a": "Schalte die Lampe ein"}}
    assert sum(map(len, rows_of_all(tmp_path, write_wheel(tmp_path / "few.whl", few)).values())) == 1
    assert not (tmp_path / "dev.parquet").exists()


@pytest.mark.parametrize("pairs", ["", "en", "en-en", "en-xx", "de-en-es", "en-de,en-de"])
def test_pairs_that_are_none_are_one_sentence(pairs: str) -> None:
    with pytest.raises(UserError, match=r"^--pairs .*: write pairs such as en-de,zh-en$"):
        parse_pairs(pairs)


def test_a_wheel_that_cannot_serve_is_one_sentence(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "no.whl").write_bytes(b"PK no")
    with pytest.raises(UserError, match=r"no\.whl' is not a readable wheel of Home Assistant"):
        build_homeassistant(tmp_path / "out", [("en", "de")], tmp_path / "no.whl")
    with zipfile.ZipFile(tmp_path / "no.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name := "homeassistant/components/lamp/translations/en.json", json.dumps(many("en")))
    damaged = bytearray((tmp_path / "no.whl").read_bytes())
    damaged[30 + len(name)] = 7  # a block of a type that there is not
    (tmp_path / "no.whl").write_bytes(damaged)
    with pytest.raises(UserError, match=r"no\.whl' is not a readable wheel of Home Assistant"):
        build_homeassistant(tmp_path / "out", [("en", "de")], tmp_path / "no.whl")
    with pytest.raises(UserError, match="has no texts in fr: leave out the pairs with it"):
        build_homeassistant(tmp_path / "out", [("en", "fr")], wheel)
    with pytest.raises(UserError, match="no translation of homeassistant is left"):
        build_homeassistant(tmp_path / "out", [("en", "de")], wheel, min_words=20)
    assert not list(tmp_path.glob("out/*.parquet"))
