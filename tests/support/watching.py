"""Envs to be watched, and a browser made of a socket: it sends exactly what a test wants."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from stepmill.tools.watching.watch import Watch


class Painted(gymnasium.Env[Any, Any]):
    """Rewards count the steps of an episode of five. Its picture is grey, as bright as its step."""

    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 30}  # noqa: RUF012  # as Gymnasium wants it
    observation_space = gymnasium.spaces.Box(0, 100, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None, length: int = 5, told: str = "plain") -> None:
        self.render_mode, self.length, self.told = render_mode, length, told
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._obs(), {"note": self.told}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self._obs(), float(self.steps), self.steps == self.length, False, {"note": self.told}

    def render(self) -> Any:
        return f"step {self.steps}" if self.render_mode == "ansi" else np.full((40, 60, 3), 10 * self.steps, np.uint8)

    def _obs(self) -> np.ndarray:
        return np.full(2, self.steps, np.float32)


class Answer(NamedTuple):
    """What the server said."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """A browser of a user who came through the file."""

    def __init__(self, page: Watch) -> None:
        self.port = page.port
        entry = self.get(link_in(page.file), cookie=None)
        assert entry.status == 200, entry
        self.set_cookie = entry.headers["Set-Cookie"]
        self.cookie: str | None = self.set_cookie.partition(";")[0]
        found = re.search(r"url=(/[\w-]+/)", entry.body.decode())
        assert found is not None
        self.place = found[1]

    def get(self, path: str, cookie: str | None = "own", **headers: str) -> Answer:
        return self.send("GET", path, cookie, None, **headers)

    def post(self, path: str, body: Any, cookie: str | None = "own", **headers: str) -> Answer:
        return self.send("POST", path, cookie, json.dumps(body).encode(), **headers)

    def command(self, name: str, **more: Any) -> int:
        """Clicks a button."""
        return self.post("command", {"command": name, **more}, Origin=f"http://127.0.0.1:{self.port}").status

    def state(self, **question: Any) -> Any:
        asked = {"viewer": "a", "top": 0, "bottom": 10**6, **question}
        query = "&".join(f"{name}={value}" for name, value in asked.items() if value is not None)
        answer = self.get(f"state?{query}")
        assert answer.status == 200, answer
        return answer.json

    def send(self, method: str, path: str, cookie: str | None, body: bytes | None, **headers: str) -> Answer:
        """``path`` is from the folder of the page, unless it begins with a slash."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if cookie is not None:
            given["Cookie"] = str(self.cookie) if cookie == "own" else cookie
        try:
            connection.request(method, path if path.startswith("/") else self.place + path, body, given)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()


def link_in(file: Path) -> str:
    """The path and ticket that the file leads to."""
    found = re.search(r"url=http://127\.0\.0\.1:\d+(/enter\?ticket=[\w-]+)", file.read_text())
    assert found is not None
    return found[1]
