"""Jobs on a cluster from store to store."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import image_payload, write_foreign
from tests.emulators import Bucket, Emulators, Misbehaviour, MissingError
from tests.engines.running import Nodes
from tests.stored import local_digests, stored_digests
from tfrtool.storage.progress import Progress

ray = pytest.importorskip("ray")

pytestmark = [
    pytest.mark.several,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Ray Data's own settings
]

RECORDS, SHARDS = 60, 3

JOBS: dict[str, Callable[..., Any]] = {
    "reshard": lambda src, to, **more: tfrtool.reshard(src, to, shards=2, **more),
    "shuffle": lambda src, to, **more: tfrtool.reshard(src, to, shards=4, shuffle=True, **more),
    "filter": lambda src, to, **more: tfrtool.filter_records(
        src, to, where="label = 1", dedupe=True, **more
    ),
    "convert": lambda src, to, **more: tfrtool.convert(src, to, to="jsonl", shards=2, **more),
}
"""Jobs that read all records at least twice."""


@pytest.fixture(scope="module")
def connected(nodes: Nodes, emulators: Emulators) -> Iterator[None]:
    """Connect to a cluster whose nodes have the credentials of the store."""
    try:
        environment = emulators.bucket().environment
    except MissingError as error:
        pytest.skip(str(error))
    ray.init(nodes.address, runtime_env={"env_vars": environment}, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def source(bucket: Bucket, tmp_path: Path) -> Path:
    """Return shards of 2 MB, which are in the bucket, too; requests are counted from here."""
    payloads = [image_payload(n % 3, data=n.to_bytes(4, "big") * 8_000) for n in range(RECORDS)]
    folder = write_foreign(tmp_path / "source", [payloads[n::SHARDS] for n in range(SHARDS)])
    bucket.put_folder(folder, "source/")
    bucket.forget()
    return folder


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize("job", JOBS)
def test_each_shard_is_downloaded_once(
    job: str, source: Path, bucket: Bucket, tmp_path: Path
) -> None:
    """All tasks share what was downloaded; the output is that of one machine."""
    local = tmp_path / "cats" / "1.0.0"
    JOBS[job](source, local)
    JOBS[job](f"{bucket.url}/source", f"{bucket.url}/cats/1.0.0", engine="ray")
    reads = [one for one in bucket.log() if one["target"].endswith("-of-00003.tfrecord")]
    size = sum(path.stat().st_size for path in source.iterdir())
    assert size <= sum(one["down"] for one in reads) < 1.2 * size
    there, here = stored_digests(bucket, "cats/1.0.0"), local_digests(local)
    assert there.pop("write_report.json") != here.pop("write_report.json")  # it names the sources
    assert there == here


@pytest.mark.usefixtures("connected", "source")
def test_a_node_that_dies_with_its_blocks(bucket: Bucket, nodes: Nodes) -> None:
    """They are downloaded again."""
    nodes.send("add")
    removed: list[str] = []

    def remove(progress: Progress) -> None:
        if progress.what == "scanning" and not removed:
            removed.append(progress.what)
            nodes.send("remove 1")

    report = JOBS["shuffle"](
        f"{bucket.url}/source", f"{bucket.url}/cats", engine="ray", on_progress=remove
    )
    assert removed
    assert (report.records_out, report.corrupt) == (RECORDS, 0)
    assert report.digest_in == report.digest_out


@pytest.mark.usefixtures("connected", "source")
def test_a_shard_that_is_replaced(bucket: Bucket) -> None:
    """It is an error that names it, and nothing is published."""
    bucket.misbehave(
        Misbehaviour(matching="part-00001-of-00003.tfrecord", methods=("GET",), status=412)
    )
    with pytest.raises(tfrtool.ShardError, match=r"part-00001.*changed"):
        JOBS["shuffle"](f"{bucket.url}/source", f"{bucket.url}/cats", engine="ray")
    assert bucket.names("cats") == []


@pytest.mark.usefixtures("connected", "source")
def test_ray_data_in_a_store(bucket: Bucket, tmp_path: Path) -> None:
    """Rows are written to a store; after a failed upload neither these nor blocks are left."""
    ray_data: Any = importlib.import_module("tfrtool.ray")
    target = f"{bucket.url}/rows/1.0.0"
    rows = ray_data.read(f"{bucket.url}/source", columns=["label"])
    report = ray_data.write(rows, target, staging=tmp_path / "staging")
    assert report.job.records_out == RECORDS
    labels = sorted(tfrtool.read_table(target).to_pandas()["label"])
    assert labels == sorted(n % 3 for n in range(RECORDS))
    bucket.misbehave(Misbehaviour(matching=".tfrecord-", methods=("PUT",), status=403))
    with pytest.raises(tfrtool.WriteError, match="denied"):
        ray_data.write(rows, target, staging=tmp_path / "staging", existing="overwrite")
    assert bucket.names("rows") == []
    assert [*(tmp_path / "staging").iterdir()] == []
