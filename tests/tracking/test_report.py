"""The report of runs: one file, everything in it from the runs, two languages; what a browser shows is tested last."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.browser import browser_page
from support.dumped_run import config_of, write_run
from support.rl_processes import rollouts_of

from grrm.cli import grrm
from grrm.errors import UserError
from grrm.gqm.groups import Status, Verdict
from grrm.tracking.metrics_log import MetricsLog
from grrm.tracking.opinions import write_opinions
from grrm.tracking.report.run_report import write_report
from grrm.tracking.report.selection import select_groups

VOID = {"meta", "img", "source", "br", "link", "input", "hr"}


class Page(HTMLParser):
    """A page's elements with their attributes, its text, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def values(self, *names: str) -> list[str]:
        return [
            value for _, attributes in self.elements for name, value in attributes.items() if name in names and value
        ]


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory) -> list[Path]:
    """Two runs of which the second has another scale of rewards and was judged anew, in reverse."""
    folder = tmp_path_factory.mktemp("runs")
    runs = [write_run(folder / "plain", config_of()), write_run(folder / "scaled", config_of(score_scale_factor="0.2"))]
    records = [record for record in rollouts_of(runs[1]) if record["use"] == "trained"]
    reverse = [
        Verdict((Status.SCORED,) * 3, tuple(10 - c["score"] for c in record["candidates"])) for record in records
    ]
    write_opinions(runs[1], "contrary", records, reverse)
    return runs


@pytest.fixture(scope="module")
def report(two_runs, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("page") / "report.html"
    write_report(two_runs, out, groups=2)
    return out


def test_the_page_is_well_formed_and_asks_nothing_of_the_network(report):
    page = Page(report.read_text(encoding="utf-8"))
    assert page.open == []
    assert all(value.startswith(("data:image/png;base64,", "#")) for value in page.values("src", "srcset", "href"))
    assert "default-src 'none'" in "".join(page.values("content"))
    assert not re.search(r"https?://|@import|url\(", report.read_text(encoding="utf-8"))


def test_every_anchor_of_the_page_leads_somewhere_and_ids_are_unique(report):
    page = Page(report.read_text(encoding="utf-8"))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {href.removeprefix("#") for href in page.values("href")} <= set(ids)


def test_every_english_text_stands_beside_its_chinese_one(report):
    text = report.read_text(encoding="utf-8")
    pairs = re.findall(r'<span class="en">(.*?)</span><span class="zh" lang="zh">(.*?)</span>', text)
    assert len(pairs) == text.count('class="en"') == text.count('class="zh"') > 20
    assert all(re.search(r"[\u4e00-\u9fff]", chinese) for _, chinese in pairs)
    assert not any(re.search(r"[\u4e00-\u9fff]", english) for english, _ in pairs)


def test_runs_are_compared_by_curves_ends_and_the_settings_in_which_they_differ(report):
    page = Page(report.read_text(encoding="utf-8"))
    assert {"chart-reward", "chart-loss", "settings", "groups-1", "groups-2"} <= set(page.values("id"))
    assert "0.100 → 0.300" in page.text
    assert "score_scale_factor 0.1 0.2" in page.text
    assert "rollout_n" not in page.text


def test_groups_stand_there_with_every_judges_scores_and_what_judges_dispute_first(two_runs, report):
    found = select_groups(two_runs[1], per_kind=2)
    assert [group.agreement for group in found.disputed] == [-1.0, -1.0]
    assert list(found.disputed[0].judges) == ["contrary"]
    assert [group.record["step"] for group in found.telling] == [1, 3]
    assert [group.record["use"] for group in found.failed] == ["aborted"]
    assert [group.record["step"] for group in found.through_time[0]] == [1, 2, 3]
    text = Page(report.read_text(encoding="utf-8")).text
    assert "contrary" in text
    assert "tau-b -1.00" in text
    assert "trained 9, aborted 1" in text


def test_what_was_sampled_is_text_and_never_markup(tmp_path):
    run = write_run(tmp_path / "<b>run", config_of(), steps=1)
    path = run / "rollouts/rollouts-rank000.jsonl"
    path.write_text(path.read_text().replace('"twos"', json.dumps("<script>alert(1)</script>&amp;")))
    write_report([run], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.count("<script>") == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;amp;" in text


def test_a_run_of_another_stage_has_curves_and_no_groups(tmp_path):
    MetricsLog(tmp_path / "sft").log(10, {"loss": 2.0, "eval_loss": 2.5})
    done = CliRunner().invoke(
        grrm, ["report", str(tmp_path / "sft"), "--out", str(tmp_path / "r.html")], standalone_mode=False
    )
    assert done.output.startswith("file:///")
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "chart-loss" in page.values("id")
    assert not any(name.startswith("groups-") for name in page.values("id"))


def test_folders_without_a_run_and_a_run_named_twice_are_refused(tmp_path, two_runs):
    with pytest.raises(UserError, match=r"neither metrics\.jsonl nor rollouts"):
        write_report([tmp_path], tmp_path / "r.html")
    with pytest.raises(UserError, match="named twice"):
        write_report([two_runs[0], two_runs[0]], tmp_path / "r.html")


@pytest.mark.slow
@pytest.mark.parametrize(("language", "seen", "hidden"), [("en", "Curves", "曲线"), ("zh", "曲线", "Curves")])
def test_a_browser_shows_one_language_at_a_time_every_picture_and_no_error(report, language, seen, hidden):
    with browser_page() as page:
        page.open(report.as_uri())
        page.run(f"document.querySelector('button[data-set=\"{language}\"]').click()")
        shown = page.run("document.body.innerText")
        assert seen in shown
        assert hidden not in shown
        page.wait_for("[...document.images].every((image) => image.complete)")
        widths = page.run("[...document.images].map((image) => image.naturalWidth)")
        assert widths
        assert all(widths)
        assert page.run("document.documentElement.scrollWidth <= window.innerWidth")
        assert page.complaints == []
