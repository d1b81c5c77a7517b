"""The search page's server, on a free port of loopback."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from infocse_ray.errors import NoSuchDocument
from infocse_ray.search.hit import Hit
from infocse_ray.search.server import SearchServer, serve
from infocse_ray.settings.search import Search

EVIL = "<script>alert(1)</script>"


class Evil:
    """An index whose documents would like to be HTML."""

    name, approximate, words, best_sentence = EVIL, False, 0.4, 0.3

    def __len__(self) -> int:
        return 2

    def search(self, query: str, top: int, exact: bool, where: str | None) -> list[Hit]:
        if query == "break":
            raise OSError("storage is away")
        return [Hit(1, "a", None, EVIL, f"{EVIL} {'x' * 9_000}", 0.5), Hit(2, "b", 3, query, "", 0.25)][:top]

    def with_passages(self, query: str, hits: list[Hit]) -> list[Hit]:
        return [hit._replace(passage=EVIL) for hit in hits]

    def like(self, doc_id: str, top: int, exact: bool, where: str | None) -> list[Hit]:
        if doc_id == "nobody":
            raise NoSuchDocument("a path of this machine")
        return self.search(doc_id, top, exact, where)

    def title_of(self, doc_id: str) -> str:
        return f"{EVIL} {'x' * 9_000}"


@contextlib.contextmanager
def running(server: SearchServer) -> Iterator[SearchServer]:
    """Answering requests."""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()


@pytest.fixture
def server() -> Iterator[SearchServer]:
    settings = Search(index="i", serve=True, port=0, top=2)
    with SearchServer([Evil(), Evil()], settings) as server, running(server):  # pyright: ignore
        yield server


def get(server: SearchServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), content


def test_it_is_on_loopback_alone(server: SearchServer):
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_address[1]}/"


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "text/html"), ("/?q=x", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css")],
)
def test_pages_load_nothing_from_elsewhere(server: SearchServer, path: str, kind: str):
    status, headers, content = get(server, path)
    assert status == 200
    assert headers["Content-Type"] == f"{kind}; charset=utf-8"
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert b"://" not in content.replace(b"http://www.w3.org", b"")
    assert get(server, path, "HEAD")[2] == b""


def test_results_are_json_that_no_browser_takes_for_a_page(server: SearchServer):
    status, headers, content = get(server, "/search?q=a%20%3Cb%3E")
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    found = json.loads(content)
    assert found["query"] == "a <b>"
    assert [hit["title"] for hit in found["sides"][1]] == [EVIL, "a <b>"]
    assert [hit["other"] for hit in found["sides"][0]] == [1, 2]
    assert found["sides"][0][0]["cut"] is True
    assert len(found["sides"][0][0]["text"]) == 4_000
    assert found["sides"][0][0]["passage"] == EVIL
    about = json.loads(get(server, "/about")[2])
    assert about["sides"][0] == {"name": EVIL, "size": 2, "approximate": False, "words": 0.4, "best_sentence": 0.3}


def test_what_is_like_a_document_is_json_likewise(server: SearchServer):
    status, headers, content = get(server, "/search?like=a%20%3Cb%3E%26")
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    found = json.loads(content)
    assert (found["like"], found["title"]) == ("a <b>&", f"{EVIL} {'x' * 9_000}"[:4_000])
    assert [hit["title"] for hit in found["sides"][1]] == [EVIL, "a <b>&"]
    assert [hit["other"] for hit in found["sides"][0]] == [1, 2]
    assert found["sides"][0][0]["passage"] is None
    status, _, content = get(server, "/search?like=nobody")
    assert (status, json.loads(content)) == (404, {"error": "one of the two indexes has no such document"})
    server.indexes = server.indexes[:1]
    assert json.loads(get(server, "/search?like=nobody")[2]) == {"error": "there is no such document"}
    assert get(server, "/search?like=")[0] == 400
    assert get(server, "/search?like=break")[0] == 500
    server.settings = Search(index="i", serve=True, over="sentences")
    assert get(server, "/search?like=a")[0] == 400


@pytest.mark.parametrize("path", ["/search", "/search?q=", "/search?q=%20", f"/search?q={'x' * 10_001}"])
def test_a_query_that_is_none_is_refused(server: SearchServer, path: str):
    assert get(server, path)[0] == 400


def test_the_longest_query_fits_whatever_its_letters(server: SearchServer):
    assert get(server, "/search?q=" + quote("\u6cb9" * 5_000))[0] == 200
    status, headers, content = get(server, "/search?q=" + quote("\u6cb9" * 8_000))
    assert (status, headers["Content-Type"]) == (414, "application/json; charset=utf-8")
    assert "error" in json.loads(content)


def test_an_address_that_is_none_is_refused(server: SearchServer):
    with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=30) as raw:
        raw.sendall(b"GET http://[/ HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert b" 400 " in raw.makefile("rb").readline()


def test_there_is_nothing_else(server: SearchServer):
    assert get(server, "/../../etc/passwd")[0] == 404
    assert get(server, "/page.html")[0] == 404
    assert get(server, "/search?q=x", "POST")[0] == 501


def test_a_search_that_fails_is_said_and_the_next_one_works(server: SearchServer, capsys):
    status, _, content = get(server, "/search?q=break")
    assert (status, json.loads(content)["error"]) == (500, "the search failed; the terminal says why")
    assert b"away" not in content
    assert "a query failed: OSError: storage is away" in capsys.readouterr().out
    assert get(server, "/search?q=x")[0] == 200


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1", True),
        ("localhost:8321", True),
        ("[::1]:80", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:80", False),
        ("10.0.0.7", False),
        ("[", False),
        ("", False),
    ],
)
def test_names_that_were_made_to_lead_here_get_no_answer(server: SearchServer, host: str, known: bool):
    for path in ("/", "/search?q=x", "/about"):
        status, _, content = get(server, path, Host=host)
        assert status == (200 if known else 403)
        if not known:
            assert json.loads(content) == {"error": "this page is not served under that name"}


def serving(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> SearchServer:
    """The server that `serve` makes, which is interrupted at once."""
    made: list[SearchServer] = []

    def stop(self: SearchServer) -> None:
        made.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(SearchServer, "serve_forever", stop)
    serve([Evil()], Search(index="i", serve=True, port=0, **settings))  # pyright: ignore[reportArgumentType]
    return made[0]


def test_other_machines_are_let_in_with_a_warning_only(monkeypatch: pytest.MonkeyPatch, capsys):
    serving(monkeypatch)
    assert "WARNING" not in capsys.readouterr().out
    open_to_all = serving(monkeypatch, host="0.0.0.0")
    out = capsys.readouterr().out
    assert "WARNING: host = '0.0.0.0' is reached from other machines" in out
    assert out.endswith("ended\n")
    assert open_to_all.knows("10.0.0.7:8321")
    assert open_to_all.knows(socket.gethostname())
    assert not open_to_all.knows("evil.example")


def test_a_port_that_is_taken_is_said(server: SearchServer):
    taken = server.server_address[1]
    with pytest.raises(ValueError, match=rf"^port = {taken}, host = '127.0.0.1': can't be listened at"):
        serve([Evil()], Search(index="i", serve=True, port=taken))  # pyright: ignore[reportArgumentType]
