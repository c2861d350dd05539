"""The corpus of LibreOffice's help, from packages and folders of a few pages."""

from __future__ import annotations

import io
import json
import random
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.command_line import invoke

from grrm.data.corpora.libreoffice import build_libreoffice, deb_files, page_segments
from grrm.data.corpora.translations import letters_of
from grrm.errors import UserError

SYSTEM = (
    '<span id="s1" class="switchinline"> <span hidden="true" id="MACx_1" class="MAC"><b>{mac}</b></span>'
    '<span hidden="true" id="defaultx_1"><span class="emph">{other}</span></span></span>'
)
PAGE = """<!DOCTYPE html><html><body><header><p dir="auto">LibreOffice Help</p></header><div id="DisplayArea">
<meta itemprop="keywords" content="cells"><a name="x"></a>
<h1 id="hd_id1" dir="auto"><a name="y"></a>{title}</h1>
{paragraphs}
<p id="par_empty"><img src="a.svg" alt="icon"></p></div>
<footer><div id="DEBUG"><p id="bm_module" dir="auto">debug</p><p>This page is</p></div></footer></body></html>"""


def page(title: str, *paragraphs: str) -> str:
    body = "\n".join(f'<p id="par_id{n}" class="paragraph">{text}</p>' for n, text in enumerate(paragraphs))
    return PAGE.format(title=title, paragraphs=body)


