"""Sounds and videos of records: what is played, and what is never served as such."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

import tfrtool
from tests.datasets import write_foreign
from tests.view.asking import ask
from tests.view.conftest import OpenPage
from tests.view.media_files import FILES
from tests.view.test_browser import _read
from tests.view.test_pages import Open, Viewer, open_and_read, open_viewer
from tfrtool.examples.content import describe_bytes
from tfrtool.view.guard import HEADERS
from tfrtool.view.server import application

__all__ = ["open_viewer"]

MP3 = FILES["mp3"][1]
HOSTILE = {
    "html": b"<!doctype html><script>alert(1)</script>",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>',
    "text": b"ID3 is a tag <script>alert(1)</script>",
    "frame": MP3[:4] + b"<script>alert(1)</script>" + bytes(2000),
    "brand": b"\0\0\0\x20ftyphtml<script>alert(1)</script>",
    "ebml": b"\x1aE\xdf\xa3<script>alert(1)</script>",
    "xml": b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"/>',
}


def _get(viewer: Viewer, address: str, part: str = "") -> tuple[int | None, dict[str, str], bytes]:
    answer = ask(application(viewer.live), address, headers=[("range", part)] * bool(part))
    return answer.status, dict(answer.headers), answer.body


def test_encoded_sound_and_video_are_played(tmp_path: Path, open_viewer: Open) -> None:
    """Each file has a player and is served as it is, under the type that its bytes say."""
    record = tfrtool.encode_example(
        {f"{n}_{name}": data for n, (name, (_, data)) in enumerate(FILES.items())}
    )
    viewer = open_viewer(write_foreign(tmp_path / "a", [[record]]))
    page = viewer.record(0, 0)
    assert (page.tags.count("audio"), page.tags.count("video")) == (4, 2)
    for number, (name, (kind, data)) in enumerate(FILES.items()):
        assert f"{number}_{name} {kind} Download" in page.text
        status, headers, body = _get(viewer, f"/media/0/0/{number}")
        assert (status, headers["content-type"], body) == (200, kind, data)
    table = viewer.get("/")
    assert "audio/flac, 305 bytes" in table.text
    assert "video/mp4, 1.6 KiB" in table.text
    assert HEADERS["X-Content-Type-Options"] == "nosniff"
    assert "media-src 'self'" in HEADERS["Content-Security-Policy"]


def test_records_choose_no_type(tmp_path: Path, open_viewer: Open) -> None:
    """A page, a drawing with a script, or bytes that only begin like sound have no player."""
    viewer = open_viewer(write_foreign(tmp_path / "a", [[tfrtool.encode_example({**HOSTILE})]]))
    page = viewer.record(0, 0)
    assert not {"audio", "video", "iframe", "object", "embed"} & {*page.tags}
    for number in range(len(HOSTILE)):
        assert _get(viewer, f"/media/0/0/{number}")[0] == 404
    assert not [
        one for one in map(describe_bytes, HOSTILE.values()) if one.startswith(("audio", "video"))
    ]


@pytest.mark.parametrize(
    ("wanted", "status", "start", "end"),
    [
        ("bytes=0-", 206, 0, None),
        ("bytes=4-7", 206, 4, 8),
        ("bytes=200-99999", 206, 200, None),
        ("bytes=-10", 206, -10, None),
        ("bytes=-99999", 206, 0, None),
        ("bytes=9-4", 200, 0, None),
        ("bytes=-", 200, 0, None),
        ("bytes=0-1,4-5", 200, 0, None),
        ("lines=0-1", 200, 0, None),
        ("bytes=99999-", 416, 0, 0),
        ("bytes=-0", 416, 0, 0),
    ],
)
def test_players_ask_for_parts(
    parts: Viewer, wanted: str, status: int, start: int, end: int | None
) -> None:
    """A range is answered with these bytes, one behind the end with the length."""
    found, headers, body = _get(parts, "/media/0/0/0", wanted)
    assert (found, body, headers["accept-ranges"]) == (status, MP3[start:end], "bytes")
    if status == 416:
        assert headers["content-range"] == f"bytes */{len(MP3)}"
    elif status == 206:
        first = start if start >= 0 else len(MP3) + start
        last = (len(MP3) if end is None else end) - 1
        assert headers["content-range"] == f"bytes {first}-{last}/{len(MP3)}"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a viewer of a record with a sound."""
    folder = tmp_path_factory.mktemp("parts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder))
        viewer = open_and_read(
            write_foreign(folder / "a", [[tfrtool.encode_example({"clip": MP3})]])
        )
    yield viewer
    viewer.live.close()


@pytest.mark.parametrize("name", FILES)
def test_what_is_cut_off_or_changed_is_never_another_file(name: str) -> None:
    """The first bytes say what a file is; without them it is none."""
    kind, data = FILES[name]
    assert describe_bytes(data) == kind
    assert describe_bytes(data[1:]) == "binary"
    assert describe_bytes(data[:3]) in ("binary", "text")


def test_lone_headers_of_mp3_frames_are_no_sound() -> None:
    """Numbers often begin like a frame: the next frame must begin where this one ends."""
    for second, third in itertools.product(range(256), range(0, 256, 5)):
        data = bytes([0xFF, second, third, 0]) + bytes(3000)
        assert not describe_bytes(data).startswith("audio")


@pytest.mark.slow
def test_a_browser_plays_them(
    tmp_path: Path, start_viewer: Callable[..., Any], open_page: OpenPage
) -> None:
    """Chromium knows how long each sound is, and the size of each video."""
    record = tfrtool.encode_example({name: data for name, (_, data) in FILES.items()})
    viewer = start_viewer(write_foreign(tmp_path / "a", [[record]]))
    page = _read(open_page(viewer.url), viewer)
    page.goto(urljoin(viewer.url, "/record/part-00000-of-00001.tfrecord:0"))
    page.wait_for_function(
        "[...document.querySelectorAll('audio, video')].every((one) => one.readyState)"
    )
    assert (
        page.eval_on_selector_all("audio", "(all) => all.map((one) => one.duration > 0)")
        == [True] * 4
    )
    sizes = page.eval_on_selector_all(
        "video", "(all) => all.map((one) => [one.videoWidth, one.videoHeight])"
    )
    assert sizes == [[32, 24]] * 2
    assert page.told == []
