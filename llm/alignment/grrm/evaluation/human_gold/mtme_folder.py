"""A test set of the metrics task in the layout of google-research/mt-metrics-eval (version 2), as it is downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from grrm.data.layouts.opening import open_table
from grrm.data.layouts.table import RowError
from grrm.data.layouts.text_files import lines_of
from grrm.errors import UserError, require_known
from grrm.evaluation.candidate_pairs import Floats
from grrm.evaluation.human_gold.gold import HumanGold

SEGMENT_SCORES = ".seg.score"
NO_TRANSLATION = "[No translation supplied]"
_JSON_KEYS = {"sources": "source", "references": "target", "system-outputs": "hypothesis"}


def is_mtme(path: Path) -> bool:
    """Return whether this is the folder of a test set."""
    return (path / "human-scores").is_dir()


def language_pairs(folder: Path) -> list[str]:
    """The language pairs of a test set that have human scores of segments, sorted."""
    return sorted({path.name.partition(".")[0] for path in (folder / "human-scores").glob(f"*{SEGMENT_SCORES}")})


def human_score_names(folder: Path, pair: str) -> list[str]:
    """The names of a pair's human scores of segments: `mqm` of en-de.mqm.seg.score."""
    files = (folder / "human-scores").glob(f"{pair}.*{SEGMENT_SCORES}")
    return sorted(path.name.removeprefix(f"{pair}.").removesuffix(SEGMENT_SCORES) for path in files)


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
        annotators: names of human scores that are of one person or round each.

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
        f"{folder.name} {pair}",
        src_lang,
        trg_lang,
        [source or "" for source in sources[pair]],
        columns["references"],
        columns["domains"],
        systems,
        list(zip(*of_each, strict=True)),
        scores_of(scores, systems, n_sources, f"human scores of {pair}"),
        {own: scores_of(human_scores(folder, pair, own), systems, n_sources, f"{own} of {pair}") for own in annotators},
    )


def human_scores(folder: Path, pair: str, name: str | None) -> dict[str, Floats]:
    """The scores of each system. Raises UserError where the name is unknown, or several names leave a choice."""
    names = human_score_names(folder, pair)
    if name is None and "mqm" not in names and len(names) != 1:
        raise UserError(f"{folder} has human scores {', '.join(names) or 'of no name'} of {pair}; choose with --gold")
    name = name or ("mqm" if "mqm" in names else names[0])
    require_known(f"human score of {pair}", name, names)
    return read_segment_scores(folder / "human-scores" / f"{pair}.{name}{SEGMENT_SCORES}")


def read_segment_scores(path: Path) -> dict[str, Floats]:
    """The scores of each system, in the order of segments, NaN for None; a line is a system and a score.

    Raises UserError that names the first line that is none.
    """
    scores: dict[str, list[float]] = {}
    for number, line in lines_of(path):
        system, *rest = line.split()
        try:
            (value,) = rest
            scores.setdefault(system, []).append(np.nan if value == "None" else float(value))
        except ValueError as error:
            raise UserError(f"{path} line {number} is {line[:80]!r}; write a system and a score, or None") from error
    return {system: np.array(values) for system, values in scores.items()}


def scores_of(scores: dict[str, Floats], systems: Sequence[str], n_sources: int, what: str) -> Floats:
    """Scores [P, G] of these systems, NaN for a system without. Raises UserError for another number of segments."""
    columns = [scores.get(system, np.full(n_sources, np.nan)) for system in systems]
    for system, column in zip(systems, columns, strict=True):
        if len(column) != n_sources:
            raise UserError(f"{what} has {len(column)} scores of {system} for {n_sources} segments; get it again")
    return np.stack(columns, axis=1)


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
    texts = []
    for row in open_table(path).read([key]):
        if isinstance(row, RowError):
            raise row
        texts.append(row.get(key))
    return texts


def metric_scores(folder: Path, pair: str, name: str) -> dict[str, Floats]:
    """The scores of each system by a metric that came with the test set, such as `COMET-refA`."""
    files = (folder / "metric-scores" / pair).glob(f"*{SEGMENT_SCORES}")
    require_known(f"metric of {pair}", name, sorted(path.name.removesuffix(SEGMENT_SCORES) for path in files))
    return read_segment_scores(folder / "metric-scores" / pair / f"{name}{SEGMENT_SCORES}")
