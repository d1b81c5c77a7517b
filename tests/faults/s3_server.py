"""An S3 server on loopback whose answers can be made to fail: moto behind a WSGI layer that injects faults."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from infocse_ray.storage.folder import Storage

KEY, SECRET = "AKIAIOSFODNN7LOOPBACK", "wJalrXUtnFEMI-K7MDENG-bPxRfiCYLOOPBACKKEY"
"""What the URIs carry; moto takes any."""

ERROR = (500, "InternalError")
SLOW_DOWN = (503, "SlowDown")
SILENCE = (403, "AccessDenied")
"""No answer for seconds, and then one that is no use retrying, for a client that has waited all the time."""

_SILENT_SECONDS = 20.0


class Request(NamedTuple):
    """What came in."""

    method: str
    path: str
    query: str
    range: str
    """Of bytes, as asked for; empty: all."""


class _Fault(NamedTuple):
    status: int
    code: str
    until: float
    concerns: Callable[[Request], bool]


class S3Server:
    """moto with faults; all requests are kept in `requests`."""

    def __init__(self, application: Any) -> None:
        self.requests: list[Request] = []
        self.port = 0
        self._application = application
        self._lock = threading.Lock()
        self._fault: _Fault | None = None
        self._left: float = 0
        self._every = 1
        self._seen = 0

    def uri(self, path: str, user: str = f"{KEY}:{SECRET}@", **parameters: object) -> str:
        """The URI of a path, such as `bucket/runs`."""
        more = "".join(f"&{name}={value}" for name, value in parameters.items())
        return f"s3://{user}{path}?endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1{more}"

    def fail(
        self,
        fault: tuple[int, str],
        requests: float = float("inf"),
        seconds: float = float("inf"),
        every: int = 1,
        concerns: Callable[[Request], bool] = lambda _: True,
    ) -> None:
        """Fail the next so many requests of those concerned, or every n-th of them, or all for some seconds."""
        with self._lock:
            self._fault = _Fault(*fault, time.monotonic() + seconds, concerns)
            self._left, self._every, self._seen = requests, every, 0

    def recover(self) -> None:
        """Answer as ever."""
        with self._lock:
            self._fault = None

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        asked = (environ.get(name, "") for name in ("QUERY_STRING", "HTTP_RANGE"))
        request = Request(environ["REQUEST_METHOD"], environ["PATH_INFO"], *asked)
        with self._lock:
            self.requests.append(request)
            fault = self._due(request)
        if fault is None:
            return self._application(environ, start)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if (fault.status, fault.code) == SILENCE:
            time.sleep(_SILENT_SECONDS)
        body = f"<Error><Code>{fault.code}</Code><Message>no</Message></Error>".encode()
        start(f"{fault.status} {fault.code}", [("Content-Length", str(len(body)))])
        return [body]

    def _due(self, request: Request) -> _Fault | None:
        fault = self._fault
        if fault is None or time.monotonic() > fault.until or self._left <= 0 or not fault.concerns(request):
            return None
        self._seen += 1
        if self._seen % self._every:
            return None
        self._left -= 1
        return fault


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server with an empty `bucket`, for as long as the block runs."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Silent(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    server = S3Server(DomainDispatcherApplication(create_backend_app))
    serving = make_server("127.0.0.1", 0, server, threaded=True, request_handler=Silent)
    server.port = serving.server_port
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    try:
        Storage.open(server.uri("bucket", allow_bucket_creation="true")).filesystem.create_dir("bucket")
        yield server
    finally:
        serving.shutdown()
        thread.join()
        serving.server_close()
