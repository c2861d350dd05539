"""Declarations of keys and judges, as `--help` of a training script and as tables of the docs.

`python -m grrm.config.document` writes the tables of all pages anew between their markers.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from grrm.algorithms import ALGORITHMS
from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.algorithms.policy_losses import POLICY_LOSSES
from grrm.config.key import By, Key, Section, as_written, keys_of, sections_of
from grrm.config.stages import STAGES, Stage
from grrm.entry import run_main
from grrm.errors import UserError
from grrm.judges.registry import judge_table

WIDTH = 110
HONOURED = (By.OURS, By.TRAINER)


def help_text(stage: Stage) -> str:
    """Return the text of `--help` for a stage: how to start it, a line on every key, and then what is refused."""
    config = stage.config
    lines = [
        f"usage: {stage.script} ARGUMENTS.yaml [--key value ...]",
        f"or: grrm {stage.name} ARGUMENTS.yaml [--nproc N] [--key value ...]",
        f"or: python -m paddle.distributed.launch --nproc_per_node N {stage.script} ARGUMENTS.yaml ...",
        "",
        stage.summary,
        "Settings are `key: value` lines of the file; the command line overrides them (a bare --key is true).",
    ]
    for section in sections_of(config):
        keys = [key for key in _own_keys(config, section) if key.support.by in HONOURED]
        if keys:
            lines += ["", f"{section.title}:"]
        for key in keys:
            lines += [f"  --{key.name}  {key.values_text()}; default {_plain(key.default_text())}"]
            lines += _wrapped(key.explanation())
    lines += ["", "Understood, and without effect or refused:"]
    for key in keys_of(config).values():
        if key.support.by not in HONOURED:
            lines += [f"  --{key.name}  {key.explanation()}"]
            lines += _wrapped(f"{key.support.by.value} unless {_accepted(key)}: {key.support.note}")
    return "\n".join(lines) + "\n"


def _own_keys(config: type[Section], section: type[Section]) -> list[Key]:
    return [key for key in keys_of(config).values() if key.section is section]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False)


def _plain(text: str) -> str:
    """Without the address of a link."""
    before, bracket, rest = text.partition("](")
    return before.replace("[", "") + rest.partition(")")[2] if bracket else text


def _accepted(key: Key) -> str:
    values = [*([key.default] if key.support.default_is_off else []), *key.support.off]
    return " or ".join(dict.fromkeys(as_written(value) for value in values)) or "left out"


def scope_of(stages: Sequence[Stage]) -> str:
    """The page that the keys of these stages are on: of RL alone, of other stages, of RL and others."""
    names = [stage.name for stage in stages]
    return ("rl" if len(names) == 1 else "common") if "rl" in names else "supervised"


def key_tables(scope: str, stages: Sequence[Stage] = STAGES) -> str:
    """A heading and a table for each section of the stages of a scope, with the keys that take effect."""
    parts = []
    for section, having in _sections(stages):
        if scope_of(having) != scope:
            continue
        rows = [
            _row(
                f"`{key.name}`",
                _default(key),
                key.values_text(),
                _honoured_by(having, key.name),
                key.explanation(),
            )
            for key in _own_keys(having[0].config, section)
            if any(keys_of(stage.config)[key.name].support.by in HONOURED for stage in having)
        ]
        if rows:
            scripts = _listed([stage.script for stage in having])
            head = ["key", "default", "values", "honoured by", "meaning"]
            parts.append("\n".join([f"## {section.title}", "", f"For {scripts}.", "", _table(head, rows)]))
    return "\n\n".join(parts)


def _sections(stages: Sequence[Stage]) -> Iterator[tuple[type[Section], list[Stage]]]:
    """Every section of the stages, with those that have it."""
    for section in dict.fromkeys(section for stage in stages for section in sections_of(stage.config)):
        yield section, [stage for stage in stages if issubclass(stage.config, section)]


def _honoured_by(stages: Sequence[Stage], name: str) -> str:
    scripts: dict[str, list[str]] = {}
    for stage in stages:
        scripts.setdefault(keys_of(stage.config)[name].support.by.value, []).append(stage.script)
    if len(scripts) == 1:
        return next(iter(scripts))
    return "; ".join(f"{word} in {_listed(names)}" for word, names in scripts.items())


def _listed(scripts: Sequence[str]) -> str:
    *others, last = (f"`{script}`" for script in scripts)
    return f"{', '.join(others)} and {last}" if others else last


def _default(key: Key) -> str:
    return key.default_text() if key.means or key.required else f"`{as_written(key.default)}`"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def support_table(scope: str, stages: Sequence[Stage] = STAGES) -> str:
    """The keys of a scope that do nothing or are refused: for which script, with which values they pass, and why."""
    rows: dict[tuple[str, ...], list[Stage]] = {}
    for stage in stages:
        for key in keys_of(stage.config).values():
            if key.support.by not in HONOURED:
                cells = (
                    f"`{key.name}`",
                    key.explanation(),
                    key.support.by.value,
                    f"`{_accepted(key)}`",
                    key.support.note,
                )
                rows.setdefault(cells, []).append(stage)
    head = ["key", "meaning", "what happens", "unless it is", "why", "script"]
    ours = {cells: having for cells, having in rows.items() if scope_of(having) == scope}
    return _table(head, [_row(*cells, _listed([stage.script for stage in ours[cells]])) for cells in ours])


def algorithm_tables() -> str:
    """Tables of the algorithms' parts, and of the traits of each advantage rule and policy loss."""
    algorithms = [
        _row(*(f"`{word}`" for word in (name, algorithm.advantage_rule, algorithm.policy_loss, algorithm.aggregation)))
        for name, algorithm in ALGORITHMS.items()
    ]
    rules = [
        _row(
            f"`{name}`",
            rule.divides_by.replace("_", " "),
            "token" if rule.per_token else "response",
            "reward" if rule.kl_in_reward else "loss",
            "at least 2" if rule.compares_with_group else "any",
            f"`{rule.single_candidate.value}`",
        )
        for name, rule in ADVANTAGE_RULES.items()
    ]
    losses = [
        _row(f"`{name}`", ", ".join(f"`{key}`" for key in loss.keys), f"`{loss.aggregation or 'loss_agg_mode'}`")
        for name, loss in POLICY_LOSSES.items()
    ]
    return "\n\n".join(
        [
            _table(["rl_algorithm", "advantage rule", "policy loss", "aggregation"], algorithms),
            _table(["advantage rule", "divides by", "returns per", "KL in the", "samples", "single candidate"], rules),
            _table(["policy loss", "keys that it reads", "its tokens are aggregated by"], losses),
        ]
    )


