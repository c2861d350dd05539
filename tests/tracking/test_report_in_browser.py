"""The report as a person meets it: clicked through in a browser, in both languages, with a keyboard, on a phone."""

from __future__ import annotations

import json

import pytest
from support.browser import browser_page
from tracking.reported_runs import HOSTILE, reported_runs, write_long_run

from grrm.judges.text_metric import sentence_metric
from grrm.tracking.metrics_log import MetricsLog
from grrm.tracking.report.run_report import write_report

pytestmark = pytest.mark.slow
INTERACTIVE = 'a, button, input, select, summary, [tabindex="0"]'
NAME = "one.tagName + '.' + (one.id || one.className || one.lang)"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The reports of two short runs, of a long one and another like it, and of a run without groups."""
    folder = tmp_path_factory.mktemp("report")
    write_report(reported_runs(folder), folder / "two.html")
    long = [write_long_run(folder / name, steps=30) for name in ("first", "second")]
    write_report(long[:1], folder / "long.html")
    texts = (long[1] / "rollouts/rollouts-rank000.jsonl").read_text(encoding="utf-8")
    better = texts.replace("am häufigsten vorkommt. 3 1", "oft vorkommt. 3 1")
    (long[1] / "rollouts/rollouts-rank000.jsonl").write_text(better, encoding="utf-8")
    write_report(long, folder / "alike.html")
    begun, change = MetricsLog(folder / "begun"), "eval_alarm/chrf_greedy_change"
    begun.log(0, {"eval_chrf_greedy": 60.0, change: 0.0, f"{change}_low": 0.0, f"{change}_high": 0.0})
    begun.log(1, {"reward_mean": 0.5})
    write_report([folder / "begun"], folder / "begun.html")
    MetricsLog(folder / "sft").log(10, {"loss": 2.0})
    write_report([folder / "sft"], folder / "sft.html")
    many = [folder / f"run-{number}" for number in range(8)]
    for number, run in enumerate(many):
        MetricsLog(run).log(12_345, {"reward_mean": 0.1 * number})
    write_report(many, folder / "many.html")
    return folder


@pytest.fixture
def show(pages, tab):
    def open_page(name, width=1280, height=900):
        tab.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        tab.open((pages / f"{name}.html").as_uri())
        return tab

    return open_page


def text_of(page, selector):
    return page.run(f"document.querySelector({json.dumps(selector)}).innerText")


def click(page, selector):
    page.run(f"document.querySelector({json.dumps(selector)}).click()")


def choose(page, label, value):
    """Set the field with this label as a person does who leaves it afterwards."""
    page.run(
        f"""(() => {{
          const labels = [...document.querySelectorAll('label.field')];
          const label = labels.find((one) => one.innerText.startsWith({label!r}));
          const input = label.querySelector('input, select');
          input.value = {value!r};
          input.dispatchEvent(new Event('input'));
          input.dispatchEvent(new Event('change'));
        }})()"""
    )


def count(page, selector):
    return page.run(f"document.querySelectorAll({json.dumps(selector)}).length")


def test_held_out_results_come_before_rewards_and_noise_is_not_painted(show):
    page = show("two")
    order = page.run(
        "[...document.querySelectorAll('#held-out .result h3, .reward h3, #curves h2')].map(e => e.innerText)"
    )
    assert order == ["Verdict of the run", "chrF, greedy", "chrF, sampled", "Curves"]
    assert text_of(page, ".verdict-file .value") == "helped"
    greedy, sampled = page.run(
        "[...document.querySelectorAll('.result:not(.verdict-file)')].map((card) => card.innerText)"
    )
    assert "+1.0" in greedy
    assert "99 % interval −0.5 to +2.5" in greedy
    assert "Not distinguishable from noise" in greedy
    assert "95 % interval +0.5 to +1.5" in sampled
    assert page.run(
        "[...document.querySelectorAll('.gain, .loss')].map((card) => card.querySelector('h3').innerText)"
    ) == [
        "Verdict of the run",
        "chrF, sampled",
    ]
    assert "eval_on_start: true" in text_of(page, "#held-out .notice")  # of the run without evaluations
    click(page, ".verdict-file summary")
    assert "changes.chrf.low\t0.5" in text_of(page, ".verdict-file")


def test_one_evaluation_is_compared_with_nothing_and_asks_for_none_that_was_made(show):
    card = text_of(show("begun"), ".result")
    assert "One evaluation, at step 0: nothing to compare with." in card
    assert "noise" not in card
    assert "eval_on_start" not in card


def test_only_an_interval_beyond_zero_is_a_gain_or_a_loss(show):
    page = show("two")
    says = [
        page.run(f"judgement({{ interval: {interval} }})")
        for interval in ("[0.1, 2, 0.99]", "[-2, -0.1, 0.95]", "[0, 2, 0.95]", "null")
    ]
    assert says == ["gain", "loss", "unsure", "unknown"]


def test_hostile_samples_and_run_names_are_shown_as_they_are(show):
    page = show("two")
    shown = page.run("[...document.querySelectorAll('td.text')].map((cell) => cell.textContent)")
    assert set(HOSTILE) <= set(shown)
    assert page.run("document.title") == "plain, <b>scaled"
    assert count(page, "b b, img, svg, iframe") == 0


@pytest.mark.parametrize(("language", "seen", "hidden"), [("en", "Curves", "曲线"), ("zh", "曲线", "Curves")])
def test_the_switch_shows_one_language_at_a_time(show, language, seen, hidden):
    page = show("two")
    click(page, f"button[data-language={language}]")
    shown = text_of(page, "main")
    assert seen in shown
    assert hidden not in shown
    assert page.run("document.documentElement.lang") == language
    assert page.run("document.activeElement.dataset.language") == language


def test_the_language_of_the_browser_is_the_default(pages):
    with browser_page(language="zh-CN") as page:
        page.open((pages / "sft.html").as_uri())
        assert "留出集结果" in text_of(page, "main")
        assert page.complaints == []


def test_charts_are_read_zoomed_smoothed_and_reset(show):
    page = show("long")
    page.run("document.querySelector('#chart-pairs .plot').focus()")
    page.press("ArrowRight")
    page.press("ArrowRight")
    values = text_of(page, "#chart-pairs .u-legend")
    rewards = page.run("['de', 'zh'].map((to) => data.runs[0].metrics[`pair/en-${to}/reward_mean`][1][1])")
    assert all(f"{reward:.4g}" in values for reward in rewards)
    assert values.replace("\n", "").startswith("step2")
    box = page.run(
        "(() => { const { x, y, width } = view.plots[0].plot.over.getBoundingClientRect(); return [x, y, width] })()"
    )
    for kind, place in (("mousePressed", 0.25), ("mouseMoved", 0.5), ("mouseMoved", 0.75), ("mouseReleased", 0.75)):
        x, y = box[0] + place * box[2], box[1] + 50
        page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
    page.wait_for("view.from !== null")
    ends = page.run("view.plots.map(({ plot }) => [plot.scales.x.min, plot.scales.x.max])")
    assert len({tuple(one) for one in ends}) == 1
    assert 6 <= ends[0][0] <= 10 < 20 <= ends[0][1] <= 24
    assert page.run("document.getElementById('zoom-from').value") == str(ends[0][0])
    click(page, "#zoom-reset")
    page.wait_for("view.plots.every(({ plot }) => plot.scales.x.max === 30)")
    choose(page, "Smoothing", "3")
    assert "7 steps" in text_of(page, "#curves .tools")
    flat = page.run("(() => { const { data } = view.plots[1].plot; return [data[1], data[data.length - 1]] })()")
    assert max(flat[0]) - min(flat[0]) < max(flat[1]) - min(flat[1])


def test_every_chart_has_its_numbers_as_a_table(show):
    page = show("long")
    assert count(page, "figure.card .plot canvas") == count(page, "figure.card details") > 1
    click(page, "#chart-reward summary")
    page.wait_for("document.querySelectorAll('#chart-reward details tbody tr').length === 30")
    assert text_of(page, "#chart-reward details tbody tr").split() == ["1", "0.5"]


def test_further_metrics_can_be_looked_at(show):
    page = show("long")
    choose(page, "Another metric", "metric_7")
    assert count(page, "#chart-other canvas") == 1


def test_groups_are_filtered_ordered_and_followed_through_time(show):
    page = show("long")
    assert "10 shown of 120" in text_of(page, "#group-count")
    click(page, ".more-groups")
    assert count(page, "article.group") == 20
    choose(page, "Languages", "en → zh")
    choose(page, "Step, from", "11")
    choose(page, "Step, to", "20")
    assert "of 20 that match" in text_of(page, "#group-count")
    assert "de" not in page.run(
        "[...new Set([...document.querySelectorAll('article td.text')].map((cell) => cell.lang))]"
    )
    click(page, "#reset-filters")
    choose(page, "Order", "last")
    assert text_of(page, "article.group h3").startswith("step 30")
    choose(page, "Text contains", "again")
    assert "of 30 that match" in text_of(page, "#group-count")
    click(page, ".through-time")
    steps = page.run("[...document.querySelectorAll('article.group h3')].map((title) => title.innerText.split(' ')[1])")
    assert [int(step) for step in steps] == list(range(1, 11))
    click(page, "#groups .notice button")
    assert "of 120" in text_of(page, "#group-count")


def test_judges_that_disagree_and_statuses_are_filters(show):
    page = show("two")
    choose(page, "Judges disagree", "0")
    assert "of 9 that match" in text_of(page, "#group-count")
    assert "contrary" in text_of(page, "article.group thead")
    click(page, "#reset-filters")
    choose(page, "Status", "aborted")
    assert "of 2 that match" in text_of(page, "#group-count")


def test_runs_are_laid_side_by_side_with_the_largest_changes_first_and_words_marked(show):
    page = show("alike")
    first = text_of(page, "#comparison article.compared")
    assert first.startswith("chrF")
    marks = page.run("[...document.querySelectorAll('#comparison ins')].map((mark) => mark.textContent.trim())")
    assert marks
    changes = page.run("commonGroups().map(({ change }) => change.difference)")
    extremes = [one for one in (max(changes), min(changes)) if one]
    assert f"{abs(extremes[0]):.1f}" in first
    assert count(page, "#comparison .column") == 2 * count(page, "#comparison article")


def test_word_differences_keep_both_texts(show):
    page = show("two")
    for before, after in (("a b c", "a x c"), ("你好世界", "你好，地球"), ("", "new"), ("gone", ""), ("same", "same")):
        pieces = page.run(f"wordDiff({before!r}, {after!r})")
        assert "".join(text for kind, text in pieces if kind != "old") == after
        assert "".join(text for kind, text in pieces if kind != "new") == before
    assert page.run("wordDiff('你好世界', '你好地球')") == [["same", "你好"], ["old", "世界"], ["new", "地球"]]
    dates = [["same", "2024年"], ["old", "5"], ["new", "6"], ["same", "月"]]
    assert page.run("wordDiff('2024年5月', '2024年6月')") == dates


def test_eight_runs_have_lines_of_their_own_and_steps_are_not_rounded(show):
    page = show("many")
    lines = "view.plots[0].plot.series.slice(1).map((one, i) => one.stroke(view.plots[0].plot, i + 1) + one.dash)"
    assert page.run(f"new Set({lines}).size") == 8
    page.run("document.querySelector('.plot').focus()")
    page.press("ArrowRight")
    assert text_of(page, "#chart-reward .u-series .u-value") == "12345"


def test_a_response_without_translation_runs_as_its_own_letters_do(show):
    page = show("two")
    direction = """((text) => {
      const sample = { ...data.groups[0].samples[0], parsed: false, text };
      const row = document.querySelector('#group-list tbody').appendChild(sampleRow(data.groups[0], sample));
      const found = getComputedStyle(row.querySelector('td.text')).direction;
      row.remove();
      return found;
    })"""
    assert [page.run(f"{direction}({text!r})") for text in ("שלום עולם", "hello")] == ["rtl", "ltr"]


@pytest.mark.parametrize(
    "hypothesis",
    ["the cat sat", "A", "", "完全不同", "the the the the the", "the cat sat on the mat 🐈", "  mat the on  "],
)
def test_chrf_is_that_of_evaluations(show, hypothesis):
    reference = "the cat sat on the mat 🐈"
    expected = sentence_metric("chrf", "en")(hypothesis, reference)
    page = show("sft")
    assert page.run(f"chrfOf({hypothesis!r}, referenceTree({reference!r}))") == pytest.approx(expected)


@pytest.mark.parametrize("name", ["two", "long", "alike", "sft", "many"])
def test_a_phone_shows_it_without_scrolling_sideways(show, name):
    page = show(name, 390, 844)
    assert page.run("document.documentElement.scrollWidth") <= 390
    assert page.run("Math.max(...[...document.querySelectorAll('canvas')].map((one) => one.clientWidth))") < 390


def test_the_tab_key_reaches_everything_and_the_focus_is_seen(show):
    page = show("sft")
    page.run("document.activeElement.blur()")
    reached = []
    for _ in range(count(page, INTERACTIVE) + 2):
        page.press("Tab")
        kind, outline = page.run(
            f"(() => {{ const one = document.activeElement; return [{NAME}, getComputedStyle(one).outlineStyle] }})()"
        )
        assert outline != "none" or kind.startswith("BODY")
        reached.append(kind)
    everything = page.run(
        f"[...document.querySelectorAll('main :is({INTERACTIVE})')].filter((one) => one.offsetParent !== null)"
        ".filter((one) => one.tagName === 'SUMMARY' || !one.closest('details:not([open])'))"
        f".map((one) => {NAME})"
    )
    assert set(everything) <= set(reached)


def test_a_run_without_evaluations_says_how_to_get_them(show):
    page = show("sft")
    assert "evaluation_strategy: steps" in text_of(page, "#held-out")
    assert count(page, ".result, .reward, #groups, #comparison, #settings") == 0


def test_dark_colours_follow_the_system(show):
    page = show("sft")
    stroke = "view.plots[0].plot.series[1].stroke()"
    body = "getComputedStyle(document.body).backgroundColor"
    light = page.run(f"[{stroke}, {body}]")
    page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.wait_for(f"{stroke} !== {light[0]!r}")
    assert page.run(body) != light[1]
    page.send("Emulation.setEmulatedMedia", features=[])
