"""Envs to be watched, and a browser made of a socket: it sends exactly what a test wants."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stepmill.tools.watching.watch import Watch


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
