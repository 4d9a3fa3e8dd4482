"""The page in a real browser: it reads well, works without scripts, and a click lets a waiting run go on."""

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.notify.servers import closed_port
from tests.ecosystem.surfaces.cli.workbench import GERT, PATIENCE, Project, environment, finish, note, until

pytestmark = pytest.mark.needs("chromium", "chromedriver")

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
SCREENSHOTS = os.environ.get("GERT_TEST_SCREENSHOTS")


class Browser:
    """A browser, by the W3C WebDriver protocol."""

    def __init__(self, base: str, session: str) -> None:
        self._base = base
        self._session = session

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        return _call(method, f"{self._base}/session/{self._session}{path}", body)

    def go(self, url: str) -> None:
        self("POST", "/url", {"url": url})

    def find(self, selector: str) -> str:
        """An element, as soon as it is there: a click does not always wait for the page it leads to."""
        found: list[str] = []

        def is_there() -> bool:
            found.extend(self.all(selector))
            return bool(found)

        until(is_there)
        return found[0]

    def all(self, selector: str) -> list[str]:
        return [each[ELEMENT] for each in self("POST", "/elements", {"using": "css selector", "value": selector})]

    def text(self, selector: str) -> str:
        said: str = self("GET", f"/element/{self.find(selector)}/text")
        return said

    def type(self, selector: str, text: str) -> None:
        self("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def click(self, selector: str) -> None:
        self("POST", f"/element/{self.find(selector)}/click", {})

    def run(self, script: str) -> Any:
        return self("POST", "/execute/sync", {"script": script, "args": []})

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def size(self, width: int, height: int = 900) -> None:
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def keep(self, name: str) -> None:
        """A picture of the whole page, where somebody wants to look."""
        if SCREENSHOTS:
            shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True)["data"]
            Path(SCREENSHOTS, f"{name}.png").write_bytes(base64.b64decode(shot))


def _call(method: str, url: str, body: Any = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=PATIENCE) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as problem:
        raise AssertionError(problem.read().decode()) from None


@pytest.fixture(scope="module")
def driver() -> Iterator[str]:
    port = closed_port()
    with tempfile.TemporaryDirectory() as home:
        process = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, env={**os.environ, "HOME": home},
        )  # fmt: skip
        base = f"http://127.0.0.1:{port}"

        def ready() -> bool:
            try:
                return bool(_call("GET", f"{base}/status")["ready"])
            except (OSError, AssertionError):
                return False

        try:
            until(ready)
            yield base
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def browser(driver: str, tmp_path: Path) -> Iterator[Browser]:
    options = {"binary": shutil.which("chromium"), "args": [*FLAGS, f"--user-data-dir={tmp_path / 'profile'}"]}
    made = _call("POST", f"{driver}/session", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}})
    one = Browser(driver, made["sessionId"])
    try:
        yield one
    finally:
        one("DELETE", "")


@contextmanager
def waiting(project: Project) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """A real run that waits, and the page of its ticket, served by a process of its own."""
    project.runbook(
        note("restart", "<b>web</b> & more", title="Restart the web service"),
        governance={"rules": [{"default": "require-approval", "min_approvers": 1}]},
    )
    run = project.start("--wait", "--as", "ann")
    server = subprocess.Popen(
        [*GERT, "approvals", "serve", "--listen", "127.0.0.1:0", "--json"],
        cwd=project.root, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        server.stdout.readline()
        yield run, json.loads(server.stdout.readline())["page_url"]
    finally:
        server.kill()
        server.communicate()
        run.kill()
        run.communicate()


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)], ids=["a laptop", "a phone"])
def test_the_command_and_the_buttons_are_seen_without_scrolling(
    project: Project, browser: Browser, width: int, height: int
) -> None:
    with waiting(project) as (_, url):
        browser.size(width, height)
        browser.go(url)
        browser.keep(f"first-screen-{width}")
        bottoms = "return [...document.querySelectorAll('[aria-label=\"What will run\"], .approve, .reject')]"
        found = browser.run(f"{bottoms}.map(each => each.getBoundingClientRect().bottom)")
        assert len(found) == 3
        assert max(found) <= height
        assert browser.run("return document.documentElement.scrollWidth") <= width


