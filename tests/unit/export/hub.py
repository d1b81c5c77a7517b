"""A stand-in for the hub on the loopback interface: makes repositories, takes commits, keeps what was sent."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_a-token-of-these-tests"


class Hub:
    """What a repository came to."""

    def __init__(self) -> None:
        self.url = ""
        self.private: bool | None = None
        self.public_already = False
        self.branches = {"main"}
        self.files: dict[str, dict[str, bytes]] = {}
        """By branch and name."""
        self.messages: list[str] = []

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Status and content of a request."""
        where = path.partition("?")[0].removeprefix("/api/").split("/")
        match method, where:
            case "POST", ["repos", "create"]:
                asked = json.loads(body)
                private = asked.get("private") or asked.get("visibility") == "private"
                self.private = bool(private) and not self.public_already
                return 200, {"url": f"{self.url}/me/news", "id": "me/news", "name": "me/news"}
            case "GET", ["models", "me", "news", *_]:
                return 200, {"id": "me/news", "private": self.private, "sha": "0" * 40, "siblings": [], "tags": []}
            case "POST", ["models", "me", "news", "branch", branch]:
                self.branches.add(branch)
                return 200, {}
            case "POST", ["validate-yaml"]:
                return 200, {"errors": [], "warnings": []}
            case "POST", ["models", "me", "news", "preupload", branch] if branch in self.branches:
                files = [
                    {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for one in json.loads(body)["files"]
                ]
                return 200, {"files": files}
            case "POST", ["models", "me", "news", "commit", branch] if branch in self.branches:
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "header":
                        self.messages.append(line["value"]["summary"])
                    if line["key"] == "file":
                        content = base64.b64decode(line["value"]["content"])
                        self.files.setdefault(branch, {})[line["value"]["path"]] = content
                oid = "1" * 40
                return 200, {"success": True, "commitOid": oid, "commitUrl": f"{self.url}/me/news/commit/{oid}"}
        return 404, {"error": f"nothing at {method} {path}"}


@contextlib.contextmanager
def serving() -> Iterator[Hub]:
    """Serve while the block runs."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply()

        do_POST = do_GET

        def _reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            status, content = hub.answer(self.command, self.path, body) if allowed else (401, {"error": "who is it?"})
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
