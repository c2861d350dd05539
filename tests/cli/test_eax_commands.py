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

PAGE = Path(__file__).parents[2] / "docs" / "eax.md"
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


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
    ):
        block = block.replace(there, here)
    script = f'grrm() {{ "{sys.executable}" -m grrm.cli "$@"; }}\n{block}'
    return subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=250, check=False)


@pytest.mark.slow
def test_the_page_leads_from_sentences_to_training_pairs(tmp_path):
    pq.write_table(pa.Table.from_pylist(list(sentences())), tmp_path / "train.parquet")
    server = CompletionsServer(translated)
    try:
        reward_model = run(BLOCKS[0], tmp_path, server.url)
        n_asked = len(server.requests)
        again = run(BLOCKS[0], tmp_path, server.url)
        assert len(server.requests) == n_asked, "what is sampled is not sampled again"
        for folder in ("sampled", "scored"):
            for path in (tmp_path / folder).iterdir():
                path.unlink()
        others = run(BLOCKS[1], tmp_path, server.url)
    finally:
        server.close()
    assert (reward_model.returncode, again.returncode, others.returncode) == (0, 0, 0), others.stderr
    assert "Language Distribution Matrix (src_lang → trg_lang)" in reward_model.stdout
    for name in ("rm", "x2x"):
        pairs = pq.read_table(tmp_path / f"{name}_towerblocks_mt.parquet")
        assert pairs.column_names == ["prompt", "chosen", "rejected"]
        assert pairs.num_rows > 0
    assert "</s>" not in str(pairs.to_pylist())
    assert sorted(path.name for path in (tmp_path / "scored").iterdir()) == ["de2fr.parquet"]
