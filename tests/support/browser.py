"""A headless Chromium, driven over its DevTools protocol through a pipe."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
INSTALL = "apt-get install -y --no-install-recommends chromium fonts-noto-cjk"
DEADLINE_S = 180.0
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")
OFFLINE = ("--disable-background-networking", "--no-first-run", "--disable-extensions", "--mute-audio")


class BrowserError(Exception):
    """The page threw, or the browser refused a command or did not answer in time."""


class Page:
    """One tab. Messages of its console, uncaught errors and refusals of its security policy are in `complaints`."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._n_sent = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method, **params):
        """The result of a DevTools command."""
        self._n_sent += 1
        message = {"id": self._n_sent, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._n_sent:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script):
        """The value of a JavaScript expression, promises awaited."""
        result = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise BrowserError(result["exceptionDetails"].get("exception", {}).get("description", "the script failed"))
        return result["result"].get("value")

    def wait_for(self, condition):
        ends = time.monotonic() + DEADLINE_S
        while not self._holds(condition):
            if time.monotonic() > ends:
                raise BrowserError(f"never true: {condition}")
            time.sleep(0.05)

    def _holds(self, condition):
        try:
            return self.run(f"Boolean({condition})")
        except BrowserError as error:
            if "navigated" not in str(error):
                raise
            return False  # of a page that was just left nothing can be said

    def press(self, key, text=None):
        """Presses a key as a person would, wherever the focus is."""
        pressed = {"key": key, "code": key, **({"text": text} if text else {})}
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        if key in codes:
            pressed["windowsVirtualKeyCode"] = codes[key]
        self.send("Input.dispatchKeyEvent", type="keyDown", **pressed)
        self.send("Input.dispatchKeyEvent", type="keyUp", **pressed)

    def _note(self, event):
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded":
            entry = params["entry"]
            if entry["level"] == "error" and entry["source"] != "network":  # a refusal by the server is no fault
                self.complaints.append(entry["text"])

    def _receive(self):
        ends = time.monotonic() + DEADLINE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(ends - time.monotonic(), 0.0))
            read = os.read(self._answers, 2**20) if ready else b""
            if not read:
                raise BrowserError("Chromium does not answer")
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


@contextmanager
def browser_page(language="en-US"):
    """A tab of a fresh browser. Without a Chromium on the machine the test fails: install one."""
    command = next(filter(None, map(shutil.which, CHROMIUM)), None)
    assert command, f"the tests of pages need Chromium: {INSTALL}"
    commands_read, commands_write = os.pipe()
    answers_read, answers_write = os.pipe()

    def give_pipes():
        # Chromium reads from file 3 and writes to file 4, whichever numbers the pipes have here.
        os.dup2(os.dup(commands_read), 3)
        os.dup2(os.dup(answers_write), 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [command, *OPTIONS, *OFFLINE, f"--accept-lang={language}", f"--user-data-dir={profile}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=give_pipes,
            start_new_session=True,
        )
        os.close(commands_read)
        os.close(answers_write)
        try:
            yield Page(commands_write, answers_read)
        finally:
            os.killpg(process.pid, 9)
            process.wait(120)
            os.close(commands_write)
            os.close(answers_read)
