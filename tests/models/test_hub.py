"""Models by their names on a hub: found where PaddleNLP looks and on Hugging Face, whole or not at all, once."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file
from support.command_line import grrm
from support.local_server import LocalServer
from support.tiny_policy import write_tiny_checkpoint

from grrm.config.values import is_hub_name
from grrm.models.hub import checkpoint_folder

OPEN_ALL = """
import json, sys
from grrm.errors import UserError
from grrm.models.hub import checkpoint_folder
for name in sys.argv[1:]:
    try:
        print(json.dumps(str(checkpoint_folder(name))))
    except UserError as error:
        print(json.dumps({"error": str(error)}))
"""


COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub(LocalServer):
    """Serves the models `bos` and `hugging_face`, folders by `Owner/Model`."""

    def __init__(self, bos: dict[str, Path], hugging_face: dict[str, Path]):
        self.bos, self.hugging_face = bos, hugging_face
        super().__init__(self.serve)

    def serve(self, handler, body):
        status, content, headers = self.answer(handler.path)
        handler.reply(status, content, **headers)

    def environment(self, home: Path) -> dict[str, str]:
        """What points a process of its own to this hub, with caches below `home`."""
        (home / "paddlenlp").mkdir(parents=True, exist_ok=True)
        return {
            "PPNLP_ENDPOINT": f"{self.url}/paddlenlp",
            "PPNLP_HOME": str(home / "paddlenlp"),
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home / "hf"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def answer(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        for name, folder in self.bos.items():
            start = f"/paddlenlp/models/community/{name}/"
            if path.startswith(start):
                return self.file(folder / path.removeprefix(start))
        for name, folder in self.hugging_face.items():
            if path.startswith(f"/api/models/{name}/"):
                files = [{"rfilename": str(file.relative_to(folder))} for file in folder.rglob("*") if file.is_file()]
                return 200, json.dumps({"id": name, "sha": COMMIT, "siblings": files}).encode(), {}
            start = f"/{name}/resolve/{COMMIT}/"
            if path.startswith(start):
                return self.file(folder / path.removeprefix(start))
        return 404, b"", {"X-Error-Code": "RepoNotFound"}

    def file(self, file: Path) -> tuple[int, bytes, dict[str, str]]:
        if not file.is_file():
            return 404, b"", {"X-Error-Code": "EntryNotFound"}
        body = file.read_bytes()
        return 200, body, {"ETag": f'"{hashlib.sha256(body).hexdigest()}"', "X-Repo-Commit": COMMIT}


def shard(folder: Path) -> None:
    """The weights in two files and an index, as large models have them."""
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    halves = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, half in halves.items():
        save_file({name: tensors[name] for name in half}, folder / file, metadata={"format": "np"})
    (folder / "model.safetensors").unlink()
    weight_map = {name: file for file, half in halves.items() for name in half}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    whole, sharded, pickled, evil = (folder / name for name in ("whole", "sharded", "pickled", "evil"))
    write_tiny_checkpoint(whole)
    shard(write_tiny_checkpoint(sharded))
    write_tiny_checkpoint(pickled)
    (pickled / "model.safetensors").rename(pickled / "model_state.pdparams")
    shard(write_tiny_checkpoint(evil))
    index = evil / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("model-00001", "../../model-00001"))
    bos = {"Qwen/Sharded": sharded, "Qwen/Pickled": pickled, "Qwen/Evil": evil}
    hub = FakeHub(bos, {"double7/Whole": whole, "Qwen/Pickled": pickled})
    yield hub
    hub.close()


@pytest.fixture(scope="module")
def answers(hub, tmp_path_factory):
    """What each name gives in one process, the first name asked for again at the end."""
    home = tmp_path_factory.mktemp("home")
    names = ("Qwen/Sharded", "double7/Whole", "Qwen/Pickled", "Qwen/Evil", "Qwen/Nowhere", "Qwen/Sharded")
    environment = {**os.environ, **hub.environment(home)}
    command = [sys.executable, "-c", OPEN_ALL, *names]
    run = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    assert "UserWarning" not in run.stderr, run.stderr  # of what PaddleNLP imports
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith(('"', "{"))]
    return dict(zip(names, lines, strict=True))


def test_a_model_of_paddlenlps_hub_comes_with_its_tokenizer_and_all_shards(answers, hub):
    folder = Path(answers["Qwen/Sharded"])
    assert folder.parts[-3:] == ("models", "Qwen", "Sharded")
    assert {path.name for path in folder.iterdir()} == {path.name for path in hub.bos["Qwen/Sharded"].iterdir()}


def test_a_model_that_only_hugging_face_has_comes_from_its_cache(answers, hub):
    folder = Path(answers["double7/Whole"])
    assert "hf" in folder.parts
    wanted = {path.name: path.read_bytes() for path in hub.hugging_face["double7/Whole"].iterdir()}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == wanted


def test_pickled_weights_are_refused_and_not_downloaded(answers, hub):
    assert "'Qwen/Pickled' is no folder here" in answers["Qwen/Pickled"]["error"]
    assert "PaddleNLP's hub has no safetensors of it" in answers["Qwen/Pickled"]["error"]
    assert not [path for path in hub.paths if "pdparams" in path]


def test_an_index_that_leads_out_of_the_folder_is_refused(answers, hub):
    assert "names files outside of its folder" in answers["Qwen/Evil"]["error"]
    assert not [path for path in hub.paths if "../" in path]


def test_a_name_that_no_hub_has_is_one_sentence(answers):
    error = answers["Qwen/Nowhere"]["error"]
    assert error.startswith("'Qwen/Nowhere' is no folder here, and cannot be had from a hub (PaddleNLP's hub")
    assert "mend the name" in error
    assert "\n" not in error


def test_a_model_that_is_there_is_not_asked_for_again(answers, hub):
    of_the_first = [place for place, path in enumerate(hub.paths) if "/Qwen/Sharded/" in path]
    of_the_last = [place for place, path in enumerate(hub.paths) if "Qwen/Nowhere" in path]
    assert max(of_the_first) < min(of_the_last)


@pytest.mark.slow
def test_a_downloaded_model_translates(answers, hub, tmp_path):
    """The whole way by the name alone, on the cache that the other tests filled."""
    home = Path(answers["Qwen/Sharded"]).parents[3]
    (tmp_path / "text").write_text("Guten Morgen\n")
    command = ["translate", "text", "--src-lang", "de", "--trg-lang", "en", "--model", "Qwen/Sharded"]
    command += ["--max-new-tokens", "2", "--retry", "0", "--out", "out.jsonl"]
    run = grrm(*command, cwd=tmp_path, **hub.environment(home))
    assert run.returncode == 0, run.stderr
    assert json.loads((tmp_path / "out.jsonl").read_text())["src_text"] == "Guten Morgen"


def test_folders_are_taken_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    for name in ("runs/sft", "/nowhere/at/all", "./a/b", "../a", "sft", "a/b/c"):
        assert checkpoint_folder(name) == Path(name)
    assert is_hub_name("Qwen/Qwen2.5-7B")
