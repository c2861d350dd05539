"""The page of `grrm annotate` as a person uses it: mouse and keys, both languages, on a phone, its file read back."""

from __future__ import annotations

import json

import pytest

from grrm.evaluation.annotation.campaign import page_data
from grrm.evaluation.annotation.gold import gold_groups
from grrm.evaluation.annotation.intake import read_annotations
from grrm.evaluation.annotation.tasks import Segment, Task
from grrm.tracking.report.page import write_annotation_page

pytestmark = pytest.mark.slow
HOSTILE = "<img src=x onerror=\"document.title='taken'\"> </script><script>document.title='taken'</script>"
TASKS = [
    Task("1", "Ein 🌊 Fluss", None, "de", "en", ("A 🌊 old river", HOSTILE), context=(Segment("Davor", HOSTILE),)),
    Task(
        "2",
        "Zwei Flüsse",
        None,
        "de",
        "zh",
        ("两条河流很长", "two " * 60 + "riversandriversandriversandriversandrivers"),
    ),
]


@pytest.fixture
def page(tab, tmp_path):
    # An id of its own: the browser keeps the work of a page under it, and hands what one tab deletes to the next late.
    write_annotation_page(page_data(TASKS) | {"id": tmp_path.name}, tmp_path / "page.html")
    tab.send("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    tab.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    tab.open((tmp_path / "page.html").as_uri())
    tab.wait_for("document.getElementById('progress')")
    return tab


def reload_until(page, progress):
    """Reload until this line is shown: the browser stores what a page keeps some time after it was told."""
    said = None
    for _ in range(100):
        page.run("window.before = location.reload() || true")
        page.wait_for("!window.before && document.readyState === 'complete'")
        said = page.run("document.getElementById('progress').textContent")
        if said == progress:
            return
    pytest.fail(f"the page says {said!r}")


def click(page, selector):
    """A press of the mouse in the middle of an element, as a person makes it."""
    place = page.run(
        f"""(() => {{ const one = document.querySelector({json.dumps(selector)});
        one.scrollIntoView({{block: "center"}});
        const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()"""
    )
    mouse(page, "mousePressed", *place)
    mouse(page, "mouseReleased", *place)


def mouse(page, kind, x, y):
    page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)


def drag_over(page, target, start, end):
    """Select characters (UTF-16) of a text with the mouse."""
    left, y, right = page.run(
        f"""(() => {{ const text = document.querySelectorAll('.target')[{target}].firstChild;
        const range = document.createRange(); range.setStart(text, {start}); range.setEnd(text, {end});
        const box = range.getBoundingClientRect();
        return [box.left + 1, box.top + box.height / 2, box.right - 1]; }})()"""
    )
    mouse(page, "mousePressed", left, y)
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=(left + right) / 2, y=y, button="left", buttons=1)
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=right, y=y, button="left", buttons=1)
    mouse(page, "mouseReleased", right, y)


def key(page, name, **more):
    page.send("Input.dispatchKeyEvent", type="keyDown", key=name, code=name, **more)
    page.send("Input.dispatchKeyEvent", type="keyUp", key=name, code=name)


def test_a_person_annotates_with_mouse_and_keys_and_the_file_is_gold(page, tmp_path):
    drag_over(page, 0, 5, 8)
    click(page, ".candidate:nth-child(1) .mark-as .minor")
    assert page.run("[...document.querySelectorAll('mark')].map((one) => one.textContent)") == ["old"]
    page.run("document.querySelectorAll('.target')[0].focus()")
    for shift in (0, 0, 0, 8):  # A, wave, old, and with Shift old river
        key(page, "ArrowRight", modifiers=shift)
    page.press("2", text="2")
    assert "overlap" in page.run("document.getElementById('said').textContent")
    key(page, "ArrowRight")
    page.press("2", text="2")
    page.press("3", text="3")
    click(page, ".candidate:nth-child(1) .errors li:nth-child(1) .minor")  # the first is major after all
    click(page, ".candidate:nth-child(1) .score input")
    page.run("document.querySelectorAll('.score input')[1].focus()")
    for _ in range(3):
        key(page, "ArrowRight", windowsVirtualKeyCode=39)
    assert page.run("[...document.querySelectorAll('output')].map((one) => one.textContent)")[1] == "53"
    click(page, "#save")
    assert page.run("document.getElementById('said').textContent") == "Write your name first."
    page.send("Input.insertText", text="Eve / 1")
    page.run("document.activeElement.blur()")
    page.press("n", text="n")
    assert page.run("document.querySelector('.source .text').textContent") == "Zwei Flüsse"
    reload_until(page, "Group 2 of 2; 1 complete")  # what was done is still there
    click(page, "#save")
    page.wait_for("document.getElementById('said').textContent.includes('Send this file')")
    (name,) = page.run("document.getElementById('said').textContent.match(/annotation-[^ ]+json/)")
    file = tmp_path / name
    for _ in range(200):
        if file.exists():
            break
        page.run("new Promise((done) => setTimeout(done, 50))")
    (group,) = gold_groups(read_annotations(file))
    assert group.annotators == ("Eve / 1",)
    marked = [(one["start"], one["end"], one["severity"]) for one in group.spans[0]]
    assert marked == [(4, 7, "major"), (8, 13, "major"), (13, 13, "major")]
    assert group.scores_AG.tolist()[0][1] == 53.0
    assert 45 <= group.scores_AG.tolist()[0][0] <= 55


def test_texts_stay_texts(page):
    assert HOSTILE in page.run("document.getElementById('report').textContent")
    assert page.run("document.querySelectorAll('#report img, #report script').length") == 0
    assert page.run("document.title") == "Which translations are good?"


def test_arrows_follow_the_direction_of_the_text(page):
    page.run("document.querySelectorAll('.target')[0].replaceChildren('נהר ישן ורחב')")
    page.run("document.querySelectorAll('.target')[0].focus()")
    for name, chosen in (("ArrowLeft", "נהר"), ("ArrowLeft", "ישן"), ("ArrowRight", "נהר")):
        key(page, name)
        assert page.run("String(getSelection())") == chosen


def test_chinese_words_and_a_phone(page):
    page.send("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=False)
    click(page, "#next")
    click(page, ".language [lang=zh]")
    assert page.run("document.querySelector('h1').textContent") == "哪些译文更好？"
    assert page.run("document.documentElement.scrollWidth") <= 390
    page.run("document.querySelectorAll('.target')[0].focus()")
    key(page, "ArrowRight")
    assert 0 < len(page.run("String(getSelection())")) < 6
    unnamed = "[...document.querySelectorAll('button, input')].filter((one) => !one.innerText && !one.ariaLabel"
    assert page.run(f"{unnamed} && !one.labels?.length).length") == 0


def test_a_browser_that_keeps_nothing_shows_the_page_and_says_so(page):
    refusing = "Storage.prototype.setItem = Storage.prototype.getItem = () => { throw new Error('no room'); }"
    script = page.send("Page.addScriptToEvaluateOnNewDocument", source=refusing)["identifier"]
    page.run("window.before = location.reload() || true")
    page.wait_for("!window.before && document.getElementById('said')")
    assert "keeps nothing" in page.run("document.getElementById('said').textContent")
    assert page.run("document.querySelectorAll('.candidate').length") == 2
    page.send("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
