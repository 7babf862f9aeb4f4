"""Who may see the page: each rule with a request that breaks it."""

from __future__ import annotations

import contextlib
import hmac
import http.client
import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stepmill
from stepmill.errors import ConfigError, UsageError
from stepmill.tools.watching import guard as guarding
from stepmill.tools.watching.watch import Watch
from support.envs.command import Painted
from support.watching import Client, link_in

FILES = ["", "style.css", "app.js", "charts.js", "replay.js", "icon.svg", "state?viewer=a"]


def own_origin(client: Client) -> str:
    return f"http://127.0.0.1:{client.port}"


# ---- the way in ----------------------------------------------------------------------------------


def test_the_file_is_closed_to_others_and_so_is_its_folder(page: Watch) -> None:
    assert stat.S_IMODE(page.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(page.file.parent.stat().st_mode) == 0o700
    assert page.file.stat().st_uid == os.getuid()


def test_the_file_is_in_the_users_own_folder_if_there_is_one(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pool.watch(open_browser=False) as page:
        assert page.file.is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_removed_when_the_page_ends(page: Watch) -> None:
    file = page.file
    page.close()
    assert not file.parent.exists()


KILLED = """
import os, signal
import stepmill

pool = stepmill.make("CartPole-v1", num_envs=1)
print(pool.watch(open_browser=False).file.parent, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_program_left_is_removed_by_the_next_one(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    left = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False).stdout.strip()
    assert os.path.exists(left)
    own = tmp_path / "stepmill-watch-results"  # of the user, who may call it that
    own.mkdir()
    (own / "notes.txt").touch()
    with (
        stepmill.make("CartPole-v1") as other,
        pool.watch(open_browser=False) as first,
        other.watch(open_browser=False) as second,
    ):
        assert {*tmp_path.iterdir()} == {own, first.file.parent, second.file.parent}
        assert Client(first).state()["num_envs"] == 3
    assert [*tmp_path.rglob("*")] == [own, own / "notes.txt"]


def test_a_ticket_works_once_and_the_file_gets_another(page: Watch) -> None:
    first = link_in(page.file)
    client = Client(page)
    assert link_in(page.file) != first
    again = client.get(first, cookie=None)
    assert (again.status, "Set-Cookie" in again.headers) == (403, False)
    assert Client(page).state()["num_envs"] == 3  # a second browser, with the new one


def test_a_link_works_once_beside_the_file(page: Watch) -> None:
    old, link = (page.new_link().removeprefix(page.url.rstrip("/")) for _ in range(2))
    in_file = link_in(page.file)
    client = Client(page)  # through the file
    assert client.get(old, cookie=None).status == 403
    assert client.get(link, cookie=None).headers["Set-Cookie"] == client.set_cookie
    assert client.get(link, cookie=None).status == 403
    assert link_in(page.file) not in (in_file, link)
    assert Client(page).state()["num_envs"] == 3
    page.close()
    with pytest.raises(UsageError, match="has ended"):
        page.new_link()


def test_the_ticket_becomes_a_cookie_that_no_script_and_no_other_site_can_use(client: Client) -> None:
    parts = [part.strip() for part in client.set_cookie.split(";")]
    assert "HttpOnly" in parts
    assert "SameSite=Strict" in parts
    assert f"Path={client.place}" in parts
    assert "Domain" not in client.set_cookie


def test_a_wrong_ticket_lets_nobody_in(client: Client, page: Watch) -> None:
    right = link_in(page.file)
    for wrong in ("/enter", "/enter?ticket=", "/enter?ticket=%00%ff", right[:-1], right + "a"):
        answer = client.get(wrong, cookie=None)
        assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)
    assert client.get(right, cookie=None).status == 200  # it still works


@pytest.mark.parametrize("cookie", [None, "", "stepmill=", "{name}=", "{name}=wrong", "{name}={value}x", "x={value}"])
@pytest.mark.parametrize("path", FILES)
def test_without_the_cookie_there_is_nothing(client: Client, path: str, cookie: str | None) -> None:
    name, _, value = str(client.cookie).partition("=")
    answer = client.get(path, cookie=None if cookie is None else cookie.format(name=name, value=value))
    assert answer.status == 403
    assert b"Painted" not in answer.body


def test_the_cookie_works_beside_others(client: Client) -> None:
    assert client.get("", cookie=f"a=b; {client.cookie}; c=d").status == 200


def test_secrets_are_compared_in_constant_time(client: Client, page: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    class Watched:
        @staticmethod
        def compare_digest(given: bytes, expected: bytes) -> bool:
            compared.append(expected.decode())
            return hmac.compare_digest(given, expected)

    monkeypatch.setattr(guarding, "hmac", Watched)
    ticket = link_in(page.file).partition("=")[2]
    client.get("/enter?ticket=wrong", cookie=None)
    client.get("", Origin="http://elsewhere")
    client.get("")
    value = str(client.cookie).partition("=")[2]
    assert {ticket, value, own_origin(client), own_origin(client).removeprefix("http://")} <= set(compared)


def test_nothing_tells_the_secrets(page: Watch, client: Client) -> None:
    ticket = link_in(page.file).partition("=")[2]
    shown = f"{page!r} {page.url} {page.file}"
    for secret in (ticket, str(client.cookie).partition("=")[2], client.place.strip("/")):
        assert secret not in shown


# ---- every request -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*FILES, "/enter"])
@pytest.mark.parametrize(
    "host", ["localhost:{port}", "evil.example:{port}", "evil.example", "127.0.0.1", "[::1]:{port}", ""]
)
def test_another_host_is_refused(client: Client, page: Watch, path: str, host: str) -> None:
    path = link_in(page.file) if path == "/enter" else path
    answer = client.get(path, Host=host.format(port=client.port))
    assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)


@pytest.mark.parametrize("path", [*FILES, "/enter"])
@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.example", "https://127.0.0.1:{port}", "http://127.0.0.1:1", "http://localhost:{port}"],
)
def test_another_origin_is_refused(client: Client, page: Watch, path: str, origin: str) -> None:
    path = link_in(page.file) if path == "/enter" else path
    answer = client.get(path, Origin=origin.format(port=client.port))
    assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)


def test_two_hosts_or_origins_are_refused(client: Client) -> None:
    for more in (f"Host: 127.0.0.1:{client.port}", f"Origin: {own_origin(client)}\r\nOrigin: {own_origin(client)}"):
        said = raw(
            client,
            f"GET {client.place} HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n{more}\r\nCookie: {client.cookie}\r\n",
        )
        assert said.startswith("HTTP/1.1 403")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_from_another_site_or_port_is_refused(client: Client, site: str) -> None:
    assert client.get("", Sec_Fetch_Site=site).status == 403
    assert client.get("", Sec_Fetch_Site="none").status == 200


def test_commands_come_from_the_page_itself(pool: Any) -> None:
    with stepmill.make(Painted, backend="inline") as other, controlled(other) as page:
        client = Client(page)
        assert client.post("command", {"command": "pause"}).status == 403  # no origin
        assert client.post("command", {"command": "pause"}, Origin="http://evil.example").status == 403
        assert client.post("command", {"command": "pause"}, cookie=None, Origin=own_origin(client)).status == 403
        assert not client.state()["control"]["paused"]
        assert client.command("pause") == 200
        assert client.state()["control"]["paused"]


def test_no_other_origin_may_read_an_answer(client: Client) -> None:
    for answer in (client.get(""), client.get("", Origin=own_origin(client)), client.get("state"), client.get("none")):
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert client.send("OPTIONS", "state", "own", None, Origin="http://evil.example").status == 501


@pytest.mark.parametrize("path", [*FILES, "nothing", "/", "/enter?ticket=x"])
def test_every_answer_says_what_it_may_load_and_where_it_may_be_shown(client: Client, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["Content-Security-Policy"]
    for rule in (
        "default-src 'none'",
        "script-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ):
        assert rule in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_nothing_is_loaded_from_elsewhere(client: Client) -> None:
    for path in FILES[:-1]:
        text = client.get(path).body.decode().replace("http://www.w3.org/2000/svg", "")
        assert re.findall(r"https?:|@import|url\(|[\"'(]//", text) == []
        assert "innerHTML" not in text


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"command": 3}', b'{"command": "speed", "speed": "x"}', b"x" * 5000]
)
def test_a_wrong_command_changes_nothing(body: bytes) -> None:
    with stepmill.make(Painted, backend="inline") as pool, controlled(pool) as page:
        client = Client(page)
        assert client.send("POST", "command", "own", body, Origin=own_origin(client)).status in (400, 404)
        assert client.state()["control"] == {"paused": False, "speed": None}


@pytest.mark.parametrize(
    "query", ["first=-1", "first=9999999", "count=0", "count=100000", "picked=77", "since=x", "first=%00", "a=b&a=c"]
)
def test_a_wrong_question_is_answered_as_well_as_possible(client: Client, query: str) -> None:
    state = client.get(f"state?{query}").json
    assert 1 <= len(state["envs"]) <= 3


def test_what_is_no_request_gets_an_answer_and_no_traceback(client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    assert "Bad request" in raw(client, "what\r\n")
    assert raw(client, f"GET /{'x' * 70000} HTTP/1.1\r\n").startswith("HTTP/1.1 414")
    assert client.get("").status == 200
    assert capfd.readouterr() == ("", "")


# ---- the machine ---------------------------------------------------------------------------------


def test_it_listens_on_this_machine_only(page: Watch) -> None:
    hexadecimal = f"{page.port:04X}"
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    listening = {row[1] for row in rows if row[1].endswith(f":{hexadecimal}") and row[3] == "0A"}
    assert listening == {f"0100007F:{hexadecimal}"}


def test_a_port_that_is_taken_or_is_none(pool: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for port in (taken.getsockname()[1], 70000, -1):
            with pytest.raises(ConfigError, match="port: expected a free port"):
                pool.watch(port=port, open_browser=False)
    with pytest.raises(ConfigError, match="port: expected an int"):
        pool.watch(port="80", open_browser=False)


@pytest.mark.parametrize("port", ["80", True, -1, 70000, None])
def test_a_port_that_is_none_is_refused_while_the_page_is_open_too(pool: Any, page: Watch, port: Any) -> None:
    with pytest.raises(ConfigError, match="port: expected"):
        pool.watch(port=port)
    assert pool.watch(port=0) is page


def test_many_connections_neither_start_threads_without_end_nor_keep_the_user_out(client: Client) -> None:
    """Other users send half a request and wait: the oldest connections are dropped for new ones."""
    half = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n".encode()
    with contextlib.ExitStack() as opened:
        others = [opened.enter_context(socket.create_connection(("127.0.0.1", client.port))) for _ in range(100)]
        for one in others[-64:]:
            one.sendall(half)
        assert client.state()["num_envs"] == 3
        for one in others[:37]:
            one.settimeout(30)
            assert one.recv(1) == b""


def test_a_connection_with_the_cookie_is_not_dropped_for_others(client: Client) -> None:
    kept = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
    headers = {"Cookie": str(client.cookie)}
    with contextlib.ExitStack() as opened:
        for _ in range(2):
            kept.request("GET", f"{client.place}state?viewer=a", headers=headers)
            assert kept.getresponse().read()
            for _ in range(70):
                opened.enter_context(socket.create_connection(("127.0.0.1", client.port)))
            assert client.state()["num_envs"] == 3  # all of these have been taken by now
    kept.close()


def test_after_the_end_nothing_is_answered(page: Watch, client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port)) as kept:
        page.close()
        with contextlib.suppress(ConnectionError):  # if the server ended before it had accepted the connection
            lines = [f"GET {client.place} HTTP/1.1", f"Host: 127.0.0.1:{client.port}", f"Cookie: {client.cookie}"]
            kept.sendall("\r\n".join([*lines, "", ""]).encode())
            assert kept.recv(100) == b""
    with pytest.raises(ConnectionRefusedError):
        client.get("")


# ---- helpers -------------------------------------------------------------------------------------


def controlled(pool: Any) -> Watch:
    """A page that can pause its program."""
    from stepmill.tools.watching.control import Control
    from stepmill.views.pool import watched

    return Watch(watched(pool), open_browser=False, control=Control())


def raw(client: Client, request: str) -> str:
    """The beginning of what is answered to any text."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=600) as connection:
        connection.sendall(f"{request}\r\n".encode())
        return connection.recv(1000).decode()
