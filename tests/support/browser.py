"""Debian's headless Chromium, driven by its WebDriver over plain HTTP."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"]
FLAGS += ["--window-size=1300,1000"]
CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")

needs_chromium = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Chromium: `make chromium` installs it")

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element's id, by the standard


class BrowserError(Exception):
    """What the driver says went wrong."""


class Browser:
    """A browser window. Every method talks to the driver, and returns when that is done."""

    def __init__(self, driver: str, session: str) -> None:
        self._base = f"{driver}/session/{session}"

    def open(self, address: str) -> None:
        self._post("url", url=address)

    @property
    def address(self) -> str:
        return str(self._ask("GET", "url"))

    @property
    def page(self) -> str:
        """The source of the page as it is now."""
        return str(self._ask("GET", "source"))

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function with this body returns in the page."""
        return self._post("execute/sync", script=script, args=list(arguments))

    def click(self, selector: str) -> None:
        element = self._post("element", using="css selector", value=selector)[_ELEMENT]
        self._post(f"element/{element}/click")

    def press(self, key: str) -> None:
        """Presses a key, wherever the focus is."""
        actions = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        self._post("actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def text(self, selector: str) -> str:
        """What an element shows; empty if it is hidden or missing."""
        found = "const found = document.querySelector(arguments[0]);"
        return str(self.run(f"{found} return found && found.checkVisibility() ? found.innerText : ''", selector))

    def cookies(self) -> list[dict[str, Any]]:
        return list(self._ask("GET", "cookie"))

    def log(self) -> list[str]:
        """What the browser complained about since the last call: errors in scripts, refused requests."""
        return [one["message"] for one in self._post("se/log", type="browser")]

    def resize(self, width: int, height: int) -> None:
        self._devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def dark(self, dark: bool) -> None:
        """Whether the user likes dark pages."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", features=[feature])

    def offline(self) -> None:
        """Cuts the browser off from every network."""
        self._devtools("Network.enable")
        limits = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self._devtools("Network.emulateNetworkConditions", offline=True, **limits)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """Writes a PNG file of the window, or of the whole page."""
        shot = self._devtools("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def wait_for(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        """What the condition returns, once that is true. It fails the test if that takes too long."""
        end = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > end:
                pytest.fail(f"not in {seconds:g} s; the page says: {self.text('body')[:2000]}\n{self.log()}")
            time.sleep(0.05)
        return found

    def close(self) -> None:
        with contextlib.suppress(OSError, BrowserError):
            _request("DELETE", self._base)

    def _devtools(self, command: str, **parameters: Any) -> Any:
        return self._post("goog/cdp/execute", cmd=command, params=parameters)

    def _post(self, path: str, **body: Any) -> Any:
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return _request(method, f"{self._base}/{path}", body)


@contextlib.contextmanager
def driver(folder: Path) -> Iterator[Callable[[], Browser]]:
    """Starts the driver: what it yields opens a new browser, with nothing remembered. All of them end with it."""
    assert CHROMIUM is not None
    assert DRIVER is not None
    log = folder / "chromedriver.log"
    command = [DRIVER, "--port=0", f"--log-path={log}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    browsers: list[Browser] = []

    def new() -> Browser:
        profile = folder / f"profile-{len(browsers)}"
        options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = _request("POST", f"{base}/session", {"capabilities": {"alwaysMatch": wanted}})
        browsers.append(Browser(base, made["sessionId"]))
        return browsers[-1]

    try:
        assert process.stdout is not None
        said = next(line for line in process.stdout if "started successfully on port" in line)
        port = said.split()[-1].rstrip(".")
        base = f"http://127.0.0.1:{port}"
        yield new
    finally:
        for browser in browsers:
            browser.close()
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _request(method: str, address: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=600) as answer:
            return json.loads(answer.read())["value"]
    except urllib.error.HTTPError as error:
        raise BrowserError(json.loads(error.read())["value"]["message"]) from None
