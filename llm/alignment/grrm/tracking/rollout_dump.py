"""Every rollout group on disk: what was asked, what was sampled, what the judge said, what the trainer made of it.

A trainer lets its first rank write, which holds the whole gathered batch. `jsonl`: one file, appended. `parquet`: one
file per step, written atomically.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from grrm.data.atomic import atomic_path, write_json
from grrm.errors import UserError, first_line
from grrm.gqm.groups import Candidate, ContextSegment, Group, PartVerdict, Status, TranslationTask, Verdict
from grrm.gqm.spans import Spans, span_fields, spans_of_fields
from grrm.gqm.terms import terms_mapping, terms_of_mapping
from grrm.http_client.exchange import clean_text
from grrm.rewards.mixing import mix, part_fields
from grrm.tracking.metrics_log import StepLines, finite, read_step_lines

# Trained on; left out by dynamic sampling without a signal, or with one but not needed; of a step that was stopped.
GroupUse = Literal["trained", "rejected", "surplus", "aborted"]
ROLLOUTS = "rollouts"  # the folder below output_dir
_FAILURES = {Status.JUDGE_UNPARSABLE.value, Status.JUDGE_TIMEOUT.value, Status.JUDGE_UNREACHABLE.value}
_ARGUMENTS = "arguments-step{}.json"
_PER_TOKEN = ("kl", "token_ids", "values", "severities")
_SPAN = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("severity", pa.string())])
_CANDIDATE = pa.struct(
    [
        *((name, pa.string()) for name in ("id", "response", "translation")),
        ("n_tokens", pa.int64()),
        ("token_ids", pa.list_(pa.int64())),
        ("status", pa.string()),
        *((name, pa.float64()) for name in ("score", "reward", "advantage")),
        *((name, pa.list_(pa.float64())) for name in ("kl", "values")),
        ("spans", pa.list_(_SPAN)),
        ("severities", pa.list_(pa.float64())),
    ]
)
_PART = pa.struct(
    [
        ("name", pa.string()),
        ("weight", pa.float64()),
        ("normalise", pa.string()),
        ("counts", pa.bool_()),
        ("fell_back", pa.bool_()),
        ("attempts", pa.int64()),
        ("rejections", pa.list_(pa.string())),
        ("statuses", pa.list_(pa.string())),
        ("scores", pa.list_(pa.float64())),
        ("analysis", pa.string()),
    ]
)
_VERDICT = pa.struct(
    [
        ("analysis", pa.string()),
        ("ranking", pa.list_(pa.list_(pa.string()))),
        ("attempts", pa.int64()),
        ("rejections", pa.list_(pa.string())),
        ("parts", pa.list_(_PART)),
    ]
)
_SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        *((name, pa.string()) for name in ("group_id", "source", "src_lang", "trg_lang", "reference", "data_source")),
        ("context", pa.list_(pa.struct([("source", pa.string()), ("translation", pa.string())]))),
        *((name, pa.string()) for name in ("terms", "use", "signal")),
        ("candidates", pa.list_(_CANDIDATE)),
        ("verdict", _VERDICT),
    ]
)


def group_record(
    step: int,
    group: Group,
    verdict: Verdict | None,
    rewards_G: Sequence[float | None],
    advantages_G: Sequence[float | None],
    statuses_G: Sequence[Status | None] = (),
    use: GroupUse = "trained",
    signal: str | None = None,
    kl_GT: Sequence[Sequence[float]] | None = None,
    token_ids_GT: Sequence[Sequence[int]] | None = None,
    values_GT: Sequence[Sequence[float]] | None = None,
    severities_GT: Sequence[Sequence[float]] | None = None,
) -> dict[str, Any]:
    """One group as a JSON-ready object.

    `rewards_G` and `advantages_G` are aligned with `group.candidates`; None marks a candidate that got none (masked
    or dropped). A sequence-level advantage is one number per candidate. `use` says what became of the group, `signal`
    is its `GroupSignal`.

    Where rewards came without a verdict (the row protocol), `statuses_G` says what is known (None: the candidate was
    not judged) and there are no scores. `kl_GT` has the terms of the KL penalty per token where it is in the reward,
    `token_ids_GT` the sampled tokens, which the text need not determine.

    `values_GT` are the critic's values and `severities_GT` the weights of error spans, where the advantage rule reads
    them.

    Raises ValueError when lengths differ.
    """
    statuses = statuses_G if verdict is None else verdict.statuses
    nothing = (None,) * len(group.candidates)
    scores = nothing if verdict is None else verdict.scores
    per_token = (nothing if rows_GT is None else rows_GT for rows_GT in (kl_GT, token_ids_GT, values_GT, severities_GT))
    spans = (verdict.spans if verdict is not None else ()) or nothing
    columns = (group.candidates, statuses, scores, rewards_G, advantages_G, spans, *per_token)
    if len({len(column) for column in columns}) != 1:
        raise ValueError(f"group {group.group_id!r} has columns of lengths {[len(column) for column in columns]}")
    return {
        "step": int(step),
        "group_id": group.group_id,
        "source": group.task.source,
        "src_lang": group.task.src_lang,
        "trg_lang": group.task.trg_lang,
        "reference": group.task.reference,
        "data_source": group.task.data_source,
        "context": None if group.task.context is None else [part._asdict() for part in group.task.context],
        "terms": json.dumps(terms_mapping(group.task.terms), ensure_ascii=False) if group.task.terms else None,
        "use": use,
        "signal": signal,
        "candidates": [_candidate_record(*row) for row in zip(*columns, strict=True)],
        "verdict": None if verdict is None else _verdict_record(verdict),
    }


def _candidate_record(
    candidate: Candidate,
    status: Status | None,
    score: float | None,
    reward: float | None,
    advantage: float | None,
    spans: Spans | None,
    *per_token: Sequence[float] | None,
) -> dict[str, Any]:
    of_tokens = (None if of_token is None else list(of_token) for of_token in per_token)
    return {
        "id": candidate.candidate_id,
        "response": candidate.response,
        "translation": candidate.translation,
        "n_tokens": candidate.n_tokens,
        "status": None if status is None else status.value,
        "score": score,
        "reward": reward,
        "advantage": advantage,
        "spans": span_fields(spans),
        **dict(zip(_PER_TOKEN, of_tokens, strict=True)),
    }


def _verdict_record(verdict: Verdict) -> dict[str, Any]:
    return {
        "analysis": verdict.analysis,
        "ranking": None if verdict.ranking is None else [list(tier) for tier in verdict.ranking],
        "attempts": verdict.attempts,
        "rejections": list(verdict.rejections),
        "parts": [part_fields(part) for part in verdict.parts],
    }


def group_of(record: Mapping[str, Any]) -> Group:
    """The group of a dumped record, as a judge gets it."""
    languages = record["src_lang"], record["trg_lang"]
    data_source = record.get("data_source") or ""
    context = record.get("context")
    shown = None if context is None else tuple(ContextSegment(part["source"], part["translation"]) for part in context)
    terms = terms_of_mapping(json.loads(record.get("terms") or "{}"))
    task = TranslationTask(record["source"], *languages, record["reference"], data_source, shown, terms)
    candidates = (
        Candidate(candidate["id"], candidate["response"], candidate["translation"], candidate["n_tokens"])
        for candidate in record["candidates"]
    )
    return Group(record["group_id"], task, tuple(candidates))


def verdict_of(record: Mapping[str, Any]) -> Verdict:
    """The verdict of a dumped group that was judged; that of a mixture is recomputed from its parts."""
    said, candidates = record["verdict"], record["candidates"]
    marked = tuple(spans_of_fields(candidate.get("spans")) for candidate in candidates)
    spans = () if set(marked) == {None} else marked
    if said.get("parts"):
        return replace(mix([part_of(part) for part in said["parts"]]), spans=spans)
    statuses = tuple(Status(candidate["status"]) for candidate in candidates)
    scores = tuple(candidate["score"] for candidate in candidates)
    return Verdict(statuses, scores, analysis=said["analysis"], spans=spans)


def lacks_verdict(record: Mapping[str, Any]) -> bool:
    """True for a dumped group that the judge failed on, in part or as a whole, or was never asked about."""
    candidates = record["candidates"]
    if record["verdict"] is None and all(candidate["reward"] is None for candidate in candidates):
        return True
    return any(candidate["status"] in _FAILURES for candidate in candidates)


def part_of(record: Mapping[str, Any]) -> PartVerdict:
    """The part that a dump has as `record`, for `rewards.mixing.mix`; `rewards.mixing.counted` decides anew."""
    columns = {"statuses": tuple(map(Status, record["statuses"])), "scores": tuple(record["scores"])}
    return PartVerdict(**{**record, **columns, "rejections": tuple(record.get("rejections") or ())})


class RolloutDump:
    """Writes the groups of a run below `folder`.

    `first_step` is the first step this run will write; records of that step or later, left by a run that was
    interrupted after its last checkpoint, are removed.
    """

    def __init__(
        self, folder: Path, file_format: Literal["jsonl", "parquet"] = "jsonl", *, first_step: int = 0
    ) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        # In both formats: the interrupted run may have written the other one.
        lines = StepLines(self.folder / "rollouts-rank000.jsonl", first_step)
        _remove_from(self.folder, "rollouts-rank000-step*.parquet", first_step)
        self.first_step = first_step
        self._lines = lines if file_format == "jsonl" else None

    def write_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Keep the settings that the steps from `first_step` on were made with; a resumed run may have others."""
        _remove_from(self.folder, _ARGUMENTS.format("*"), self.first_step)
        write_json(self.folder / _ARGUMENTS.format(f"{self.first_step:08d}"), dict(arguments))

    def write(self, step: int, records: Sequence[Mapping[str, Any]]) -> None:
        """Write the `group_record`s of one step; they are on disk when this returns. No records, no file.

        In parquet a second write of the same step replaces the first, and U+FFFD stands for half a character. Raises
        ValueError on a record of another step.
        """
        if any(record["step"] != step for record in records):
            raise ValueError(f"records of steps {sorted({record['step'] for record in records})} given for step {step}")
        if not records:
            return
        if self._lines is not None:
            self._lines.append(records)
            return
        path = self.folder / f"rollouts-rank000-step{step:08d}.parquet"
        rows = [finite(record) for record in records]
        try:
            table = pa.Table.from_pylist(rows, schema=_SCHEMA)
        except UnicodeEncodeError:  # half a character of a reply, which lines of JSON escape
            rows = json.loads(clean_text(json.dumps(rows, ensure_ascii=False)))
            table = pa.Table.from_pylist(rows, schema=_SCHEMA)
        with atomic_path(path) as temporary:
            pq.write_table(table, temporary)


