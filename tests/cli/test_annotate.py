"""`grrm annotate`: groups out to people, on a page or with Pearmut, and their annotations back as gold."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.command_line import invoke, refusal
from support.dumped_run import config_of, write_run
from support.rows import write_jsonl

from grrm.data.converters.gqm import taught_analysis
from grrm.data.converters.groups import read_groups
from grrm.evaluation.annotation.gold import gold_groups, merged_scores
from grrm.evaluation.annotation.intake import Annotation
from grrm.evaluation.annotation.tasks import Segment, Task, with_context

WAVE = "🌊 the river"


annotate, mistake = partial(invoke, "annotate"), partial(refusal, "annotate")


def row(at: int, *texts: str | None, **columns: object) -> dict:
    languages = {"src_lang": "de", "trg_lang": "en"}
    return {"src_text": f"Satz {at}", "trg_text": f"sentence {at}", **languages, "mt_texts": list(texts), **columns}


def ranked(tmp_path: Path) -> Path:
    rows = [
        row(0, "a b", "c d", "e", judge_scores=[9, 5, 1], mine=[9, 5, 1], page="p", position=0),
        row(1, WAVE, "the </script> river", "", WAVE, judge_scores=[4, 5, None, 4], mine=[9, 1, 2, 9], page="p",
            position=1),
        row(2, "x", "y", judge_scores=[5, 1], mine=[5, 5], page="q", position=0),
        row(3, "the same", "the same", judge_scores=[1, 1]),
        row(4, "<img src=x onerror=alert(1)>", "z", judge_scores=[1, 2]),
    ]  # fmt: skip
    return write_jsonl(tmp_path / "ranked.jsonl", rows)


def exported(tmp_path: Path, rows: Path, *options: object) -> dict:
    page = tmp_path / "page.html"
    annotate("export", rows, "--page", page, *options)
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    return json.loads(found[1])


def sources(data: dict) -> list[str]:
    return [group["src_text"] for group in data["groups"]]


def saved(path: Path, data: dict, annotator: str, scores: dict[str, list], spans: dict[str, list]) -> Path:
    """A file as the page saves it; `scores` and `spans` by source, in the order of the page."""
    groups = [
        {
            **group,
            "scores": scores.get(group["src_text"], [None] * len(group["mt_texts"])),
            "spans": spans.get(group["src_text"], [[] for _ in group["mt_texts"]]),
        }
        for group in data["groups"]
    ]
    path.write_text(json.dumps({**data, "annotator": annotator, "groups": groups}), encoding="utf-8")
    return path


def gold(tmp_path: Path, *arguments: object) -> list[dict]:
    annotate("import", *arguments, "--out", tmp_path / "gold.parquet")
    return pq.read_table(tmp_path / "gold.parquet").to_pylist()


def test_groups_that_judges_disagree_about_come_first(tmp_path):
    rows = ranked(tmp_path)
    two = ("--score-key", "judge_scores", "--score-key", "mine")
    assert sources(exported(tmp_path, rows, "--groups", 1, *two)) == ["Satz 1"]  # they order its pair differently
    assert sources(exported(tmp_path, rows, "--groups", 2, *two)) == ["Satz 1", "Satz 2"]  # one of them ties
    assert sources(exported(tmp_path, rows, "--groups", 1)) == ["Satz 1"]  # one judge, scores next to each other
    drawn = {tuple(sources(exported(tmp_path, rows, "--groups", 1, "--choose", "random", "--seed", s))) for s in "0123"}
    assert len(drawn) > 1


def test_disagreement_of_the_orders_of_one_judge(tmp_path):
    orders = [[[1, 2], [1, 2]], [[1, 2], [2, 1]]]
    rows = [row(at, "a", "b", judge_scores=[1, 2], judge_order_scores=own) for at, own in enumerate(orders)]
    assert sources(exported(tmp_path, write_jsonl(tmp_path / "r.jsonl", rows), "--groups", 1)) == ["Satz 1"]


@pytest.mark.parametrize("scored", [{"judge_scores": [1, "x"]}, {"judge_order_scores": [[1, 2], None]}])
def test_scores_that_are_none_are_told_with_the_row_of_the_file(tmp_path, scored):
    rows = write_jsonl(tmp_path / "rows.jsonl", [{"mt_texts": ["a"]}, row(1, "a", "b"), row(2, "a", "b", **scored)])
    (name,) = scored
    assert f"rows.jsonl row 3: column {name} holds" in mistake("export", rows, "--page", tmp_path / "page.html")


def test_people_see_each_text_once_the_context_and_no_scores(tmp_path):
    data = exported(tmp_path, ranked(tmp_path), "--context", 1)
    assert sources(data) == ["Satz 0", "Satz 1", "Satz 2"]  # one text, or one that a browser would load, is left out
    second = data["groups"][1]
    assert sorted(second["mt_texts"]) == ["the </script> river", WAVE]
    assert (second["document"], second["position"]) == ("p", 1)
    assert second["context"] == [{"src_text": "Satz 0", "trg_text": "sentence 0"}]
    assert data["groups"][0]["context"] == data["groups"][2]["context"] == []
    assert not {"scores", "opinions"} & second.keys()
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "</script> river" not in page
    assert not re.search(r"https?://", page.replace(json.dumps(data), ""))


def test_groups_of_a_run(tmp_path):
    run = write_run(tmp_path / "run", config_of())
    groups = exported(tmp_path, run, "--groups", 100)["groups"]
    assert len(groups) == 9
    assert sorted(groups[0]["mt_texts"]) == ["one", "two", "twos"]
    assert len({group["group_id"] for group in groups}) == 9
    assert "which has no columns" in mistake("export", run, "--page", tmp_path / "p.html", "--score-key", "x")
    assert "has no rollouts" in mistake("export", tmp_path, "--page", tmp_path / "p.html")


def test_a_page_and_back_without_a_lost_span(tmp_path):
    data = exported(tmp_path, ranked(tmp_path))
    order = {group["src_text"]: group["mt_texts"] for group in data["groups"]}
    places = [order["Satz 1"].index(text) for text in (WAVE, "the </script> river")]
    spans: list[list[dict]] = [[], []]
    spans[places[0]] = [{"start": 0, "end": 1, "severity": "major"}, {"start": 11, "end": 11, "severity": "minor"}]
    spans[places[1]] = [{"start": 4, "end": 13, "severity": "minor"}]
    scores = [20, 70] if places[0] == 0 else [70, 20]
    one = saved(tmp_path / "one.json", data, "eve", {"Satz 1": scores}, {"Satz 1": spans})
    one.write_bytes(b"\xef\xbb\xbf" + one.read_bytes())  # an editor put a byte order mark before it
    (group,) = gold(tmp_path, one)
    assert group["mt_texts"] == order["Satz 1"]
    by = [[{**span, "annotator": "eve"} for span in own] for own in spans]
    assert group["spans"] == by
    assert group["scores"] == [score / 10 for score in scores]
    lines = {line[3:] for line in group["analysis"].split("\n")}
    assert lines == {"major error in “🌊”; minor omission", "minor error in “</script>”"}
    assert (group["document"], group["position"], group["trg_text"]) == ("p", 1.0, "sentence 1")
    assert read_groups(tmp_path / "gold.parquet", "mt_texts", "scores", "analysis").table.num_rows == 1


def test_an_error_is_one_line_of_the_analysis_that_a_judge_is_taught(tmp_path):
    text = "two\nlines, the final score"
    data = exported(tmp_path, write_jsonl(tmp_path / "r.jsonl", [row(0, "a", text, judge_scores=[1, 2])]))
    at = data["groups"][0]["mt_texts"].index(text)
    spans: list[list[dict]] = [[], []]
    spans[at] = [{"start": 0, "end": 9, "severity": "minor"}, {"start": 15, "end": 26, "severity": "major"}]
    saved(tmp_path / "one.json", data, "eve", {"Satz 0": [50, 50]}, {"Satz 0": spans})
    (group,) = gold(tmp_path, tmp_path / "one.json")
    lines = ["no error", "no error"]
    lines[at] = "minor error in “two lines”; major error"
    assert group["analysis"] == f"A: {lines[0]}\nB: {lines[1]}"
    assert taught_analysis(group["analysis"], "ranking_score") == group["analysis"]


def test_the_context_of_a_long_document_takes_few_comparisons_a_segment():
    n_compared = 0

    class Position(float):
        def __lt__(self, other: float) -> bool:
            nonlocal n_compared
            n_compared += 1
            return float(self) < float(other)

        __hash__ = float.__hash__

    n, order = 1000, [at * 7 % 1000 for at in range(1000)]
    tasks = [
        Task(str(at), f"Satz {at}", None, "de", "en", ("a", "b"), document="p", position=Position(at)) for at in order
    ]
    for at, task in zip(order, with_context(tasks, 2), strict=True):
        assert task.context == tuple(Segment(f"Satz {before}") for before in range(max(at - 2, 0), at))
    assert n_compared < 30 * n


def test_a_document_or_position_that_is_no_value_is_none(tmp_path):
    positions = [0, float("nan"), float("inf"), "4", "next", 10**400]
    rows = [row(at, "a", "b", judge_scores=[1, 2], page="p", position=own) for at, own in enumerate(positions)]
    rows[1]["page"] = float("nan")
    data = exported(tmp_path, write_jsonl(tmp_path / "r.jsonl", rows))
    assert sorted(str(group["document"]) for group in data["groups"]) == ["None", *["p"] * 5]
    assert [group["position"] for group in sorted(data["groups"], key=lambda group: group["src_text"])] == [
        *(0, None, None, 4, None, None)
    ]


def test_gold_of_a_document_without_positions_can_be_converted(tmp_path):
    data = exported(tmp_path, write_jsonl(tmp_path / "r.jsonl", [row(0, "a", "b", judge_scores=[1, 2], doc_id="x")]))
    assert data["groups"][0]["document"] == "x"
    gold(tmp_path, saved(tmp_path / "one.json", data, "eve", {"Satz 0": [50, 60]}, {}))
    done = invoke("data", "convert", tmp_path / "gold.parquet", tmp_path / "rl.jsonl", "--to", "rl")
    assert "1 rows written, 0 left out" in done.output


def test_annotators_are_merged_and_compared(tmp_path):
    data = exported(
        tmp_path, write_jsonl(tmp_path / "r.jsonl", [row(at, "a", "b", judge_scores=[1, 2]) for at in range(4)])
    )
    strict = {source: [10, 20] if at else [40, 10] for at, source in enumerate(sources(data))}
    lenient = {source: [60, 100] for source in sources(data)}
    files = [
        saved(tmp_path / f"{name}.json", data, name, scores, {})
        for name, scores in (("strict", strict), ("lenient", lenient))
    ]
    mean = gold(tmp_path, *files, "--json", tmp_path / "agreement.json")
    by_source = {group["src_text"]: group["scores"] for group in mean}
    odd, *others = sources(data)
    assert by_source[odd] == [5.0, 5.5]
    assert all(by_source[source] == [3.5, 6.0] for source in others)
    assert mean[0]["annotators"] == ["strict", "lenient"]
    assert {group["analysis"] for group in mean} == {""}, "scores below 100 are not without error"
    assert {group["spans"] for group in mean} == {None}
    agreement = json.loads((tmp_path / "agreement.json").read_text(encoding="utf-8"))["annotators"]
    assert [one["annotator"] for one in agreement] == ["lenient", "strict"]
    for one in agreement:
        assert one["n_groups"] == 4
        assert one["accuracy"]["mean"] == 0.75
        assert one["kendall_tau_b"]["mean"] == 0.5
        assert one["kendall_tau_b"]["low"] < 0.5 < one["kendall_tau_b"]["high"] == 1.0
    brought = gold(tmp_path, *files, "--merge", "z")
    spread = {group["src_text"]: group["scores"] for group in brought}
    assert spread[odd][0] > by_source[odd][0]  # 40 of someone who gives 10 to 40 is good
    assert all(spread[source][0] < spread[source][1] for source in others)


def pearmut_log(tmp_path: Path) -> tuple[Path, dict]:
    """What Pearmut 1.1.6 appends for the exported campaign: UTF-16 positions, the last included, then tokens."""
    out = tmp_path / "campaign.json"
    annotate("export", ranked(tmp_path), "--pearmut", out, "--annotators", 2)
    campaign = json.loads(out.read_text(encoding="utf-8"))

    def entry(user: str, at: int, score: int | None) -> dict:
        items = campaign["data"][0][at]
        said = [
            {
                name: {"score": score, "error_spans": spans_of(text), "textfield": None}
                for name, text in item["tgt"].items()
            }
            for item in items
        ]
        return {"annotation": said, "actions": [], "item": items, "user_id": user, "item_i": at}

    def spans_of(text: str) -> list[dict]:
        if text != WAVE:
            return []
        kind = {"category": None, "severity": "major"}
        return [
            {"start_i": 0, "end_i": 1, **kind},
            {"start_i": 3, "end_i": 5, **kind},
            {"start_i": 12, "end_i": 12, **kind},
        ]

    documents = range(len(campaign["data"][0]))
    log = [entry("eve", at, 10) for at in documents] + [entry("eve", at, 50) for at in documents]
    return write_jsonl(
        tmp_path / "log.jsonl", [*log, entry("dan", 0, 60), {**entry("dan", 1, 5), "item_i": "welcome_0"}]
    ), campaign


def test_a_campaign_of_pearmut_and_its_log(tmp_path):
    log, campaign = pearmut_log(tmp_path)
    assert campaign["info"] == {"assignment": "task-based", "protocol": "cESA", "shuffle": False}
    assert len(campaign["data"]) == 2
    assert campaign["data"][0] == campaign["data"][1]
    assert campaign["data"][0][1][0]["instructions"].startswith("German → English<br>")
    groups = {group["src_text"]: group for group in gold(tmp_path, log)}
    assert {source: set(group["scores"]) for source, group in groups.items()} == {
        "Satz 0": {5.5},
        "Satz 1": {5.0},
        "Satz 2": {5.0},
    }
    river = groups["Satz 1"]
    found = river["spans"][river["mt_texts"].index(WAVE)]
    assert [(span["start"], span["end"], span["severity"]) for span in found] == [
        (0, 1, "major"),
        (2, 5, "major"),
        (11, 11, "major"),
    ]
    assert (river["src_lang"], river["trg_lang"], river["document"]) == ("de", "en", "p")


def test_a_source_that_occurs_again_in_a_campaign_without_identifiers_is_another_group(tmp_path):
    item = {"src": "Ja.", "tgt": {"a": "Yes.", "b": "Yeah."}, "src_lang": "de", "trg_lang": "en"}
    entries = [
        {"user_id": user, "item_i": at, "item": [item], "annotation": [{"a": {"score": 90}, "b": {"score": 10 * at}}]}
        for user in ("eve", "dan")
        for at in range(2)
    ]
    groups = gold(tmp_path, write_jsonl(tmp_path / "log.jsonl", entries))
    assert [(group["scores"], group["annotators"]) for group in groups] == [
        ([9.0, 0.0], ["eve", "dan"]),
        ([9.0, 1.0], ["eve", "dan"]),
    ]


def test_all_mistakes_of_a_file_are_said_at_once(tmp_path):
    data = exported(tmp_path, ranked(tmp_path))
    spans = {"Satz 2": [[{"start": 0, "end": 9, "severity": "major"}], []]}
    scores = {"Satz 0": [1, 2, 300], "Satz 1": [5]}
    said = mistake("import", saved(tmp_path / "a.json", data, "eve", scores, spans), "--out", tmp_path / "g.parquet")
    assert "a.json cannot be used: 3 mistakes" in said
    assert "groups[0].scores[2]: Input should be less than or equal to 100" in said
    assert "groups[1]: Value error, 2 texts, 1 scores and 2 span lists" in said
    assert "groups[2]: Value error, a span 0 to 9 of candidate 1, of 1 letters" in said
    assert not (tmp_path / "g.parquet").exists()
    out = ("--out", tmp_path / "g.parquet")
    good = saved(tmp_path / "b.json", data, "eve", {"Satz 2": [1, 2]}, {})
    assert "was annotated by eve twice; give one of the files" in mistake("import", good, good, *out)
    assert "no group with a score or an error" in mistake("import", saved(tmp_path / "c.json", data, "e", {}, {}), *out)
    assert "is no log of a Pearmut campaign" in mistake("import", ranked(tmp_path), *out)
    (tmp_path / "d.json").write_text('{"format": "other"}', encoding="utf-8")
    assert "has no format 'grrm-annotation-1'" in mistake("import", tmp_path / "d.json", *out)
    log, _ = pearmut_log(tmp_path)
    entry = json.loads(log.read_text(encoding="utf-8").splitlines()[0])
    del entry["item"][0]["tgt"]
    assert "item 0 of eve, segment 1" in mistake("import", write_jsonl(tmp_path / "broken.jsonl", [entry]), *out)


def test_options_that_cannot_work(tmp_path):
    rows = ranked(tmp_path)
    assert "nothing to write" in mistake("export", rows)
    page = tmp_path / "p.html"
    assert "--annotators has no effect without --pearmut" in mistake("export", rows, "--page", page, "--annotators", 3)
    assert "has no column nowhere" in mistake("export", rows, "--page", tmp_path / "p.html", "--score-key", "nowhere")
    unjudged = write_jsonl(tmp_path / "u.jsonl", [row(0, "a", "b")])
    assert "--choose random" in mistake("export", unjudged, "--page", tmp_path / "p.html")


def test_equal_texts_keep_their_own_scores_and_errors():
    task = {"group_id": "a", "src_text": "same", "src_lang": "en", "trg_lang": "de"}
    error = {"start": 0, "end": 2, "severity": "major"}
    texts, scores, spans = ["gleich", "gleich", "anders"], [90, 20, 50], [[], [error], []]
    first = {**task, "mt_texts": texts, "scores": scores, "spans": spans, "annotator": "x"}
    second = {**task, "mt_texts": texts[::-1], "scores": [50, 90, 20], "spans": [[], [], []], "annotator": "y"}
    (group,) = gold_groups([Annotation.model_validate(one) for one in (first, second)])
    assert merged_scores([group]) == [[9.0, 2.0, 5.0]]
    assert [len(of_candidate) for of_candidate in group.spans] == [0, 1, 0]


@pytest.mark.filterwarnings("error")  # of NumPy, on the mean of nothing, which a user would see
@pytest.mark.parametrize("by", ["mean", "z"])
def test_marked_errors_without_scores_give_no_scores(by):
    error = {"start": 0, "end": 1, "severity": "minor"}
    task = {"group_id": "a", "src_text": "x", "src_lang": "en", "trg_lang": "de", "mt_texts": ["a", "b"]}
    group = Annotation.model_validate({**task, "scores": [None, None], "spans": [[error], []], "annotator": "x"})
    assert merged_scores(gold_groups([group]), by=by) == [[None, None]]
