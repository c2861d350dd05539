"""The page at `/` as a person meets it: in a browser, with a keyboard, in both languages."""

from __future__ import annotations

import pytest
from support.completions_server import CompletionsServer
from support.reward_servers import reward_server

pytestmark = pytest.mark.slow
VERDICT = "B is right, the others are not.\n\n### Final Ranking:\n\nB > A > C\n\n### Scores:\n\nB: 9, A: 4, C: 1"
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><b>bold</b>"


@pytest.fixture(scope="module")
def server():
    with (
        CompletionsServer(lambda request, number: VERDICT) as model,
        reward_server("--judge", "gqm", "--openai-url", model.url) as (_, url),
    ):
        yield url


@pytest.fixture
def page(server, tab):
    tab.open(f"{server}/")
    tab.wait_for("document.querySelectorAll('#candidates textarea').length === 4")
    return tab


def fill(page, *texts):
    page.run(f"setCandidates({list(texts)!r})")


def judge(page):
    page.run("document.getElementById('judge').click()")
    page.wait_for("document.querySelectorAll('article tbody tr').length > 0")


def text_of(page, selector):
    return page.run(f"document.querySelector({selector!r}).innerText")


def test_ranking_scores_analysis_prompt_and_cost_are_shown(page):
    fill(page, "middling", "good", "bad")
    judge(page)
    rows = page.run("[...document.querySelectorAll('article tbody tr')].map(row => row.innerText.split('\\t'))")
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["1", "good", "9", "scored"],
        ["2", "middling", "4", "scored"],
        ["3", "bad", "1", "scored"],
    ]
    assert page.run("document.querySelector('article meter').value") == 9
    assert "3 tokens · 1 attempts" in text_of(page, "article caption")
    page.run("document.querySelectorAll('article details').forEach(one => { one.open = true })")
    analysis, prompt = page.run("[...document.querySelectorAll('article pre')].map(one => one.innerText)")
    assert analysis == VERDICT
    assert "Translation B:\n```\ngood\n```" in prompt
    page.wait_for("document.querySelector('#last tr td:nth-child(4)')?.innerText === '4, 9, 1'")
    assert "0 running" in text_of(page, "#load-line")


def test_close_scores_differ_and_each_line_of_an_analysis_runs_as_its_letters_do(page):
    shown = page.run(
        """(() => {
          const scores = [5.0021, 5.0043, 9];
          const candidates = scores.map((score, i) => ({ candidate_id: String(i + 1), score, status: "scored" }));
          const verdict = { candidates, analysis: "B is right.\\nשלום", attempts: 0, tokens: 0 };
          const request = { groups: [{ candidates: scores.map((_, i) => ({ translation: String(i) })) }] };
          const card = verdictOf({ name: "ranker" }, request, verdict, [], 1);
          document.getElementById("judges").replaceChildren(card);
          card.querySelector("details").open = true;
          const text = card.querySelector("pre").firstChild, line = text.data.indexOf("\\n") + 1;
          const lefts = [[0, 2], [line, line + 4]].map(([start, end]) => {
            const range = document.createRange();
            range.setStart(text, start);
            range.setEnd(text, end);
            return range.getBoundingClientRect().left;
          });
          const numbers = [...card.querySelectorAll("td.number")].map((cell) => cell.innerText.trim());
          return [numbers, lefts[1] > lefts[0] + 50];
        })()"""
    )
    assert shown == [["9", "5.004", "5.002"], True]


def test_texts_are_shown_and_never_run(page):
    fill(page, HOSTILE, "good", "bad")
    judge(page)
    assert HOSTILE in text_of(page, "article")
    assert page.run("document.querySelectorAll('img, b').length") == 0
    assert page.run("document.title") == "Reward server"


def test_script_that_gets_into_the_page_nevertheless_is_refused(page):
    page.run("document.body.append(Object.assign(make('script'), { textContent: 'document.title = 1' }))")
    assert page.run("document.title") == "Reward server"
    assert "Content Security Policy" in page.complaints.pop()


