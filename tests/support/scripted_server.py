"""A server on a real socket that fails in every way it can, and what a test asks it for."""

from __future__ import annotations

import json
import socket
import struct
import threading

from support.local_server import Handler, LocalServer

from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.rewards.client import RewardClient

TASK = TranslationTask("Hallo", "de", "en", "Hello")
FAST = {"connect_timeout_s": 30.0, "read_timeout_s": 30.0, "deadline_s": 90.0, "attempts": 3, "backoff_initial_s": 0.01}


def make_groups(n_groups: int, n_candidates: int = 2) -> list[Group]:
    return [
        Group(
            f"g{g}",
            TASK,
            tuple(Candidate(f"c{c}", f"text {g} {c}", f"text {g} {c}") for c in range(n_candidates)),
        )
        for g in range(n_groups)
    ]


def expected_score(response: str) -> float:
    return sum(response.encode()) % 11


def right_answer(body: bytes) -> dict:
    request = json.loads(body)
    verdicts = [
        {
            "group_id": group["group_id"],
            "candidates": [
                {
                    "candidate_id": candidate["candidate_id"],
                    "status": "scored",
                    "score": expected_score(candidate["response"]),
                }
                for candidate in group["candidates"]
            ],
            "ranking": None,
            "analysis": "",
            "attempts": 1,
        }
        for group in request["groups"]
    ]
    return {"request_id": request["request_id"], "verdicts": verdicts}


class ScriptedServer(LocalServer):
    """Answers request k with `script[k]`, the last entry for ever; an entry takes (handler, body) and does the rest."""

    def __init__(self, *script):
        self.script = list(script)
        self.requests: list[tuple[str, bytes, dict]] = []
        lock = threading.Lock()
        outer = self

        class Answers(Handler):
            def do_POST(self):
                body = self.body()
                with lock:
                    step = outer.script[min(len(outer.requests), len(outer.script) - 1)]
                    outer.requests.append((self.path, body, dict(self.headers)))
                step(self, body)

            do_GET = do_POST

        super().__init__(Answers)


def send(handler, status: int, body: bytes, **headers: str) -> None:
    handler.reply(status, body, **{"Content_Type": "application/json", **headers})


def ok(handler, body):
    send(handler, 200, json.dumps(right_answer(body)).encode())


def status(code: int, message: str = "no", **headers: str):
    problem = json.dumps({"error_code": code, "error_msg": message, "field": "groups[0]", "reference_id": "r1"})
    return lambda handler, body: send(handler, code, problem.encode(), **headers)


def edited(edit):
    """The right answer after `edit(answer)`, sent with Python's lenient JSON (NaN and all)."""

    def step(handler, body):
        answer = right_answer(body)
        edit(answer)
        send(handler, 200, json.dumps(answer).encode())

    return step


def raw(content: bytes):
    return lambda handler, body: send(handler, 200, content)


def reset_mid_answer(handler, body):
    handler.send_response(200)
    handler.send_header("Content-Length", "5000")
    handler.end_headers()
    handler.wfile.write(b'{"request_id":')
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def hang_up_early(handler, body):
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def truncated(handler, body):
    content = json.dumps(right_answer(body)).encode()
    send(handler, 200, content[: len(content) // 2], Content_Length=str(len(content)))
    handler.close_connection = True


def silent(handler, body):
    """No answer, for as long as the client waits for one."""
    handler.rfile.read(1)
    handler.close_connection = True


def chunked(handler, body):
    content = json.dumps(right_answer(body)).encode()
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for start in range(0, len(content), 50):
        piece = content[start : start + 50]
        handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    handler.wfile.write(b"0\r\n\r\n")


def client(*urls: str, **settings) -> RewardClient:
    return RewardClient(list(urls), **(FAST | settings))


def check_right(groups, verdicts) -> None:
    assert [len(v.scores) for v in verdicts] == [len(g.candidates) for g in groups]
    for group, verdict in zip(groups, verdicts, strict=True):
        assert list(verdict.scores) == [expected_score(c.response) for c in group.candidates]
