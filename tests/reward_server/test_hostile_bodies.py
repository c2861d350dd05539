"""What one hostile body costs a server process: memory and CPU time, and whether probes are answered meanwhile."""

from __future__ import annotations

import json
import random

import pytest
import requests
from support.reward_servers import cost, reward_server
from support.stopped_clock import PATIENCE_S

MIB = 2**20
GROUP = b'{"group_id":"g","source":"s","src_lang":"de","trg_lang":"en","reference":%s,"candidates":['
IN_GROUPS = (b'{"request_id":"r","groups":[', b"]}")
IN_CANDIDATES = (b'{"request_id":"r","groups":[' + GROUP % b'"a"', b"]}]}")
IN_TERMS = IN_CANDIDATES[0][:-15] + b',"terms":{%s},"candidates":[{"candidate_id":"a","response":"x"}]}]}'
MARKS = "\u0301\u0323".encode()
IN_ROWS = (b'{"tgt":[],"response":[],"src":[', b"]}")


def repeated(ends, item, n_bytes):
    count = (n_bytes - len(ends[0]) - len(ends[1])) // (len(item) + 1)
    return ends[0] + b",".join([item] * count) + ends[1]


def unknown_fields(n_bytes):
    return b"{" + b",".join(b'"%x":0' % number for number in range(n_bytes // 12)) + b"}"


BODIES = {
    "empty groups": lambda n: ("/v1/score", repeated(IN_GROUPS, b"{}", n)),
    "lists for groups": lambda n: ("/v1/score", repeated(IN_GROUPS, b"[]", n)),
    "numbers for groups": lambda n: ("/v1/score", repeated(IN_GROUPS, b"0", n)),
    "empty candidates": lambda n: ("/v1/score", repeated(IN_CANDIDATES, b"{}", n)),
    "small candidates": lambda n: ("/v1/score", repeated(IN_CANDIDATES, b'{"candidate_id":"a","response":""}', n)),
    "terms": lambda n: ("/v1/score", IN_TERMS % b",".join(b'"%x":["b"]' % number for number in range(n // 15))),
    "marks in a term": lambda n: ("/v1/score", IN_TERMS % (b'"a":["a%s"]' % (MARKS * (n // 5)))),
    "unknown fields": lambda n: ("/v1/score", unknown_fields(n)),
    "brackets": lambda n: ("/v1/score", b"[" * n),
    "quotes": lambda n: ("/v1/score", b'"' * n),
    "backslashes": lambda n: ("/v1/score", b'"' + b"\\" * n),
    "a long number": lambda n: ("/v1/score", b'{"request_id":' + b"1" * n + b"}"),
    "empty rows": lambda n: ("/", repeated(IN_ROWS, b'""', n)),
    "numbers for rows": lambda n: ("/", repeated(IN_ROWS, b"0", n)),
    "lists for rows": lambda n: ("/", repeated(IN_ROWS, b"[]", n)),
}
CAPPED = {  # few enough to be parsed
    "groups": ("/v1/score", IN_GROUPS[0] + b",".join([b"{}"] * 70_000) + IN_GROUPS[1]),
    "candidates": ("/v1/score", IN_CANDIDATES[0] + b",".join([b"{}"] * 70_000) + IN_CANDIDATES[1]),
    "rows": ("/", IN_ROWS[0] + b",".join([b"0"] * 190_000) + IN_ROWS[1]),
}


@pytest.mark.slow
def test_no_body_of_a_mebibyte_costs_much():
    bodies = {name: build(MIB) for name, build in BODIES.items()} | CAPPED
    with reward_server() as (process, url):
        requests.get(f"{url}/readyz", timeout=PATIENCE_S)
        for name, (path, body) in bodies.items():
            status, growth, seconds, probe_s = cost(process, url, path, body)
            assert status in (400, 422), name
            assert growth < 100e6, name
            assert seconds < 0.5, name
            assert probe_s < 0.5, name


@pytest.mark.slow
def test_texts_of_a_mebibyte_grow_the_server_by_less_than_100_megabytes():
    draw = random.Random(1)
    text = "".join(draw.choices("abcdefghijklmnopqrstuvwxyz ", k=65_000))
    candidates = [{"candidate_id": str(i), "response": text[i:] + text[:i]} for i in range(15)]
    body = IN_GROUPS[0] + GROUP % json.dumps(text).encode() + json.dumps(candidates)[1:].encode() + b"}" + IN_GROUPS[1]
    with reward_server() as (process, url):
        requests.get(f"{url}/readyz", timeout=PATIENCE_S)
        status, growth, _, probe_s = cost(process, url, "/v1/score", body)
    assert status == 200
    assert growth < 100e6
    assert probe_s < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_body_at_the_limit_grows_the_server_by_less_than_thirty_times_its_size(name):
    path, body = BODIES[name](63 * MIB)
    with reward_server() as (process, url):
        requests.get(f"{url}/readyz", timeout=PATIENCE_S)
        status, growth, _, _ = cost(process, url, path, body)
    assert status in (400, 422)
    assert growth < 30 * len(body)
