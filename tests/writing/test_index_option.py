"""``--index``: each shard gets an index, which appears, is listed and is replaced with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import image_payload, write_foreign
from tests.emulators import Bucket
from tests.photos import write_class_folders
from tests.stored import PREFIX, local_digests, steps, stored_digests
from tfrtool.cli import main
from tfrtool.errors import UsageError, WriteError

JOBS: dict[str, Callable[..., Any]] = {
    "reshard": tfrtool.reshard,
    "filter": lambda *a, **k: tfrtool.filter_records(*a, sample=9, **k),
    "convert": lambda *a, **k: tfrtool.convert(*a, to="tfrecord", **k).job,
    "write": tfrtool.write,
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a shard."""
    return write_foreign(tmp_path / "source", [[image_payload(n % 3) for n in range(12)]])


def _indexes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.idx")}


@pytest.mark.parametrize("job", JOBS)
def test_indexes(job: str, source: Path, tmp_path: Path) -> None:
    """They are what ``tfrtool index`` writes, the report lists them, and no reader reads them."""
    if job == "write":
        source = write_class_folders(tmp_path / "photos", count=4)
    folder = tmp_path / "cats" / "1.0.0"
    report = JOBS[job](source, folder, shards=2, index=True)
    found = _indexes(folder)
    shards = [shard for split in report.splits.values() for shard in split.shards]
    assert {f"{one.path}.idx": one.index for one in shards} == {k: len(v) for k, v in found.items()}
    assert len(tfrtool.find_shards(folder)) == len(shards) == 2
    assert main(["index", str(folder)]) == 0
    assert _indexes(folder) == found
    assert JOBS[job](source, folder, shards=2, index=True, existing="resume").complete
    next(folder.glob("*.idx")).unlink()
    with pytest.raises(UsageError, match="missing, or changed"):
        JOBS[job](source, folder, shards=2, index=True, existing="resume")
    JOBS[job](source, folder, shards=1, existing="overwrite")
    assert not _indexes(folder)


def test_what_cannot_be_indexed(source: Path, tmp_path: Path) -> None:
    """Compressed shards, single files and other formats are refused before anything is written."""
    with pytest.raises(UsageError, match="--index"):
        tfrtool.reshard(source, tmp_path / "no", index=True, compression="gzip")
    with pytest.raises(UsageError, match="--index"):
        tfrtool.convert(source, tmp_path / "no", index=True, to="parquet")
    with pytest.raises(UsageError, match="--index"):
        tfrtool.convert(source, tmp_path / "no.tfrecord", index=True)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_in_a_store(source: Path, bucket: Bucket, tmp_path: Path) -> None:
    """Indexes are uploaded with their shards; an error at any step leaves none of them."""
    local, url = tmp_path / "cats" / "1.0.0", f"{bucket.url}/{PREFIX}"
    tfrtool.reshard(source, local, shards=2, index=True)
    taken: list[str] = []

    def fail_after(last: str) -> Callable[[int, str, str], None]:
        def step(_: int, method: str, key: str) -> None:
            taken.append(key)
            if method != "delete" and len(taken) > 1 and taken[-2].endswith(last):
                raise OSError(5, "failed")

        return step

    for last in ("00000-of-00002.idx", "00001-of-00002.idx"):
        with steps(fail_after(last)), pytest.raises(WriteError):
            tfrtool.reshard(source, url, shards=2, index=True, workers=1)
        assert bucket.names() == []
    tfrtool.reshard(source, url, shards=2, index=True)
    assert stored_digests(bucket) == local_digests(local)
    tfrtool.reshard(source, url, shards=1, existing="overwrite")
    assert not [name for name in bucket.names() if name.endswith(".idx")]
