"""Translation memories: which units of TMX and XLIFF files are rows, and in which languages."""

from __future__ import annotations

import gzip

import pytest

from grrm.data.layouts.opening import open_table
from grrm.data.parquet import iter_raw_rows


@pytest.mark.parametrize(
    "content",
    [
        '<file><body>{a}<group translate="no">{b}</group>{c}</body></file>',
        '<file translate="no"><body>{b}</body></file><file><body>{a}{c}</body></file>',
        '<file translate="no"><unit translate="yes">{a}</unit><unit>{b}</unit><unit translate="yes">{c}</unit></file>',
    ],
)
def test_a_memory_leaves_out_what_is_not_to_be_translated(content, tmp_path):
    form = "<{0}><source>{1}<mrk translate='no'>!</mrk></source><target>{1}</target></{0}>"
    tag = "segment" if "<unit" in content else "trans-unit"
    units = {letter: form.format(tag, letter) for letter in "abc"}
    (tmp_path / "a.xlf").write_text(f"<xliff>{content.format(**units)}</xliff>")
    rows = list(open_table(tmp_path / "a.xlf").read(None))
    assert [row["src_text"] for row in rows if isinstance(row, dict)] == ["a!", "c!"]
    assert [row.reason for row in rows if not isinstance(row, dict)] == ["the unit is not to be translated"]


@pytest.mark.parametrize(
    ("src_lang", "trg_lang", "texts"),
    [
        ("German", "eng", [("Ja.", "Yes.")]),
        ("deu", None, [("Ja.", "Yes."), ("Ja.", "是。"), ("Ja.", "係。")]),
        ("de", "zh-CN", [("Ja.", "是。")]),
        ("de", "Chinese", [("Ja.", "是。"), ("Ja.", "係。")]),
        ("en-GB", "de", []),
    ],
)
def test_a_memory_is_read_in_languages_by_any_of_their_names(src_lang, trg_lang, texts, tmp_path):
    unit = (("en-US", "Yes."), ("de-DE", "Ja."), ("zh-CN", "是。"), ("zh-TW", "係。"))
    variants = "".join(f'<tuv xml:lang="{lang}"><seg>{text}</seg></tuv>' for lang, text in unit)
    (tmp_path / "a.tmx").write_text(f"<tmx><tu>{variants}</tu></tmx>")
    rows = open_table(tmp_path / "a.tmx", src_lang=src_lang, trg_lang=trg_lang).read(None)
    assert [(row["src_text"], row["trg_text"]) for row in rows if isinstance(row, dict)] == texts


def test_variants_of_the_source_language_are_no_translations_unless_they_are_asked_for(tmp_path, caplog):
    unit = (("en-US", "Color."), ("en-GB", "Colour."), ("de", "Farbe."))
    variants = "".join(f'<tuv xml:lang="{lang}"><seg>{text}</seg></tuv>' for lang, text in unit)
    (tmp_path / "a.tmx").write_text(f"<tmx><tu>{variants}</tu><tu>{variants}</tu></tmx>")

    def targets(trg_lang):
        rows = open_table(tmp_path / "a.tmx", src_lang="en-US", trg_lang=trg_lang).read(None)
        return [row["trg_text"] for row in rows]

    assert targets("en-GB") == ["Colour.", "Colour."]
    assert not caplog.messages
    assert targets(None) == ["Farbe.", "Farbe."]
    (message,) = caplog.messages
    assert "2 texts in en-GB left out" in message
    assert "give --trg-lang en-GB" in message


def test_a_compressed_memory_is_read_with_every_translation_of_a_unit(tmp_path):
    texts = (("en", "Yes."), ("de", "Ja."), ("de", "Jawohl."))
    variants = "".join(f'<tuv xml:lang="{lang}"><seg>{text}</seg></tuv>' for lang, text in texts)
    content = f'<tmx version="1.4"><header srclang="en"/><body><tu>{variants}</tu></body></tmx>'
    (tmp_path / "rows.tmx.gz").write_bytes(gzip.compress(content.encode()))
    rows = [values for _, values in iter_raw_rows(tmp_path / "rows.tmx.gz")]
    assert rows == [("Yes.", "Ja.", "en", "de"), ("Yes.", "Jawohl.", "en", "de")]


def test_a_memory_does_not_take_what_is_not_translated_yet_or_another_file_s_language(tmp_path):
    def unit(text: str, target: str, of_unit: str = "") -> str:
        return f"<trans-unit{of_unit}><source>{text}</source>{target}</trans-unit>"

    first = unit("a", '<target state="needs-translation">a</target>') + unit("b", '<target state="final">B</target>')
    heads = ('target-language="zh-Hant" ', "")
    files = (
        f'<file source-language="en" {head}><body>{body}</body></file>'
        for head, body in zip(heads, (first, unit("c", "<target>C</target>")), strict=True)
    )
    (tmp_path / "a.xlf").write_text(f'<xliff version="1.2">{"".join(files)}</xliff>')
    rows = [tuple(row.values()) for row in open_table(tmp_path / "a.xlf").read(None) if isinstance(row, dict)]
    assert rows == [("a", None, "en", "zh-Hant"), ("b", "B", "en", "zh-Hant"), ("c", "C", "en", None)]
    segment = '<segment state="initial"><source>a</source><target>a</target></segment>'
    (tmp_path / "b.xlf").write_text(f'<xliff srcLang="en" trgLang="de"><file><unit>{segment}</unit></file></xliff>')
    assert [tuple(row.values()) for row in open_table(tmp_path / "b.xlf").read(None)] == [("a", None, "en", "de")]
