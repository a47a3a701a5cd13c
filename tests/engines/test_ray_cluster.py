"""Work on a cluster ends as on one machine, whatever dies there."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import flip_bit
from tests.engines.running import Nodes
from tests.engines.tasks import begin_and_wait, die, name_of, refuse
from tests.examples.strategies import int64, string
from tests.photos import image_bytes, write_class_folders
from tests.process.effects import logged
from tfrtool.engines import ray_cluster
from tfrtool.engines.pool import map_shards
from tfrtool.engines.ray_cluster import RayCluster
from tfrtool.examples.example import encode_example
from tfrtool.records.framing import frame
from tfrtool.storage.json_values import to_json_values
from tfrtool.storage.progress import Progress

ray = pytest.importorskip("ray")
pytest.importorskip("duckdb")

SHARDS, RECORDS = 8, 40

pytestmark = pytest.mark.several
needs_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="workers are found there")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of some shards; a record of one of them is damaged."""
    folder = tmp_path_factory.mktemp("cluster") / "numbers"
    folder.mkdir()
    for shard in range(SHARDS):
        payloads = [
            encode_example({"label": int64(n % 5), "text": string(b"%d" % (n * shard) * 9)})
            for n in range(RECORDS)
        ]
        name = f"numbers-train.tfrecord-{shard:05}-of-{SHARDS:05}"
        (folder / name).write_bytes(b"".join(map(frame, payloads)))
    flip_bit(folder / f"numbers-train.tfrecord-00003-of-{SHARDS:05}", 30)
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a dataset; without times and places in its report."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    report = json.loads(files.pop("write_report.json"))
    kept = {key: value for key, value in report.items() if key not in ("seconds", "dataset")}
    return files | {"report": json.dumps(kept).replace(str(folder.parent), "").encode()}


LOOKS: dict[str, Callable[..., Any]] = {
    "verify": lambda at, **words: to_json_values(tfrtool.verify(at, **words)),
    "infer_schema": lambda at, **words: tfrtool.infer_schema(at, **words).to_json(),
    "stats": lambda at, **words: to_json_values(tfrtool.stats(at, against=at, **words)),
}


def test_the_program_stays_as_it_was(dataset: Path, nodes: Nodes) -> None:
    """No token, no variable and no handler of signals is left; the cluster runs on."""
    before = dict(os.environ), signal.getsignal(signal.SIGTERM)
    for _ in range(2):
        found = tfrtool.verify(dataset, engine="ray", engine_address=nodes.address)
        assert found.records == SHARDS * RECORDS - 1
        assert not ray.is_initialized()
    assert (dict(os.environ), signal.getsignal(signal.SIGTERM)) == before
    assert list(Path.home().iterdir()) == []


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("look", LOOKS)
def test_looking_is_the_same(look: str, dataset: Path, nodes: Nodes) -> None:
    """What is found is what one machine finds, in the same order; damage included."""
    found = LOOKS[look](dataset, engine="ray", engine_address=nodes.address)
    assert found == LOOKS[look](dataset, workers=1)


JOBS: dict[str, Callable[..., Any]] = {
    "reshard": lambda at, to, **words: tfrtool.reshard(
        at, to, shuffle=True, seed=1, shards=7, **words
    ),
    "convert": lambda at, to, **words: tfrtool.convert(at, to, to="parquet", shards=5, **words),
}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("job", JOBS)
def test_jobs_are_the_same(job: str, dataset: Path, nodes: Nodes, tmp_path: Path) -> None:
    """What is written is what one machine writes, to the byte, and so is the report."""
    JOBS[job](dataset, tmp_path / "there" / "made", engine="ray", engine_address=nodes.address)
    JOBS[job](dataset, tmp_path / "here" / "made", workers=1)
    assert files_of(tmp_path / "there" / "made") == files_of(tmp_path / "here" / "made")


def test_results_in_order_and_as_they_are_done(cluster: RayCluster, tmp_path: Path) -> None:
    """Results come in the order of the tasks, or the first that is done first."""
    names = [tmp_path / str(number) for number in range(20)]
    assert list(map_shards(name_of, names, cluster)) == [path.name for path in names]
    done = list(map_shards(name_of, names, cluster, in_order=False))
    assert sorted(done) == sorted(path.name for path in names)


@needs_proc
@pytest.mark.slow
def test_a_worker_that_dies_costs_what_it_was_about_to_do(
    cluster: RayCluster, nodes: Nodes, tmp_path: Path
) -> None:
    """Its task is done again, and no other one."""
    found = []
    for number, size in map_shards(begin_and_wait, [(tmp_path, n) for n in range(12)], cluster):
        found.append(number)
        assert size == 300_000
        if number == 3:
            nodes.kill_one()
    assert found == list(range(12))
    assert len(list(tmp_path.iterdir())) in (12, 13)  # it may have died between two tasks


