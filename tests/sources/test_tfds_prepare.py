"""Datasets of TFDS that must be downloaded, with a network and without."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.sources.tfds_builders import define_builders
from tfrtool.errors import SourceError
from tfrtool.sources.tfds import read_tfds

pytestmark = pytest.mark.tf

CONTENT = b"5"


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the class of a dataset that is downloaded."""
    import tensorflow_datasets as tfds

    define_builders(tfds, tmp_path_factory.mktemp("package"))
    return tfds.builder_cls("my_download")


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder where TFDS has its data; no proxy stands between it and its hosts."""
    import tensorflow_datasets as tfds

    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path / "data"))
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "data"


def _urls(url: str) -> dict[str, Any]:
    from tensorflow_datasets.core.download.checksums import UrlInfo
    from tensorflow_datasets.core.utils import Size

    checksum = hashlib.sha256(CONTENT).hexdigest()
    return {url: UrlInfo(size=Size(len(CONTENT)), checksum=checksum, filename="images.txt")}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    """Serve a file at /images.txt."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "images.txt").write_bytes(CONTENT)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    handler = partial(Quiet, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize("host", ["download.invalid", "127.0.0.1"])
def test_a_host_that_is_not_there_is_told_at_once(
    host: str, builder: Any, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a name that nobody knows nor a port where nobody listens is tried for minutes."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    monkeypatch.setattr(builder, "url_infos", _urls(f"http://{host}:{port}/images.txt"))
    lookups, look_up = [], socket.getaddrinfo

    def count(*arguments: Any, **options: Any) -> Any:
        lookups.append(arguments)
        return look_up(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", count)
    with pytest.raises(SourceError, match="not prepared") as caught:
        read_tfds("my_download")
    assert len(lookups) == 1
    assert host in str(caught.value)
    assert caught.value.path == str(data_dir / "my_download" / "1.0.0")
    assert "TFDS_DATA_DIR" in str(caught.value.hint)
    assert not data_dir.exists()


def test_a_host_that_says_nothing_is_told_in_time(
    builder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a firewall that answers nothing, three hosts have some seconds together."""
    urls = {key: about for n in range(9) for key, about in _urls(f"http://h{n}.invalid/a").items()}
    monkeypatch.setattr(builder, "url_infos", urls)
    waits = []

    def connect(_: object, timeout: float) -> None:
        waits.append(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(SourceError, match=r"h[0-9]\.invalid \(timed out\)"):
        read_tfds("my_download")
    assert len(waits) == 3
    assert sum(waits) <= 10


def test_what_can_be_reached_is_downloaded(
    builder: Any,
    server: ThreadingHTTPServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """TFDS downloads it, and nothing is printed where no terminal is."""
    url = f"http://127.0.0.1:{server.server_port}/images.txt"
    monkeypatch.setattr(builder, "url_infos", _urls(url))
    called = []

    @contextlib.contextmanager
    def starting() -> Iterator[None]:
        called.append(1)
        yield

    assert len(read_tfds("my_download", starting).items) == 5
    assert called == [1]
    assert capsys.readouterr() == ("", "")


def test_what_was_downloaded_needs_no_host(
    builder: Any,
    server: ThreadingHTTPServer,
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where TFDS finds its downloads, it prepares a dataset without a network."""
    url = f"http://127.0.0.1:{server.server_port}/images.txt"
    monkeypatch.setattr(builder, "url_infos", _urls(url))
    read_tfds("my_download")
    server.shutdown()
    server.server_close()
    (data_dir / "my_download").rename(data_dir / "moved")
    assert len(read_tfds("my_download").items) == 5


def test_the_plan_is_shown_on_a_terminal(
    builder: Any,
    server: ThreadingHTTPServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """There, TFDS' plan goes to stderr; stdout is for results."""
    url = f"http://127.0.0.1:{server.server_port}/images.txt"
    monkeypatch.setattr(builder, "url_infos", _urls(url))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    read_tfds("my_download")
    printed = capsys.readouterr()
    assert "Downloading and preparing dataset" in printed.err
    assert printed.out == ""
