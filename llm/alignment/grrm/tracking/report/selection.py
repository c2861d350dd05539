"""The choice of a run's groups for a report, made in one pass over its dump and fetched in another: dumps are large.

Where they do not all fit, the rules are the disagreement of judges, what went without a score, the spread of rewards,
prompts that come again, and an even choice of the rest.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from grrm.data.atomic import atomic_path, json_bytes
from grrm.gqm.groups import Verdict
from grrm.judges.permute import kendall_tau_b
from grrm.tracking.metrics_log import read_step_lines
from grrm.tracking.report.page import embedded_json
from grrm.tracking.rollout_dump import ROLLOUTS, read_rollouts

FOLDER = "rejudged"  # below output_dir


def write_opinions(run: Path, name: str, judged: Iterable[tuple[Mapping[str, Any], Verdict]]) -> Path:
    """Keep the verdicts on dumped groups beside the run, where `grrm report` finds them. Returns the file.

    Each becomes a line of JSON as it comes. Those that the file has on other groups stay.
    """
    file = name.replace("%", "%25").replace("/", "%2F")  # a judge may be called folder/file.py:function
    path = Path(run) / FOLDER / f"{file}.jsonl"
    new: set[GroupKey] = set()
    with atomic_path(path) as temporary, temporary.open("wb") as lines:
        for record, verdict in judged:
            opinion = {
                "step": record["step"],
                "group_id": record["group_id"],
                "statuses": [status.value for status in verdict.statuses],
                "scores": list(verdict.scores),
                "analysis": verdict.analysis,
            }
            new.add(_key(record))
            lines.write(json_bytes(opinion, allow_nan=False))
        if path.exists():
            with path.open("rb") as earlier:
                lines.writelines(line for line in earlier if _key(json.loads(line)) not in new)
    return path


def read_opinions(run: Path) -> dict[str, dict[GroupKey, dict[str, Any]]]:
    """Read the files of `write_opinions`: of each judge by name, its statuses and scores by step and group id.

    Raises UserError on a damaged file.
    """
    opinions_of: dict[str, dict[GroupKey, dict[str, Any]]] = {}
    for path in sorted((Path(run) / FOLDER).glob("*.jsonl")):
        opinions = opinions_of.setdefault(unquote(path.stem), {})
        for opinion in read_step_lines(path):
            opinion.pop("analysis", None)  # thousands of characters each, of every group of the run
            opinions[_key(opinion)] = opinion
    return opinions_of


GroupKey = tuple[int, str]  # step and group id
PromptKey = tuple[str, str, str, str | None]  # source, languages, reference
Opinions = Mapping[str, Mapping[GroupKey, Mapping[str, Any]]]
Scores = Sequence[float | None]
ANALYSIS_LENGTH = 1_200  # characters of a judge's text that are shown
_OVERHEAD, _CANDIDATE_OVERHEAD = 200, 140  # bytes of a shown group beside its texts


@dataclass(slots=True)
class Survey:
    """Counts of a run, and of every group the properties that it is chosen by."""

    uses: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    rejections: Counter[str] = field(default_factory=Counter)
    sizes: dict[GroupKey, int] = field(default_factory=dict)
    spreads: dict[GroupKey, float] = field(default_factory=dict)
    concord: dict[GroupKey, float] = field(default_factory=dict)  # agreement, weighed by the pairs it is about
    failed: dict[GroupKey, str] = field(default_factory=dict)
    by_prompt: dict[int, list[GroupKey]] = field(default_factory=dict)
    rewards: dict[tuple[str, int], list[float]] = field(default_factory=dict)  # by language pair and step

    def pair_rewards(self) -> dict[str, list[list[float]]]:
        """Mean reward of trained samples by language pair, as columns of steps and values; none for a single pair."""
        columns: dict[str, list[list[float]]] = {}
        for (pair, step), values in sorted(self.rewards.items()):
            steps, means = columns.setdefault(f"pair/{pair}/reward_mean", [[], []])
            steps.append(step)
            means.append(float(f"{sum(values) / len(values):.6g}"))
        return columns if len(columns) > 1 else {}


def survey_run(run: Path) -> Survey:
    """Read a run's dump once. Raises UserError on a damaged dump."""
    opinions, survey = read_opinions(run), Survey()
    for key, record in _records(run):
        use = record.get("use", "trained")
        statuses = [candidate["status"] or "not judged" for candidate in record["candidates"]]
        judges = judges_of(record, opinions)
        survey.uses[use] += 1
        survey.statuses.update(statuses)
        survey.rejections.update((record["verdict"] or {}).get("rejections") or ())
        survey.sizes[key] = _size(record)
        survey.by_prompt.setdefault(hash(prompt_key(record)), []).append(key)
        unscored = [status for status in statuses if status not in ("scored", "duplicate")]
        if use in ("rejected", "aborted") or unscored:
            survey.failed[key] = unscored[0] if unscored else use
        if use == "trained":
            _survey_trained(survey, key, record, judges)
    return survey


def _survey_trained(survey: Survey, key: GroupKey, record: Mapping[str, Any], judges: Mapping[str, Scores]) -> None:
    rewards = [candidate["reward"] for candidate in record["candidates"] if candidate["reward"] is not None]
    survey.spreads[key] = max(rewards) - min(rewards) if rewards else 0.0
    if rewards:
        survey.rewards.setdefault((f"{record['src_lang']}-{record['trg_lang']}", key[0]), []).extend(rewards)
    tau = agreement(record, judges)
    if tau is not None:
        n_distinct = len({candidate["translation"] for candidate in record["candidates"]})
        survey.concord[key] = tau * math.comb(n_distinct, 2)


