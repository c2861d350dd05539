"""Measures what hostile clients cost a reward server, as it is and behind nginx, beside Flask applications and vLLM.

    python benchmarks/server_attacks.py [--seconds 15] [--vllm PROGRAM] [--out FILE]

Every attack goes on for some seconds, from a process of its own, against a server that was just started and needs no
token. Meanwhile `GET /healthz` is asked every 50 ms over new connections; a probe that is not answered within ten
seconds counts as ten. Memory is the growth of the resident memory of the server with its children.

vLLM serves a tiny policy on the CPU, where it is installed. It needs a key, which the attacks send.
"""

from __future__ import annotations

import multiprocessing
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from statistics import quantiles
from typing import Any

from machine import ROOT, command_line, describe_machine, write_result
from server import SIDES, Server, serving

PROBE_EVERY_S, PROBE_S, HELD_S, SEND_S = 0.05, 10.0, 5.0, 1.0
PAGE, MIB = 4096, 1 << 20
KEY = "s3cret"
sys.path.append(str(ROOT / "tests"))  # vLLM is started as tests/engines starts it


@dataclass(frozen=True, slots=True)
class Attack:
    """So many connections; each sends `head`, then `piece` so many times, and holds on for `HELD_S` seconds."""

    connections: int
    head: str
    piece: str = ""
    times: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """The routes of a server that are attacked, and lines that every request needs."""

    health: str = "/healthz"
    posts: str = "/v1/score"
    headers: str = ""


def attacks_on(target: Target) -> dict[str, Attack]:
    """Return every attack by its name."""
    get, post = (
        f"{line} HTTP/1.1\r\nHost: localhost\r\n{target.headers}"
        for line in (f"GET {target.health}", f"POST {target.posts}")
    )
    length = "Content-Length"
    return {
        "requests sent without reading answers": Attack(74, "", f"{get}\r\n" * 50, 30),
        "60 MiB to a route that takes no body": Attack(20, f"{get}{length}: {60 * MIB}\r\n\r\n", "x" * 65536, 960),
        "endless length of a chunk": Attack(20, f"{post}Transfer-Encoding: chunked\r\n\r\n", "0" * 65536, 160),
        "half-sent requests": Attack(400, f"{post}{length}: 999\r\n\r\n{{"),
        "1 MiB of brackets": Attack(
            8, f"{post}Content-Type: application/json\r\n{length}: {MIB}\r\n\r\n", "[" * 65536, 16
        ),
    }


ATTACKS = attacks_on(Target())
VLLM = Target("/health", "/v1/completions", f"Authorization: Bearer {KEY}\r\n")


@dataclass(frozen=True, slots=True)
class Side:
    """A server that `start` runs with a folder of its own."""

    start: Callable[[Path], AbstractContextManager[Server]]
    target: Target = Target()


def strike(url: str, attack: Attack, ended: Callable[[], bool]) -> None:
    """Send one connection's part of the attack, and hold on to it for a while, or until `ended`."""
    host, _, port = url.removeprefix("http://").partition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=SEND_S) as connection:
        connection.sendall(attack.head.encode())
        piece = attack.piece.encode()
        with suppress(TimeoutError):
            for _ in range(attack.times):
                connection.sendall(piece)
        until = time.monotonic() + HELD_S
        while time.monotonic() < until and not ended():
            time.sleep(0.1)


