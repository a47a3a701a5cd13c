"""Commands that need the shards of a store more than once download each of them once."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import image_payload, write_foreign
from tests.emulators import Bucket, Misbehaviour
from tests.more import thinned
from tests.stored import PREFIX, local_digests, stored_digests
from tfrtool.engines import split_shards
from tfrtool.engines.local_copies import local_copies
from tfrtool.engines.pool import map_shards
from tfrtool.errors import ShardError, WriteError
from tfrtool.records.framing import frame
from tfrtool.storage.opening import file_sha256
from tfrtool.storage.progress import no_progress
from tfrtool.storage.remote_path import remote_path

RECORDS, SHARDS = 60, 3

_HEAD = 2 * 64 * 1024
"""Bytes of a shard that may be read besides, to find out what it is."""

JOBS: dict[str, Callable[..., Any]] = {
    "reshard": lambda src, to: tfrtool.reshard(src, to, shards=2),
    "shuffle": lambda src, to: tfrtool.reshard(src, to, shards=4, shuffle=True, seed=1),
    "merge": lambda src, to: tfrtool.reshard(
        [f"{src}/part-{n:05d}-of-00003.tfrecord" for n in (0, 1, 2)], to
    ),
    "where": lambda src, to: tfrtool.filter_records(src, to, where="label = 1", dedupe=True),
    "edit": lambda src, to: tfrtool.edit(src, to, rename={"label": "class"}),
    "csv": lambda src, to: tfrtool.convert(src, to, to="csv", shards=2),
}
"""Jobs that read all records at least twice."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return shards of 2 MB, whose records have 32 kB."""
    payloads = [image_payload(n % 3, data=n.to_bytes(4, "big") * 8_000) for n in range(RECORDS)]
    shards = [payloads[n::SHARDS] for n in range(SHARDS)]
    return write_foreign(tmp_path_factory.mktemp("source") / "source", shards)


