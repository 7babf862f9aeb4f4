"""Draws watch-light.png and watch-dark.png: ``PYTHONPATH=tests python docs/images/watch.py``. Needs `make chromium`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from support.browser import driver

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-m", "stepmill", "watch", "Breakout-v5", "--num-envs", "12", "--no-browser", "--json"]


def main() -> None:
    with (
        subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True) as program,
        tempfile.TemporaryDirectory() as folder,
    ):
        assert program.stdout is not None
        file = Path(json.loads(program.stdout.readline())["file"])
        with driver(Path(folder)) as new:
            browser = new()
            browser.resize(1400, 860)
            browser.open(file.as_uri())
            browser.wait_for(lambda: browser.run("return view.state && view.state.totals.episodes > 100"), 300)
            browser.click(".cell[data-env='5']")
            browser.wait_for(lambda: "Drawn" in browser.text("#picked-every"))
            for name in ("light", "dark"):
                browser.dark(name == "dark")
                browser.wait_for(lambda: browser.run("return new Promise(done => setTimeout(() => done(true), 1000))"))
                browser.screenshot(HERE / f"watch-{name}.png")
        program.send_signal(signal.SIGINT)


if __name__ == "__main__":
    main()
