"""Accuracy of the verdict parsers on judges' replies: the original tools' two beside ours, exact and tolerant.

    python benchmarks/parser_table.py [--repeats 5] [--seed 1] [--out FILE]

The replies are the golden outputs in tests/golden/data, as they are and mutated. A mutation is applied to a well-formed
reply, whose scores are known: what a parser makes of the mutated text is `accepted` (those scores), `rejected`, or
`wrong` (other scores).

Harmless mutations decorate the verdict, so that accepting is right; harmful ones damage it, so that rejecting is.
Nothing is timed and everything is seeded: the same arguments give the same file.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from machine import ROOT, command_line, write_result
from parser_mutations import MUTATIONS, Mutation, take_apart

from grrm.gqm import compat
from grrm.gqm.grammar import Mode, Rejection, parse_verdict
from grrm.gqm.groups import Tiers, tiers_of
from grrm.gqm.languages import CANDIDATE_IDS

GOLDEN = ROOT / "tests/golden/data/gqm_parse.jsonl"
READERS = ("gqm.extract_score", "rm_lib.group_extract_scores")
OUTCOMES = ("accepted", "rejected", "wrong")
RANKING_LINE = re.compile(r"[A-Z](?: ?[=>] ?[A-Z])+")

Reading = tuple[float, ...] | Tiers | None  # scores by candidate; for prompt type `ranking` its tiers


@dataclass(frozen=True, slots=True)
class Reply:
    """A judge's reply on candidates A, B, … (`n_candidates`), and what it says; None where nothing is known."""

    text: str
    prompt_type: str
    n_candidates: int
    truth: Reading = None

    @property
    def is_ranking(self) -> bool:
        """True where the last line ranks instead of scoring."""
        return self.prompt_type == "ranking"


def inference_tool(reply: Reply) -> Reading:
    """The original inference script's parser."""
    return _reading(reply, compat.gqm_extract_score(reply.text, reply.prompt_type, reply.n_candidates))


def trainer(reply: Reply) -> Reading:
    """The original trainer's parser."""
    return _reading(reply, compat.group_extract_scores(reply.text, reply.prompt_type, reply.n_candidates))


def _reading(reply: Reply, scores: Sequence[float] | None) -> Reading:
    if scores is None:
        return None
    return tiers_of(scores) if reply.is_ranking else tuple(map(float, scores))


def ours(mode: Mode) -> Callable[[Reply], Reading]:
    """Our grammar in one of its modes."""

    def parse(reply: Reply) -> Reading:
        parsed = parse_verdict(reply.text, reply.n_candidates, reply.prompt_type, mode)
        if isinstance(parsed, Rejection):
            return None
        return parsed.ranking if reply.is_ranking else parsed.scores

    return parse


PARSERS: dict[str, Callable[[Reply], Reading]] = {
    "reference_inference": inference_tool,
    "reference_trainer": trainer,
    "exact": ours("exact"),
    "tolerant": ours("tolerant"),
}


def golden_replies() -> dict[str, list[Reply]]:
    """The distinct golden outputs: `well_formed`, whose scores the golden file tells, and `malformed`.

    Malformed are those that an original parser rejects, or accepts by what the golden file calls a quirk, and those
    whose ranking does not agree with the scores; what they say is not known.
    """
    rows: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for line in GOLDEN.read_text(encoding="utf-8").strip().split("\n"):  # a text may hold other line ends
        row = json.loads(line)
        inputs = row["input"]
        if row["fn"] in READERS and inputs["prompt_type"] != "bogus":
            rows.setdefault((inputs["output_text"], inputs["prompt_type"], inputs["expected_num"]), []).append(row)
    replies: dict[str, list[Reply]] = {"well_formed": [], "malformed": []}
    for key, reading in rows.items():
        reply, expected = Reply(*key), reading[0]["expected"]
        is_sound = all(row["expected"] is not None and not row.get("quirk") for row in reading)
        if is_sound and not contradicts_itself(reply, expected):
            replies["well_formed"].append(Reply(*key, truth=_reading(reply, expected)))
        else:
            replies["malformed"].append(reply)
    return replies


def contradicts_itself(reply: Reply, scores: Sequence[float]) -> bool:
    """True when the reply ranks the candidates, above its scores, in another order than the scores do."""
    lines = [line.strip() for line in reply.text.strip().split("\n")[:-1]]
    rankings = [line for line in lines if RANKING_LINE.fullmatch(line)]
    if reply.prompt_type != "ranking_score" or not rankings:
        return False
    tiers = [[item.strip() for item in tier.split("=")] for tier in rankings[-1].split(">")]
    implied = [[CANDIDATE_IDS[index] for index in tier] for tier in tiers_of(scores)]
    return [sorted(tier) for tier in tiers] != implied


def mutated(reply: Reply, mutation: Mutation, rng: random.Random) -> Reply | None:
    """The reply with its last line changed; None where the mutation does not apply or changes nothing."""
    if reply.prompt_type not in mutation.types:
        return None
    before, newline, last = reply.text.strip().rpartition("\n")
    line = take_apart(last)
    if len(line.items) < 2:
        return None
    text = before + newline + mutation.change(line, rng)
    return None if text == reply.text.strip() else Reply(text, reply.prompt_type, reply.n_candidates, reply.truth)


def outcome(reading: Reading, truth: Reading) -> str:
    """Classify a parser's reading of a reply; without a truth no reading is wrong."""
    if reading is None:
        return "rejected"
    return "accepted" if truth is None or reading == truth else "wrong"


def count(replies: Sequence[Reply]) -> dict[str, Any]:
    """Count the replies that each parser accepts, rejects and misreads."""
    table: dict[str, Any] = {"replies": len(replies)}
    for name, parse in PARSERS.items():
        counts = Counter(outcome(parse(reply), reply.truth) for reply in replies)
        table[name] = {key: counts[key] for key in OUTCOMES}
    return table


def measure(repeats: int, seed: int) -> dict[str, Any]:
    """All counts; see the module's description."""
    golden = golden_replies()
    by_mutation: dict[str, Any] = {}
    all_of: dict[str, list[Reply]] = {"harmless": [], "harmful": []}
    for name, mutation in MUTATIONS.items():
        rng = random.Random(f"{seed}/{name}")
        sampled = [mutated(reply, mutation, rng) for reply in golden["well_formed"] for _ in range(repeats)]
        changed = list(dict.fromkeys(reply for reply in sampled if reply is not None))
        by_mutation[name] = {"kind": mutation.kind, **count(changed)}
        all_of[mutation.kind] += changed
    return {
        "workload": {"seed": seed, "repeats": repeats, "golden": GOLDEN.name},
        "golden": {name: count(replies) for name, replies in golden.items()},
        "mutated": {kind: count(replies) for kind, replies in all_of.items()},
        "mutations": by_mutation,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, "parser_table")
    parser.add_argument("--repeats", type=int, default=5, help="draws of each mutation of each reply (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the mutations (%(default)s)")
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    result = measure(options.repeats, options.seed)
    write_result(options.out, result)
    for name, table in {**result["golden"], **result["mutated"], **result["mutations"]}.items():
        cells = (" / ".join(str(table[parser_name][key]) for key in OUTCOMES) for parser_name in PARSERS)
        print(f"{name:<22} {table['replies']:>6}   {'   '.join(f'{cell:<18}' for cell in cells)}")


if __name__ == "__main__":
    main()
