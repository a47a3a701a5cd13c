"""Jobs that die, fail or are interrupted before any of their effects, seen from outside."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import image_payload, write_foreign
from tests.emulators import Bucket, Misbehaviour
from tests.more import more
from tests.photos import write_class_folders
from tests.process.effects import before_effects
from tfrtool.errors import DatasetError, ShardError, TfrtoolError, UsageError, WriteError
from tfrtool.storage.progress import Progress

Files = dict[str, bytes]

HIDDEN = ("seconds", "resumed", "warnings", "dataset")
"""Keys of a report that differ between runs."""


@dataclass(frozen=True)
class Job:
    """A job that writes to a folder of its own.

    Attributes:
        run: runs it, from the folder of its sources to the target, as a given existing policy.
        before: what was written to the target before, from a folder to the target.
    """

    run: Callable[[Path, Any, str], object]
    before: Callable[[Path, Any], object] | None = None


def _reshard(shards: int, **more: Any) -> Callable[..., Any]:
    def run(sources: Path, target: Any, existing: str = "refuse") -> object:
        fixed: dict[str, Any] = {"name": "cats", "version": "1.0.0", "workers": 1}
        options = fixed | {"shards": shards, "existing": existing, **more}
        return tfrtool.reshard(sources / "records", target, **options)

    return run


def _verb(verb: Callable[..., object], **options: Any) -> Callable[..., object]:
    def run(sources: Path, target: Any, existing: str = "refuse") -> object:
        fixed: dict[str, Any] = {"name": "cats", "version": "1.0.0", "workers": 1}
        return verb(sources / "records", target, existing=existing, **fixed, **options)

    return run


def _append(sources: Path, target: Any, existing: str = "refuse") -> object:
    return tfrtool.append(
        sources / "dataset",
        sources / "more",
        out=target,
        workers=1,
        existing=existing,  # type: ignore[arg-type]
    )


def _write(sources: Path, target: Any, existing: str = "refuse", **options: Any) -> object:
    fixed: dict[str, Any] = {"name": "cats", "shards": 2, "workers": 1, "existing": existing}
    return tfrtool.write(sources / "photos", target, **fixed | options)


_OLD = _reshard(2, shuffle=True, seed=3)

JOBS = {
    "reshard": Job(_reshard(2)),
    "reshard over the same names": Job(_reshard(2), _OLD),
    "reshard over other names": Job(_reshard(3, index=True), _OLD),
    "filter": Job(_verb(tfrtool.filter, sample=5, shards=2), _OLD),
    "convert": Job(_verb(tfrtool.convert, to="parquet", shards=2), _OLD),
    "edit": Job(_verb(tfrtool.edit, drop=["label"])),
    "append": Job(_append),
    "write": Job(_write),
    "write over another": Job(_write, lambda s, t: _write(s, t, seed=7, shards=1)),
}
EVERY = {"reshard over the same names"}
"""Jobs that die before each of their effects; the others before some."""

FAMILIES = {*EVERY, "convert", "append", "write over another"}
"""A job of each kind, which the gate runs; `make test-several` runs the others, too."""

SOME = 7

CASES = [
    pytest.param(
        name,
        marks=[
            *([pytest.mark.tf, pytest.mark.slow] if "write" in name else []),
            *([] if name in FAMILIES else [pytest.mark.more]),
        ],
    )
    for name in JOBS
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of records, photographs and a dataset of two shards."""
    root = tmp_path_factory.mktemp("sources")
    write_foreign(root / "records", [[image_payload(n) for n in range(k, k + 4)] for k in (0, 4)])
    write_foreign(root / "more", [[image_payload(9)]])
    write_class_folders(root / "photos", count=5)
    _reshard(2)(root, root / "dataset")
    return root


def _files(folder: Path) -> Files:
    """Return the files that others see; of a report what is the same in each run."""
    found = {
        path.name: path.read_bytes()
        for path in (folder.iterdir() if folder.is_dir() else ())
        if not path.name.startswith(".")
    }
    return {name: _told(data) if "report" in name else data for name, data in found.items()}