def choose(surveys: Sequence[Survey], limit: int, n_bytes: int) -> list[set[GroupKey]]:
    """The groups to show of every run: at most `limit` groups and about `n_bytes` of text in each.

    Prompts that several runs have are chosen alike in all of them.
    """
    shared = set.intersection(*(set(survey.by_prompt) for survey in surveys)) if len(surveys) > 1 else set()
    in_common = _evenly(sorted(shared, key=lambda prompt: surveys[0].by_prompt[prompt][0]), limit)
    return [_choose(survey, in_common, limit, n_bytes) for survey in surveys]


def _choose(survey: Survey, in_common: Sequence[int], limit: int, n_bytes: int) -> set[GroupKey]:
    common = _halving([key for prompt in in_common for key in survey.by_prompt[prompt]])
    of_steps = (keys for keys in survey.by_prompt.values() if _n_steps(keys) > 1)
    recurring = sorted(of_steps, key=lambda keys: (-_n_steps(keys), keys[0]))
    rules = (
        sorted(survey.concord, key=lambda key: (survey.concord[key], key)),
        [*{cause: key for key, cause in survey.failed.items()}.values(), *reversed(survey.failed)],
        _halving(_widest_of_steps(survey.spreads)),
        [key for keys in recurring for key in keys],
        *(common[i::4] for i in range(4)),  # half of the room is for comparison
    )
    chosen: set[GroupKey] = set()
    for key in chain.from_iterable((*zip_longest(*rules), _halving(list(survey.sizes)))):
        if len(chosen) == limit:
            break
        if key is None or key in chosen or survey.sizes[key] > n_bytes:
            continue
        n_bytes -= survey.sizes[key]
        chosen.add(key)
    return chosen


def chosen_records(run: Path, keys: set[GroupKey]) -> Iterator[tuple[dict[str, Any], dict[str, Scores], float | None]]:
    """The records of these groups in the dump's order, the scores of further judges, and how far all judges agree."""
    opinions = read_opinions(run)
    for key, record in _records(run):
        if key in keys:
            judges = judges_of(record, opinions)
            yield record, judges, agreement(record, judges)


def prompt_key(record: Mapping[str, Any]) -> PromptKey:
    """Return the key that groups of the same prompt share."""
    return record["source"], record["src_lang"], record["trg_lang"], record["reference"]


def judges_of(record: Mapping[str, Any], opinions: Opinions) -> dict[str, Scores]:
    """Scores of a group beside the run's own: those of a mixture's judges, and of judges asked afterwards."""
    parts = (record["verdict"] or {}).get("parts") or ()
    scores: dict[str, Scores] = {part["name"]: part["scores"] for part in parts}
    for name, by_key in opinions.items():
        opinion = by_key.get(_key(record))
        if opinion is not None:
            scores[f"{name} *" if name in scores else name] = opinion["scores"]
    return scores


def agreement(record: Mapping[str, Any], judges: Mapping[str, Scores]) -> float | None:
    """The lowest tau-b of any two judges on the candidates that both scored; None where nothing can be compared.

    A mixture's own scores follow from its judges' and are not compared with them.
    """
    own = [candidate["score"] for candidate in record["candidates"]]
    is_mixture = bool((record["verdict"] or {}).get("parts"))
    columns = [*judges.values()] if is_mixture else [own, *judges.values()]
    taus = []
    for first, second in combinations(columns, 2):
        both = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
        tau = kendall_tau_b([a for a, _ in both], [b for _, b in both])
        if tau is not None:
            taus.append(tau)
    return min(taus) if taus else None


def _records(run: Path) -> Iterator[tuple[GroupKey, dict[str, Any]]]:
    for record in read_rollouts(Path(run) / ROLLOUTS):
        yield _key(record), record


def _key(record: Mapping[str, Any]) -> GroupKey:
    return int(record["step"]), str(record["group_id"])


def _size(record: Mapping[str, Any]) -> int:
    """About the bytes that a group takes on the page; of its texts exactly."""
    analysis = ((record["verdict"] or {}).get("analysis") or "")[:ANALYSIS_LENGTH]
    responses = {candidate["response"] for candidate in record["candidates"]}
    texts = embedded_json([record["source"], record["reference"], analysis, *responses])
    return len(texts.encode("utf-8", "replace")) + _OVERHEAD + _CANDIDATE_OVERHEAD * len(responses)


def _widest_of_steps(spreads: Mapping[GroupKey, float]) -> list[GroupKey]:
    """Of every step the group whose rewards lie furthest apart; of equal ones the first."""
    best: dict[int, GroupKey] = {}
    for key, spread in spreads.items():
        step = key[0]
        if step not in best or spread > spreads[best[step]]:
            best[step] = key
    return [best[step] for step in sorted(best)]


def _evenly(keys: Sequence[int], count: int) -> list[int]:
    """At most `count` of the keys at equal distances."""
    return [keys[i * len(keys) // count] for i in range(count)] if len(keys) > count else list(keys)


def _halving(keys: Sequence[GroupKey]) -> list[GroupKey]:
    """All keys in an order of which every beginning is spread evenly: first and last, then the middles of gaps."""
    n_bits = max(len(keys) - 1, 1).bit_length()
    order = sorted(range(len(keys)), key=lambda i: int(f"{i:0{n_bits}b}"[::-1], 2))
    last = len(keys) - 1
    return [keys[i] for i in sorted(order, key=lambda i: i != last)]


def _n_steps(keys: Sequence[GroupKey]) -> int:
    return len({step for step, _ in keys})
