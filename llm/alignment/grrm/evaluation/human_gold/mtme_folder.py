"""A test set of the metrics task in the layout of google-research/mt-metrics-eval (version 2), as it is downloaded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grrm.data.atomic import write_bytes
from grrm.data.layouts.opening import open_table
from grrm.data.layouts.table import sound_rows
from grrm.data.layouts.text_files import lines_of
from grrm.errors import UserError, require_known
from grrm.evaluation.candidate_pairs import Floats
from grrm.evaluation.human_gold.gold import HumanGold

SEGMENT_SCORES = ".seg.score"
RATINGS = ".seg.rating"
MQM = "mqm"
NO_TRANSLATION = "[No translation supplied]"
_NO_ERRORS = ("neutral", "no-error", "")  # severities
_JSON_KEYS = {"sources": "source", "references": "target", "system-outputs": "hypothesis"}


def is_mtme(path: Path) -> bool:
    """Return whether this is the folder of a test set. Raises UserError for a folder of several."""
    if sets := sorted(child.parent.name for child in path.glob("*/human-scores")):
        raise UserError(f"{path} has the test sets {', '.join(sets)}; give one of them, such as {path / sets[0]}")
    return (path / "human-scores").is_dir()


def language_pairs(folder: Path, name: str | None = None) -> list[str]:
    """The language pairs with human scores of this name, sorted; None for `mqm`, or any if no pair has it.

    Raises UserError where there are none.
    """
    scored = [file.partition(".")[::2] for file in _names(folder, "", SEGMENT_SCORES)]
    if name is not None:
        require_known(f"human score in {folder}", name, sorted({own for _, own in scored}))
    if not scored:
        raise UserError(
            f"{folder} has no human scores of segments; give a test set with human-scores/*{SEGMENT_SCORES}"
        )
    return sorted({pair for pair, own in scored if own == (name or MQM)} or {pair for pair, _ in scored})


def system_names(folder: Path) -> list[str]:
    """The names of the systems of all language pairs, sorted."""
    return sorted({path.stem for path in (folder / "system-outputs").glob("*/*.*")})


def read_mtme(
    folder: Path,
    pair: str,
    *,
    name: str | None = None,
    reference: str | None = None,
    excluded: Sequence[str] = (),
    annotators: Sequence[str] = (),
) -> HumanGold:
    """Read one language pair.

    Args:
        folder: of the test set, such as mt-metrics-eval-v2/wmt23.
        pair: of languages, such as en-de.
        name: of the human scores; None for `mqm`, or the only ones.
        reference: the one that metrics use; None for the first by name. It is no system, other references are.
        excluded: systems that do not count, such as those that the organisers call outliers.
        annotators: names of human scores or ratings that are of one person each; none for all such ratings.

    Raises:
        UserError: for a file that is missing or damaged, and for names that are not there.
    """
    references = _texts_by_name(folder, "references", f"{pair}.*", prefix=f"{pair}.")
    if reference is not None:
        require_known(f"reference of {pair}", reference, references)
    reference = reference or min(references, default=None)
    sources = _texts_by_name(folder, "sources", f"{pair}.*")
    if pair not in sources:
        raise UserError(f"{folder / 'sources'} has no {pair}.txt; give the folder of a test set that has it")
    outputs = _texts_by_name(folder, "system-outputs", f"{pair}/*.*")
    scores = human_scores(folder, pair, name)
    systems = sorted(outputs.keys() & {own for own, values in scores.items() if not np.isnan(values).all()})
    systems = [system for system in systems if system not in (*excluded, reference)]
    if len(systems) < 2:
        raise UserError(f"{folder} has {len(systems)} systems of {pair} with human scores; a card compares two or more")
    raters = [own for own in _names(folder, f"{pair}.", RATINGS) if "rater" in own]  # `mqm.rater1`, not `mqm.merged`
    n_sources = len(sources[pair])
    src_lang, _, trg_lang = pair.partition("-")
    no_reference: list[str | None] = [None] * n_sources
    of_each = [outputs[system] for system in systems]
    columns = {
        "domains": _domains(folder, pair, n_sources),
        "references": references.get(reference or "", no_reference),
    }
    for label, column in {**columns, **{system: outputs[system] for system in systems}}.items():
        if len(column) != n_sources:
            raise UserError(f"{folder} has {n_sources} sources of {pair} but {len(column)} of {label}; get it again")
    return HumanGold(
        folder.name,
        src_lang,
        trg_lang,
        [source or "" for source in sources[pair]],
        columns["references"],
        columns["domains"],
        systems,
        list(zip(*of_each, strict=True)),
        scores_of(scores, systems, n_sources, f"human scores of {pair}"),
        {
            own: scores_of(_of_annotator(folder, pair, own), systems, n_sources, f"{own} of {pair}")
            for own in annotators or raters
        },
    )


def human_scores(folder: Path, pair: str, name: str | None) -> dict[str, Floats]:
    """The scores of each system. Raises UserError where the name is unknown, or several names leave a choice."""
    names = _names(folder, f"{pair}.", SEGMENT_SCORES)  # `mqm` of en-de.mqm.seg.score
    if name is None and MQM not in names and len(names) != 1:
        raise UserError(
            f"{folder} has human scores {', '.join(names) or 'of no name'} of {pair}; choose with --gold-key"
        )
    name = name or (MQM if MQM in names else names[0])
    require_known(f"human score of {pair}", name, names)
    return read_segment_scores(folder / "human-scores" / f"{pair}.{name}{SEGMENT_SCORES}")


def read_segment_scores(path: Path) -> dict[str, Floats]:
    """The scores of each system, in the order of segments, NaN for None; a line is a system and a score.

    Raises UserError that names the first line that is none.
    """
    scores: dict[str, list[float]] = {}
    for number, line in lines_of(path):
        try:
            system, value = line.strip().rsplit(maxsplit=1)  # names may have spaces
            score = np.nan if value == "None" else float(value)
            if np.isinf(score):
                raise ValueError("no score is infinite")
            scores.setdefault(system, []).append(score)
        except ValueError as error:
            raise UserError(f"{path} line {number} is {line[:80]!r}; write a system and a score, or None") from error
    return {system: np.array(values) for system, values in scores.items()}


def write_segment_scores(path: Path, systems: Sequence[str], scores_PG: Floats) -> None:
    """Write scores so that `read_segment_scores` reads them."""
    lines = [
        f"{system}\t{None if np.isnan(score) else score}\n"
        for system, scores in zip(systems, scores_PG.T.tolist(), strict=True)
        for score in scores
    ]
    write_bytes(path, "".join(lines).encode())


def scores_of(scores: dict[str, Floats], systems: Sequence[str], n_sources: int, what: str) -> Floats:
    """Scores [P, G] of these systems, NaN for a system without. Raises UserError for another number of segments."""
    columns = [scores.get(system, np.full(n_sources, np.nan)) for system in systems]
    for system, column in zip(systems, columns, strict=True):
        if len(column) != n_sources:
            raise UserError(f"{what} has {len(column)} scores of {system} for {n_sources} segments; get it again")
    return np.stack(columns, axis=1)


def _names(folder: Path, beginning: str, ending: str) -> list[str]:
    """The names of human scores, sorted: what stands between beginning and ending in the name of a file."""
    files = (folder / "human-scores").glob(f"{beginning}*{ending}")
    return sorted(path.name.removeprefix(beginning).removesuffix(ending) for path in files)


def _of_annotator(folder: Path, pair: str, name: str) -> dict[str, Floats]:
    """The scores of a person, from a file of scores or of ratings."""
    path = folder / "human-scores" / f"{pair}.{name}{RATINGS}"
    if not path.is_file():
        return human_scores(folder, pair, name)
    scores: dict[str, list[float]] = {}
    for number, line in lines_of(path):
        system, rating, *_ = [*line.split("\t"), ""]
        try:
            score = np.nan if rating == "None" else -sum(map(mqm_weight, json.loads(rating)["errors"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} line {number} is no rating: {line[:80]!r}; get the file again") from error
        scores.setdefault(system, []).append(score)
    return {system: np.array(values) for system, values in scores.items()}


def mqm_weight(error: Mapping[str, Any]) -> float:
    """The weight of an error span (Freitag et al. 2021, arXiv 2104.14478).

    25 for a non-translation, 5 for another major error, 0.1 for minor punctuation, 1 for other minor errors, 0 for a
    neutral remark or none. Raises ValueError for another severity.
    """
    severity, category = (str(error.get(name) or "").lower() for name in ("severity", "category"))
    if severity == "major":
        return 25.0 if "non-translation" in category else 5.0
    if severity == "minor":
        return 0.1 if category == "fluency/punctuation" else 1.0
    if severity not in _NO_ERRORS:
        raise ValueError(f"severity {severity!r} has no weight")
    return 0.0


def _domains(folder: Path, pair: str, n_sources: int) -> list[str | None]:
    path = folder / "documents" / f"{pair}.docs"
    if not path.is_file():
        return [None] * n_sources
    return [line.partition(" ")[0].partition("\t")[0] or None for _, line in lines_of(path)]


def _texts_by_name(folder: Path, kind: str, pattern: str, prefix: str = "") -> dict[str, list[str | None]]:
    """The lines of each file of a kind, under the file's name without `prefix` and ending."""
    return {path.stem.removeprefix(prefix): _texts(path, _JSON_KEYS[kind]) for path in (folder / kind).glob(pattern)}


def _texts(path: Path, key: str) -> list[str | None]:
    """The texts of a file of lines, None for a missing translation; of .jsonl those under `key`."""
    if path.suffix != ".jsonl":
        return [None if line.rstrip() == NO_TRANSLATION else line.rstrip() for _, line in lines_of(path)]
    texts: list[str | None] = []
    for row in sound_rows(open_table(path), [key]):
        if key not in row or not isinstance(row[key], str | None):
            raise UserError(f"{path} row {len(texts) + 1} has no text {key!r}; get the file again")
        texts.append(None if row[key] == NO_TRANSLATION else row[key])
    return texts


def metric_scores(folder: Path, pair: str, name: str) -> dict[str, Floats]:
    """The scores of each system by a metric that came with the test set, such as `COMET-refA`."""
    files = (folder / "metric-scores" / pair).glob(f"*{SEGMENT_SCORES}")
    require_known(f"metric of {pair}", name, sorted(path.name.removesuffix(SEGMENT_SCORES) for path in files))
    return read_segment_scores(folder / "metric-scores" / pair / f"{name}{SEGMENT_SCORES}")
