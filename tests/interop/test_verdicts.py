"""TensorFlow's verdicts on damaged files, beside ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.interop.verdicts import verdicts

pytestmark = [pytest.mark.slow, pytest.mark.more]

DAMAGED = Path(__file__).parents[2] / "fixtures" / "damaged"


@pytest.fixture(scope="module")
def said() -> dict[str, tuple[str, str]]:
    """What TensorFlow and tfrtool say of every damaged fixture, by its name."""
    paths = [path for path in DAMAGED.iterdir() if path.suffix != ".json"]
    paths.sort(key=lambda path: path.name == "huge-length.tfrecord")  # TensorFlow ends with it
    return {path.name: (theirs, ours) for path, theirs, ours in verdicts(paths)}


def _records(text: str) -> int:
    match = re.match(r"(\d+) records", text)
    return int(match[1]) if match else 0


def test_tensorflow_never_gets_more_out(said: dict[str, tuple[str, str]]) -> None:
    """Of each file tfrtool gets all the records that TensorFlow gets, and in most more."""
    more = {name for name, (theirs, ours) in said.items() if _records(ours) > _records(theirs)}
    less = {name for name, (theirs, ours) in said.items() if _records(ours) < _records(theirs)}
    assert not less
    assert len(more) >= 15


def test_what_tensorflow_accepts_in_silence(said: dict[str, tuple[str, str]]) -> None:
    """Some damage TensorFlow reads over; tfrtool names all of it."""
    silent = {name for name, (theirs, _) in said.items() if re.fullmatch(r"\d+ records", theirs)}
    assert {"cut-in-header.tfrecord", "stray-bytes.tfrecord", "no-trailer.tfrecord.gz"} <= silent
    assert all(";" in ours for _, ours in said.values())


def test_only_one_kills_tensorflow(said: dict[str, tuple[str, str]]) -> None:
    """A huge length with a valid CRC ends TensorFlow's process, and is a fault like any other."""
    assert [name for name, (theirs, _) in said.items() if "dies" in theirs] == [
        "huge-length.tfrecord"
    ]
