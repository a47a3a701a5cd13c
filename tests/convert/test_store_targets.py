"""Jobs that write to stores: the same bytes as on a disk, and one commit."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import image_payload, write_foreign
from tests.emulators import Bucket
from tests.stored import PREFIX, local_digests, steps, stored_digests
from tfrtool.engines import pool
from tfrtool.engines.engine import Engine
from tfrtool.engines.ray_cluster import _pickled
from tfrtool.errors import DatasetError, ShardError, UsageError, WriteError

RECORDS, MORE = 30, 12
"""Of the dataset that is there first, and of the one in its place."""

JOBS: dict[str, Callable[..., Any]] = {
    "reshard": lambda src, to, **more: tfrtool.reshard(
        src, to, shards=3, shuffle=True, seed=1, **more
    ),
    "filter": lambda src, to, **more: tfrtool.filter_records(src, to, sample=9, **more),
    "edit": lambda src, to, **more: tfrtool.edit(src, to, rename={"label": "class"}, **more),
    "convert": lambda src, to, **more: tfrtool.convert(src, to, to="jsonl", shards=2, **more),
}


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return two sources, with `RECORDS` and `MORE` records."""
    root = tmp_path_factory.mktemp("sources")
    return tuple(  # type: ignore[return-value]
        write_foreign(root / str(count), [[image_payload(n % 3) for n in range(count)]])
        for count in (RECORDS, MORE)
    )


@pytest.fixture
def url(bucket: Bucket) -> str:
    """Return where a dataset may be written."""
    return f"{bucket.url}/{PREFIX}"


def _reshard(source: Path, to: Any, shards: int = 3, **more: Any) -> Any:
    return tfrtool.reshard(source, to, shards=shards, name="cats", version="1.0.0", **more)


def _whole(tmp_path: Path, source: Path, shards: int = 3) -> dict[str, str]:
    """Return the digests of the files of a local job."""
    _reshard(source, folder := tmp_path / f"{source.name}x{shards}", shards)
    return local_digests(folder)


def _seen(url: str) -> int | None:
    """Return how many records a reader sees; None where it is told that a write isn't done."""
    try:
        return sum(map(tfrtool.count, tfrtool.find_shards(url)))
    except (DatasetError, ShardError):
        return None


@pytest.mark.parametrize("job", JOBS)
def test_jobs_make_the_same_objects(
    job: str, bucket: Bucket, url: str, sources: tuple[Path, Path], tmp_path: Path
) -> None:
    """All objects of a job have the bytes of its local files, and nothing else is left."""
    local = tmp_path / "cats" / "1.0.0"
    JOBS[job](sources[0], local)
    JOBS[job](sources[0], url)
    assert stored_digests(bucket) == local_digests(local)


def test_on_processes(bucket: Bucket, url: str, sources: tuple[Path, Path], tmp_path: Path) -> None:
    """Each process uploads what it makes."""
    _reshard(sources[0], url, workers=2)
    assert stored_digests(bucket) == _whole(tmp_path, sources[0])


class _Nodes(Engine):
    """Nodes of a cluster that have no local file or folder of the driver."""

    def map(
        self, function: Callable[[Any], Any], tasks: Iterable[Any], **_: object
    ) -> Iterator[Any]:
        for task in tasks:
            data, folders = _pickled(function, Path.exists)[:2]
            body, files = _pickled(task, Path.exists)[:2]
            assert not [*folders, *files]
            yield pickle.loads(data)(pickle.loads(body))


