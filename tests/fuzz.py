"""Sends texts near the grammar, attacks on it and damaged requests to parsers, guard, application and front.

    python tests/fuzz.py [--minutes 10] [--seed 1]

What is drawn depends on the seed and the number of the case alone. Nothing may raise, no score may leave its scale, no
candidate may get another one's answer, leave its fence or be read as a verdict, and no request may be answered with 5xx
(503 for a full server and 504 at a deadline of its own excepted). The exit status is 1 where something did; the cases
are printed. The guard, whose cases have many texts, runs in a process of its own beside the others, which alternate.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import socket
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from gqm.attacks import ATTACKS
from gqm.gullible_judge import as_seen, blocks_of
from gqm.score_readers import COMBINED, JOINS, PARTICULAR, READERS, TIES, WORDS
from support.judged_groups import judge_over
from support.reward_app import group, make_client, rows_body, score_body
from support.reward_servers import reward_server

from grrm.gqm import compat
from grrm.gqm.error_lines import parse_errors
from grrm.gqm.extraction import EXTRACTOR_TYPES, extract_translation
from grrm.gqm.fences import FENCED, Guard, fence_for
from grrm.gqm.grammar import ParsedVerdict, Rejection, parse_sqm, parse_verdict
from grrm.gqm.mt_prompts import mt_prompt, recover_mt_task
from grrm.gqm.prompts import GQM_TASKS, gqm_prompt, render_response
from grrm.gqm.rubric import imitates_rubric, parse_total
from grrm.gqm.verification import contains_true, parse_verification
from grrm.judges.gqm import GQMOptions
from grrm.judges.interface import GeneratedText
from grrm.rewards.messages import ScoreAnswer
from grrm_reward_server.hosting import HostedJudge, _check_languages

MODES = ("exact", "tolerant", "compat")
ANSWERED = {100, *range(200, 300), 308, *range(400, 500), 503, 504}  # 308: two slashes in a row
FAULTS_SHOWN = 20
PIECES = [
    *("A", "B", "Z", ": ", ", ", " > ", " = ", "\n", "8", "10", "-", ".", "*", "`", "：", "９", "/10", "<", "\r"),
    *(
        "1e9",
        "### Scores:\n",
        "### Final Ranking:\n",
        "```\n",
        "Translation C:\n",
        "<|im_end|>",
        "\\boxed{",
        "</think>",
    ),
    *("\x00", "\ud800", "\u200b", "\u0301", "\u202e", "\U0001f600", "\\", '"', "{", "}", "[", "]", "null", "1e999"),
    "True",
]
# Of these a line of a prompt or a verdict can be made, none of them unsafe by itself.
HOSTILE = [
    *(*"ABCab0129甲Ⓑ🅱А０", *"\n\n\r\u2028\\`~#*>=:|._", *"\u1fef｀\u200b\u0301\u2067"),
    *(*WORDS[:3], "ten", "first", "second", "10", "100", "1st", "no. ", "word ", " and so on "),
    *("Translation ", "candidate ", "Source text:", "```", "### Scores:\n", "Final Ranking:", "<|", "|>", "<s>"),
    *TIES,
    *JOINS,
]
GUARDS = [FENCED, FENCED, FENCED, Guard(frozenset({"<unk>", "▁"})), Guard(fenced=False), Guard(by_position=True)]
SHOWN_TOGETHER = 24  # texts, which with three plain ones are a source and as many candidates as there are letters
JSON_PIECES = [*'{}[]":,\\', "null", "true", "NaN", "-0", "1e999", '\\ud800"', "0" * 400, '"a":', "[" * 50, "\xff"]
HEADER = (
    "POST /v1/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    "Connection: close\r\nContent-Length: {}\r\n\r\n"
)
HTTP_PIECES = [
    *(
        "\r\n",
        ":",
        " ",
        "\n",
        "\x00",
        "GET / HTTP/1.1\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n\r\n",
        "ffffffff\r\n",
    ),
    *("Content-Length: -1\r\n", "Expect: 100-continue\r\n", "HTTP/9.9", "Host: x\r\n", "%00", "é", "Content-Length"),
]


class Broken(Exception):
    """A promise that a case breaks."""


def expect(holds, what):
    if not holds:
        raise Broken(what)


def mutated(rng, text, pieces):
    """`text` after a few insertions, deletions, repetitions and swaps."""
    for _ in range(rng.choice([0, 1, 1, 2, 4, 16])):
        at = rng.randrange(len(text) + 1)
        to = min(len(text), at + rng.choice([1, 2, 5, 40]))
        text = rng.choice(
            [
                text[:at] + rng.choice(pieces) + text[at:],
                text[:at] + text[to:],
                text[:to] + text[at:to] * rng.choice([1, 2, 50]) + text[to:],
                text[:at]
                + chr(rng.choice([rng.randrange(128), rng.randrange(0x3000), rng.randrange(0x110000)]))
                + text[to:],
                text[to:] + text[:at],
            ]
        )[:20_000]
    return text


def drawn_text(rng):
    kind = rng.randrange(5)
    if kind == 4:
        return mutated(rng, rng.choice(rng.choice([COMBINED, PARTICULAR])), PIECES)
    if kind == 0:
        return "".join(rng.choices(PIECES, k=rng.randrange(24)))
    if kind == 1:
        scores = [rng.randrange(11) for _ in range(rng.randrange(1, 27))]
        return mutated(rng, render_response(rng.choice(["", "why"]), scores, rng.choice(list(GQM_TASKS))), PIECES)
    if kind == 2:
        return mutated(rng, mt_prompt("Hallo", "de", "en", rng.choice(["codeblock-think", "Tower"])), PIECES)
    return mutated(rng, rng.choice(ATTACKS).text, PIECES)


def fuzz_parsers(rng, number):
    text, n, prompt_type, mode = drawn_text(rng), rng.randrange(1, 27), rng.choice(list(GQM_TASKS)), rng.choice(MODES)
    parsed = parse_verdict(text, n, prompt_type, mode)
    if isinstance(parsed, ParsedVerdict):
        expect(parsed.scores is None or len(parsed.scores) == n, "another number of scores than of candidates")
        expect(all(0 <= score <= 10 for score in parsed.scores or ()), "a score off the scale")
        ranked = None if parsed.ranking is None else sorted(sum(parsed.ranking, ()))
        expect(ranked in (None, list(range(n))), "a ranking of others than the candidates")
    single = parse_sqm(text, mode)
    expect(isinstance(single, Rejection) or 0 <= single <= 10, "a single score off the scale")
    for read in (compat.gqm_extract_score, compat.group_extract_scores):
        read(text, prompt_type, n)
    for read in (compat.sqm_extract_score, compat.parse_score_text, imitates_rubric):
        read(text)
    for read in (recover_mt_task, parse_verification, contains_true):
        read(text)
    parse_total(text, rng.choice(MODES))
    marked = parse_errors(text, drawn_text(rng), mode)
    expect(isinstance(marked, Rejection) or 0 <= marked.score <= 10, "a score of errors off the scale")
    extract_translation(text, rng.choice(list(EXTRACTOR_TYPES)))
    return 1


def hostile_text(rng):
    """A short text; one in 250 is a longer one."""
    return drawn_text(rng) if rng.random() < 0.004 else "".join(rng.choices(HOSTILE, k=rng.randrange(1, 11)))


def fuzz_guard(rng, number):
    guard = rng.choice(GUARDS)
    texts = [text for text in (hostile_text(rng) for _ in range(SHOWN_TOGETHER)) if guard.is_safe(text)]
    shown = [guard.escape(text) for text in texts]
    for text, escaped in zip(texts, shown, strict=True):
        expect(escaped.replace("\\", "") == text.replace("\\", ""), "escaping changed more than backslashes")
    if not guard.fenced:
        return 0
    expect(not any(reads(text) for text in shown for reads in READERS), "a text can be read as a verdict")
    source, *candidates = ["Hallo", "Hi", *shown, "Hello"]
    prompt = gqm_prompt(source, candidates, "de", "en", fence=fence_for([source, *candidates]))
    for view in (str, as_seen):
        found = [content for _, content in blocks_of(view(prompt))]
        # A text ends where the line of its fence begins: a return at its end makes one line break with what follows.
        expect(found == [view(f"{text}\n")[:-1] for text in (source, *candidates)], "a text left its fence")
    return len(shown)


class RandomModel:
    """Answers with texts near the grammar."""

    def __init__(self):
        self.rng = random.Random(0)

    def generate_text(self, prompts, **sampling):
        return [GeneratedText(drawn_text(self.rng), self.rng.choice(["stop", "length"]), 5) for _ in prompts]

    def count_tokens(self, prompt):
        return len(prompt) // 4


MODEL = RandomModel()
JUDGE = judge_over(MODEL, GQMOptions(prompt_length=12_000, retries=1, mode="tolerant"))
APP = make_client(HostedJudge(JUDGE, check_task=_check_languages))


def drawn_request(rng, number):
    """(path, message, number of texts) of a request that is right but for its texts."""
    texts = [drawn_text(rng) for _ in range(rng.randrange(1, 6))]
    if rng.random() < 0.3:
        return "/", rows_body(len(texts), response=texts, src=[rng.choice(texts) for _ in texts]), len(texts)
    groups = [group(f"g{k}", *texts, source=rng.choice([*texts, "Hallo"])) for k in range(rng.randrange(1, 4))]
    return "/v1/score", score_body(*groups, request_id=f"r{number}"), len(texts)


def fuzz_app(rng, number):
    MODEL.rng = rng
    path, message, n_texts = drawn_request(rng, number)
    body = json.dumps(message)
    sent = mutated(rng, body, JSON_PIECES) if rng.random() < 0.6 else body
    answer = APP.post(path, data=sent.encode("utf-8", "surrogatepass"), content_type="application/json")
    expect(answer.status_code in ANSWERED - {503, 504}, f"status {answer.status_code}")
    expect("judge failed" not in answer.json.get("error_msg", ""), "the judge failed")  # a 200 in PaddleNLP's protocol
    if sent == body and path == "/v1/score" and answer.status_code == 200:
        found = ScoreAnswer.model_validate_json(answer.data)
        asked = [(g["group_id"], [c["candidate_id"] for c in g["candidates"]]) for g in message["groups"]]
        told = [(v.group_id, [c.candidate_id for c in v.candidates]) for v in found.verdicts]
        expect(told == asked, "other candidates were answered than asked about")
        scores = [c.score for v in found.verdicts for c in v.candidates if c.score is not None]
        expect(all(0 <= score <= 10 for score in scores), "a score off the scale")
    return n_texts


class FuzzedFront:
    """Damaged requests over sockets to a server process, which has to be alive after each hundred."""

    def __init__(self, process, url):
        self.process, self.address = process, ("127.0.0.1", int(url.rpartition(":")[2]))

    def __call__(self, rng, number):
        _, message, n_texts = drawn_request(rng, number)
        body = json.dumps(message)
        request = mutated(rng, HEADER.format(len(body)), HTTP_PIECES) + mutated(rng, body, JSON_PIECES)
        answer = self.ask(request.encode("utf-8", "surrogatepass"), 0.1)
        status = int(answer.split()[1]) if answer else 200  # a request without its end is not answered yet
        expect(status in {*ANSWERED, 501}, f"status {status}")  # 501: another transfer encoding than chunked
        if number % 100 == 0:
            alive = self.ask(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 60.0)
            expect(self.process.poll() is None and alive.startswith(b"HTTP/1.1 200"), "the server is gone")
        return n_texts

    def ask(self, request, timeout_s):
        with socket.create_connection(self.address, timeout=120) as connection:
            try:
                connection.sendall(request)
                connection.settimeout(timeout_s)
                return connection.recv(4096)
            except (TimeoutError, ConnectionError):
                return b""


def fuzz(targets, minutes, seed):
    """Cases and texts by target, and what was broken as (target, number of the case, traceback)."""
    n_cases, n_texts, faults, ends = Counter(), Counter(), [], time.monotonic() + 60 * minutes
    while time.monotonic() < ends and len(faults) < FAULTS_SHOWN:
        for name, target in targets.items():
            number = n_cases[name]
            n_cases[name] += 1
            try:
                n_texts[name] += target(random.Random(f"{seed}-{name}-{number}"), number)
            except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
                faults.append((name, number, traceback.format_exc()))
    return n_cases, n_texts, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # of what requests do not tell: a line each
    with ProcessPoolExecutor(1, get_context("spawn")) as pool, reward_server() as (process, url):
        beside = pool.submit(fuzz, {"guard": fuzz_guard}, options.minutes, options.seed)
        targets = {"parsers": fuzz_parsers, "app": fuzz_app, "front": FuzzedFront(process, url)}
        found = fuzz(targets, options.minutes, options.seed)
        n_cases, n_texts, faults = (part + other for part, other in zip(found, beside.result(), strict=True))
    for name, number, report in faults:
        print(f"{name}, case {number} of seed {options.seed}:\n{report}")
    print(json.dumps({**vars(options), "cases": n_cases, "texts": n_texts, "faults": len(faults)}))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