def test_a_click_lets_a_waiting_run_go_on(project: Project, browser: Browser) -> None:
    with waiting(project) as (run, url):
        browser.size(900)
        browser.go(url)
        assert browser.text("h1") == "Restart the web service"
        assert "<b>web</b> & more" in browser.text("main")
        browser.keep("open")
        browser.type("#approver", "bob")
        browser.type("#reason", "looks right")
        assert project.noted() == []
        browser.click("button.approve")
        assert browser.text(".notice h2") == "Your approval was received"
        browser.keep("answered")
        finish(run).ended(0)
        assert project.noted() == ["<b>web</b> & more"]
    project.verifies()


def test_a_click_on_reject_ends_the_run(project: Project, browser: Browser) -> None:
    with waiting(project) as (run, url):
        browser.go(url)
        browser.type("#approver", "bob")
        browser.click("button.reject")
        assert browser.text(".notice h2") == "Your rejection was received"
        finish(run).ended(3)
        assert project.noted() == []


def test_the_page_works_without_scripts_and_sends_nothing_by_accident(project: Project, browser: Browser) -> None:
    with waiting(project) as (run, url):
        browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
        browser.go(url)
        # Enter in a field is no approval, and neither is a form without a name.
        browser.type("#approver", "bob\ue007")
        assert browser.text("#yours") == "Your answer"
        browser("POST", f"/element/{browser.find('#approver')}/clear", {})
        browser.click("button.approve")
        assert browser.text("#yours") == "Your answer"
        browser.type("#approver", "bob")
        browser.click("button.approve")
        assert browser.text(".notice h2") == "Your approval was received"
        # Loaded again, the same form is told that it was sent.
        browser("POST", "/refresh", {})
        assert "sent already" in browser.text(".notice h2")
        finish(run).ended(0)


def test_the_page_is_accessible(project: Project, browser: Browser) -> None:
    with waiting(project) as (_, url):
        for scheme in ("light", "dark"):
            browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            # 1280 pixels at 400 % leave 320: nothing may have to be scrolled sideways.
            for width in (1280, 320):
                browser.size(width)
                browser.go(url)
                browser.keep(f"{scheme}-{width}")
                assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
                assert browser.run(CONTRAST) == []
        assert browser.run("return document.documentElement.lang") == "en"
        assert browser.run("return document.querySelectorAll('main, header, footer').length") == 3
        assert browser.run(UNLABELLED) == []
        assert browser.run(TARGETS) == []
        order = []
        for _ in range(6):
            browser("POST", "/actions", {"actions": [{"type": "key", "id": "k", "actions": [
                {"type": "keyDown", "value": "\ue004"}, {"type": "keyUp", "value": "\ue004"}]}]})  # fmt: skip
            order.append(browser.run("const e = document.activeElement; return e.id || e.className"))
        assert order == ["skip", "", "approver", "reason", "approve", "reject"]


# The contrast of every text with what is behind it, by the formula of WCAG 2.1; 4.5 is enough.
CONTRAST = """
const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
  .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
const behind = e => { for (; e; e = e.parentElement) {
  const c = rgb(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > 0) return c; }
  return [255, 255, 255]; };
const low = [];
for (const e of document.querySelectorAll('body *')) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own || !e.getClientRects().length || e.matches('style, script')) continue;
  const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) low.push(e.tagName + '.' + e.className + ': ' + e.textContent.trim().slice(0, 40));
}
return low;
"""
UNLABELLED = """
return [...document.querySelectorAll('input:not([type=hidden]), textarea, button:not([hidden])')]
  .filter(e => !(e.labels && e.labels.length) && !e.textContent.trim()).map(e => e.outerHTML);
"""
TARGETS = """
return [...document.querySelectorAll('button:not([hidden])')]
  .filter(e => e.getBoundingClientRect().height < 44).map(e => e.textContent);
"""