@pytest.mark.parametrize("job", ["reshard", "filter", "convert"])
def test_from_store_to_store_on_nodes(
    job: str,
    bucket: Bucket,
    url: str,
    sources: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes need no folder that they share."""
    monkeypatch.setattr("tfrtool.engines.ray_cluster.RayCluster", lambda *_: _Nodes())
    bucket.put_folder(sources[0], f"{sources[0].name}/")
    JOBS[job](sources[0], local := tmp_path / "cats" / "1.0.0")
    JOBS[job](f"{bucket.url}/{sources[0].name}", url, engine="ray")
    there, here = stored_digests(bucket), local_digests(local)
    assert there.pop("write_report.json") != here.pop("write_report.json")  # it names the sources
    assert there == here


def test_compressed_sources_on_nodes(
    url: str, sources: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These are unpacked to a folder that nodes must see; an error names it."""
    tfrtool.reshard(sources[0], packed := tmp_path / "packed", compression="gzip")
    real = Path.is_dir
    monkeypatch.setattr(Path, "is_dir", lambda path: path.name != "scratch" and real(path))
    with pytest.raises(WriteError, match=r"scratch.*TMPDIR"):
        tfrtool.reshard(packed, url)


def test_a_reader_sees_nothing_or_all(url: str, sources: tuple[Path, Path]) -> None:
    """Until a fresh write is committed a reader is told that it isn't; and then it is all there."""
    seen: list[int | None] = []
    with steps(lambda *_: seen.append(_seen(url))):
        _reshard(sources[0], url)
    assert {*seen} == {None, RECORDS}
    assert seen == sorted(seen, key=lambda one: one or 0)
    assert seen.count(RECORDS) == 2  # the notes and the claim are deleted last
    assert _seen(url) == RECORDS


@pytest.mark.more
def test_a_reader_sees_the_old_nothing_or_the_new(
    bucket: Bucket, url: str, sources: tuple[Path, Path], tmp_path: Path
) -> None:
    """While one dataset replaces another, readers are told that a write is running."""
    _reshard(sources[0], url)
    for count, source in ((MORE, sources[1]), (RECORDS, sources[0])):
        seen: list[int | None] = []
        with steps(lambda *_, seen=seen: seen.append(_seen(url))):
            _reshard(source, url, existing="overwrite")
        assert {*seen} == {None, RECORDS, MORE}  # never a mixture
        assert seen == sorted(seen, key=lambda one: one == count)
        assert _seen(url) == count
        assert stored_digests(bucket) == _whole(tmp_path, source)


def test_who_reads_the_old_one_learns_that_it_was_replaced(
    url: str, sources: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not that a file of it can't be found."""
    _reshard(sources[0], url)
    real = pool.map_shards

    def late(*arguments: Any, **words: Any) -> Iterator[Any]:
        monkeypatch.undo()
        _reshard(sources[1], url, existing="overwrite")
        return real(*arguments, **words)

    monkeypatch.setattr("tfrtool.engines.split_shards.map_shards", late)
    with pytest.raises(DatasetError, match="replaced while it was being read"):
        tfrtool.inspect_dataset(url)
    assert tfrtool.inspect_dataset(url).splits


def test_append_to_a_dataset_that_was_replaced(url: str, sources: tuple[Path, Path]) -> None:
    """The new version lies beside the old one, wherever in that its shards are."""
    _reshard(sources[0], url)
    _reshard(sources[1], url, existing="overwrite")
    report = tfrtool.append(url, sources[0])
    assert str(report.dataset) == url.replace("1.0.0", "1.1.0")
    assert _seen(str(report.dataset)) == RECORDS + MORE
    assert _seen(url) == MORE


def test_append_copies_in_the_store(
    bucket: Bucket, url: str, sources: tuple[Path, Path], tmp_path: Path
) -> None:
    """Shards that stay don't come by here; the new version is what it would be on a disk."""
    old = tmp_path / "cats" / "1.0.0"
    for to in (old, url):
        _reshard(sources[0], to)
    _reshard(sources[0], url, existing="overwrite")  # it lies in a folder of its own
    local = tfrtool.append(old, sources[1], split="train")
    bucket.forget()
    report = tfrtool.append(url, sources[1], split="train")
    read = {entry["target"] for entry in bucket.log() if entry["down"] and entry["method"] == "GET"}
    shards = {target[target.index("cats-") :] for target in read if ".tfrecord-" in target}
    assert shards == {"cats-train.tfrecord-00000-of-00003"}  # its first records tell the features
    found, expected = stored_digests(bucket, "cats/1.1.0"), local_digests(old.with_name("1.1.0"))
    for digests in (found, expected):  # which names the sources
        del digests["write_report.json"]
    assert found == expected
    assert (report.digest_out, report.records_out) == (local.digest_out, RECORDS + MORE)
    assert str(report.dataset) == f"{bucket.url}/cats/1.1.0"


def test_one_file_is_one_object(bucket: Bucket, sources: tuple[Path, Path], tmp_path: Path) -> None:
    """A conversion to one file makes one object, and does not replace another unasked."""
    tfrtool.convert(sources[0], tmp_path / "cats.parquet")
    url = f"{bucket.url}/tables/cats.parquet"
    tfrtool.convert(sources[0], url)
    assert bucket.get("tables/cats.parquet") == (tmp_path / "cats.parquet").read_bytes()
    assert bucket.names() == ["tables/cats.parquet"]
    with pytest.raises(UsageError, match=r"cats\.parquet.*--overwrite"):
        tfrtool.convert(sources[0], url)
    tfrtool.convert(sources[1], url, existing="overwrite")
    assert bucket.get("tables/cats.parquet") != (tmp_path / "cats.parquet").read_bytes()
