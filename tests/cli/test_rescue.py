"""``tfrtool count``, ``repair`` and ``index`` as a user calls them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.inspecting import Capture
from tests.records.strategies import shard_of
from tests.records.test_damage import flip
from tfrtool.cli import main
from tfrtool.records.framing import frame
from tfrtool.storage.limits import MAX_FAULTS

PAYLOADS = [b"first", b"second", b"x" * 100, b"last"]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """A whole shard."""
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard_of(PAYLOADS))
    return path


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A shard whose second payload is damaged."""
    path = tmp_path / "b.tfrecord"
    data = bytearray(shard_of(PAYLOADS))
    data[34] ^= 1
    path.write_bytes(data)
    return path


def lines(capsys: Capture) -> list[dict[str, Any]]:
    """Return the JSON Lines on stdout; nothing else was printed."""
    captured = capsys.readouterr()
    assert captured.err == ""
    return [json.loads(line) for line in captured.out.splitlines()]


def test_index_elsewhere(shard: Path, tmp_path: Path, capsys: Capture) -> None:
    """With --out nothing is written beside the shards, and names of two folders don't meet."""
    other = shard.parent / "more" / shard.name
    other.parent.mkdir()
    other.write_bytes(shard_of(PAYLOADS[:1]))
    out = tmp_path / "indices"
    assert main(["index", str(shard), str(other), "--out", str(out), "--json"]) == 0
    places = [Path(line["index"]) for line in lines(capsys)]
    assert places == [out / f"{shard.name}.idx", out / "more" / f"{shard.name}.idx"]
    assert [len(place.read_text().splitlines()) for place in places] == [4, 1]
    assert not [*shard.parent.glob("*.idx"), *other.parent.glob("*.idx")]


def test_index_goes_on_after_a_shard_without_one(shard: Path, capsys: Capture) -> None:
    """A compressed or damaged shard is named with its reason, the others are indexed: code 3."""
    packed, cut = shard.with_name("a.tfrecord.gz"), shard.with_name("b.tfrecord")
    packed.write_bytes(gzip.compress(shard.read_bytes()))
    cut.write_bytes(shard.read_bytes()[:-1])
    last = shard.with_name("z.tfrecord")
    last.write_bytes(shard.read_bytes())
    assert main(["index", *map(str, (packed, cut, shard, last)), "--json"]) == 3
    captured = capsys.readouterr()
    indexed = [json.loads(line)["path"] for line in captured.out.splitlines()]
    assert indexed == [str(shard), str(last)]
    first, second = captured.err.splitlines()
    assert f"warning: not indexed: {packed}: compressed with gzip" in first
    assert f"warning: not indexed: {cut}:3" in second
    assert not packed.with_name("a.tfrecord.gz.idx").exists()


@pytest.mark.parametrize("command", [["count"], ["inspect", "shard"]])
def test_an_unreadable_shard_does_not_hide_the_others(
    command: list[str], shard: Path, capsys: Capture
) -> None:
    """It is named, the others are shown, and the exit code is 1."""
    if not Path("/proc/self/mem").exists():
        pytest.skip("needs Linux")
    folder = shard.with_name("folder")
    folder.mkdir()
    shard, bad = shard.rename(folder / "b.tfrecord"), folder / "a.tfrecord"
    bad.symlink_to("/proc/self/mem")  # opens, and fails to be read at 0
    assert main([*command, str(folder), "--json"]) == 1
    captured = capsys.readouterr()
    (shown,) = map(json.loads, captured.out.splitlines())
    assert (shown["path"], shown["records"]) == (str(shard), 4)
    warning, error = captured.err.splitlines()
    assert warning.startswith(f"tfrtool: warning: {bad}: can't be read")
    assert error == "tfrtool: error: 1 of 2 shards can't be read"


@pytest.mark.several
def test_damage_everywhere(tmp_path: Path, capsys: Capture) -> None:
    """Of a shard that is damaged again and again, some faults are listed and all are counted."""
    bad, good, count = flip(frame(b"bad"), 0), frame(b"good"), MAX_FAULTS + 50
    shard = tmp_path / "hostile"
    shard.write_bytes((bad + good) * count)
    assert main(["inspect", "shard", str(shard), "--json"]) == 3
    assert main(["repair", str(shard), str(tmp_path / "out"), "--json"]) == 3
    inspected, repaired = lines(capsys)
    assert inspected["records"] == repaired["records"] == count
    assert inspected["fault_count"] == repaired["fault_count"] == repaired["lost_count"] == count
    assert repaired["lost_bytes"] == count * len(bad)
    for listed in (inspected["faults"], repaired["faults"], repaired["lost"]):
        assert len(listed) == MAX_FAULTS
    assert main(["count", str(shard)]) == 3
    assert f"(and {count - 1:,} more)" in capsys.readouterr().err
