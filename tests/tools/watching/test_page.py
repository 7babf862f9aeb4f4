"""The page in a browser: what a user sees and does there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.tools.watching.control import Control
from stepmill.tools.watching.watch import Watch
from stepmill.views.pool import watched
from support.browser import Browser, driver, needs_chromium
from support.envs.command import Painted
from support.watching import link_in

pytestmark = needs_chromium

NASTY = "<img src=x onerror='document.title=1'><script>document.title=1</script>&amp;\u202e"


@pytest.fixture(scope="module")
def new_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Browser]]:
    with driver(tmp_path_factory.mktemp("chromium")) as new:
        yield new


@pytest.fixture
def browser(new_browser: Callable[[], Browser]) -> Iterator[Browser]:
    one = new_browser()
    yield one
    one.close()


class Run:
    """Plays a pool in a thread, as a training would."""

    def __init__(self, pool: Any, control: Control | None = None) -> None:
        self.pool = pool
        self.page = Watch(watched(pool), open_browser=False, control=control)
        self._control, self._ended = control, threading.Event()
        self._thread = threading.Thread(target=self._play)
        self._thread.start()

    def _play(self) -> None:
        self.pool.async_reset()
        while not self._ended.is_set():
            info = self.pool.recv()[-1]
            if self._control is not None:
                self._control.wait(self.page.look_again)
            self.pool.send(np.zeros(len(info["env_id"]), np.int64), info["env_id"])

    def end(self) -> None:
        self._ended.set()
        if self._control is not None:
            self._control.turn("resume")
        self._thread.join()
        self.page.close()
        self.pool.close()


@pytest.fixture
def run() -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start(control: Control | None = None, **arguments: Any) -> Run:
        arguments = {"num_envs": 4, "backend": "inline", "render_mode": "rgb_array", **arguments}
        runs.append(Run(stepmill.make(Painted, **arguments), control))
        return runs[-1]

    yield start
    for one in runs:
        one.end()


def enter(browser: Browser, page: Watch) -> None:
    browser.open(page.file.as_uri())
    browser.wait_for(lambda: browser.text("#status") in ("live", "paused"))


def pictures_in(browser: Browser) -> int:
    script = "return [...document.querySelectorAll('.cell img')].filter(one => !one.hidden && one.naturalWidth).length"
    return int(browser.run(script))


def steps_in(browser: Browser) -> int:
    return int(browser.run("return view.state.totals.steps"))


def test_a_live_grid(browser: Browser, run: Callable[..., Run]) -> None:
    one = run()
    ticket = link_in(one.page.file).partition("=")[2]
    enter(browser, one.page)
    browser.wait_for(lambda: pictures_in(browser) == 4)
    assert "Painted" in browser.text("#name")
    assert ticket not in browser.address
    assert browser.run("return history.length") <= 2  # the address with the ticket is not in there
    (cookie,) = browser.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert browser.run("return document.cookie") == ""
    steps = steps_in(browser)
    browser.wait_for(lambda: steps_in(browser) > steps)
    browser.wait_for(lambda: "of each env" in browser.text("#sampling"))
    assert "5.0 % at most" in browser.text("#sampling")
    assert browser.text("#return") == "15"
    browser.wait_for(lambda: browser.text("#workers") != "")
    assert browser.log() == []  # no error, nothing that the policy refused


def test_an_env_is_picked_and_let_go(browser: Browser, run: Callable[..., Run]) -> None:
    one = run()
    enter(browser, one.page)
    browser.wait_for(lambda: pictures_in(browser) == 4)
    browser.click(".cell[data-env='2']")
    browser.wait_for(lambda: browser.text("#picked-name") == "env 2")
    browser.wait_for(lambda: "from 1 to 5" in browser.text("#reward-range"))
    browser.wait_for(lambda: "plain" in browser.text("#info"))
    browser.wait_for(lambda: browser.run("return document.getElementById('picked-image').naturalWidth") == 60)
    browser.press("\ue00c")  # escape
    browser.wait_for(lambda: browser.text("#picked-name") == "")
    assert browser.log() == []


def test_the_last_seconds_of_an_env_are_replayed(browser: Browser, run: Callable[..., Run]) -> None:
    one = run(Control())
    enter(browser, one.page)
    browser.click(".cell[data-env='2']")
    kept = "const kept = replay.kept.get(2) || [];"
    browser.wait_for(lambda: browser.run(f"{kept} return kept.length") > 20)
    assert browser.text("#live") == "Live"
    browser.click("#pause")  # the run, so that nothing is added
    browser.wait_for(lambda: browser.text("#status") == "paused")
    # Brightness is the step: every picture is of the step that it says.
    script = f"""
    {kept}
    const pen = document.createElement('canvas').getContext('2d', {{willReadFrequently: true}});
    return Promise.all(kept.map(async (one) => {{
      const image = new Image();
      image.src = `data:image/png;base64,${{one.png}}`;
      await image.decode();
      pen.drawImage(image, 0, 0);
      return [one.step, pen.getImageData(0, 0, 1, 1).data[0] / 10];
    }}));
    """
    assert all(step == painted for step, painted in browser.run(script))

    browser.run("replay.moveTo(spanOf(replay.kept.get(2)) / 2)")
    assert browser.text("#replay-play") == "Play"
    assert "What is below is live" in browser.text("#picked-every")
    assert "s back" in browser.text("#back")
    shown = "return document.getElementById('picked-image').src"
    browser.run("replay.moveTo(0)")
    assert browser.run(shown) == browser.run("return `data:image/png;base64,${replay.on.pictures[0].png}`")
    browser.press("r")
    browser.wait_for(lambda: browser.run("return replay.on.at === spanOf(replay.on.pictures)"))
    assert browser.text("#replay-play") == "Play"
    assert browser.text("#back") == "0.0 s back"
    assert browser.run("replay.toggle(); return [replay.on.at, $('replay-play').textContent]") == [0, "Pause"]
    browser.press("\ue00c")  # escape leaves the replay, and the env stays picked
    assert browser.run("return replay.on === null")
    assert browser.text("#picked-name") == "env 2"
    assert browser.text("#back") == ""
    browser.click("#pause")
    browser.wait_for(lambda: browser.text("#status") == "live")
    assert browser.log() == []


def test_pictures_are_kept_for_ten_seconds_and_within_limits(browser: Browser, run: Callable[..., Run]) -> None:
    one = run(num_envs=20)
    enter(browser, one.page)
    browser.wait_for(lambda: browser.run("return replay.kept.size > 3 && replay.bytes > 0"))
    bytes_kept = "return [...replay.kept.values()].flat().reduce((sum, one) => sum + one.bytes, 0)"
    assert browser.run(f"{bytes_kept} === replay.bytes")
    newest = "Math.max(0, ...[...replay.kept.values()].flat().map(one => one.number))"
    before = browser.run(f"replay.most = 3000; replay.seconds = 0.5; return {newest}")
    browser.wait_for(lambda: browser.run(f"return {newest}") > before + 40)
    assert browser.run("return replay.bytes <= 3000")
    assert browser.run(f"{bytes_kept} === replay.bytes")
    longest = "return Math.max(...[...replay.kept.values()].map(spanOf))"
    assert browser.run(longest) <= 0.5
    browser.click("#next")
    browser.wait_for(lambda: browser.text("#range") == "envs 16–19 of 20")
    browser.wait_for(lambda: browser.run("return [...replay.kept.keys()].every(one => one >= 16)"))


def test_names_and_infos_are_shown_as_they_are(browser: Browser, run: Callable[..., Run]) -> None:
    one = run(told=NASTY)
    one.page._observer.note_error(NASTY)
    one.page._server.reporter._name = NASTY
    enter(browser, one.page)
    browser.run("pick(1)")
    browser.wait_for(lambda: NASTY in browser.run("return document.getElementById('info').textContent"))
    assert NASTY in browser.run("return document.getElementById('name').textContent")
    assert NASTY in browser.run("return document.getElementById('errors').textContent")
    assert browser.run("return document.querySelectorAll('main script, main img[src=x], header script').length") == 0
    assert browser.run("return document.title") == f"{NASTY} – stepmill watch"
    assert browser.log() == []


def test_pausing_and_stepping(browser: Browser, run: Callable[..., Run]) -> None:
    one = run(Control(paused=True))
    enter(browser, one.page)
    browser.wait_for(lambda: pictures_in(browser) == 4)  # although nothing moves
    assert browser.text("#status") == "paused"
    start = steps_in(browser)
    for count in (1, 2):
        browser.click("#step")
        browser.wait_for(lambda count=count: steps_in(browser) == start + 4 * count)  # type: ignore[misc]
    browser.wait_for(lambda: browser.text(".cell[data-env='3'] .quiet") == "step 2")
    browser.press("s")
    browser.wait_for(lambda: steps_in(browser) == start + 12)
    browser.click("#pause")
    browser.wait_for(lambda: browser.text("#status") == "live")
    browser.wait_for(lambda: steps_in(browser) > start + 40)
    browser.click("#pause")
    browser.wait_for(lambda: browser.text("#status") == "paused")
    assert browser.log() == []


def test_a_run_of_its_own_has_only_its_pictures_paused(browser: Browser, run: Callable[..., Run]) -> None:
    one = run()
    enter(browser, one.page)
    browser.wait_for(lambda: pictures_in(browser) == 4)
    assert browser.text("#driving") == ""
    assert "cannot pause the run" in browser.text("#keys")
    browser.click("#pictures")
    browser.wait_for(lambda: "Pictures are paused" in browser.text("#sampling"))
    steps = steps_in(browser)
    browser.wait_for(lambda: steps_in(browser) > steps)


def test_other_envs_come_into_view(browser: Browser, run: Callable[..., Run]) -> None:
    one = run(num_envs=40)
    enter(browser, one.page)
    browser.wait_for(lambda: browser.text("#range") == "envs 0–15 of 40")
    browser.click("#next")
    browser.wait_for(lambda: browser.text("#range") == "envs 16–31 of 40")
    browser.wait_for(lambda: pictures_in(browser) > 0)
    browser.press("\ue014")  # the arrow to the right
    browser.wait_for(lambda: browser.text("#range") == "envs 32–39 of 40")
    assert not browser.run("return document.getElementById('previous').disabled")
    assert browser.run("return document.getElementById('next').disabled")
    browser.run("const box = document.getElementById('goto'); box.value = 5; box.dispatchEvent(new Event('change'))")
    browser.wait_for(lambda: browser.text("#range") == "envs 0–15 of 40" and browser.text("#picked-name") == "env 5")


def test_it_survives_a_closed_browser(new_browser: Callable[[], Browser], run: Callable[..., Run]) -> None:
    one = run()
    first, second = new_browser(), new_browser()
    for browser in (first, second):  # two at once, each through a ticket of its own
        enter(browser, one.page)
        browser.wait_for(lambda browser=browser: pictures_in(browser) == 4)  # type: ignore[misc]
    first.close()
    steps = steps_in(second)
    second.wait_for(lambda: steps_in(second) > steps)
    second.close()
    third = new_browser()
    enter(third, one.page)
    third.wait_for(lambda: pictures_in(third) == 4)
    third.close()


def test_a_run_that_ends_is_said_to_have_ended(browser: Browser, run: Callable[..., Run]) -> None:
    one = run()
    enter(browser, one.page)
    one.page.close()
    browser.wait_for(lambda: browser.text("#status") == "ended")
    assert "You see what was known last" in browser.text("#lost")


def test_another_page_gets_nothing(browser: Browser, run: Callable[..., Run]) -> None:
    """Also in a browser that has the cookie: a page at another port asks for the state, and opens it in a frame."""
    one, other = run(), run()
    enter(browser, one.page)
    address = browser.address
    enter(browser, other.page)
    script = "return fetch(arguments[0], {credentials: 'include'}).then(() => 'read', () => 'refused')"
    assert browser.run(script, f"{address}state") == "refused"
    script = (
        "const frame = document.createElement('iframe'); frame.src = arguments[0]; document.body.append(frame);"
        "return new Promise(done => setTimeout(() => done(frame.contentDocument ? 'read' : 'refused'), 500))"
    )
    assert browser.run(script, address) == "refused"