def _told(data: bytes) -> bytes:
    report = json.loads(data)
    for split in report["splits"].values():
        for shard in split["shards"]:
            shard.pop("etag", None)
    return repr([(key, value) for key, value in report.items() if key not in HIDDEN]).encode()


def _is_refused(target: Any) -> bool:
    """Return whether readers refuse a dataset, all of them; what they read is whole."""
    refused = []
    for read in (tfrtool.inspect_dataset, lambda path: tfrtool.verify([str(path)])):
        try:
            report = read(target)
        except (DatasetError, ShardError):
            refused.append(True)
        else:
            assert not getattr(report, "faults", ())
            refused.append(False)
    assert len(set(refused)) == 1
    return refused[0]


def _state(folder: Path) -> frozenset[tuple[str, bytes]]:
    return frozenset(
        (path.relative_to(folder).as_posix(), path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    )


def _deaths(job: Job, sources: Path, root: Path) -> tuple[Files, Files, list[Path]]:
    """Return the files before a job and after it, and a copy of its folder at each effect."""
    target, at = root / "live" / "out", root / "at"
    target.parent.mkdir()
    at.mkdir()
    if job.before is not None:
        job.before(sources, target)
    old = _files(target)

    def copy(number: int) -> None:
        with suppress(shutil.Error):  # what another thread takes away meanwhile
            shutil.copytree(target.parent, at / f"{number:04}", symlinks=True)

    with before_effects(target.parent, copy) as effects:
        job.run(sources, target, "overwrite")
    copy(effects[0])
    return old, _files(target), sorted(at.iterdir())


@pytest.mark.parametrize("name", CASES)
def test_killed_before_any_effect(sources: Path, tmp_path: Path, name: str) -> None:
    """Readers see the old dataset or the new one, or none; --resume and --overwrite end it."""
    job, before = JOBS[name], _state(sources)
    old, new, deaths = _deaths(job, sources, tmp_path)
    assert len(deaths) > 30
    if name not in EVERY:
        deaths = sorted({*deaths[:: len(deaths) // SOME], *deaths[-4:]})
    seen, resumed = set(), 0
    for place in deaths:
        if (state := _state(place)) in seen:
            continue
        seen.add(state)
        target = place / "out"
        files, publishing = _files(target), (target / ".tfrtool-publishing").exists()
        # Not even a pattern takes files of both together.
        assert files.items() <= old.items() or files.items() <= new.items()
        assert files in (old, new) or publishing
        assert "write_report.json" not in files or files in (old, new)  # it comes last
        parquet = any(file.endswith(".parquet") for file in files)
        if target.is_dir() and not parquet:
            assert _is_refused(target) == (publishing or not files)
        other = shutil.copytree(place, tmp_path / "other" / place.name) / "out"
        untouched = files == old and not (target / ".tfrtool-incomplete").exists()
        if old and untouched and not publishing:
            with pytest.raises(UsageError, match="already complete"):
                job.run(sources, target, "resume")
        else:
            report = job.run(sources, target, "resume")
            report = getattr(report, "job", report)
            resumed = max(resumed, getattr(report, "resumed", 0))
            assert _files(target) == new
            assert list(target.glob(".*")) == []
        job.run(sources, other, "overwrite")
        assert _files(other) == new
        assert [path.name for path in other.parent.iterdir()] == ["out"]
        assert list(other.glob(".*")) == []
    assert resumed == sum("-of-" in file and not file.endswith(".idx") for file in new)
    assert _state(sources) == before


@pytest.mark.parametrize("name", [more("reshard"), "reshard over the same names"])
@pytest.mark.parametrize("what", [more("error"), "SIGINT"])
def test_failed_before_any_effect(sources: Path, tmp_path: Path, name: str, what: str) -> None:
    """An error, or Ctrl-C, leaves the old dataset or the new one, and nothing else."""
    job, met = JOBS[name], {"old": 0, "new": 0}
    whole = tmp_path / "whole"
    job.run(sources, whole, "refuse")
    for number in range(0, 1000, 1 if what == "error" else 3):
        target = tmp_path / str(number) / "out"
        target.parent.mkdir()
        if job.before is not None:
            job.before(sources, target)
        old = _files(target)

        def fail(at: int, stop: int = number) -> None:
            if at == stop and what == "error":
                raise OSError(28, "No space left on device")
            if at == stop:
                os.kill(os.getpid(), signal.SIGINT)

        raised = False
        with before_effects(target.parent, fail) as effects:
            try:
                job.run(sources, target, "overwrite")
            except (WriteError, KeyboardInterrupt):
                raised = True
        if effects[0] <= number:
            break
        files = _files(target)
        assert files in (old, _files(whole))
        met["old" if files == old else "new"] += 1
        assert raised or files == _files(whole)
        left = [path.name for path in target.glob(".*")]
        assert left == [] or (not raised and len(left) == 1)  # it was this that can't be deleted
        assert not target.exists() or not _is_refused(target)
    assert met["old"] > 8
    assert met["new"] > 1


STORED = {
    "reshard": Job(_reshard(2)),
    "reshard over another": Job(_reshard(2, index=True), _OLD),
    "append": Job(_append),
    "convert": Job(_verb(tfrtool.convert, to="parquet", shards=2)),
    "write over another": JOBS["write over another"],
}
PREFIX = "cats/1.0.0"
CHANGES = ("PUT", "POST", "DELETE")


def _stored(bucket: Bucket) -> Files:
    """Return the files of the dataset that is in a bucket, which holds nothing else."""
    keys = [key.removeprefix(f"{PREFIX}/") for key in bucket.names()]
    folders = {key.partition("/")[0] for key in keys if "/" in key}
    assert len(folders) <= 1
    (folder,) = folders or [""]
    assert not folder or re.fullmatch(r"v-[0-9a-f]{16}", folder)
    # Beside a folder there are its metadata, for TFDS, and the commit, which names it.
    names = [key.removeprefix(f"{folder}/") for key in keys if key.startswith(folder)]
    assert {key for key in keys if "/" not in key} <= {*names}
    found = {name: bucket.get("/".join(filter(None, (PREFIX, folder, name)))) for name in names}
    return {name: _told(data) if "report" in name else data for name, data in found.items()}


def _read(bucket: Bucket) -> Files | None:
    """Return the shards that readers find; None if they say that there is no dataset."""
    url = f"{bucket.url}/{PREFIX}"
    try:
        shards = tfrtool.find_shards(url)
    except (DatasetError, ShardError):
        return None
    if not any(shard.suffix == ".parquet" for shard in shards):
        assert all(not verdict.faults for verdict in tfrtool.verify([url]).shards)
    return {shard.name: bucket.get(str(shard).removeprefix(f"{bucket.url}/")) for shard in shards}


def _shards(files: Files) -> Files:
    return {n: data for n, data in files.items() if "-of-" in n and not n.endswith(".idx")}


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("reshard over another", 3),
        *(more(name, 1) for name in ("reshard over another", "reshard", "append", "convert")),
        pytest.param("write over another", 1, marks=[pytest.mark.tf, pytest.mark.more]),
    ],
)
def test_cut_off_from_a_store(
    sources: Path, bucket: Bucket, tmp_path: Path, name: str, step: int
) -> None:
    """As above, of a store that refuses all changes from one of them on, as after a kill."""
    job, url, met = STORED[name], f"{bucket.url}/{PREFIX}", {"old": 0, "new": 0, "none": 0}
    job.run(sources, tmp_path / "cats" / "1.0.0", "refuse")
    new, old = _files(tmp_path / "cats" / "1.0.0"), Files()
    if job.before is not None:
        job.before(sources, url)
        old = _stored(bucket)
    start, resumed = {key: bucket.get(key) for key in bucket.names()}, 0
    refused = Misbehaviour(methods=CHANGES, status=403, code="AccessDenied")
    for number in range(0, 100, step):
        for key in {*bucket.names()} - start.keys():
            bucket.client.delete_object(Bucket=bucket.name, Key=key)
        for key, data in start.items():
            bucket.put(key, data)
        bucket.forget()
        bucket.misbehave(replace(refused, after=number))
        try:
            job.run(sources, url, "overwrite")
        except TfrtoolError:
            pass
        else:
            break
        finally:
            bucket.misbehave()
        read = _read(bucket)
        if bucket.names():
            assert read in (None, _shards(old), _shards(new))
        met["none" if read is None else "old" if read == _shards(old) else "new"] += 1
        existing = ("resume", "overwrite")[number % 2]
        if old and read == _shards(old) and not any("incomplete" in k for k in bucket.names()):
            existing = "overwrite"
        elif not old and bucket.names():
            with pytest.raises(UsageError, match=r"interrupted or running write|already exists"):
                job.run(sources, url, "refuse")
        report = job.run(sources, url, existing)
        resumed = max(resumed, getattr(getattr(report, "job", report), "resumed", 0))
        assert _stored(bucket) == new
        assert bucket.uploads() == []
    assert 8 < number < 99
    assert met["new"] > 0
    assert met["old"] > 0 or not old
    assert resumed > 0


def test_replaced_while_it_is_read(sources: Path, tmp_path: Path) -> None:
    """Reading a dataset that is replaced meanwhile is an error, never a mixture."""
    _OLD(sources, tmp_path / "out")
    left = [1]

    def overwrite(now: Progress) -> None:
        if now.done and left:
            _reshard(left.pop())(sources, tmp_path / "out", "overwrite")

    with pytest.raises(DatasetError, match="replaced while it was being read"):
        tfrtool.inspect_dataset(tmp_path / "out", workers=1, on_progress=overwrite)
    tfrtool.inspect_dataset(tmp_path / "out", workers=1)


_KILLED = """
import os, signal, sys
from pathlib import Path
import tfrtool
from tests.process.effects import logged

source, target = sys.argv[1:]

def kill(_):
    if logged(Path(target)) >= 3:
        os.kill(os.getpid(), signal.SIGKILL)

tfrtool.reshard(source, target, shards=30, shuffle=True, name="cats", workers=2, on_progress=kill)
"""
"""A job that kills itself when some of its shards are finished, however busy the machine is."""


@pytest.mark.several
@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
def test_sigkill_with_workers(tmp_path: Path) -> None:
    """A job in several processes that is really killed is resumed with the files it had."""
    rng = random.Random(1)
    source = write_foreign(tmp_path / "s", [[rng.randbytes(9000) for _ in range(900)]])
    target, notes = tmp_path / "out", tmp_path / "out" / ".tfrtool-incomplete"
    words = [sys.executable, "-c", _KILLED, str(source), str(target)]
    job = subprocess.run(words, cwd=Path(__file__).parents[2], check=False)
    assert job.returncode == -signal.SIGKILL
    ready = {path.name: path.stat().st_mtime_ns for path in notes.glob("cats-*-of-00030")}
    report = tfrtool.reshard(
        source, target, shards=30, shuffle=True, name="cats", existing="resume"
    )
    assert 3 <= report.resumed <= len(ready)
    kept = {path.name: path.stat().st_mtime_ns for path in target.iterdir()}
    assert len(ready.items() & kept.items()) >= report.resumed
    tfrtool.reshard(source, tmp_path / "whole", shards=30, shuffle=True, name="cats")
    assert _files(target) == _files(tmp_path / "whole")


@pytest.mark.skipif(os.name != "posix", reason="there are no limits")
def test_a_full_disk_leaves_nothing(sources: Path, tmp_path: Path) -> None:
    """The error names the file and what the system says; the directory is as it was."""
    program = (
        "import resource, signal, sys; from tfrtool.cli import main;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)); sys.exit(main())"
    )
    words = ["reshard", str(sources / "records"), str(tmp_path / "new"), "--name", "cats"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "cats-train.tfrecord-00000-of-00001: can't be written: file too large" in done.stderr
    assert list(tmp_path.iterdir()) == []
