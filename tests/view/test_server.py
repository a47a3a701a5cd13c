"""The viewer as it listens: whatever is sent to it, and what its answers say of themselves."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.datasets import image_payload, write_foreign
from tests.emulators import Bucket
from tfrtool.errors import UsageError
from tfrtool.inspection.table.offset_reader import OffsetReader
from tfrtool.inspection.table.record_query import Question, answer
from tfrtool.view.findings import Findings
from tfrtool.view.guard import HEADERS
from tfrtool.view.live import Live
from tfrtool.view.server import serve


class Viewer(NamedTuple):
    """A viewer that runs, and what its user's browser has."""

    port: int
    token: str
    cookie: str

    def raw(self, data: bytes, *, end: bool = True) -> bytes:
        """Send bytes, and return all that is answered."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=300) as connection:
            answer = b""
            with suppress(ConnectionError):  # what is too long is not read to its end
                connection.sendall(data)
                if end:
                    with suppress(OSError):  # it was ended there before
                        connection.shutdown(socket.SHUT_WR)
            with suppress(ConnectionError):
                while part := connection.recv(65536):
                    answer += part
        return answer

    def get(self, path: str, method: str = "GET", body: bytes | None = None) -> HTTPResponse:
        """Ask as the page does."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request(method, path, body, {"Cookie": self.cookie})
            answer = connection.getresponse()
            answer.read()
            return answer
        finally:
            connection.close()

    def head(self, line: str, *more: str) -> bytes:
        """Return a request of the page with more headers."""
        host = f"Host: 127.0.0.1:{self.port}"
        return "\r\n".join((line, host, f"Cookie: {self.cookie}", *more, "", "")).encode()


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    """Start a viewer, and see at its end that it has told nobody its token but the opener."""
    folder = write_foreign(tmp_path_factory.mktemp("pets"), [[image_payload(1)]])
    command = [sys.executable, "-m", "tfrtool", "view", str(folder), "--json", "--no-open"]
    environment = os.environ | {"XDG_DATA_HOME": str(folder / "data")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            url = urlsplit(json.loads(process.stdout.readline())["url"])
            assert url.port is not None
            token = url.query.partition("=")[2]
            connection = HTTPConnection("127.0.0.1", url.port, timeout=300)
            connection.request("GET", f"/?{url.query}")
            cookie = (connection.getresponse().getheader("set-cookie") or "").partition(";")[0]
            connection.close()
            yield Viewer(url.port, token, cookie)
        finally:
            process.send_signal(signal.SIGINT)
            out, said = process.communicate(timeout=300)
    assert token not in out + said
    assert process.returncode == 130
    assert "Traceback" not in said


def test_every_answer_has_all_headers_also_where_it_is_an_error(viewer: Viewer) -> None:
    """Found, not found, refused, not allowed, not understood."""
    for path, method, status in (
        ("/", "GET", 200),
        ("/", "HEAD", 200),
        ("/state", "GET", 200),
        ("/nothing", "GET", 404),
        ("/image/99/0", "GET", 404),
        ("/marks", "GET", 405),
        ("/", "OPTIONS", 405),
        ("/?page=x", "GET", 400),
        ("/?token=wrong", "GET", 200),  # the cookie is right
    ):
        answer = viewer.get(path, method)
        assert (path, answer.status) == (path, status)
        for name, value in HEADERS.items():
            assert answer.headers.get_all(name) == [value]
    assert b"content-security-policy" in viewer.raw(b"GET / HTTP/1.0\r\n\r\n").lower()


def test_a_connection_without_the_token_is_closed_in_the_end(tmp_path: Path) -> None:
    """It may send nothing, or a part of its headers, or have been refused: it does not stay."""
    folder = write_foreign(tmp_path, [[image_payload(1)]])
    code = (
        "import sys; from tfrtool.cli import main; from tfrtool.view import server\n"
        "server._TOKEN_SECONDS = 0.1; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "view", str(folder), "--json", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process, ExitStack() as stack:
        stack.callback(process.kill)
        assert process.stdout is not None
        port = urlsplit(json.loads(process.stdout.readline())["url"]).port or 0
        refused = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
        connections = []
        for sent in (b"", b"GET / HTTP/1.1\r\nX: ", refused):
            connection = socket.create_connection(("127.0.0.1", port), timeout=300)
            connections.append(stack.enter_context(connection))
            connection.sendall(sent)
        for connection in connections:
            with suppress(ConnectionResetError):
                while connection.recv(65536):
                    pass


@pytest.mark.parametrize(
    "path",
    ["/static/../guard.py", "/static/..%2fguard.py", "/static/%2e%2e/guard.py", "/..%5cguard.py",
     "//etc/passwd", "/static/view.js%00", "/static/view.js/", "/static//etc/passwd", "/static/",
     "/record/../../x", "/templates/about.html", "/etc/0", "/static/c:x"],
)  # fmt: skip
def test_nothing_but_the_pages_own_files_can_be_asked_for(viewer: Viewer, path: str) -> None:
    """Whatever a path is made of."""
    assert viewer.get(path).status in (307, 404)


def test_an_address_in_the_request_is_no_way_around_the_host(viewer: Viewer) -> None:
    """The form that proxies are asked in."""
    inside = f"http://127.0.0.1:{viewer.port}/state"
    assert b" 404 " in viewer.raw(viewer.head(f"GET {inside} HTTP/1.1", "Connection: close"))
    evil = f"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nCookie: {viewer.cookie}"
    assert b" 403 " in viewer.raw(f"{evil}\r\nConnection: close\r\n\r\n".encode())


def test_what_is_no_request_is_refused_and_the_next_is_answered(viewer: Viewer) -> None:
    """Bombs of headers, several hosts, lengths that lie, bodies in pieces."""
    first = viewer.head("GET /state HTTP/1.1")[:-2]
    post = viewer.head("POST /marks HTTP/1.1")[:-2]
    for sent, status in (
        (b"\x16\x03\x01 hello\r\n\r\n", b" 400 "),
        (b"GET / HTTP/1.1\r\n\r\n", b" 400 "),  # no Host
        (b"GET / HTTP/1.0\r\n\r\n", b" 403 "),
        (first + b"Host: evil.example\r\n\r\n", b" 400 "),
        (first + b"X: " + b"a" * 200_000 + b"\r\n\r\n", b""),
        (first + b"X: y\r\n" * 50_000 + b"\r\n", b""),
        (first + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", b" 400 "),
        (post + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", b" 4"),
        (post + b"Content-Length: 99999999\r\n\r\n", b" 413 "),
        (post + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b" 411 "),
        (post + b"Content-Length: 50\r\n\r\n{}", b""),  # and no more comes
        (first + b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
         b"Sec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n\r\n", b" 200 "),
    ):  # fmt: skip
        assert status in viewer.raw(sent).partition(b"\r\n")[0]
    assert viewer.get("/state").status == 200


def test_requests_that_follow_each_other_at_once_are_all_answered(viewer: Viewer) -> None:
    """Each is guarded for itself."""
    wrong = b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    last = viewer.head("GET /state HTTP/1.1", "Connection: close")
    answers = viewer.raw(viewer.head("GET /state HTTP/1.1") + wrong + last, end=False)
    assert [answers.count(status) for status in (b"HTTP/1.1 200", b"HTTP/1.1 403")] == [2, 1]


@pytest.mark.parametrize(
    "sent", [b"[" * 100_000, b"mark=x", b"seen=1/x", b"mark=9999999999999999999/0", b"mark=-1/0",
             b"mark=5/0", b"\xff", b"mark=0/" + b"9" * 5000, b"bulk=mark&query=page%3Dx"],
)  # fmt: skip
def test_marks_that_are_no_records_are_refused(viewer: Viewer, sent: bytes) -> None:
    """By an answer, not by an error of the server."""
    assert viewer.get("/marks", "POST", sent).status in (303, 400)


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 70, "256.1.1.1", "192.0.2.1", "::gg"])
def test_where_nobody_can_listen_is_said_in_one_line(tmp_path: Path, host: str) -> None:
    """Also that a port is taken, or not for us."""
    live = Live(write_foreign(tmp_path / "ds", [[image_payload(1)]]))
    try:
        with pytest.raises(UsageError, match=f"can't listen on {host}"):
            serve(live, host=host, port=0, token="x", on_ready=pytest.fail)
    finally:
        live.close()


def test_a_port_that_is_taken_is_said(tmp_path: Path, viewer: Viewer) -> None:
    """So is one that only the superuser may take."""
    live = Live(write_foreign(tmp_path / "ds", [[image_payload(1)]]))
    taken = {viewer.port: "in use", **({} if os.geteuid() == 0 else {80: "denied"})}
    try:
        for port, why in taken.items():
            with pytest.raises(UsageError, match=why):
                serve(live, host="127.0.0.1", port=port, token="x", on_ready=pytest.fail)
    finally:
        live.close()


@pytest.mark.several
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_end(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """While it still reads, it ends at once; no process and no temporary file stays."""
    many = write_foreign(tmp_path / "many", [[image_payload(1)] * 40_000])
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "tfrtool", "view", str(many), "--no-open", "--json"]
    environment = os.environ | {"TMPDIR": str(temporary), "XDG_DATA_HOME": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        until = time.monotonic() + 300
        while not list(temporary.glob("*/0*.parquet")):
            assert time.monotonic() < until
            time.sleep(0.02)
        children = [
            int(child)
            for task in Path(f"/proc/{process.pid}/task").iterdir()
            for child in task.joinpath("children").read_text().split()
        ]
        assert children
        process.send_signal(number)
        assert process.wait(300) == code
    assert list(temporary.iterdir()) == []
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


@pytest.mark.more
def test_a_dataset_in_a_store(tmp_path: Path, bucket: Bucket) -> None:
    """Its records are read, found and shown."""
    bucket.put_folder(write_foreign(tmp_path / "a", [[image_payload(n) for n in range(9)]]), "a/")
    with Findings(f"{bucket.url}/a") as found:
        found.fill(workers=1)
        assert (found.table.rows, found.errors) == (9, {})
        (row,) = answer(found.table, Question(where="label = 7"), 0, 5).rows
        record = OffsetReader(found.paths).read(0, row.offset)
        assert record is not None
        assert record.payload == image_payload(7)
