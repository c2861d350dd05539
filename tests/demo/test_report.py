"""The report and its summary, from invented but well-formed results."""

import importlib
import json
import re
import shutil
import statistics
from html.parser import HTMLParser
from pathlib import Path

import pytest

from grrm.demo.report import write_report
from grrm.demo.results import load_results, over_seeds, scores_file, seed_folder, show_figure, summarise, verdict
from grrm.demo.settings import RANKER, RL_RUNS, DemoSettings

SECONDS = {"corpus": 3.0, "seed1/sft": 160.4}


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.targets, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.targets += [value for name, value in attrs if name in ("src", "srcset", "href")]


@pytest.fixture(scope="module")
def reported_demo(invent_demo, tmp_path_factory):
    """(folder, settings) of an invented study with its report, to be read only: drawing takes seconds."""
    out, settings = invent_demo(tmp_path_factory.mktemp("reported") / "demo")
    write_report(out, settings, SECONDS)
    return out, settings


def test_summary_has_the_figures_scripts_ask_for(reported_demo):
    out, _ = reported_demo
    summary = json.loads((out / "summary.json").read_text())
    assert set(summary["chrf"]) == set(summary["chrf_greedy"]) == {"base", "sft", *RL_RUNS[RANKER]}
    sft = summary["chrf"]["sft"]
    assert sft["values"] == pytest.approx([59.2, 59.4, 59.6])
    assert sft["mean"] == pytest.approx(59.4)
    assert sft["sd"] == pytest.approx(statistics.stdev([59.2, 59.4, 59.6]))
    assert sft["seeds"] == 3
    assert summary["chrf_greedy"]["grpo"]["mean"] == pytest.approx(63.5 + 12 + 0.2)
    assert summary["seconds"] == SECONDS
    learned = summary["learned"]["grpo"]
    assert learned["gain"] == pytest.approx(4.5)
    assert learned["above_spread"] is True
    assert learned["gains"] == pytest.approx([4.5] * 3)
    assert learned["share_of_metric"] == 1.0
    assert summary["learned"]["grpo_ranker"]["share_of_metric"] == pytest.approx(4.1 / 4.5)
    page = (out / "report.html").read_text(encoding="utf-8")
    for decoding in ("interval", "greedy_interval"):
        low, high = learned[decoding]
        assert f"({low:+.2f} to {high:+.2f})" in page
    assert summary["ranking"]["ranker_none"]["heldout"]["accuracy"]["mean"] == pytest.approx(0.72)
    assert summary["ranking"]["ranker_none"]["heldout"]["kendall_tau_b"] is None
    assert summary["chosen_ranker"] == {"1": "ranker_none", "2": "ranker_none", "3": "ranker_none"}
    assert "72.0 ± 1.0 %" in page
    assert "seed 2: ranker, each candidate by itself" in page
    assert summary["settings"]["n_seeds"] == 3
    assert summary["kl_to_sft"]["grpo"]["mean"] == pytest.approx(0.02)
    assert "sft" not in summary["kl_to_sft"]
    assert "nc:6" in summary["signatures"]["chrf"]


def test_summary_has_what_the_published_tables_are_made_of(reported_demo, tmp_path, monkeypatch):
    out, _ = reported_demo
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    published = importlib.import_module("published")
    shutil.copy(out / "summary.json", tmp_path / "demo.json")
    monkeypatch.setattr(published, "RESULTS", tmp_path)
    tables = published.demo_policies, published.demo_gains, published.demo_judges
    policies, gains, judges = (list(table()) for table in tables)
    assert policies[1][:2] == ("SFT", "59.4 ± 0.2")
    assert gains[0][:2] == ("metric", "+4.5, +4.5, +4.5")
    assert judges[1][4] == "–"


def test_page_needs_nothing_but_itself_and_shows_text_as_text(reported_demo):
    out, _ = reported_demo
    page = (out / "report.html").read_text(encoding="utf-8")
    links = Links()
    links.feed(page)
    assert links.targets
    assert all(target.startswith("data:image/png;base64,") for target in links.targets)
    assert "script" not in links.tags
    assert "url(" not in page
    assert "Germany, Japan &lt;b&gt;&amp; Peru&lt;/b&gt;" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "德国、日本和秘鲁" in page
    for kind in ("better after RL", "worse after RL", "still wrong", "picked by position"):
        assert kind in page
    assert "GRPO, ranker, step 1 " in page
    assert "GRPO, ranker, step 120 " in page
    assert "59.4 ± 0.2" in page
    assert len(links.targets) == 20


