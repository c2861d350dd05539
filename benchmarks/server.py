"""Requests per second that the reward server answers, beside a Flask application of a few lines.

    python benchmarks/server.py [--rounds 3] [--seconds 0.6] [--out FILE]

Every server and the client are processes of their own, on loopback; in each round all servers take their turn at every
protocol and number of connections, and medians over rounds are reported.

Each request carries the same 32 groups of eight, under an id of its own, so that nothing is answered from the cache;
`ours-repeated` asks for one answer again and again.

`ours` has a judge that costs nothing, so what is measured is HTTP, JSON, checks and turns; the judge that costs least
of those built in is measured behind the server too, and by itself. `flask-waitress` and, where gunicorn is installed,
`flask-gunicorn` (one process of threads) parse the same JSON and answer in the same shape.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from machine import ROOT, command_line, describe_machine, write_result
from server_requests import make_groups, rows_body, score_body
from server_sides import THREADS

from grrm.gqm.groups import Group
from grrm.judges.registry import open_judge
from grrm.judges.text_metric import METRICS

FLOOR = "flask-waitress"
SIDES = ROOT / "benchmarks/server_sides.py"
_LISTENING = re.compile(r"istening (?:on|at:) (http://[\d.:]+)\s")
_START_S, _TURN_S, _END_S = 120.0, 300.0, 30.0


@dataclass(frozen=True, slots=True)
class Workload:
    """Load of the servers: `seconds` per turn, `rounds` turns of every server."""

    groups: int = 32
    samples: int = 8
    connections: tuple[int, ...] = (1, 8, 64)
    seconds: float = 0.6
    rounds: int = 3


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: its name, address and process."""

    name: str
    url: str
    pid: int


def main(arguments: Sequence[str] | None = None) -> None:
    default = Workload()
    parser = command_line(__doc__, "server")
    parser.add_argument("--rounds", type=int, default=default.rounds, help="turns of every server")
    parser.add_argument("--seconds", type=float, default=default.seconds, help="length of a turn")
    parser.add_argument("--groups", type=int, default=default.groups, help="in a request")
    parser.add_argument("--samples", type=int, default=default.samples, help="in a group")
    parser.add_argument("--connections", default=",".join(map(str, default.connections)), help="numbers of them")
    options = parser.parse_args(arguments)
    connections = tuple(map(int, options.connections.split(",")))
    workload = Workload(options.groups, options.samples, connections, options.seconds, options.rounds)
    if min(options.rounds, options.groups, options.samples, *connections) < 1 or options.seconds <= 0:
        parser.error("--rounds, --groups, --samples and --connections must be at least 1, --seconds above 0")
    if max(connections) > THREADS:
        parser.error(f"--connections must be at most {THREADS}: more are told to come back")
    result = measure(workload)
    write_result(options.out, result)
    show(result)


