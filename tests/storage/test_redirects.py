"""Redirects of web servers: to another host they are refused before they are followed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tfrtool.cli import main
from tfrtool.records.framing import frame

_SHARD = frame(b"one") + frame(b"two") + frame(b"three")


class _Redirects(BaseHTTPRequestHandler):
    """Serve a shard at /shard and /gets; redirect other paths as the server's table says."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        server: Any = self.server
        path = self.path.partition("?")[0]
        agent = self.headers["User-Agent"].partition("/")[0]
        server.asked.append((self.command, path, self.headers["Host"], agent))
        if self.command == "HEAD" and path.startswith("/gets"):
            self._send(500 if path == "/gets-away-too" else 405)
        elif path in server.targets:
            self._send(302, Location=server.targets[path])
        elif path not in ("/shard", "/gets"):
            self._send(404)
        elif span := self.headers.get("Range"):
            first, last = map(int, span.removeprefix("bytes=").split("-"))
            body = _SHARD[first : last + 1]
            end = first + len(body) - 1
            self._send(206, body, **{"Content-Range": f"bytes {first}-{end}/{len(_SHARD)}"})
        else:
            self._send(200, _SHARD)

    def _send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        modified = self.date_time_string(0)
        for name, value in {"ETag": '"1"', "Last-Modified": modified, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[Any]:
    """Return a server with ``targets`` of redirects, and a list of what was ``asked``."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Redirects) as server:
        port = server.server_address[1]
        server.port, server.asked = port, []  # type: ignore[attr-defined]
        server.targets = {  # type: ignore[attr-defined]
            "/away": f"http://user:word@localhost:{port}/shard?sign=secret",
            "/gets-away": f"http://localhost:{port}/shard",
            "/gets-away-too": f"http://localhost:{port}/shard",
            "/slashes": f"/\\localhost:{port}/shard",
            "/first": "/second",
            "/second": f"http://127.0.0.1:{port}/shard",
            "/first-away": "/away",
            "/port": f"http://127.0.0.1:{port - 1}/shard",
            "/circle": "/circle",
        }
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize(
    "path", ["away", "away?key=hidden", "gets-away", "gets-away-too", "slashes", "first-away"]
)
def test_another_host_is_refused(
    server: Any, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names both URLs without login and query; the other host is not asked."""
    assert main(["count", f"http://127.0.0.1:{server.port}/{path}"]) == 1
    text = capsys.readouterr().err
    named = path.partition("?")[0]
    assert (
        f"http://127.0.0.1:{server.port}/{named}: can't be read: the server redirects to " in text
    )
    assert (
        f"redirects to http://localhost:{server.port}/shard; use that URL if you trust it" in text
    )
    assert not [word for word in ("user", "word", "secret", "hidden") if word in text]
    assert {host for _, _, host, _ in server.asked} == {f"127.0.0.1:{server.port}"}


def test_another_port_is_refused(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A port of the same host may be a server of somebody else."""
    assert main(["count", f"http://127.0.0.1:{server.port}/port"]) == 1
    assert f"redirects to http://127.0.0.1:{server.port - 1}/shard" in capsys.readouterr().err


def test_a_circle_of_redirects_ends(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A URL that leads to itself is an error."""
    assert main(["count", f"http://127.0.0.1:{server.port}/circle"]) == 1
    assert "circle: can't be read: too many redirects" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["shard", "first", "gets"])
def test_the_same_host_is_followed(
    server: Any, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A redirect on the same host is followed, and it is asked for once for each file."""
    url = f"http://127.0.0.1:{server.port}/{path}"
    assert main(["count", url]) == 0
    assert main(["verify", url]) == 0
    assert "3" in capsys.readouterr().out.splitlines()[0]
    checks = [asked[0] for asked in server.asked if asked[1] == f"/{path}" and "tfr" in asked[3]]
    assert checks == (["HEAD", "GET"] if path == "gets" else ["HEAD"])
