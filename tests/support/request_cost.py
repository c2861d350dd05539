"""What one request costs a server process: memory and CPU time, and what a probe has to wait for meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import requests
from support.stopped_clock import PATIENCE_S, cpu_seconds_of


def peak_bytes(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def cost(process, url, path, body):
    """(status, growth, seconds, wait) of a request, as `cost_during` has them."""

    def post():
        headers = {"Content-Type": "application/json"}
        return requests.post(url + path, data=body, headers=headers, timeout=PATIENCE_S).status_code

    return cost_during(process, url, post)


def cost_during(process, url, act):
    """(`act()`, growth of the peak in bytes, seconds until it ends, most that pass while a probe waits for its answer).

    The seconds are those of CPU time that the server spends.
    """
    before, ended, waits = peak_bytes(process), threading.Event(), [0.0]

    def probe():
        while not ended.wait(0.02):
            start = cpu_seconds_of(process.pid)
            requests.get(f"{url}/healthz", timeout=PATIENCE_S)
            waits.append(cpu_seconds_of(process.pid) - start)

    prober = threading.Thread(target=probe)
    prober.start()
    start = cpu_seconds_of(process.pid)
    try:
        done = act()
        seconds = cpu_seconds_of(process.pid) - start
    finally:
        ended.set()
        prober.join()
    return done, peak_bytes(process) - before, seconds, max(waits)