def measure(workload: Workload) -> dict[str, Any]:
    """All servers in turn. Raises RuntimeError where one does not start or an answer is not what was asked for."""
    machine = describe_machine()
    groups = make_groups(workload.groups, workload.samples)
    judges = {metric: judge_ms(metric, groups) for metric in METRICS}
    cheapest = min(judges, key=lambda name: judges[name])
    turns: dict[tuple[str, str, int], list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        folder = Path(name)
        bodies = {"/": rows_body(groups), "/v1/score": score_body(groups)}
        files = {path: folder / f"body{number}.json" for number, path in enumerate(bodies)}
        for path, body in bodies.items():
            files[path].write_bytes(body)
        servers = [running.enter_context(serving(*side, folder)) for side in commands(cheapest).items()]
        cells = [(path, connections) for path in bodies for connections in workload.connections]
        for _ in range(workload.rounds):
            for path, connections in cells:
                for server in servers:
                    counts = take_turn(server, path, files[path], connections, workload)
                    turns[server.name, path, connections].append(counts)
                if path == "/v1/score":
                    counts = take_turn(servers[0], path, files[path], connections, workload, options=("--repeat-id",))
                    turns[f"{servers[0].name}-repeated", path, connections].append(counts)
        probed = probe_turns(servers[1], files["/v1/score"], workload)
    sizes = {path: len(body) for path, body in bodies.items()}
    rows = [summary(*cell, turns, sizes, workload) for cell in turns]
    judged = next(row for row in rows if row["server"] == f"ours-{cheapest}")
    return {
        "machine": machine,
        "packages": {name: metadata.version(name) for name in ("flask", "waitress", "pydantic", *_gunicorn())},
        "judges_ms": judges,
        "cheapest_judge": cheapest,
        "cheapest_judge_share": round(judges[cheapest] / judged["server_cpu_ms"], 2),
        "counted": "server_cpu_ms, client_cores (of one core) and the judge's share are CPU time, user's and system's",
        "rows": rows,
        "readiness": probed,
    }


def probe_turns(server: Server, body: Path, workload: Workload) -> list[dict[str, Any]]:
    """Measure `/readyz`, asked every 10 ms, while requests are scored: medians over rounds."""
    rows = []
    for connections in workload.connections:
        probed = [
            take_turn(server, "/v1/score", body, connections, workload, options=("--probe", "/readyz"))
            for _ in range(workload.rounds)
        ]
        medians = {key: round(median(turn[key] for turn in probed), 2) for key in ("probe_p50_ms", "probe_p99_ms")}
        row = {"server": server.name, "connections": connections, "probes": sum(int(turn["probes"]) for turn in probed)}
        rows.append(row | medians)
    return rows


def commands(judge: str) -> dict[str, list[str]]:
    """Return the command of each server, ours first."""
    by_name = {
        "ours": [str(SIDES), "ours"],
        f"ours-{judge}": [str(ROOT / "reward_server/reward_server.py"), "--port", "0", "--judge", judge],
        FLOOR: [str(SIDES), FLOOR],
    }
    if _gunicorn():
        options = f"-b 127.0.0.1:0 -w 1 -k gthread --threads {THREADS} --keep-alive 60".split()
        folder = ["--chdir", str(SIDES.parent)]  # may hold blanks
        by_name["flask-gunicorn"] = ["-m", "gunicorn", *folder, *options, "server_sides:bare_app()"]
    else:
        print("flask-gunicorn is left out: gunicorn is not installed (pip install gunicorn)")
    return by_name


def _gunicorn() -> list[str]:
    return ["gunicorn"] if find_spec("gunicorn") else []


def judge_ms(metric: str, groups: list[Group]) -> float:
    """CPU milliseconds of a judge by itself on all groups, the least of three times, after one to warm up."""
    judge, times = open_judge(metric), []
    for _ in range(4):
        begin = time.process_time()
        judge.judge(groups)
        times.append(1e3 * (time.process_time() - begin))
    return round(min(times[1:]), 2)


@contextmanager
def serving(name: str, command: list[str], folder: Path) -> Iterator[Server]:
    """The server, while it runs; ended afterwards. Raises RuntimeError where it does not listen in time."""
    log = folder / f"{name}.log"
    with log.open("w") as out:
        process = subprocess.Popen([sys.executable, *command], stdout=out, stderr=subprocess.STDOUT)
    try:
        yield Server(name, _url(name, process, log), process.pid)
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _url(name: str, process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        text = log.read_text(encoding="utf-8", errors="replace")
        if match := _LISTENING.search(text):
            return match[1]
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended with status {process.returncode} before it listened: {text[-1000:]}")
        time.sleep(0.05)
    raise RuntimeError(f"{name} does not listen after {_START_S:g} s: {text[-1000:]}")


def take_turn(
    server: Server, path: str, body: Path, connections: int, workload: Workload, *, options: Sequence[str] = ()
) -> dict[str, float]:
    """Return the client's report, and the server's CPU milliseconds per request. Raises RuntimeError if it failed."""
    command = [sys.executable, ROOT / "benchmarks/server_load.py", server.url + path, body]
    command += ["--scores", workload.groups * workload.samples, "--connections", connections]
    command += ["--seconds", workload.seconds, *options]
    before_s = cpu_s(server.pid)
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=_TURN_S)
    if done.returncode:
        raise RuntimeError(f"{server.name} failed at POST {path}: {done.stderr.strip().splitlines()[-1]}")
    counts: dict[str, float] = json.loads(done.stdout)
    # One request more than counted: the one that wakes the server up.
    return counts | {"server_cpu_ms": 1e3 * (cpu_s(server.pid) - before_s) / (counts["requests"] + 1)}


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and its children so far. /proc would tell them in steps of ten milliseconds."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    its_clock = (~pid << 3) | 2  # as clock_getcpuclockid(3) gives it on Linux
    return time.clock_gettime(its_clock) + sum(cpu_s(int(child)) for child in children)


def summary(
    name: str,
    path: str,
    connections: int,
    turns: dict[tuple[str, str, int], list[dict[str, float]]],
    sizes: dict[str, int],
    workload: Workload,
) -> dict[str, Any]:
    """A row of the result: medians over rounds; the ratio to the bare application is one of the same round."""
    counts, floor = turns[name, path, connections], turns[FLOOR, path, connections]
    ratios = [ours["requests_per_s"] / bare["requests_per_s"] for ours, bare in zip(counts, floor, strict=True)]
    return {
        "server": name,
        "path": path,
        "connections": connections,
        "groups": workload.groups,
        "samples": workload.samples,
        "body_bytes": sizes[path],
        "requests": sum(int(turn["requests"]) for turn in counts),
        **{key: round(median(turn[key] for turn in counts), 2) for key in counts[0] if key != "requests"},
        "relative_to_flask": round(median(ratios), 3),
    }


def show(result: dict[str, Any]) -> None:
    """The rows as lines to read."""
    for name, took_ms in result["judges_ms"].items():
        print(f"judge {name:<8}{took_ms:8.1f} ms of CPU by itself on the groups of a request")
    print(f"{result['cheapest_judge_share']:.0%} of what the server spends on a request judged by ", end="")
    print(f"{result['cheapest_judge']} is the judge's")
    for row in result["rows"]:
        print(
            f"{row['server']:<16} POST {row['path']:<10} {row['connections']:>3} connections"
            f"{row['requests_per_s']:8.1f} requests/s ({row['relative_to_flask']:5.2f} of {FLOOR}), "
            f"p50{row['p50_ms']:8.1f} ms, p99{row['p99_ms']:8.1f} ms, CPU{row['server_cpu_ms']:7.2f} ms a request, "
            f"client {row['client_cores']:.2f} cores"
        )
    for row in result["readiness"]:
        print(
            f"{row['server']:<16} GET /readyz beside {row['connections']:>3} connections: "
            f"p50{row['probe_p50_ms']:7.1f} ms, p99{row['probe_p99_ms']:7.1f} ms"
        )


if __name__ == "__main__":
    main()
