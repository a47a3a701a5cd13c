"""Stores to speak with, each a process of its own that ends with the one that started it.

``python -m tests.store_servers KIND`` prints its ports as JSON, and goes on until its standard
input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.server
import json
import logging
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.store_front import run_front

__all__ = ["main"]


def _serve_s3() -> int:
    from moto import backends
    from moto.server import ThreadedMotoServer

    # A look at each of its folders and a line of log took almost half of a request's time.
    modules = [*backends.list_of_moto_modules()]
    backends.list_of_moto_modules = lambda: modules
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    return int(server.get_host_and_port()[1])


class _Files(http.server.BaseHTTPRequestHandler):
    """Files of a folder, with ranges and ETags; folders are not listed."""

    protocol_version = "HTTP/1.1"
    root = Path()

    def do_GET(self) -> None:
        self._send(body=True)

    def do_HEAD(self) -> None:
        self._send(body=False)

    def _send(self, *, body: bool) -> None:
        path = self.root / unquote(urlsplit(self.path).path).lstrip("/")
        if not path.is_file():
            self._answer(404, {}, b"there is no such file\n" if body else b"")
            return
        data = path.read_bytes()
        headers = {
            "ETag": f'"{hashlib.md5(data).hexdigest()}"',
            "Accept-Ranges": "bytes",
            "Last-Modified": self.date_time_string(int(path.stat().st_mtime)),
            "Content-Type": "application/octet-stream",
        }
        wanted = self.headers.get("If-Match")
        if wanted not in (None, "*", headers["ETag"]):
            self._answer(412, headers, b"")
            return
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            self._answer(200, headers, data, body=body)
            return
        first = int(asked[1]) if asked[1] else max(0, len(data) - int(asked[2]))
        last = min(int(asked[2]) if asked[1] and asked[2] else len(data) - 1, len(data) - 1)
        if first > last:
            self._answer(416, {"Content-Range": f"bytes */{len(data)}"}, b"")
            return
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        self._answer(206, headers, data[first : last + 1], body=body)

    def _answer(
        self, status: int, headers: dict[str, str], data: bytes, *, body: bool = True
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _serve_http(root: str) -> int:
    _Files.root = Path(root)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return int(server.server_address[1])


def _serve_az(program: str) -> int:
    options = ["--disableTelemetry", "--inMemoryPersistence", "--silent", "--skipApiVersionCheck"]
    child = subprocess.Popen(
        [program, *options, "--blobHost", "127.0.0.1", "--blobPort", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    _CHILDREN.append(child)
    assert child.stdout is not None
    for line in child.stdout:
        if found := re.search(r"listens on http://127\.0\.0\.1:(\d+)", line):
            return int(found[1])
    raise SystemExit("azurite ended before it listened")


_CHILDREN: list[subprocess.Popen[str]] = []


def _end_with_standard_input() -> None:
    """End this process, and what it started, once whoever started it is gone."""
    while os.read(0, 4096):
        pass
    for child in _CHILDREN:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5)
        child.kill()
    os._exit(0)


def main(kind: str, *arguments: str) -> None:
    """Serve until standard input ends."""
    waiting = threading.Thread(target=_end_with_standard_input)
    waiting.start()
    if kind == "front":
        store = ("127.0.0.1", int(arguments[0]))
        asyncio.run(run_front(store, google="google" in arguments))
        return
    serve: dict[str, Any] = {
        "s3": _serve_s3,
        "az": _serve_az,
        "http": _serve_http,
    }
    print(json.dumps([serve[kind](*arguments)]), flush=True)  # noqa: T201
    waiting.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