def attack_for(url: str, attack: Attack, seconds: float) -> None:
    """Strike from all connections, again and again."""
    until = time.monotonic() + seconds

    def ended() -> bool:
        return time.monotonic() > until

    def again() -> None:
        while not ended():
            strike(url, attack, ended)
            time.sleep(0.05)

    threads = [threading.Thread(target=again) for _ in range(attack.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    parser = command_line(__doc__, "server_attacks")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each attack")
    parser.add_argument(
        "--vllm", type=Path, default=ROOT / ".engines/vllm/bin/vllm", help="its program (default: %(default)s)"
    )
    options = parser.parse_args()
    machine, rows = describe_machine(), []
    with tempfile.TemporaryDirectory() as models:
        servers = sides() | vllm_side(options.vllm, Path(models))
        for name in ATTACKS:
            for title, side in servers.items():
                attack, health = attacks_on(side.target)[name], side.target.health
                with tempfile.TemporaryDirectory() as folder, side.start(Path(folder)) as server:
                    rows.append({"attack": name, "server": title} | measured(server, attack, health, options.seconds))
                print(rows[-1], flush=True)
    result = {"machine": machine, "seconds": options.seconds, "rows": rows}
    write_result(options.out, result)


def sides() -> dict[str, Side]:
    """Return what starts each server, as it is shipped or as its documentation says; without those not installed."""
    commands = {
        "ours": [str(ROOT / "reward_server/reward_server.py"), "--port", "0", "--judge", "chrf"],
        "flask-waitress": [str(SIDES), "flask-waitress"],
    }
    if find_spec("gunicorn"):
        options = ["-m", "gunicorn", "--chdir", str(SIDES.parent), "-b", "127.0.0.1:0", "--threads", "4"]
        commands["flask-gunicorn"] = [*options, "server_sides:bare_app()"]
    started = {
        name: Side(lambda folder, name=name, command=command: serving(name, command, folder))
        for name, command in commands.items()
    }
    return started | {"ours behind nginx": Side(lambda folder: behind_nginx(commands["ours"], folder))}


def vllm_side(program: Path, models: Path) -> dict[str, Side]:
    """vLLM with a policy that is written to `models`; nothing where it is not installed."""
    if not program.exists():
        print(f"vllm is left out: there is no {program}")
        return {}
    from engines.engine_servers import SHAPE
    from support.tiny_policy import tiny_policy

    from grrm.models.export import export_policy

    policy, _ = tiny_policy(models, **SHAPE)
    export_policy(policy, models / "exported")
    return {"vllm": Side(lambda folder: serving_vllm(program, models / "exported", folder), VLLM)}


@contextmanager
def serving_vllm(program: Path, model: Path, folder: Path) -> Iterator[Server]:
    """vLLM while it runs, with its engine process."""
    from engines.engine_servers import EngineServer

    server = EngineServer("vllm", model, folder / "log", "--api-key", KEY, executable=program)
    try:
        yield Server("vllm", server.url, server.pid)
    finally:
        server.kill()


@contextmanager
def behind_nginx(command: list[str], folder: Path) -> Iterator[Server]:
    """The server behind docker/nginx.conf, which asks for a token; memory is the server's."""
    (folder / "token.txt").write_text("s3cret\n")
    with serving("ours", [*command, "--token-file", str(folder / "token.txt")], folder) as server:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        text = (ROOT / "docker/nginx.conf").read_text()
        for number in (1, 2):
            text = text.replace(f"judge-{number}:8731", server.url.removeprefix("http://"))
        text = text.replace("listen 8730;", f"listen 127.0.0.1:{port};").replace("/tmp/nginx", f"{folder}/nginx")
        (folder / "nginx.conf").write_text(text)
        nginx = ["nginx", "-c", str(folder / "nginx.conf"), "-e", "stderr", "-g", "daemon off;"]
        with subprocess.Popen(nginx, stderr=subprocess.DEVNULL) as process:
            time.sleep(1.0)
            try:
                yield Server("ours behind nginx", f"http://127.0.0.1:{port}", server.pid)
            finally:
                process.terminate()


def measured(server: Server, attack: Attack, health: str, seconds: float) -> dict[str, Any]:
    """Attack the server; returns its growth and what its probes of the route `health` took."""
    probe(server.url, health)
    before = resident_mb(server.pid)
    attacker = multiprocessing.get_context("spawn").Process(target=attack_for, args=(server.url, attack, seconds))
    attacker.start()
    took_s, memory = [], [before]
    while attacker.is_alive():
        took_s.append(probe(server.url, health))
        memory.append(resident_mb(server.pid))
        time.sleep(PROBE_EVERY_S)
    attacker.join()
    p99_s = quantiles(took_s, n=100)[98] if len(took_s) > 1 else took_s[0]
    return {
        "growth_mb": round(max(memory) - before, 1),
        "probes": len(took_s),
        "unanswered": sum(seconds >= PROBE_S for seconds in took_s),
        "p99_ms": round(1e3 * min(p99_s, PROBE_S), 1),
    }


def probe(url: str, health: str) -> float:
    """Seconds that a GET of the route `health` takes, `PROBE_S` where it is not answered."""
    began_s = time.monotonic()
    connection = HTTPConnection(url.removeprefix("http://"), timeout=PROBE_S)
    try:
        connection.request("GET", health)
        is_up = connection.getresponse().status == 200
    except (OSError, HTTPException):
        is_up = False
    finally:
        connection.close()
    return time.monotonic() - began_s if is_up else PROBE_S


def resident_mb(pid: int) -> float:
    """Resident memory of a process and its children, from Linux's /proc."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    return pages * PAGE / MIB + sum(resident_mb(int(child)) for child in children)


if __name__ == "__main__":
    main()
