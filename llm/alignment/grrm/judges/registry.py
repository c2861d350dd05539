"""The judges by name; a judge of this package is a module that registers itself when it is imported here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grrm.errors import require_known
from grrm.judges import (  # noqa: F401 - a line for each module
    answer,
    consensus,
    embedding_qe,
    gqm,
    learned_metric,
    mqm,
    pairwise,
    rubric,
    server,
    spans,
    sqm,
    text_metric,
    value_head,
    verified,
    verifier,
)
from grrm.judges.interface import Judge
from grrm.judges.plug_in import PlugInOptions, check_plug_in, is_plug_in
from grrm.judges.spec import IN_PROCESS, SPECS, JudgeSpec, Needs, Process


def judge_names(needs: Iterable[Needs] = IN_PROCESS) -> list[str]:
    """Return the names of the judges that need one of `needs`."""
    return sorted(name for name, spec in SPECS.items() if spec.needs in (*needs,))


def check_judge_name(name: str, names: Iterable[str] | None = None) -> None:
    """Raise UserError for a judge that is none of `names`, and no function `module:function` whose module exists."""
    if is_plug_in(name):
        check_plug_in(name)
    else:
        require_known("judge", name, judge_names() if names is None else names)


def spec_of(name: str) -> JudgeSpec:
    """Return what the judge, or the user's own `module:function`, declares. Raises UserError as `check_judge_name`."""
    check_judge_name(name, sorted(SPECS))
    return SPECS.get(name) or JudgeSpec(name, "a function of your own", PlugInOptions, reference="optional")


def open_judge(name: str, options: Mapping[str, object] | None = None, process: Process | None = None) -> Judge:
    """Open the judge called `name`; without a process, one that needs nothing of it.

    Raises UserError for an unknown name or option, and for a model that cannot be used.
    """
    spec = spec_of(name)
    return spec.read(options or {}).open(process or Process(name))


def judge_help() -> str:
    """Say what each judge that a process can open is, for a command line."""
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in _by_help().items())


def judge_table() -> str:
    """Write the same as a table for a page, with what the judges need."""
    rows = ["| judge | what it is | needs | reference |", "|---|---|---|---|"]
    for text, names in _by_help().items():
        spec = SPECS[names[0]]
        rows.append(f"| {', '.join(f'`{name}`' for name in names)} | {text} | {spec.needs} | {spec.reference} |")
    return "\n".join(rows)


def _by_help() -> dict[str, list[str]]:
    by_help: dict[str, list[str]] = {}
    for name in judge_names():
        by_help.setdefault(SPECS[name].help, []).append(name)
    return by_help
