"""The search page, served by Python's own HTTP server: three small files, and results as JSON.

The documents are their owner's, and a query is answered to whoever can ask: so the page is on loopback unless the
settings say otherwise, answers only to names that lead here whatever DNS says, loads nothing from elsewhere, and puts
texts into the page as text.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from infocse_ray.errors import IndexReplaced, Interrupted, NoSuchDocument
from infocse_ray.runtime.progress import say
from infocse_ray.search.index import Index
from infocse_ray.search.metadata import as_shown
from infocse_ray.search.sides import DEPTH, Placed, like_sides, search_sides
from infocse_ray.settings.search import Search

_FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LONGEST_QUERY = 5_000
_SILENT_SECONDS = 30
_TEXT = 4_000
"""Characters of a text that are sent."""


class SearchServer(ThreadingHTTPServer):
    """Answers the page's requests."""

    daemon_threads = True

    def __init__(self, indexes: Sequence[Index], settings: Search) -> None:
        """Listen at the settings' address.

        Raises:
            OSError: it can't be.
        """
        self.indexes, self.settings = indexes, settings
        self._opening = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        super().__init__((settings.host, settings.port), _Handler)
        self.names = {"localhost", settings.host.lower()}
        if not _is_loopback(settings.host):
            self.names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    @property
    def url(self) -> str:
        """Where the page is."""
        host = self.settings.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_address[1]}/"

    def knows(self, host: str | None) -> bool:
        """Whether a request's Host header names this server.

        A page from elsewhere whose name was made to lead here (DNS rebinding) still sends that name. An address is
        nobody's to redirect.
        """
        try:
            name = (urlsplit(f"//{host or ''}").hostname or "").lower()
        except ValueError:
            return False
        if name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not _is_loopback(self.settings.host)

    def open_again(self, replaced: Sequence[Index]) -> None:
        """Take what is there now in place of these indexes, unless that was done meanwhile.

        Raises:
            ValueError: there is no such index any more.
        """
        with self._opening:
            if self.indexes is replaced:
                self.indexes = [index.again() for index in replaced]

    def results(self, query: str) -> dict[str, Any]:
        """What the page shows, as JSON."""
        found = search_sides(self.indexes, query, self.settings.top, self.settings.exact, self.settings.where)
        return {"query": query, "sides": _sides(found)}

    def like(self, doc_id: str) -> dict[str, Any]:
        """Likewise of what is most similar to a document.

        Raises:
            NoSuchDocument: an index has none of that id.
        """
        found = like_sides(self.indexes, doc_id, self.settings.top, self.settings.exact, self.settings.where)
        return {"like": doc_id, "title": self.indexes[-1].title_of(doc_id)[:_TEXT], "sides": _sides(found)}

    def about(self) -> dict[str, Any]:
        """What is searched, as JSON."""
        sides = [
            {
                "name": index.name,
                "size": len(index),
                "approximate": index.approximate,
                "words": index.words,
                "best_sentence": index.best_sentence,
            }
            for index in self.indexes
        ]
        settings = self.settings
        return {
            "over": settings.over,
            "top": settings.top,
            "depth": DEPTH,
            "where": settings.where,
            "sides": sides,
        }

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: SearchServer  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = _SILENT_SECONDS
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "infocse", ""

    def do_GET(self) -> None:
        if not self.server.knows(self.headers.get("Host")):
            self._json(HTTPStatus.FORBIDDEN, {"error": "this page is not served under that name"})
            return
        try:
            url = urlsplit(self.path)
        except ValueError:
            self._json(HTTPStatus.BAD_REQUEST, {"error": "there is no such address"})
            return
        if url.path in _FILES:
            name, kind = _FILES[url.path]
            content = (files("infocse_ray") / "search" / "page" / name).read_bytes()
            self._answer(HTTPStatus.OK, f"{kind}; charset=utf-8", content)
        elif url.path == "/about":
            self._json(HTTPStatus.OK, self.server.about())
        elif url.path == "/search":
            asked = parse_qs(url.query)
            if "like" in asked and self.server.settings.over == "documents":
                self._like(asked["like"][0])
            else:
                self._search(" ".join(asked.get("q", [])))
        else:
            self._json(HTTPStatus.NOT_FOUND, {"error": "there is no such page"})

    do_HEAD = do_GET

    def _search(self, query: str) -> None:
        if not query.strip() or len(query) > _LONGEST_QUERY:
            self._json(HTTPStatus.BAD_REQUEST, {"error": f"give a query of 1 to {_LONGEST_QUERY:,} characters"})
            return
        self._results(lambda: self.server.results(query))

    def _like(self, doc_id: str) -> None:
        self._results(lambda: self.server.like(doc_id))

    def _results(self, find: Callable[[], dict[str, Any]]) -> None:
        indexes = self.server.indexes
        try:
            try:
                found = find()
            except IndexReplaced as error:
                self.server.open_again(indexes)
                say(f"{error}; done")
                found = find()
            self._json(HTTPStatus.OK, found)
        except NoSuchDocument:
            whose = "one of the two indexes has" if len(self.server.indexes) > 1 else "there is"
            self._json(HTTPStatus.NOT_FOUND, {"error": f"{whose} no such document"})
        except Exception as error:  # of the storage, say: the next query may work
            say(f"a query failed: {type(error).__name__}: {error}")
            self._json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "the search failed; the terminal says why"})

    def _json(self, status: HTTPStatus, value: dict[str, Any]) -> None:
        self._answer(status, "application/json; charset=utf-8", json.dumps(value).encode())

    def _answer(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is no request that can be taken apart, such as one too long, is answered as JSON, too."""
        self.close_connection = True
        self._json(HTTPStatus(code), {"error": message or HTTPStatus(code).phrase})

    def log_message(self, format: str, *args: Any) -> None:
        """Queries are nobody's business, and a line for each is no use."""


def serve(indexes: Sequence[Index], settings: Search) -> None:
    """Serve the page until Ctrl-C.

    Raises:
        ValueError: the address can't be listened at.
    """
    try:
        server = SearchServer(indexes, settings)
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"port = {settings.port}, host = {settings.host!r}: can't be listened at ({error}); name others, or port 0 "
            "for any that is free"
        ) from error
    if not _is_loopback(settings.host):
        say(
            f"WARNING: host = {settings.host!r} is reached from other machines: whoever reaches it can search and read "
            "these documents, without a password and unencrypted"
        )
    with server:
        say(f"search page: {server.url}  (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except (Interrupted, KeyboardInterrupt):
            say("ended")


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _sides(found: Sequence[Sequence[Placed]]) -> list[list[dict[str, Any]]]:
    """Results of each side, as JSON."""
    return [[_shown(one) for one in results] for results in found]


def _shown(one: Placed) -> dict[str, Any]:
    hit = one.hit
    texts = {"text": hit.text[:_TEXT], "passage": hit.passage and hit.passage[:_TEXT], "cut": len(hit.text) > _TEXT}
    return {**hit._asdict(), **texts, "metadata": as_shown(hit.metadata), "other": one.other}