def write_deb(path: Path, files: Mapping[str, str], packing: str = "xz") -> Path:
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w" if packing == "zst" else f"w:{packing}") as archive:  # type: ignore[call-overload]
        for name, text in files.items():
            member = tarfile.TarInfo(f"./usr/share/libreoffice/help/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    data = inner.getvalue()
    data = pa.compress(data, "zstd", asbytes=True) if packing == "zst" else data
    members = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", f"data.tar.{packing}": data}
    with path.open("wb") as file:
        file.write(b"!<arch>\n")
        for name, contents in members.items():
            file.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(contents):<10}`\n".encode())
            file.write(contents + b"\n" * (len(contents) % 2))
    return path


def help_pages(locale: str) -> dict[str, str]:
    """60 pages of three segments; the last one is the same on all of them."""
    return {
        f"{locale}/text/scalc/{number:02}.html": page(
            f"{locale} title {word}", f"{locale} <b>first</b> of {word}", f"{locale} repeated on every page"
        )
        for number, word in enumerate(f"{a}{b}" for a in ("alpha", "beta", "gamma") for b in "abcdefghijklmnopqrst")
    } | {f"{locale}/bookmarks.html": page("not a page", "not a text")}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("debs")
    for locale, packing in (("en-US", "xz"), ("de", "gz"), ("zh-CN", "zst")):
        write_deb(folder / f"libreoffice-help-{locale.lower()}_7%3a1_all.deb", help_pages(locale), packing)
    (folder / "other_1_all.deb").write_bytes(b"no package")
    return folder


def test_text_of_nested_elements_is_kept_and_of_systems_the_default_one() -> None:
    html = page(
        "Names &amp; <em>cells</em>",
        f"Choose {SYSTEM.format(mac='App - Preferences', other='Tools - Options')}<b> - <i>Calc</i></b>, then<br>OK.",
        "Only <span class='switchinline'><span hidden='true' id='WRITERx' class='WRITER'>text</span></span> here",
        "after it",
    )
    assert page_segments(html) == {
        "hd_id1": "Names & cells",
        "par_id0": "Choose Tools - Options - Calc, then OK.",
        "par_id2": "after it",
    }


def test_headings_in_hidden_parts_of_a_page_are_segments_of_it() -> None:
    block = '<span class="switch"><span hidden="true" id="CALCx" class="CALC"><h2 id="hd_2">Of Calc</h2></span></span>'
    html = PAGE.format(
        title="Title", paragraphs=f'{block}<div><ul><li><p id="li1">a <code>b</code></p></li></ul></div>'
    )
    assert page_segments(html) == {"hd_id1": "Title", "hd_2": "Of Calc", "li1": "a b"}


def test_an_end_tag_that_is_missing_does_not_join_segments_of_other_elements() -> None:
    html = PAGE.format(
        title="Title", paragraphs='<p id="one">open <span>one</p><p id="two">two</p></b><p id="three">3</p>'
    )
    assert page_segments(html) == {"hd_id1": "Title", "one": "open one", "two": "two", "three": "3"}


def test_rows_are_aligned_by_id_with_page_and_position_and_no_page_is_in_two_files(
    packages: Path, tmp_path: Path
) -> None:
    files = build_libreoffice(tmp_path, [("en", "de"), ("zh", "en")], packages)
    sides = [pq.read_table(path).to_pylist() for path in (files.train, files.heldout, files.dev)]
    assert (len(sides[0]), len(sides[1]), len(sides[2])) == (files.n_train, files.n_heldout, files.n_dev)
    pages = [{row["page"] for row in side} for side in sides]
    assert min(map(len, pages)) >= 1
    assert sum(map(len, pages)) == len(set().union(*pages)) == 60
    letters = [{letters_of(text) for row in side for text in (row["src_text"], row["trg_text"])} for side in sides]
    assert sum(map(len, letters)) == len(set().union(*letters))
    repeated = [row for side in sides for row in side if "repeated" in row["src_text"]]
    assert len(repeated) == 2  # once per pair, in training
    row = next(row for row in sides[0] if row["src_lang"] == "zh")
    assert row["src_text"].replace("zh-CN", "en-US") == row["trg_text"]
    assert row["page"].startswith("text/scalc/")
    places = [(row["src_lang"], row["page"], row["position"]) for row in sides[0]]
    assert places == sorted(places)
    assert {position for _, _, position in places} == {0, 1, 2}


def test_a_folder_of_unpacked_help_gives_the_same_rows(packages: Path, tmp_path: Path) -> None:
    for locale in ("en-US", "de"):
        for name, text in help_pages(locale).items():
            (tmp_path / "help" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "help" / name).write_text(text, encoding="utf-8")
    a = build_libreoffice(tmp_path / "a", [("en", "de")], packages)
    b = build_libreoffice(tmp_path / "b", [("en", "de")], tmp_path / "help")
    assert pq.read_table(a.train).equals(pq.read_table(b.train))


def test_untranslated_segments_and_other_lengths_are_left_out(tmp_path: Path) -> None:
    texts = {"en-US": ("=SUM(A1)", "Press OK", "one two three four five", "x y")}
    texts["de"] = ("=sum(a1)!", "OK drücken", "eins zwei drei vier fünf", "")
    for locale, paragraphs in texts.items():
        write_deb(
            tmp_path / f"libreoffice-help-{locale.lower()}_1_all.deb",
            {f"{locale}/text/a/{n}.html": page("Title", *paragraphs) for n in range(1)},
        )
    files = build_libreoffice(tmp_path / "out", [("en", "de")], tmp_path, min_words=2, max_words=4)
    rows = [
        row
        for path in (files.train, files.heldout, files.dev)
        if path.exists()
        for row in pq.read_table(path).to_pylist()
    ]
    assert [(row["src_text"], row["trg_text"], row["position"]) for row in rows] == [("Press OK", "OK drücken", 2)]


def test_the_command_writes_licence_packages_and_counts(packages: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--pairs", "en-de", "--from", str(packages), "--train-rows", "20"]
    done = invoke("data", "corpus", "libreoffice", out, *options)
    assert f"{out / 'train.parquet'}: 20 rows" in done.output
    source = json.loads((out / "source.json").read_text())
    assert (source["licence"], source["rows"]["train"]) == ("MPL-2.0", {"en-de": 20})
    assert sorted(source["files"]) == ["libreoffice-help-de_7%3a1_all.deb", "libreoffice-help-en-us_7%3a1_all.deb"]


def test_what_cannot_be_read_is_one_sentence(packages: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no help in fr: add Debian's package libreoffice-help-fr to it"):
        build_libreoffice(tmp_path / "out", [("en", "fr")], packages)
    contents = (packages / "libreoffice-help-de_7%3a1_all.deb").read_bytes()
    for damaged in (b"", b"no package", contents[:100], contents[:-300], contents[:68] + b"x" * 400):
        (tmp_path / "libreoffice-help-en-us_1_all.deb").write_bytes(damaged)
        with pytest.raises(UserError, match=r"en-us_1_all\.deb' is not a whole Debian package"):
            list(deb_files(tmp_path / "libreoffice-help-en-us_1_all.deb"))


def test_a_package_that_is_damaged_in_its_middle_is_one_sentence(tmp_path: Path) -> None:
    path = write_deb(tmp_path / "a.deb", {"en-US/text/long.html": random.Random(0).randbytes(200_000).hex()})
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2 : len(contents) // 2 + 20] = bytes(20)
    path.write_bytes(contents)
    with pytest.raises(UserError, match=r"a\.deb' is not a whole Debian package"):
        list(deb_files(path))