def test_everything_can_be_done_from_the_keyboard(page):
    page.run("document.activeElement.blur()")
    seen = []
    while "judge" not in seen:
        page.press("Tab")
        seen.append(page.run("document.activeElement.id || document.activeElement.getAttribute('aria-label')"))
        assert len(seen) < 40
    page.press("Tab")
    seen.append(page.run("document.activeElement.id"))
    assert {"language", "source", "src_lang", "candidate-0", "Remove: Candidate 1", "add"} <= set(seen)
    page.run("document.getElementById('judge').focus()")
    page.press("Enter", text="\r")
    page.wait_for("document.querySelectorAll('article tbody tr').length > 0")
    assert text_of(page, "#said") == "Judged by gqm"


def test_screen_readers_are_told_what_every_control_and_bar_is(page):
    fill(page, "middling", "good", "bad")
    judge(page)
    nodes = page.send("Accessibility.getFullAXTree")["nodes"]
    named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    controls = [name for role, name in named if role in ("textbox", "button", "combobox", "meter", "article", "table")]
    assert len(controls) > 15
    assert all(controls)
    assert ("meter", "Score 9 out of 10") in named
    assert ("article", "Verdict of gqm · the first of the servers") in named
    assert page.run("document.getElementById('said').getAttribute('role')") == "status"


def test_language_can_be_changed_at_any_time(page):
    fill(page, "middling", "good", "bad")
    judge(page)
    page.run("speak('zh')")
    assert page.run("document.documentElement.lang") == "zh-Hans"
    assert text_of(page, "#judge") == "评判"
    assert "名次" in text_of(page, "article")
    assert "已评分" in text_of(page, "article")
    page.wait_for("document.querySelector('#last').innerText.includes('已评分')")
    assert page.run("candidates()") == ["middling", "good", "bad"]
    assert page.run("TEXTS.zh && Object.keys(TEXTS.zh).join() === Object.keys(TEXTS.en).join()")


def test_an_example_is_judged_in_one_click_and_its_verdict_seen_without_scrolling(page):
    page.send("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    page.run("document.querySelectorAll('#examples button')[1].click()")
    page.wait_for("document.querySelectorAll('article tbody tr').length === 3")
    assert page.run("document.querySelector('article table').getBoundingClientRect().bottom") < 900


def test_a_phone_need_not_scroll_sideways(page):
    page.send("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    fill(page, "middling", "x" * 300, "bad")
    judge(page)
    page.wait_for("document.querySelectorAll('#last tr').length > 0")
    assert page.run("document.documentElement.scrollWidth") <= 390


def test_mistakes_are_told_in_the_servers_words(page):
    page.run("document.getElementById('src_lang').value = 'xx'")
    page.run("document.getElementById('judge').click()")
    page.wait_for("document.querySelector('article .error')")
    assert "422: groups[0]: unknown language 'xx': give" in text_of(page, "article .error")


def test_a_server_with_a_token_is_asked_with_it(tmp_path, tab):
    (tmp_path / "token").write_text("s3cret")
    with reward_server("--token-file", str(tmp_path / "token")) as (_, url):
        tab.open(f"{url}/")
        tab.wait_for("!document.getElementById('token-field').hidden")
        tab.wait_for("document.getElementById('load-line').textContent.includes('401')")
        tab.run("document.getElementById('token').value = 's3cret'")
        judge(tab)
        assert text_of(tab, "#said") == "Judged by chrf"


def test_verdicts_of_several_judges_stand_side_by_side(tmp_path, tab):
    (tmp_path / "two.yaml").write_text("judge: chrf\njudges: {others: {judge: consensus}}\n")
    with reward_server("--config", str(tmp_path / "two.yaml")) as (_, url):
        tab.open(f"{url}/")
        tab.wait_for("document.querySelectorAll('#candidates textarea').length === 4")
        tab.run("document.getElementById('judge').click()")
        tab.wait_for("document.querySelectorAll('article tbody tr').length === 8")
        assert tab.run("[...document.querySelectorAll('article h3')].map(one => one.innerText)") == ["chrf", "others"]
        first, second = tab.run("[...document.querySelectorAll('article meter')].map(one => one.value)")[::4]
        assert first != second
