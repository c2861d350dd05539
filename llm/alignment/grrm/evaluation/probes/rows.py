"""The rows that a judge is probed with: for each probe rows that it applies to, as few in all as that takes."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from grrm.evaluation.probes.perturb import PROBES, ProbeRow, damaged
from grrm.gqm.groups import TranslationTask
from grrm.gqm.languages import language_code, language_pair

_DRAWS = 20  # of another row, before there is none to borrow from
_SCANNED = 100  # rows that are looked at for each row of a probe


@dataclass(frozen=True, slots=True)
class DamagedRows:
    """Rows with their damaged references by probe.

    `not_applicable` counts for each probe, by language pair, rows that were looked at for it in vain.
    """

    rows: list[tuple[ProbeRow, dict[str, str]]]
    not_applicable: dict[str, Counter[str]]


def choose_rows(
    rows: Iterable[ProbeRow], probes: Iterable[str] = tuple(PROBES), n_rows: int = 200, seed: int = 0
) -> DamagedRows:
    """Damage up to `n_rows` of the rows with each probe, a name of `PROBES`; `seed` is that of `damaged`.

    Rows are looked at in their order, at most 100 `n_rows` of them. A row that no probe needs any more is left out.
    """
    missing = dict.fromkeys(probes, n_rows)
    chosen = DamagedRows([], {name: Counter() for name in missing})
    for number, row in enumerate(rows):
        if number == _SCANNED * n_rows or not any(missing.values()):
            break
        texts: dict[str, str] = {}
        for name in (name for name, n in missing.items() if n):
            text = damaged(name, row, seed)
            if text is None:
                chosen.not_applicable[name][language_pair(row.src_lang, row.trg_lang)] += 1
            else:
                texts[name] = text
                missing[name] -= 1
        if texts:
            chosen.rows.append((row, texts))
    return chosen


def shuffled_rows(
    tasks: Sequence[TranslationTask], samples: Sequence[Sequence[str | None]] = (), seed: int = 0
) -> Iterator[ProbeRow]:
    """Yield the tasks, which have references, in a seeded order, with what probes borrow from other tasks.

    `samples` are further translations of each task, or empty.
    """
    by_language: dict[str, list[int]] = defaultdict(list)
    by_source: dict[str, list[int]] = defaultdict(list)
    for number, task in enumerate(tasks):
        by_language[language_code(task.trg_lang)].append(number)
        by_source[task.source].append(number)
    rng = random.Random(seed)
    for number in rng.sample(range(len(tasks)), len(tasks)):
        task, language = tasks[number], language_code(tasks[number].trg_lang)
        draws = (tasks[rng.choice(by_language[language])] for _ in range(_DRAWS))
        others = (other.reference for other in draws if other.source != task.source)
        same_source = (tasks[n] for n in by_source[task.source])
        foreign = (other.reference for other in same_source if language_code(other.trg_lang) != language)
        yield ProbeRow(
            *(task.source, task.src_lang, task.trg_lang, str(task.reference)),
            next(others, None),
            next(foreign, None),
            tuple(text for text in (samples[number] if samples else ()) if text),
        )
