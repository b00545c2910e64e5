"""A proxy between s3fs and an S3 server, which loses, repeats or delays replies."""

import http.client
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from waiting import PATIENCE

DELAY = 6.0
"""Seconds by which a reply is delayed; clients wait for ``READ_TIMEOUT``."""

READ_TIMEOUT = 4.0

KINDS = ("lost", "repeated", "delayed", "failed")
"""Faults after the request was executed: the connection is closed; the request is executed again,
and the second reply is sent; the reply is sent when the client has given up; the reply is 500. A
further kind is ``throttled``: 503, and the request is not executed."""

SLOW_DOWN = (
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
INTERNAL = (
    b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"
)


@dataclass(frozen=True)
class Request:
    """A request: whether it changes the store, is the first for its path, or creates
    exclusively."""

    method: str
    path: str
    changes: bool
    first: bool
    creates: bool


class Proxy:
    """A proxy; ``fault`` returns the fault of a request or None, ``hits`` are the requests with a
    fault."""

    def __init__(self, address):
        self.upstream = urlsplit(address)
        self.fault = lambda request: None
        self.fault: Callable[[Request], str | None]
        self.hits = []
        self._seen = set()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def begin(self, fault=lambda request: None):
        """Start counting again, with these faults."""
        with self._lock:
            self.fault = fault
            self.hits = []
            self._seen = set()

    def request(self, method, path, creates):
        """Record a request, and return it with its fault."""
        with self._lock:
            received = Request(
                method,
                path,
                method not in ("GET", "HEAD"),
                (method, path) not in self._seen,
                creates,
            )
            self._seen.add((method, path))
            fault = self.fault(received)
            if fault:
                self.hits.append(received)
            return received, fault


@contextmanager
def proxy(address):
    """Serve until the end of the ``with`` statement."""
    running = Proxy(address)
    thread = threading.Thread(target=running._server.serve_forever, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        running._server.shutdown()
        thread.join()
        running._server.server_close()


def _handler(proxy):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = (
            -1
        )  # one packet per reply: a second one would wait for the acknowledgement of the first
        disable_nagle_algorithm = True

        def handle_expect_100(self):
            answer = super().handle_expect_100()
            self.wfile.flush()
            return answer

        def handle_any(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            _, fault = proxy.request(self.command, self.path, "If-None-Match" in self.headers)
            if fault == "throttled":
                return self._answer(503, {}, SLOW_DOWN)
            reply = self._forward(body)
            if fault == "repeated":
                reply = self._forward(body)
            if fault == "lost":
                self.close_connection = True
                return None
            if fault == "delayed":
                time.sleep(DELAY)
            if fault == "failed":
                return self._answer(500, {}, INTERNAL)
            return self._answer(*reply)

        def _forward(self, body):
            upstream = http.client.HTTPConnection(
                proxy.upstream.hostname or "", proxy.upstream.port, timeout=PATIENCE
            )
            try:
                skipped = {"connection", "expect"}
                headers = {
                    name: value
                    for name, value in self.headers.items()
                    if name.lower() not in skipped
                }
                upstream.request(self.command, self.path, body, headers)
                reply = upstream.getresponse()
                return reply.status, dict(reply.getheaders()), reply.read()
            finally:
                upstream.close()

        def _answer(self, status, headers, body):
            try:
                self.send_response_only(status)
                for name, value in headers.items():
                    if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                        self.send_header(name, value)
                length = (
                    headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
                )
                self.send_header("Content-Length", length)
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else body)
                self.wfile.flush()
            except OSError:  # the client has given up
                self.close_connection = True

        def log_message(self, *_):
            pass

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    return Handler
