"""The built site, opened in a browser that reaches no network: every page, its pictures, and the search.

``make test-docs`` builds it and runs this. The links between its pages are followed here too, with their anchors:
MkDocs checks what is written in Markdown, this checks what came out, the generated reference included.
"""

import functools
import http.server
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from support import browser

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"
PAGES = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html"))
# Attributes that make a browser fetch something, by tag. A link (<a href>) does so only if one follows it.
FETCHED = {"script": ["src"], "img": ["src"], "source": ["src", "srcset"], "iframe": ["src"], "link": ["href"]}

sys.path.insert(0, str(ROOT / "scripts"))


class Page(HTMLParser):
    """What a page has: ids, links, and addresses that a browser fetches when it shows the page."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed((SITE / name).read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attributes if value is not None}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag != "link" or values.get("rel") not in ("canonical", "next", "prev"):
            self.fetched += [values[name] for name in FETCHED.get(tag, []) if name in values]


@functools.cache
def read(name: str) -> Page:
    return Page(name)


def test_it_is_built():
    assert {"index.html", "quick-start.html", "faq.html", "reference/stepmill.html"} <= set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_links_and_anchors_lead_somewhere(name):
    for link in read(name).links:
        address = urlsplit(urljoin(f"/{name}", link))
        if address.scheme:
            continue
        goal = unquote(address.path).lstrip("/") or "index.html"
        assert (SITE / goal).is_file(), link
        if address.fragment and goal.endswith(".html") and not address.fragment.startswith("__"):
            assert unquote(address.fragment) in read(goal).ids, link


@pytest.mark.parametrize("name", PAGES)
def test_nothing_comes_from_elsewhere(name):
    assert [address for address in read(name).fetched if urlsplit(address).netloc] == []


def test_no_style_sheet_loads_from_elsewhere():
    for sheet in SITE.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8").replace(" ", "")
        assert "url(http" not in text, sheet
        assert "url(//" not in text, sheet
        assert "@import" not in text, sheet


def test_the_reference_has_every_public_name():
    from site_hooks import exported, public_modules

    for module in public_modules():
        ids = read(f"reference/{module}.html").ids
        found = {one.rpartition(".")[2] for one in ids}
        # Modules among the names have pages of their own.
        wanted = {name for name in exported(module) if not name.startswith("_")} - {"errors", "zoo"}
        assert wanted <= found, f"{module}: {sorted(wanted - found)}"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Notes what it could not serve instead of printing what it served."""

    missing: list[str]

    def __init__(self, *arguments, missing: list[str], **keywords) -> None:
        self.missing = missing
        super().__init__(*arguments, **keywords)

    def log_request(self, code="-", size="-") -> None:
        if int(code) >= 400:
            self.missing.append(f"{self.path}: {int(code)}")

    def log_error(self, *arguments) -> None:
        pass


class Site:
    """The site on a port of this machine, and a browser for which there is nothing else."""

    def __init__(self, base: str, window: browser.Browser, missing: list[str]) -> None:
        self.base, self.window, self.missing = base, window, missing

    def open(self, name: str) -> browser.Browser:
        self.window.open(self.base + name)
        self.window.wait_for(lambda: self.window.run("return document.readyState") == "complete")
        return self.window


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[Site]:
    if not (browser.CHROMIUM and browser.DRIVER):
        pytest.skip("needs Chromium: `make chromium` installs it")
    missing: list[str] = []
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE), missing=missing)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.MonkeyPatch.context() as patch, browser.driver(tmp_path_factory.mktemp("browser")) as new:
        alone = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        patch.setattr(browser, "FLAGS", [*browser.FLAGS, alone])
        yield Site(f"http://127.0.0.1:{server.server_port}/", new(), missing)
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_without_a_network(site, name):
    window = site.open(name)
    asked = window.run("return performance.getEntries().map(one => [one.entryType, one.name, one.responseStatus])")
    asked = [(name, status) for kind, name, status in asked if kind in ("resource", "navigation")]
    assert asked
    assert [one for one in asked if not one[0].startswith(site.base) or one[1] != 200] == []
    assert window.log() == []
    assert site.missing == []


def test_the_browser_of_these_tests_reports_what_fails(site):
    """Otherwise the tests above would prove nothing."""
    window = site.open("index.html")
    for address in ("http://example.com/x.png", f"{site.base}missing.png"):
        window.run("const image = new Image(); image.src = arguments[0]; document.body.append(image)", address)
        assert address in window.wait_for(window.log)[0]
    assert site.missing == ["/missing.png: 404"]
    site.missing.clear()


@pytest.mark.parametrize("where", ["server", "folder"])
def test_search_finds_words_of_pages(site, where):
    """Also in a site that was unpacked somewhere and opened with a double click."""
    window = site.window
    if where == "server":
        site.open("index.html")
    else:
        window.open((SITE / "index.html").as_uri())
    window.run(
        "const field = document.querySelector('input.md-search__input'); field.focus(); field.value = arguments[0];"
        "field.dispatchEvent(new Event('input', {bubbles: true})); field.dispatchEvent(new KeyboardEvent('keyup'))",
        "NothingInFlightError",
    )
    links = "return [...document.querySelectorAll('a.md-search-result__link')].map(link => link.href)"
    found = window.wait_for(lambda: window.run(links))
    assert any("interface.html" in link for link in found)
    assert window.log() == []


SHOWN = "return [...document.images].map(one => one.offsetParent ? one.src : '').filter(src => src.includes('#only-'))"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_follow_the_theme(site, theme):
    site.window.dark(theme == "dark")
    window = site.open("figures.html")
    shown = window.run(SHOWN)
    assert len(shown) >= 5
    assert all(f"-{theme}.png" in address for address in shown)


@pytest.mark.parametrize("width", [360, 1400])
def test_no_page_is_wider_than_the_window(site, width):
    site.window.resize(width, 900)
    for name in ("index.html", "performance.html", "figures.html", "interface.html", "reference/pools.html"):
        window = site.open(name)
        assert window.run("return document.documentElement.scrollWidth") <= width, name
