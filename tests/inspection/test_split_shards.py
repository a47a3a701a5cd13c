"""Large shards are read in parts: what is told of them is what one pass tells."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import tfrtool
from tests.examples.strategies import int64, string
from tests.photos import image_bytes
from tests.records.strategies import shard_of
from tfrtool.engines import split_shards as parts
from tfrtool.errors import TfrtoolError
from tfrtool.examples.example import encode_example
from tfrtool.records.framing import frame
from tfrtool.storage.json_values import to_json_values

PHOTO = image_bytes(size=(8, 6))
ROWS = [encode_example({"a": int64(n), "b": string(b"x" * (n % 7))}) for n in range(40)]
SEQUENCE = b"\x0a\x00\x12\x0a\x0a\x08\x0a\x01a\x12\x03\x0a\x01\x00"

_payload = st.one_of(
    st.sampled_from(ROWS),
    st.sampled_from([b"", b"text", bytes(30), SEQUENCE, ROWS[0] + b"\x12\x00", shard_of(ROWS[:3])]),
    st.integers(0, 9).map(
        lambda n: encode_example({"image": string(PHOTO[: -n or None]), "label": int64(n)})
    ),
)


@st.composite
def shards(draw: st.DrawFn) -> bytes:
    """Draw a shard, which is damaged in some places perhaps."""
    data = bytearray(shard_of(draw(st.lists(_payload, min_size=1, max_size=90))))
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 5]))):
        at = draw(st.integers(0, len(data)))
        size = draw(st.sampled_from([0, 1, 1, 1, 20, 500]))
        data[at : at + size] = draw(st.sampled_from([b"", b"\xff", bytes(40), shard_of(ROWS[:2])]))
    return bytes(data)


@contextmanager
def parts_of(size: int) -> Iterator[None]:
    """Cut shards into parts of so many bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PART_BYTES", size)
        patch.setattr(parts, "_FEWEST", 1)
        yield


def told(look: Callable[[Path], Any], path: Path) -> Any:
    """Return the JSON of what is told of a file, or the error."""
    try:
        return json.dumps(look(path), default=str)
    except TfrtoolError as error:
        return repr(error), vars(error)


def _verify(path: Path, workers: int = 1) -> Any:
    report = tfrtool.verify(path, workers=workers)
    (shard,) = report.shards
    return shard.to_json(), shard.lost, report.to_json()


def _verify_images(path: Path) -> Any:
    report = tfrtool.verify(path, images=True)
    (shard,) = report.shards
    return shard.to_json(), report.to_json(), repr(shard.images)


def _schema(path: Path, workers: int = 1) -> Any:
    found = tfrtool.infer_schema(path, workers=workers)
    return found.to_json(), found.schema.to_json(), repr(found)


def _stats(path: Path, workers: int = 1) -> Any:
    """Sums of floats are made part by part: their last digits are not compared."""
    found = json.dumps(to_json_values(tfrtool.stats(path, workers=workers)), default=str)
    return json.loads(found, parse_float=lambda text: f"{float(text):.9g}")


LOOKS = [_verify, _verify_images, _schema]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file that properties write to again and again."""
    return tmp_path_factory.mktemp("parts") / "a.tfrecord"


@pytest.mark.parametrize("look", LOOKS)
@given(data=shards(), size=st.integers(1, 2000))
@example(data=shard_of(ROWS * 3), size=100)
@example(data=shard_of([shard_of(ROWS)] * 3), size=500)
@example(data=shard_of([b"text"] * 70 + ROWS), size=400)
@example(data=shard_of([encode_example({"a": int64(1)}), b""]), size=1)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_as_one_pass(look: Callable[[Path], Any], path: Path, data: bytes, size: int) -> None:
    """Whatever the shard holds, and wherever it is cut, the same is told, to the byte of JSON."""
    path.write_bytes(data)
    expected = told(look, path)
    with parts_of(size):
        assert told(look, path) == expected


@given(rows=st.lists(st.sampled_from(ROWS), min_size=1, max_size=90), size=st.integers(1, 2000))
def test_statistics(path: Path, rows: list[bytes], size: int) -> None:
    """Statistics of Examples are those of one pass, and one fault in them costs one record."""
    data = bytearray(shard_of(rows))
    path.write_bytes(data)
    expected = _stats(path)
    with parts_of(size):
        assert _stats(path) == expected
    data[-1] ^= 1
    path.write_bytes(data + frame(ROWS[-1]))
    with parts_of(size):
        assert _stats(path)["losses"][0]["faults"][0]["record"] == len(rows) - 1


@pytest.mark.parametrize("look", [_verify, _schema, _stats])
def test_in_processes(look: Callable[..., Any], path: Path) -> None:
    """The parts are tasks of other processes, too."""
    data = bytearray(shard_of(ROWS * 400))
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    expected = look(path)
    with parts_of(60_000), pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfrtool.inspection.verify.verify._RECORDS_WORTH", 0)
        assert look(path, workers=2) == expected


def test_parts_are_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sound shard, and of one with a changed payload, no part is read again."""
    monkeypatch.setattr("tfrtool.engines.split_shards._rest", None)
    data = bytearray(shard_of(ROWS * 20))
    for where in (0, 5000):
        data[where + 20] ^= where > 0
        path.write_bytes(data)
        with parts_of(1000):
            assert tfrtool.verify(path).n_faults == (where > 0)


def test_a_file_that_changes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is replaced between parts is an error, and no mixture."""
    path.write_bytes(shard_of(ROWS))
    find = parts.Part.find_first

    def replaced(part: parts.Part, file: Any) -> int | None:
        if part.start > 500:
            os.utime(path, (part.start, part.start))
        return find(part, file)

    monkeypatch.setattr(parts.Part, "find_first", replaced)
    with parts_of(200):
        (shard,) = tfrtool.verify(path).shards
    assert shard.error == "was changed while it was read"


def test_what_is_cut(path: Path, tmp_path: Path) -> None:
    """What is less than four parts is not cut, and no compressed file."""
    size = parts.PART_BYTES
    with path.open("wb") as file:
        file.write(frame(b"first"))
        file.truncate(4 * size - 1)
    assert parts.parts_of(path) == []
    os.truncate(path, 10 * size + 1)
    cut = parts.parts_of(path)
    assert [part.start for part in cut] == [*range(0, 10 * size + 1, size)]
    assert [part.end for part in cut] == [*range(size, 10 * size + 1, size), 10 * size + 1]
    with path.open("r+b") as file:
        file.write(gzip.compress(frame(b"first")))
    assert parts.parts_of(path) == []
    assert parts.parts_of(tmp_path) == parts.parts_of(tmp_path / "none") == []