@needs_proc
@pytest.mark.slow
def test_a_node_that_dies_costs_what_it_was_about_to_do(
    cluster: RayCluster, nodes: Nodes, tmp_path: Path
) -> None:
    """All of its processes are gone, and what results of theirs were not yet fetched."""
    found = []
    try:
        for number, _ in map_shards(begin_and_wait, [(tmp_path, n) for n in range(15)], cluster):
            found.append(number)
            if number == 4:
                nodes.send("remove 0")
    finally:
        nodes.send("add")
    assert found == list(range(15))
    assert len(list(tmp_path.iterdir())) <= 15 + 4


@pytest.mark.slow
def test_a_task_that_kills_its_workers_is_given_up(cluster: RayCluster, tmp_path: Path) -> None:
    """It is not tried for ever, and the error names its shard, wherever in the task that is."""
    with pytest.raises(tfrtool.ShardError) as caught:
        list(map_shards(die, [(2, (tmp_path, 3))], cluster))
    assert caught.value.path == str(tmp_path)
    assert "5 times" in caught.value.what
    assert "crashed" in caught.value.what


def test_errors_cross_as_they_are(cluster: RayCluster, tmp_path: Path) -> None:
    """An error of a task has the same class and facts here as there."""
    with pytest.raises(tfrtool.CorruptShardError) as caught:
        list(map_shards(refuse, [tmp_path], cluster))
    error = caught.value
    facts = (error.what, error.path, error.record, error.offset, error.hint)
    assert facts == ("is damaged", str(tmp_path), 3, 40, "cut it")


def test_damage_that_ends_a_job_is_named(dataset: Path, nodes: Nodes, tmp_path: Path) -> None:
    """The error of a job names the file and the record, and nothing is left at the target."""
    with pytest.raises(tfrtool.CorruptShardError) as caught:
        tfrtool.reshard(
            dataset,
            tmp_path / "out",
            on_error="stop",
            engine="ray",
            engine_address=nodes.address,
        )
    assert caught.value.path == str(dataset / f"numbers-train.tfrecord-00003-of-{SHARDS:05}")
    assert caught.value.record == 0
    assert not (tmp_path / "out").exists()


