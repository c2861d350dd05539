"""Rounds of asking again: which prompts go out at which temperature, and what is left in the end.

The vectors' replies are bare lines that only the original's parsers take, so judges read them in compat mode.
"""

from unittest import mock

from support.text_models import by_source

import grrm
from grrm.gqm.chat import render_chatml
from grrm.judges.interface import OpenedGenerator


def run(call, row, **options):
    """What `call` finds with a model that replies by the row's script, and what it was asked."""
    script = by_source(row.pop("script"))
    opened = OpenedGenerator(script, render_chatml, None)
    with mock.patch("grrm.inference.batch_calls.open_generator", return_value=opened):
        found = call("model", **row, **options)
    n = row.get("sampling_n")
    calls = [
        {
            "n_prompts": len(asked["prompts"]) // (n or 1),
            "temperature": asked["temperature"],
            "top_p": asked["top_p"],
            "max_tokens": asked["max_new_tokens"],
            "n": n,
        }
        for asked in script.calls
    ]
    return found, calls


def group(row):
    found, calls = run(grrm.rank, row, mode="compat")
    return {"result": {"scores": found["scores"], "responses": found["responses"]}, "calls": calls}


def single(row):
    """Each translation as a group of its own, whose response stands below its candidate's name."""
    row["mt_list"] = [[text] for text in row["mt_list"]]
    found, calls = run(grrm.rank, row, judge="sqm", mode="compat")
    scores = [None if scores is None else scores[0] for scores in found["scores"]]
    responses = [text.partition("\n")[2] for text in found["responses"]]
    return {"result": {"scores": scores, "responses": responses}, "calls": calls}


def translate(row):
    found, calls = run(grrm.translate, row)
    return {"result": {"responses": found["responses"], "raw_outputs": found["raw_outputs"]}, "calls": calls}


FIXED = {"mt.func_call": translate}
COMPAT = {"gqm.func_call": group, "sqm.func_call": single}
