"""``tfrtool count``, ``repair`` and ``index`` as a user calls them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.inspecting import Capture
from tests.records.strategies import read, shard_of
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


def test_count(shard: Path, damaged: Path, capsys: Capture) -> None:
    """Each shard has its count, and there is a sum; payloads are not looked at."""
    assert main(["count", str(shard), str(damaged)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out == [f"           4  {shard}", f"           4  {damaged}", "           8  total"]
    assert main(["count", "--json", str(shard)]) == 0
    assert lines(capsys) == [{"path": str(shard), "records": 4}]


def test_count_of_gzip(tmp_path: Path, capsys: Capture) -> None:
    """A compressed shard is counted all the same."""
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(shard_of(PAYLOADS)))
    assert main(["count", "--json", str(path)]) == 0
    assert lines(capsys)[0]["records"] == 4


def test_count_of_a_damaged_shard(shard: Path, capsys: Capture) -> None:
    """The records that can be reached are counted, the damage is told, and the exit code is 3."""
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    assert main(["count", str(shard)]) == 3
    captured = capsys.readouterr()
    assert captured.out.split() == ["3", str(shard)]
    assert "truncated at offset 159" in captured.err


def test_count_of_what_is_no_shard(tmp_path: Path, capsys: Capture) -> None:
    """A missing file fails; a page of HTML has no records, and says what it is."""
    assert main(["count", str(tmp_path / "none")]) == 1
    page = tmp_path / "page"
    page.write_text("<html>not found</html>" * 10)
    capsys.readouterr()
    assert main(["count", str(page)]) == 3
    assert "an HTML page" in capsys.readouterr().err


def test_repair(damaged: Path, tmp_path: Path, capsys: Capture) -> None:
    """The other records are saved, the loss is told, and the exit code says that there is one."""
    out = tmp_path / "out"
    assert main(["repair", str(damaged), str(out), "--json"]) == 3
    (report,) = lines(capsys)
    assert (report["records"], report["lost"]) == (3, [{"offset": 21, "bytes": 22}])
    assert [(fault["kind"], fault["record"]) for fault in report["faults"]] == [("payload-crc", 1)]
    assert read(out.read_bytes()).payloads == [PAYLOADS[0], *PAYLOADS[2:]]
    assert main(["repair", str(damaged), str(out)]) == 2
    assert main(["repair", str(damaged), str(tmp_path / "again")]) == 3
    assert "recovered   3 records" in capsys.readouterr().out


def test_repair_of_a_whole_shard(shard: Path, tmp_path: Path, capsys: Capture) -> None:
    """Nothing is lost: exit code 0, and the same bytes."""
    assert main(["repair", str(shard), str(tmp_path / "out")]) == 0
    assert "lost        nothing" in capsys.readouterr().out
    assert (tmp_path / "out").read_bytes() == shard.read_bytes()


def test_repair_of_nothing(tmp_path: Path, capsys: Capture) -> None:
    """Without a whole record: exit code 1, one line, no file."""
    (tmp_path / "page").write_text("<html>not found</html>" * 10)
    assert main(["repair", str(tmp_path / "page"), str(tmp_path / "out")]) == 1
    assert "an HTML page" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_index(shard: Path, capsys: Capture) -> None:
    """The index is beside the shard, and is named."""
    assert main(["index", str(shard), "--json"]) == 0
    index = Path(f"{shard}.idx")
    assert lines(capsys) == [{"path": str(shard), "index": str(index), "records": 4}]
    assert index.read_text().splitlines()[1] == "21 22"


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


def test_index_of_gzip(tmp_path: Path, capsys: Capture) -> None:
    """A compressed shard has no index; the error says what to do."""
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(shard_of(PAYLOADS)))
    assert main(["index", str(path)]) == 1
    assert "decompress it first" in capsys.readouterr().err


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
    assert f"warning: not indexed: {cut}, record 3" in second
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
    assert main(["inspect", "shard", str(shard), "--record", str(2 * count - 2)]) == 3
    assert f"... and {count - 10:,} more" in capsys.readouterr().out
    assert main(["inspect", "shard", str(shard), "--record", str(2 * count)]) == 1
    assert main(["count", str(shard)]) == 3
    assert f"(and {count - 1:,} more)" in capsys.readouterr().err