@needs_proc
def test_a_file_that_a_node_does_not_have(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that leads nowhere on a node is an error that says so."""
    monkeypatch.setattr(ray_cluster, "_FILE_WAIT_SECONDS", 0.5)
    here = os.open(tmp_path, os.O_RDONLY)
    os.dup2(here, 987)
    try:
        path = Path("/proc/self/fd/987")
        with pytest.raises(tfrtool.ShardError, match="but not on node") as caught:
            list(map_shards(name_of, [path], cluster))
    finally:
        os.close(987)
        os.close(here)
    assert caught.value.path == str(path)


def test_another_version_on_a_node(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node with another tfrtool is an error that names both versions."""
    there = ray_cluster._VERSION
    monkeypatch.setattr(ray_cluster, "_VERSION", "9.9.9")
    with pytest.raises(tfrtool.ClusterError) as caught:
        list(map_shards(name_of, [tmp_path], cluster))
    assert (caught.value.expected, caught.value.found) == ("9.9.9", there)


@pytest.mark.usefixtures("cluster")
def test_a_program_that_is_connected_stays_so(dataset: Path) -> None:
    """Who uses Ray itself needs no address, and is not disconnected."""
    assert tfrtool.verify(dataset, engine="ray").records == SHARDS * RECORDS - 1
    assert ray.is_initialized()
    with pytest.raises(tfrtool.UsageError, match="connected to another Ray cluster"):
        tfrtool.verify(dataset, engine="ray", engine_address="127.0.0.1:1")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return images of two classes: one is a copy, one is no JPEG, one is no image."""
    source = write_class_folders(tmp_path_factory.mktemp("write") / "photos", count=60)
    (source / "cat" / "bad.jpg").write_bytes(b"no image")
    (source / "cat" / "png.jpg").write_bytes(image_bytes("PNG"))
    (source / "dog" / "copy.jpg").write_bytes((source / "cat" / "cat.1.jpg").read_bytes())
    return source


@pytest.mark.slow
@pytest.mark.usefixtures("cluster", "tf")
def test_writes_are_the_same(photos: Path, nodes: Nodes, tmp_path: Path) -> None:
    """All files are the same, to the byte, and so is what the report says of each image."""
    words: dict[str, Any] = {"splits": {"train": 0.8, "test": 0.2}, "shard_size": "32KB"}
    there, here = tmp_path / "there" / "made", tmp_path / "here" / "made"
    found = tfrtool.write(photos, there, engine="ray", engine_address=nodes.address, **words)
    assert found.rejected
    tfrtool.write(photos, here, workers=1, **words)
    assert files_of(there) == files_of(here)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster", "tf")
def test_a_worker_that_dies_in_a_write(photos: Path, nodes: Nodes, tmp_path: Path) -> None:
    """One dies while it looks at images, and another one in the midst of a shard."""
    there, here = tmp_path / "there" / "made", tmp_path / "here" / "made"
    words: dict[str, Any] = {"shards": 12, "dedupe": True}
    killed = []

    def kill(progress: Progress) -> None:
        if progress.what not in killed and nodes.kill_any():
            killed.append(progress.what)

    where = {"engine": "ray", "engine_address": nodes.address}
    tfrtool.write(photos, there, on_progress=kill, **words | where)
    assert "writing" in killed
    tfrtool.write(photos, here, workers=1, **words)
    assert files_of(there) == files_of(here)


def tool(*words: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start the command line."""
    return subprocess.Popen(
        [sys.executable, "-m", "tfrtool", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )


@pytest.mark.slow
def test_the_command_line(dataset: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the result is printed, for relative paths, too.

    Modules that lie about in the current directory are not taken.
    """
    monkeypatch.chdir(dataset.parent)
    (dataset.parent / "base64.py").write_text("raise RuntimeError('not this one')")
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    there = tool("verify", dataset.name, "--json", "--engine", "ray")
    here = tool("verify", dataset.name, "--json")
    assert there.communicate(timeout=300) == here.communicate(timeout=300)
    assert there.returncode == here.returncode == 3


@pytest.mark.slow
def test_a_wrong_token(dataset: Path, nodes: Nodes, tmp_path: Path) -> None:
    """Who has no token, or another one, gets an error that names the variable."""
    (tmp_path / "token").write_text("0123456789abcdef")
    others = [
        {"RAY_AUTH_MODE": "disabled"},
        {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")},
    ]
    words = ("verify", dataset, "--engine", "ray", "--engine-address", nodes.address)
    running = [tool(*words, env={**os.environ, **other}) for other in others]
    for process in running:
        out, errors = process.communicate(timeout=300)
        assert (process.returncode, out) == (1, "")
        last = errors.splitlines()[-1]  # Ray logs its attempts before
        assert last.startswith(
            f"tfrtool: error: {nodes.address}: can't connect to this Ray cluster"
        )
        assert "RAY_AUTH_TOKEN_PATH" in last


@pytest.mark.slow
def test_another_service_at_the_address(dataset: Path) -> None:
    """What accepts connections but isn't Ray is an error that names the address, and soon."""
    with socket.create_server(("127.0.0.1", 0)) as server:  # the system accepts for it
        address = f"127.0.0.1:{server.getsockname()[1]}"
        process = tool("verify", dataset, "--engine", "ray", "--engine-address", address)
        out, errors = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    expected = f"tfrtool: error: {address}: can't connect to this Ray cluster"
    assert errors.splitlines()[-1].startswith(expected)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset whose compression takes some seconds."""
    folder = tmp_path_factory.mktemp("large")
    payloads = [encode_example({"data": string(os.urandom(400_000))}) for _ in range(120)]
    (folder / "large.tfrecord").write_bytes(b"".join(map(frame, payloads)))
    return folder


def begun(large: Path, target: Path, nodes: Nodes, shards: int = 1) -> subprocess.Popen[str]:
    """Start a job, and return as soon as so many of its 24 shards are whole."""
    words = ("--shards", 24, "--compression", "gzip", "--json")
    where = ("--engine", "ray", "--engine-address", nodes.address)
    process = tool("reshard", large, target, *words, *where)
    while logged(target) < shards:
        assert process.poll() is None
        time.sleep(0.005)
    return process


@needs_proc
@pytest.mark.slow
def test_what_dies_is_not_printed(large: Path, nodes: Nodes, tmp_path: Path) -> None:
    """A worker that dies leaves no word of Ray's on standard output or error."""
    process = begun(large, tmp_path / "made", nodes)
    nodes.kill_one()
    out, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (0, "")
    assert json.loads(out)["records_out"] == 120


@needs_proc
@pytest.mark.slow
def test_a_driver_that_is_killed(large: Path, nodes: Nodes, tmp_path: Path) -> None:
    """Its shards are found again, and the rest is written; the bytes are the same."""
    made = tmp_path / "there" / "made"
    words: dict[str, Any] = {"shards": 24, "compression": "gzip"}
    process = begun(large, made, nodes)
    process.kill()
    process.communicate()
    where = {"engine": "ray", "engine_address": nodes.address}
    report = tfrtool.reshard(large, made, existing="resume", **words | where)
    assert 0 < report.resumed < 24
    tfrtool.reshard(large, tmp_path / "here" / "made", **words)
    there, here = files_of(made), files_of(tmp_path / "here" / "made")
    assert there.pop("report") != here.pop("report")  # it names what was resumed
    assert there == here


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 6, 11])
def test_an_interrupt(shards: int, large: Path, nodes: Nodes, tmp_path: Path) -> None:
    """Ctrl-C ends the tasks, mostly as one is completed, and nothing is left behind."""
    process = begun(large, tmp_path / "made", nodes, shards)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=300)
    assert (process.returncode, out, errors) == (
        130,
        "",
        "\ntfrtool: interrupted; nothing was written\n",
    )
    assert not (tmp_path / "made").exists()
    deadline = time.monotonic() + 300
    while nodes.workers:  # Ray needs a moment to end them
        assert time.monotonic() < deadline
        time.sleep(0.01)
