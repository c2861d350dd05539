"""Data sets by their names on Hugging Face: read as files are, from the cache without a network, or one sentence."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.command_line import grrm, mistake
from support.local_server import Handler, LocalServer

from grrm.data.layouts.hub import is_data_set_name
from grrm.data.layouts.opening import open_table
from grrm.errors import UserError

pytest.importorskip("datasets")
NAME, COMMIT = "some/corpus", "0123456789abcdef0123456789abcdef01234567"
HEAD = "/datasets/some/corpus/resolve/"


def answer(folder: Path, address: str, body: bytes) -> tuple[int, bytes, dict[str, str]]:
    """Status, content and headers of the files of a folder as the data set `some/corpus`."""
    path = unquote(urlparse(address).path)
    files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    if path.startswith(HEAD):
        content = files.get(path.removeprefix(HEAD).partition("/")[2])
        if content is None:
            return 404, b"", {"X-Error-Code": "EntryNotFound"}
        return 200, content, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
    entries = {
        name: {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
        for name, content in files.items()
    }
    about = {"id": NAME, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files], "tags": []}
    head, _, kind = path.partition(f"/api/datasets/{NAME}")
    if head or not path.startswith(f"/api/datasets/{NAME}"):
        return 404, b"", {"X-Error-Code": "RepoNotFound"}
    if kind.startswith("/tree/"):
        below = kind.removeprefix(f"/tree/{COMMIT}").strip("/")
        reply: object = [entry for name, entry in entries.items() if name.startswith(below)]
    elif kind.startswith("/paths-info/"):
        folders = {name.partition("/")[0]: {"type": "directory", "path": name.partition("/")[0]} for name in files}
        known = {name: entry | {"oid": "0" * 40} for name, entry in folders.items()} | entries
        reply = [known[name] for name in parse_qs(body.decode()).get("paths", []) if name in known]
    else:
        reply = about
    return 200, json.dumps(reply).encode(), {}


def test_a_name_is_read_as_its_files_are_and_again_without_the_network(tmp_path: Path) -> None:
    folder = tmp_path / "served/data"
    folder.mkdir(parents=True)
    for split, n_rows in (("train", 3), ("test", 2)):
        rows = [{"translation": {"en": f"Hi {split} {at}", "de": f"Hallo {at}"}} for at in range(n_rows)]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{split}-00000-of-00001.parquet")
    languages = ("--to", "rl", "--src-lang", "en", "--trg-lang", "de")

    def converted(rows: str, endpoint: str, **environment: str) -> str:
        home = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        local = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "HF_ENDPOINT": endpoint}
        out = tmp_path / "out.jsonl"
        out.unlink(missing_ok=True)
        done = grrm("data", "convert", rows, out, *languages, cwd=tmp_path, **home, **local, **environment)
        return out.read_text(encoding="utf-8") if done.returncode == 0 else mistake(done)

    def serve(handler: Handler, body: bytes) -> None:
        status, content, headers = answer(tmp_path / "served", handler.path, body)
        handler.reply(status, content, **headers)

    with LocalServer(serve) as hub:
        train, test = (converted(name, hub.url) for name in (NAME, f"{NAME}@test"))
        other_split, other_name = (converted(name, hub.url) for name in (f"{NAME}@dev", "no/such"))
    assert train == converted(str(folder / "train-00000-of-00001.parquet"), hub.url)
    assert test == converted(str(folder / "test-00000-of-00001.parquet"), hub.url)
    assert converted(NAME, hub.url, HF_HUB_OFFLINE="1") == train
    assert 'some/corpus@dev is no file here, and cannot be had from Hugging Face\'s hub (Unknown split "dev")' in (
        other_split
    )
    assert "no/such is no file here, and cannot be had from Hugging Face's hub (it has no such public" in other_name
    unreachable = converted(NAME, hub.url)
    assert "(it cannot be reached; HF_HUB_OFFLINE=1 reads what was downloaded before); mend the name" in unreachable
    assert "`huggingface-cli download some/corpus --repo-type dataset` and give its folder" in unreachable


def test_a_name_needs_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"other/corpus is no file here, and reading it .* needs the package datasets"):
        open_table(Path("other/corpus"))


def test_names_are_told_from_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    names = ["wmt/wmt14:de-en@test", "Helsinki-NLP/opus-100", "data/train", "/no/such", "a/b/c", "rows"]
    assert [is_data_set_name(Path(name)) for name in names] == [True, True, False, False, False, False]
    with pytest.raises(UserError, match=r"no/rows.csv does not exist; give the path of a file or folder"):
        open_table(Path("no/rows.csv"))
