"""The folder where shards become whole, and what an interrupted write left there."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError, WriteError, os_errors_as, os_reason
from tfrtool.records.names import ShardName
from tfrtool.storage.appearing import new_file, private_folder
from tfrtool.storage.json_files import read_json
from tfrtool.storage.lock import LOCK, locked
from tfrtool.storage.publishing import PUBLISHING, finish_publishing
from tfrtool.storage.signals import signals_wait
from tfrtool.writing.directory import (
    METADATA,
    REPORT,
    STAGING,
    is_ours,
    listed_shards,
    read_report,
)
from tfrtool.writing.earlier import differences, noted_result
from tfrtool.writing.write_options import Existing, WriteOptions
from tfrtool.writing.write_plan import ShardResult, ShardTask

__all__ = ["Staging", "staging_directory"]

_DONE = ".done.json"
_OPTIONS = "options.json"
_CUT = "cut.json"
_NOTES = (_OPTIONS, _CUT)
_ELSEWHERE = "choose another directory; --overwrite replaces only what tfrtool wrote"


class Staging:
    """The shards of a write that are whole already, and those that aren't.

    A shard counts as whole if a note of its task lies beside it, and its bytes are those that the
    note tells. The note names everything that the bytes depend on, contents of images included.

    Attributes:
        folder: where shards are written.
        resumed: whether an interrupted write is gone on with.
        left: how many shards that one left whole, for whatever options.
    """

    def __init__(self, folder: Path, options: WriteOptions, *, resumed: bool) -> None:
        """Start, or go on.

        Args:
            folder: this user's alone; nothing is in it that a write has not left.
            options: what is written now.
            resumed: whether what is in the folder is to be used.

        Raises:
            OSError: the disk is full, or fails otherwise.
        """
        self.folder = folder
        self.resumed = resumed
        notes = folder.glob(f"*{_DONE}")
        whole = [note for note in notes if note.with_name(note.name[: -len(_DONE)]).exists()]
        self.left = len(whole) if resumed else 0
        self._options = options
        self._before = _read_json(folder / _OPTIONS)
        with new_file(folder / _OPTIONS) as file:
            file.write(json.dumps(options.to_json()).encode())

    def finished(self, task: ShardTask) -> ShardResult | None:
        """Return the result of a task that an earlier run has done; None if it is to be done."""
        note = _read_json(self._note(task))
        if note.get("task") != task.fingerprint:
            return None
        return noted_result(task, note, task.path, follow=False)

    def unused(self) -> str:
        """Return that nothing of what an interrupted write left can be used, and why."""
        return (
            f"nothing of an interrupted write could be used: it had {self.left} whole shards, "
            f"written with {differences(self._before, self._options)}"
        )

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
        }
        self._write(self._note(task), data)

    def note_cut(self, plan: str, tasks: Iterable[ShardTask]) -> None:
        """Note the shards that a plan had to be cut into anew.

        Raises:
            WriteError: the note can't be written.
        """
        records: dict[str, list[int]] = {}
        for task in tasks:
            records.setdefault(task.name.split, []).append(len(task.items))
        self._write(self.folder / _CUT, {"plan": plan, "records": records})

    def cut(self, plan: str) -> Mapping[str, Sequence[int]]:
        """Return the records of the shards that an earlier run cut a plan into anew, by split."""
        note = _read_json(self.folder / _CUT)
        records = note.get("records") if note.get("plan") == plan else None
        return records if isinstance(records, dict) else {}

    def _write(self, path: Path, data: object) -> None:
        with os_errors_as(WriteError, path, "can't be written"), new_file(path) as file:
            file.write(json.dumps(data).encode())

    def _note(self, task: ShardTask) -> Path:
        return self.folder / f"{task.name}{_DONE}"


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        data = read_json(path, follow=False)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


@contextlib.contextmanager
def staging_directory(options: WriteOptions) -> Iterator[Staging]:
    """Give a folder to write in, in the dataset's own; take it away at the end.

    Nobody else writes to the dataset meanwhile. Where the process is killed, the folder is left
    for `Existing.RESUME`; and so it is where a write fails that was to go on with what it found.

    Args:
        options: the dataset's directory, which is made if it isn't there, and taken away again if
            nothing came of it; and what is to become of what is there already.

    Raises:
        UsageError: something is there already, and not to be touched; or another process writes.
        WriteError: the directory can't be made or written to.
    """
    dataset = options.dataset
    if dataset.exists() and not dataset.is_dir():
        raise UsageError("is a file; a dataset is a directory", path=dataset)
    made = _make(dataset)
    try:
        with _locked(dataset):
            folder = dataset / STAGING
            _finish(folder)
            resumed = _check_target(options)
            _make_private(folder, anew=not resumed)
            keep = resumed
            try:
                yield _start(folder, options, resumed)
                keep = False
            finally:
                with signals_wait():
                    with contextlib.suppress(OSError):
                        keep = _sweep(folder) and keep
                    if not keep:
                        shutil.rmtree(folder, ignore_errors=True)
    finally:
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()


def _make_private(folder: Path, *, anew: bool) -> None:
    try:
        if anew and folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)
        private_folder(folder)
    except OSError as error:
        raise WriteError(
            f"can't be used: {os_reason(error)}", path=error.filename or folder
        ) from error


def _start(folder: Path, options: WriteOptions, resumed: bool) -> Staging:
    try:
        _sweep(folder)
        return Staging(folder, options, resumed=resumed)
    except OSError as error:
        raise _unwritable(error.filename or folder, error) from error


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


def _finish(folder: Path) -> None:
    """End an interrupted write that lacked nothing but the final names."""
    try:
        if finish_publishing(folder, is_ours):
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise WriteError(
            f"an interrupted write can't be ended: {os_reason(error)}",
            path=error.filename or folder,
            hint=f"deleting {PUBLISHING} gives up what it holds",
        ) from error


def _unwritable(path: str | Path, error: OSError) -> WriteError:
    return WriteError(f"can't be written to: {os_reason(error)}", path=path)


def _sweep(folder: Path) -> bool:
    """Leave nothing but what a write that goes on can use, so no links; tell whether it can."""
    useful = False
    with os.scandir(folder) as entries:
        for entry in entries:
            shard = ShardName.parse(entry.name.removesuffix(_DONE)) is not None
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif not entry.is_file(follow_symlinks=False) or not (shard or entry.name in _NOTES):
                os.unlink(entry.path)  # noqa: PTH108
            else:
                useful |= shard and not entry.name.endswith(_DONE)
    return useful


def _check_target(options: WriteOptions) -> bool:
    """Raise if a directory may not be written to; return whether to go on with a write there."""
    dataset, existing = options.dataset, options.existing
    with os_errors_as(WriteError, dataset):
        names = set(os.listdir(dataset)) - {LOCK}  # noqa: PTH208
    if not names:
        return False
    interrupted, complete = STAGING in names, REPORT in names
    if existing is Existing.REFUSE and interrupted:
        raise UsageError(
            "an interrupted write was left here",
            path=dataset,
            hint="--resume goes on with it, --overwrite starts anew",
        )
    if existing is Existing.REFUSE:
        hint = "--overwrite replaces what tfrtool wrote there" if complete else _ELSEWHERE
        raise UsageError("is not empty", path=dataset, hint=hint)
    foreign = names - {STAGING, *METADATA, *listed_shards(read_report(dataset))}
    if complete:  # beside its own, those that would be taken for shards of the new one
        foreign = {name for name in foreign if _is_of(name, options.name)}
    if foreign or not (complete or interrupted):
        raise UsageError(
            f"holds files that tfrtool did not write ({min(foreign or names)})",
            path=dataset,
            hint=_ELSEWHERE,
        )
    return existing is Existing.RESUME and interrupted


def _is_of(name: str, dataset: str) -> bool:
    shard = ShardName.parse(name)
    return shard is not None and shard.dataset == dataset