def test_metrics_that_were_not_logged_are_named_and_the_rest_is_drawn(reported_demo):
    out, _ = reported_demo
    page = re.sub(r"\s+", " ", (out / "report.html").read_text(encoding="utf-8"))
    assert "Entropy: not logged: GRPO, metric, GRPO, consensus, GRPO, ranker." in page
    names = {path.name for path in (out / "figures").iterdir()}
    assert names == {
        f"{name}.png"
        for name in ("chrf", "ranking", "ranker", "reward", "length", "kl", "groups", "logprob_gap", "loss", "sft_loss")
    }
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (out / "figures").iterdir())


@pytest.mark.usefixtures("savefig")
def test_one_seed_is_shown_without_words_about_spread_and_blank_output_as_empty(finished_demo):
    out, _ = finished_demo
    path = scores_file(out, 1, "sft")
    scores = json.loads(path.read_text())
    for example in scores["examples"]:
        example["greedy"] = " "
    path.write_text(json.dumps(scores))
    write_report(out, DemoSettings(n_seeds=1), SECONDS)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "standard deviation" not in page
    assert "One seed, so the spread over seeds is not known." in page
    assert '<span class="none">empty</span>' in page


@pytest.mark.usefixtures("savefig")
def test_what_another_judge_left_in_the_folder_is_not_reported(finished_demo):
    out, _ = finished_demo
    summary = write_report(out, DemoSettings(judge="metric"), SECONDS)
    assert set(summary["chrf"]) == {"base", "sft", "grpo"}
    assert (summary["ranking"], summary["chosen_ranker"]) == ({}, {})
    assert "GRPO, ranker" not in (out / "report.html").read_text(encoding="utf-8")


def test_report_of_a_run_that_has_only_begun(tmp_path):
    summary = write_report(tmp_path, DemoSettings(), {})
    assert summary["chrf"] == {}
    page = (tmp_path / "report.html").read_text()
    assert "not evaluated" in page
    assert "No rollout groups were dumped." in page


@pytest.mark.usefixtures("savefig")
def test_algorithm_with_fewer_seeds_than_sft_is_not_judged(finished_demo):
    out, settings = finished_demo
    shutil.rmtree(scores_file(out, 2, "grpo").parent)
    shutil.rmtree(seed_folder(out, 1) / "grpo")
    summary = write_report(out, settings, SECONDS)
    assert set(summary["learned"]) == {"grpo_consensus", "grpo_ranker"}
    assert summary["learned"]["grpo_ranker"]["share_of_metric"] is None
    assert summary["chrf"]["grpo"]["seeds"] == 2
    assert "Not evaluated for the same seeds as SFT." in (out / "report.html").read_text()


@pytest.mark.parametrize(("n_cut", "not_below"), [(0, True), (9, False)])
def test_greedy_decoding_is_judged_by_its_texts(finished_demo, n_cut, not_below):
    out, settings = finished_demo
    for seed in settings.seeds:
        sft, path = (scores_file(out, seed, policy) for policy in ("sft", "grpo"))
        before, after = (json.loads(file.read_text()) for file in (sft, path))
        for was, now in zip(before["examples"], after["examples"], strict=True):
            now["greedy"] = was["greedy"] and was["greedy"][n_cut:]
        path.write_text(json.dumps(after))
    learned = summarise(load_results(out, settings, SECONDS))["learned"]["grpo"]
    low, high = learned["greedy_interval"]
    assert low <= learned["greedy_gain"] <= high
    assert learned["greedy_not_below"] is not_below


@pytest.mark.parametrize(("gains", "above"), [([3.0, 3.2, 3.1], True), ([0.3, 0.1, 0.9], False), ([3.0], None)])
def test_a_gain_within_twice_its_spread_over_seeds_is_not_learning(tmp_path, invent_demo, gains, above):
    out, _ = invent_demo(tmp_path / "demo")
    for seed, gain in enumerate(gains, 1):
        before, path = (scores_file(out, seed, policy) for policy in ("sft", "grpo_ranker"))
        after = json.loads(path.read_text())
        after["sampled"]["chrf"] = json.loads(before.read_text())["sampled"]["chrf"] + gain
        path.write_text(json.dumps(after))
    judged = verdict(load_results(out, DemoSettings(n_seeds=len(gains)), SECONDS), "grpo_ranker")
    assert judged["gains"] == pytest.approx(gains)
    assert judged["above_spread"] is above


def test_figures_are_shown_with_their_spread():
    assert show_figure(over_seeds([0.5, 0.7]), 100) == "60.0 ± 14.1"
    assert show_figure(over_seeds([0.5]), 100, 2) == "50.00"
    assert show_figure(None) == "–"
