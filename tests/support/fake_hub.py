"""A hub on a real socket: folders served as Baidu's object storage (BOS) and as Hugging Face serve models."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from support.local_server import Handler, LocalServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub(LocalServer):
    """Serves the models `bos` and `hugging_face`, folders by `Owner/Model`; `asked` lists the paths of all requests."""

    def __init__(self, bos: dict[str, Path], hugging_face: dict[str, Path]):
        hub, self.bos, self.hugging_face, self.asked = self, bos, hugging_face, []

        class Answers(Handler):
            def do_GET(self):
                hub.asked.append(self.path)
                status, body, headers = hub.answer(self.path)
                self.reply(status, body, **headers)

            do_HEAD = do_GET

        super().__init__(Answers)

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
