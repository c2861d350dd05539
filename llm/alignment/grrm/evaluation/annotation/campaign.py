"""The tasks as a campaign of Pearmut, and as the data of a page."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from grrm.evaluation.annotation.tasks import Task
from grrm.gqm.languages import display_name

PAGE_FORMAT = "grrm-annotation-1"
_BEFORE = "Before it in the document"


def task_record(task: Task) -> dict[str, Any]:
    """The record of a task in a file of annotations, without the opinions of judges, which people do not see."""
    record = asdict(task)
    del record["opinions"]
    return record


def page_data(tasks: Sequence[Task]) -> dict[str, Any]:
    """The tasks for the page, with an identifier made of their content."""
    groups = [task_record(task) for task in tasks]
    content = json.dumps(groups, sort_keys=True).encode()
    return {"format": PAGE_FORMAT, "id": hashlib.sha256(content).hexdigest()[:16], "groups": groups}


def pearmut_campaign(tasks: Sequence[Task], n_annotators: int) -> dict[str, Any]:
    """A campaign of contrastive error span annotation in which each annotator sees all tasks.

    Neighbours of the same document are on one screen where they have as many candidates. Columns beside `src` and `tgt`
    come back in the log.
    """
    documents = [[_item(task) for task in own] for _, own in groupby(tasks, _document)]
    return {
        "campaign_id": f"grrm-{page_data(tasks)['id']}",
        "info": {"assignment": "task-based", "protocol": "cESA", "shuffle": False},
        "data": [documents] * n_annotators,
    }


def _document(task: Task) -> tuple[Any, ...]:
    return (task.document or task.group_id, task.src_lang, task.trg_lang, len(task.mt_texts))


def _item(task: Task) -> dict[str, Any]:
    record = task_record(task)
    return {
        "instructions": "<br>".join(_instructions(task)),
        "src": task.src_text,
        "tgt": {f"sample-{at}": text for at, text in enumerate(task.mt_texts, start=1)},
        "item_id": task.group_id,
        **{name: record[name] for name in ("trg_text", "src_lang", "trg_lang", "document", "position")},
    }


def _instructions(task: Task) -> Iterator[str]:
    yield html.escape(f"{display_name(task.src_lang)} → {display_name(task.trg_lang)}")
    if task.context:
        yield f"{_BEFORE}:"
    for segment in task.context:
        yield html.escape(" → ".join(filter(None, (segment.src_text, segment.trg_text))))
