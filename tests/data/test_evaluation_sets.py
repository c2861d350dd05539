"""Test sets in the layouts that their authors publish: FLORES-200, NTREX-128, newstest, WMT22, WMT24++, Seed-X."""

from __future__ import annotations

import gzip
import json
from itertools import permutations

import pytest
from support.command_line import invoke

from grrm.data.layouts.user_rows import UserRows
from grrm.data.parquet import iter_raw_rows, iter_rows, read_rows
from grrm.errors import UserError

TEXTS = {"en": ["Hello.", "A & B"], "de": ["Hallo.", "A und B"], "zh": ["你好。", "甲和乙"]}


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def pairs_of(*languages):
    """Rows of all ordered pairs, in the order of the languages."""
    return [
        (source, target, src, trg)
        for src, trg in permutations(languages, 2)
        for source, target in zip(TEXTS[src], TEXTS[trg], strict=True)
    ]


def read(rows):
    return [values for _, values in iter_raw_rows(rows)]


def flores(folder):
    for tag, lang in (("eng_Latn", "en"), ("deu_Latn", "de"), ("zho_Hans", "zh")):
        write(folder / f"devtest/{tag}.devtest", TEXTS[lang])
    return folder / "devtest"


def test_flores_200_is_all_pairs_of_the_languages_that_are_asked_for(tmp_path):
    folder = flores(tmp_path)
    assert read(UserRows(folder, languages=("en", "de", "zh=zho_Hans"))) == pairs_of("en", "de", "zh")
    assert read(UserRows(folder, languages=("de", "en"))) == pairs_of("de", "en")
    everything = read(UserRows(folder))
    assert {values[2:] for values in everything} == {*permutations(("de", "en", "zho_Hans"), 2)}
    assert len(everything) == len(pairs_of(*TEXTS))
    with pytest.raises(UserError, match=r"has no file of fr \(there are deu_Latn, eng_Latn, zho_Hans\)"):
        read(UserRows(folder, languages=("en", "fr")))


def test_one_command_makes_the_rows_of_an_x2x_evaluation(tmp_path):
    out = tmp_path / "x2x.parquet"
    command = ["data", "convert", str(flores(tmp_path)), str(out), "--to", "rows", "--languages", "en,de,zh=zho_Hans"]
    invoke(*command)
    assert [tuple(row) for row in read_rows(out)] == pairs_of("en", "de", "zh")


def test_ntrex_128_is_named_by_codes_of_three_letters(tmp_path):
    write(tmp_path / "newstest2019-src.eng.txt", TEXTS["en"])
    german = write(tmp_path / "newstest2019-ref.deu.txt", TEXTS["de"])
    write(tmp_path / "newstest2019-ref-2.deu.txt", ["other", "reference"])
    assert read(UserRows(tmp_path)) == pairs_of("de", "en")
    assert read(UserRows(tmp_path / "newstest2019-src.eng.txt", target=german))[0] == ("Hello.", "Hallo.", "eng", "deu")


def sgm(path, texts, kind):
    texts = [text.replace("&", "&amp;") for text in texts]
    body = "\n".join(f'<seg id="{number}">{text}</seg>' for number, text in enumerate(texts, start=1))
    return write(path, [f'<{kind} setid="newstest2020" srclang="any">', '<doc docid="d"><p>', body, "</p></doc>"])


def test_newstest_2020_is_read_by_its_segments(tmp_path):
    source = sgm(tmp_path / "newstest2020-ende-src.en.sgm", TEXTS["en"], "srcset")
    target = sgm(tmp_path / "newstest2020-ende-ref.de.sgm", TEXTS["de"], "refset")
    assert read(UserRows(source, target=target)) == pairs_of("en", "de")[:2]
    source.write_text('<seg id="1">never\nended</seg>\n')
    with pytest.raises(UserError, match=r"en\.sgm line 1 has a segment that does not end"):
        read(UserRows(source, target=target))


def test_segments_of_a_compressed_file_are_read_as_those_of_the_file(tmp_path):
    for name in ("src.en.sgm", "ref.de.SGM"):
        plain = sgm(tmp_path / name, TEXTS[name[4:6]], "set")
        plain.with_name(f"{name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
    rows = UserRows(tmp_path / "src.en.sgm.gz", target=tmp_path / "ref.de.SGM.gz")
    assert read(rows) == pairs_of("en", "de")[:2]


def test_the_general_test_of_wmt_22_says_its_languages(tmp_path):
    source = write(tmp_path / "generaltest2022.en-de.src.en", TEXTS["en"])
    target = write(tmp_path / "generaltest2022.en-de.ref.A.de", TEXTS["de"])
    assert read(UserRows(source, target=target)) == pairs_of("en", "de")[:2]


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_wmt_24_pp_leaves_out_what_it_calls_a_bad_source(ending, tmp_path):
    row = {"lp": "en-de_DE", "domain": "news", "document_id": "d", "segment_id": 1, "original_target": "x"}
    rows = [
        row | {"is_bad_source": bad, "source": source, "target": target}
        for bad, source, target in zip((False, True), TEXTS["en"], TEXTS["de"], strict=True)
    ]
    table = [",".join(map(str, cells)) for cells in (rows[0], *map(dict.values, rows))]
    path = write(tmp_path / f"en-de_DE.{ending}", table if ending == "csv" else map(json.dumps, rows))
    (_, good), (number, bad) = iter_rows(path)
    assert good == ("Hello.", "Hallo.", "en", "de_DE")
    assert (number, bad.reason) == (2, "is_bad_source")
    named = UserRows(path, columns={"src_text": "source", "trg_text": "target"}, src_lang="en", trg_lang="de")
    assert next(iter_rows(named))[1] == ("Hello.", "Hallo.", "en", "de")


def test_the_challenge_set_of_seed_x_has_its_references_in_a_column_of_its_own(tmp_path):
    rows = [{"src_text": text, "参考译文": other} for text, other in zip(TEXTS["en"], TEXTS["zh"], strict=True)]
    path = write(tmp_path / "Challenge_set_en2zh.json", map(json.dumps, rows))
    named = UserRows(path, columns={"trg_text": "参考译文"}, src_lang="en", trg_lang="zh")
    assert read(named) == pairs_of("en", "zh")[:2]


def test_languages_are_of_a_folder_of_parallel_texts(tmp_path):
    path = write(tmp_path / "rows.jsonl", ["{}"])
    for where in (path, tmp_path):
        with pytest.raises(UserError, match="is no folder of parallel texts; leave out --languages"):
            read(UserRows(where, languages=("en", "de")))
