"""The commands of docs/eax.md, run as they stand there, with a server in the place of the checkpoint."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.completions_server import CompletionsServer

from grrm.data.bpe import train_bpe

PAGE = Path(__file__).parents[2] / "docs" / "eax.md"
# Training is in tests/recipe, where all of the page runs on a tiny model.
BLOCKS = [
    block
    for block in re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    if "run_" not in block
]


def sentences():
    for number in range(6):
        english, german, french = f"The house has {number} rooms.", f"Haus {number} hat Zimmer.", f"La maison {number}"
        for src_lang, trg_lang, source, target in (
            ("de", "en", german, english),
            ("en", "de", english, german),
            ("en", "fr", english, french),
        ):
            yield {"src_text": source, "trg_text": target, "src_lang": src_lang, "trg_lang": trg_lang}


def translated(body, number):
    """The reference now and then, something else, or a copy behind an end token."""
    source = body["prompt"].split(": ")[1].split("\n")[0]
    return (f"{source} The house has {number % 6} rooms.", "x", "x</s>y", f"Haus {number % 6}")[number % 4]


def run(block, folder, url):
    for there, here in (
        ("--model checkpoints/policy-7b", f"--url {url}"),
        ("--judge rm --model runs/rm", "--judge consensus"),
        ("--tokenizer checkpoints/policy-7b --max-len 1024", ""),
        ("--min-margin 2 --min-winner-score 5", "--min-margin 1"),
        ("seq 0 7", "seq 0 1"),
        ("--device-num 8", "--device-num 2"),
    ):
        block = block.replace(there, here)
    script = f'grrm() {{ "{sys.executable}" -m grrm.cli "$@"; }}\n{block}'
    return subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=600, check=False)


def clear(folder):
    """Remove the files of a folder; their names."""
    names = sorted(path.name for path in folder.iterdir())
    for name in names:
        (folder / name).unlink()
    return names


@pytest.mark.slow
def test_the_page_leads_from_sentences_to_training_pairs(tmp_path):
    pq.write_table(pa.Table.from_pylist(list(sentences())), tmp_path / "train.parquet")
    with CompletionsServer(translated) as server:
        reward_model = run(BLOCKS[0], tmp_path, server.url)
        n_asked = len(server.requests)
        again = run(BLOCKS[0], tmp_path, server.url)
        assert len(server.requests) == n_asked, "what is sampled is not sampled again"
        sampled = clear(tmp_path / "sampled")
        in_parts = run(BLOCKS[1], tmp_path, server.url)
        assert clear(tmp_path / "sampled") == sampled, in_parts.stderr
        others = run(BLOCKS[2], tmp_path, server.url)
    assert (reward_model.returncode, again.returncode, others.returncode) == (0, 0, 0), others.stderr
    assert "Language Distribution Matrix (src_lang → trg_lang)" in reward_model.stdout
    for name in ("rm", "x2x"):
        pairs = pq.read_table(tmp_path / f"{name}_towerblocks_mt.parquet")
        assert pairs.column_names == ["prompt", "chosen", "rejected"]
        assert pairs.num_rows > 0
    assert "</s>" not in str(pairs.to_pylist())
    assert "de2fr.parquet" in clear(tmp_path / "x2x_scored")


@pytest.mark.slow
def test_pairs_are_counted_in_tokens_without_a_word_of_what_that_imports(tmp_path):
    pair = {
        "src_text": "Guten Morgen",
        "src_lang": "de",
        "trg_lang": "en",
        "winner_text": "Good morning",
        "loser_text": "x",
    }
    pq.write_table(pa.Table.from_pylist([pair]), tmp_path / "pairs.parquet")
    folder = train_bpe(["Guten Morgen", "Good morning"], tmp_path / "tokenizer", 300)
    words = ["data", "pair-instructions", "pairs.parquet", "out.parquet", "--tokenizer", folder, "--max-len", "1024"]
    done = subprocess.run(
        [sys.executable, "-m", "grrm.cli", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "out.parquet: 1 rows written, 0 left out\n"), done.stderr
    assert done.stderr == ""