@pytest.fixture
def stored(source: Path, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return their URL; requests are counted from here, and temporary files have their folder."""
    bucket.put_folder(source, "source/")
    bucket.forget()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return f"{bucket.url}/source"


def _free(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - number, number))


def _same(bucket: Bucket, local: Path) -> bool:
    """Return whether datasets are equal but for reports, which depend on the sources' place."""
    there, here = stored_digests(bucket), local_digests(local)
    return all(one.pop("write_report.json") for one in (there, here)) and there == here


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("job", thinned(JOBS, every=3))
def test_each_shard_is_downloaded_once(
    job: str, source: Path, stored: str, bucket: Bucket, tmp_path: Path
) -> None:
    """Few requests bring every byte once, and the output is that of local sources."""
    local = tmp_path / "cats" / "1.0.0"
    JOBS[job](source, local)
    JOBS[job](stored, f"{bucket.url}/{PREFIX}")
    reads = [one for one in bucket.log() if one["target"].endswith("-of-00003.tfrecord")]
    assert sum(one["down"] for one in reads) <= _size(source) + SHARDS * _HEAD
    assert len(reads) <= SHARDS * (5 if job == "merge" else 2)  # shards named one by one
    assert _same(bucket, local)
    assert not [*Path(tempfile.gettempdir()).iterdir()]


def test_query_downloads_once(
    source: Path, stored: str, bucket: Bucket, run: Callable[..., tuple[int, str, str]]
) -> None:
    """Rows come from the copies that the columns came from; those of a joined table, too."""
    sql = (
        "SELECT count(*) n, max(octet_length(r.image)) most FROM records r "
        "JOIN other o ON r.label = o.label WHERE o._record = 0"
    )
    joined = f"other={stored}/part-00000-of-00003.tfrecord"
    code, out, _ = run("query", stored, sql, "--with", joined, "--json")
    assert (code, json.loads(out)) == (0, {"n": RECORDS // 3, "most": 32_000})
    first = next(source.glob("part-00000*")).stat().st_size
    assert bucket.down() <= 1.01 * (_size(source) + first)
    assert not [*Path(tempfile.gettempdir()).iterdir()]


def test_diff_downloads_once(source: Path, stored: str, bucket: Bucket) -> None:
    """Records, columns and the features that changed come from one copy of each shard."""
    changed = frame(image_payload(7, data=bytes(4)))
    bucket.put("changed.tfrecord", changed)
    bucket.forget()
    report = tfrtool.diff(stored, f"{bucket.url}/changed.tfrecord", by_position=True)
    assert (report.changed, report.only_a, [*report.features]) == (
        1,
        RECORDS - 1,
        ["image", "label"],
    )
    assert bucket.down() <= 1.01 * _size(source)
    assert not [*Path(tempfile.gettempdir()).iterdir()]


def test_a_full_disk(
    source: Path, stored: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shuffle needs copies, and says how much room; others read twice from the store."""
    size = _size(source)
    JOBS["reshard"](source, local := tmp_path / "cats" / "1.0.0")
    _free(2 * size - 1, monkeypatch)
    with pytest.raises(WriteError) as caught:
        JOBS["shuffle"](stored, f"{bucket.url}/shuffled")
    assert f"{2 * size:,} bytes" in str(caught.value)
    assert f"found {2 * size - 1:,}" in str(caught.value)
    assert "TMPDIR" in str(caught.value)
    assert bucket.names("shuffled/") == []
    bucket.forget()
    JOBS["reshard"](stored, f"{bucket.url}/{PREFIX}")
    assert _same(bucket, local)
    assert bucket.down() > 1.5 * size
    _free(2 * size, monkeypatch)
    assert JOBS["shuffle"](stored, f"{bucket.url}/shuffled").records_out == RECORDS


@pytest.mark.parametrize("code", [412, 403])
def test_a_shard_that_cannot_be_read(code: int, stored: str, bucket: Bucket) -> None:
    """An object that is replaced or forbidden is an error that names it, and nothing remains."""
    bucket.misbehave(
        Misbehaviour(matching="part-00001-of-00003.tfrecord", methods=("GET",), status=code)
    )
    with pytest.raises(ShardError, match=r"part-00001.*(changed|denied)"):
        JOBS["shuffle"](stored, f"{bucket.url}/{PREFIX}")
    assert bucket.names(PREFIX) == []
    assert not [*Path(tempfile.gettempdir()).iterdir()]


def test_faults_name_the_object(stored: str, bucket: Bucket, source: Path) -> None:
    """What is damaged is the object, which can still be read behind the path of a fault."""
    data = bytearray((source / "part-00000-of-00003.tfrecord").read_bytes())
    data[50_000] ^= 1
    bucket.put("source/part-00000-of-00003.tfrecord", bytes(data))
    report = JOBS["shuffle"](stored, f"{bucket.url}/{PREFIX}")
    (fault,) = report.faults
    assert str(fault.path) == f"{stored}/part-00000-of-00003.tfrecord"
    found = list(tfrtool.read_records(fault.path, on_fault="skip"))
    assert len(found) == RECORDS // SHARDS - 1


def test_copies_are_for_all_equal_paths(stored: str, bucket: Bucket, source: Path) -> None:
    """Other paths with the same URL are read from the copies, in worker processes, too."""
    names = sorted(path.name for path in source.glob("*.tfrecord"))
    with local_copies([remote_path(f"{stored}/{name}") for name in names], 2, no_progress):
        bucket.forget()
        equal = [remote_path(f"{stored}/{name}") for name in names]
        found = [*map_shards(file_sha256, equal, 2, 1)]
        assert [*map(file_sha256, equal)] == found == [file_sha256(source / name) for name in names]
        assert bucket.down() == 0
    assert file_sha256(equal[0]) == found[0]
    assert bucket.down() == (source / names[0]).stat().st_size


def test_parts_of_a_large_shard(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is fetched behind the end of a part, which the next part fetches."""
    monkeypatch.setattr(split_shards, "PART_BYTES", 1 << 20)
    payload = image_payload(1, data=bytes(40_000))
    data = frame(payload) * 150
    bucket.put("large.tfrecord", data)
    bucket.forget()
    assert tfrtool.verify(f"{bucket.url}/large.tfrecord", workers=1).records == 150
    assert bucket.down() < 1.5 * len(data)