def read_arguments(folder: Path) -> dict[int, dict[str, Any]]:
    """The settings of a run by the first step that was made with them; empty where none were kept.

    Raises UserError on a damaged file.
    """
    by_step = {}
    for path in sorted(Path(folder).glob(_ARGUMENTS.format("*"))):
        try:
            by_step[int(path.stem.rpartition("step")[2])] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(f"'{path}' holds no settings of a run ({error}): copy it again, or remove it") from error
    return by_step


def last_arguments(folder: Path, before: int | None = None) -> dict[str, Any]:
    """The settings of a run's last part, or of its last steps `before` that one; empty where none were kept."""
    by_step = read_arguments(folder)
    steps = [step for step in by_step if before is None or step < before]
    return by_step[max(steps)] if steps else {}


def read_rollouts(folder: Path) -> Iterator[dict[str, Any]]:
    """Every record below `folder` in the order of steps, also of a run that was continued in the other format.

    Raises UserError on a damaged file.
    """
    lines = map(read_step_lines, sorted(Path(folder).glob("rollouts-rank*.jsonl")))
    tables = map(_read_table, sorted(Path(folder).glob("rollouts-rank*.parquet")))
    return merge(*lines, (row for table in tables for row in table.to_pylist()), key=lambda record: record["step"])


def _read_table(path: Path) -> pa.Table:
    try:
        with pq.ParquetFile(path) as file:  # `read_table` reads columns out of names of folders, such as step=3
            return file.read()
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"'{path}' is not parquet ({first_line(error)}): copy it again, or remove it") from error


def _remove_from(folder: Path, pattern: str, first_step: int) -> None:
    for path in folder.glob(pattern):
        if int(path.stem.rpartition("step")[2]) >= first_step:
            path.unlink()