def _table(head: Sequence[str], rows: Sequence[str]) -> str:
    return "\n".join([_row(*head), "|---" * len(head) + "|", *rows])


# The tables of each page, by the name in their markers.
GENERATED: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "docs/arguments.md": {"algorithms": algorithm_tables},
    **{
        f"docs/keys_{scope}.md": {"keys": partial(key_tables, scope), "support": partial(support_table, scope)}
        for scope in ("rl", "supervised", "common")
    },
    "docs/reward_protocols.md": {"judges": judge_table},
}


def with_tables(text: str, page: str) -> str:
    """Write the tables of today between the markers of a page. Raises UserError when a marker is missing."""
    for name, table in GENERATED[page].items():
        begin, end = f"<!-- {name}: written by python -m grrm.config.document {page} -->", f"<!-- /{name} -->"
        before, opened, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (opened and closed):
            raise UserError(f"the page has no markers {begin} and {end}: put them around the table")
        text = f"{before}{begin}\n\n{table()}\n\n{end}{after}"
    return text


def main() -> None:
    """Write the tables into the pages that the command line names, else into all of them."""
    pages = sys.argv[1:] or list(GENERATED)
    if not set(pages) <= {*GENERATED}:
        raise UserError(f"name pages of {', '.join(GENERATED)}, or none for all")
    for page in pages:
        text = Path(page).read_text(encoding="utf-8")
        Path(page).write_text(with_tables(text, page), encoding="utf-8")


if __name__ == "__main__":
    run_main(main)
