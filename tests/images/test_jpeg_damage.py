"""JPEGs whose data is cut, or too long: decoders fill up or leave out, and only warn."""

from __future__ import annotations

import io
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.images.test_audit import JPEGS, damaged, saved
from tests.photos import many_scans, write_class_folders
from tfrtool.cli import main
from tfrtool.images.audit import audit_image
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.header import is_jpeg, read_jpeg_header, read_jpeg_scans
from tfrtool.storage.limits import MAX_SCANS

END = b"\xff\xd9"
SHORT = "can't be decoded: the data ends before the last pixel"
LONG = "can't be decoded: extra data after the last pixel"

SORTS: dict[str, dict[str, Any]] = {
    "color": {},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_rows": 1},
    "progressive restarts": {"progressive": True, "restart_marker_rows": 2},
    "4:4:4": {"subsampling": "4:4:4", "quality": 95},
}


def jpeg(sort: str, mode: str = "RGB") -> bytes:
    """Return a JPEG of noise, which has data for each of its pixels."""
    noise = Image.effect_noise((160, 120), 60)
    image = Image.merge("RGB", (noise, noise.rotate(90, expand=False), noise.rotate(180)))
    return saved(image.convert(mode), **SORTS[sort])


def longest(data: bytes) -> tuple[int, int]:
    """Return where the data of a JPEG's longest scan starts and ends."""
    spans = read_jpeg_scans(data, read_jpeg_header(data)).spans
    return max(spans, key=lambda span: span[1] - span[0])


def warnings_of(tf: Any, data: bytes, capfd: pytest.CaptureFixture[str]) -> str:
    """Return what libjpeg in TensorFlow says while it decodes."""
    capfd.readouterr()
    try:
        tf.io.decode_jpeg(data)
    except tf.errors.InvalidArgumentError:
        return "refused"
    return capfd.readouterr().err


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("sort", SORTS)
def test_cut_with_an_end_behind_it(sort: str, mode: str) -> None:
    """A JPEG cut anywhere in its largest scan, with an end marker put behind it, is refused."""
    data = jpeg(sort, mode)
    start, end = longest(data)
    assert audit_image(data).problem is None
    for share in range(2, 100, 2):
        place = start + (end - start) * share // 100
        assert audit_image(data[:place] + END).problem == SHORT, share


def test_cut_before_the_last_restart() -> None:
    """A JPEG without its last row of blocks is refused, wherever the row before it ends."""
    data = jpeg("restarts")
    start, end = longest(data)
    last = data.rindex(b"\xff\xd6", start, end)
    for missing in range(20):
        assert audit_image(data[: last - missing] + END).problem == SHORT, missing


@pytest.mark.parametrize("sort", SORTS)
def test_too_much_data(sort: str) -> None:
    """Data behind the last pixel means that some before it was damaged; fill bytes are none."""
    data = jpeg(sort)
    end = len(data) - 2
    assert audit_image(data[:end] + b"\x12\x34" * 50 + END).problem == LONG
    assert audit_image(data[:end] + b"\xff" * 1000 + END).problem is None


@pytest.mark.parametrize("name", ["color", "grey", "progressive", "restarts", "CMYK", "4:2:2"])
def test_libjpeg_warns_of_what_is_refused(
    name: str, tf: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of random damage nothing is refused that TensorFlow decodes without a warning."""
    chance = random.Random(name)
    refused = 0
    for _ in range(150):
        hurt = damaged(JPEGS[name], chance)
        with quiet_pillow():
            problem = audit_image(hurt).problem
        if is_jpeg(hurt) and problem in (SHORT, LONG):
            refused += 1
            assert warnings_of(tf, hurt, capfd) != "", hurt
    assert refused > 2


@pytest.mark.parametrize("name", ["color", "grey", "restarts", "4:2:2"])
def test_metadata_does_not_change_what_is_found(name: str) -> None:
    """A damaged JPEG has the same problem with a segment that its parser has to look into."""
    chance = random.Random(name)
    problems = set()
    for _ in range(60):
        hurt = damaged(JPEGS[name], chance)
        with_profile = hurt[:2] + b"\xff\xe2\x00\x10ICC_PROFILE\0\1\1" + hurt[2:]
        with quiet_pillow():
            verdict = audit_image(hurt)
            assert verdict == audit_image(with_profile)
        problems.add(verdict.problem)
    assert None in problems
    assert len(problems) > 2


def test_photographs_are_whole(shared_data: Path) -> None:
    """None of a thousand photographs is taken for damaged, and they are when they are cut."""
    files = sorted((shared_data / "catsdogs").glob("*/*.jpg"))
    assert len(files) == 1000
    chance = random.Random(0)
    for number, path in enumerate(files):
        data = path.read_bytes()
        assert audit_image(data).problem is None, path
        if number % 5 == 0:
            start, end = longest(data)
            place = chance.randrange(start, end - 200)
            assert audit_image(data[:place] + END).problem == SHORT, (path, place)


def test_as_many_scans_as_are_allowed() -> None:
    """They are followed one by one, and each may be cut."""
    data = many_scans(MAX_SCANS)
    assert audit_image(data).problem is None
    for start, end in read_jpeg_scans(data, read_jpeg_header(data)).spans[::100]:
        middle = (start + end) // 2
        assert audit_image(data[:middle] + data[end:]).problem == SHORT, start


@pytest.mark.tf
def test_write_leaves_out_what_decode_refuses_and_header_keeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A photograph that is half grey is left out by default, named; --check header keeps it."""
    photos = write_class_folders(tmp_path / "photos")
    data = jpeg("color")
    start, end = longest(data)
    (photos / "cat" / "half.jpg").write_bytes(data[: (start + end) // 2] + END)
    with Image.open(io.BytesIO((photos / "cat" / "half.jpg").read_bytes())) as image:
        image.load()  # Pillow alone takes it for whole
    out = tmp_path / "decode"
    assert main(["write", str(photos), os.fspath(out), "--json"]) == 3
    (rejected,) = json.loads(capsys.readouterr().out)["rejected"]
    assert rejected == {"key": "cat/half.jpg", "reason": SHORT}
    out = tmp_path / "header"
    assert main(["write", str(photos), os.fspath(out), "--check", "header", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rejected"] == []
    assert main(["verify", "--images", os.fspath(out), "--json"]) == 3
    faults = [json.loads(line)["faults"] for line in capsys.readouterr().out.splitlines()]
    assert [fault["message"] for fault in faults[0]] == [f"feature 'image': {SHORT}"]
