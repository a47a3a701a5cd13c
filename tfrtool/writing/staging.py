"""The folder where shards become whole, and what an interrupted write left there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tfrtool.errors import UsageError, WriteError, os_reason
from tfrtool.storage.lock import LOCK, locked
from tfrtool.writing.directory import REPORT, STAGING, is_ours
from tfrtool.writing.options import Existing
from tfrtool.writing.plan import ShardResult, ShardTask

__all__ = ["Staging", "file_sha256", "staging_directory"]

_DONE = ".done.json"


class Staging:
    """The shards of a write that are whole already, and those that aren't.

    A shard counts as whole if a note of its task lies beside it, and its bytes are those that the
    note tells. The note names everything that the bytes depend on, contents of images included.

    Attributes:
        folder: where shards are written.
    """

    def __init__(self, folder: Path, dataset: Path) -> None:
        self.folder = folder
        self._dataset = dataset

    def finished(self, task: ShardTask) -> ShardResult | None:
        """Return the result of a task that an earlier run has done; None if it is to be done."""
        try:
            note = json.loads(self._note(task).read_bytes())
            if note["task"] != task.fingerprint:
                return None
            result = ShardResult(
                name=task.name,
                records=int(note["records"]),
                bytes=int(note["bytes"]),
                payload_bytes=int(note["payload_bytes"]),
                sha256=str(note["sha256"]),
                labels={str(label): int(count) for label, count in note["labels"].items()},
            )
            # It may have been on its way to its final place.
            published = self._dataset / str(task.name)
            if not task.path.exists() and published.exists():
                published.replace(task.path)
            if task.path.stat().st_size != result.bytes or file_sha256(task.path) != result.sha256:
                return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return result

    def note(self, task: ShardTask, result: ShardResult) -> None:
        """Note that a task is done.

        Raises:
            WriteError: the note can't be written.
        """
        data = {
            "task": task.fingerprint,
            "records": result.records,
            "bytes": result.bytes,
            "payload_bytes": result.payload_bytes,
            "sha256": result.sha256,
            "labels": dict(result.labels),
        }
        path = self._note(task)
        temporary = path.with_suffix(".tmp")
        try:
            temporary.write_text(json.dumps(data), "utf-8")
            temporary.replace(path)
        except OSError as error:
            raise WriteError(f"can't be written: {os_reason(error)}", path=path) from error

    def _note(self, task: ShardTask) -> Path:
        return self.folder / f"{task.name}{_DONE}"


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(256 * 1024):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def staging_directory(dataset: Path, existing: Existing) -> Iterator[Staging]:
    """Give a folder to write in, on the same file system as ``dataset``; take it away at the end.

    Nobody else writes to the dataset meanwhile. Only where the process is killed is the folder
    left; then `Existing.RESUME` finds it.

    Args:
        dataset: the dataset's directory; it is made if it isn't there, and taken away again if
            nothing came of it.
        existing: what is to become of what is there already.

    Raises:
        UsageError: something is there already, and not to be touched; or another process writes.
        WriteError: the directory can't be made or written to.
    """
    if dataset.exists() and not dataset.is_dir():
        raise UsageError("is a file; a dataset is a directory", path=dataset)
    made = _make(dataset)
    try:
        with _locked(dataset):
            _check_target(dataset, existing)
            folder = dataset / STAGING
            try:
                if existing is not Existing.RESUME:
                    shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(exist_ok=True)
            except OSError as error:
                raise _unwritable(dataset, error) from error
            try:
                yield Staging(folder, dataset)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()


def _make(dataset: Path) -> list[Path]:
    """Make a directory, and return those that had to be made, the innermost first."""
    made = []
    for path in (dataset, *dataset.parents):
        if path.exists():
            break
        made.append(path)
    try:
        dataset.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(dataset, error) from error
    return made


@contextlib.contextmanager
def _locked(dataset: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(dataset))
        except OSError as error:
            raise _unwritable(dataset, error) from error
        yield


def _unwritable(dataset: Path, error: OSError) -> WriteError:
    return WriteError(f"can't be written to: {os_reason(error)}", path=dataset)


def _check_target(dataset: Path, existing: Existing) -> None:
    """Raise if a directory may not be written to."""
    try:
        names = set(os.listdir(dataset)) - {LOCK}  # noqa: PTH208
    except OSError as error:
        raise WriteError(f"can't be read: {os_reason(error)}", path=dataset) from error
    if not names:
        return
    interrupted = STAGING in names
    if existing is Existing.REFUSE:
        if interrupted:
            raise UsageError(
                "an interrupted write was left here",
                path=dataset,
                hint="--resume goes on with it, --overwrite starts anew",
            )
        raise UsageError(
            "is not empty", path=dataset, hint="--overwrite replaces what tfrtool wrote there"
        )
    if existing is Existing.RESUME and not interrupted:
        what = "is complete, there is nothing to resume" if REPORT in names else "is not empty"
        raise UsageError(what, path=dataset, hint="--overwrite replaces what tfrtool wrote there")
    foreign = {name for name in names if name != STAGING and not is_ours(name)}
    if REPORT not in names and (foreign or not interrupted):
        raise UsageError(
            f"holds files that tfrtool did not write ({min(foreign or names)})",
            path=dataset,
            hint="choose another directory; --overwrite replaces only what tfrtool wrote",
        )
