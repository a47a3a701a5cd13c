"""The folder where shards become whole, and what an interrupted write left there."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tfrtool.errors import UsageError, WriteError, os_errors_as, os_reason
from tfrtool.examples.tfds_metadata import REPORT
from tfrtool.records.shard_sets import ShardName
from tfrtool.storage.appearing import new_file, private_folder
from tfrtool.storage.lock import LOCK, locked
from tfrtool.storage.publishing import PUBLISHING, finish_publishing
from tfrtool.storage.signals import signals_wait
from tfrtool.writing.directory import (
    METADATA,
    STAGING,
    differences,
    is_ours,
    listed_shards,
    noted_result,
    read_object,
)
from tfrtool.writing.write_options import Existing, WriteOptions
from tfrtool.writing.write_plan import ShardResult, ShardTask

_DONE = ".done.json"
_OPTIONS = "options.json"
_CUT = "cut.json"
_ELSEWHERE = "choose another directory; --overwrite replaces only what tfrtool wrote"


class Staging:
    """The shards of a write that are whole already, and those that aren't.

    A shard counts as whole if a note of its task lies beside it, and its bytes are those that the
    note tells. The note names everything that the bytes depend on, contents of images included.

    Attributes:
        folder: where shards are written; this user's alone.
        resumed: whether an interrupted write is resumed.
        left: how many shards that one left whole, for whatever options.
    """

    def __init__(self, folder: Path, options: WriteOptions, *, resumed: bool) -> None:
        """Start, or resume what is in the folder, in which is nothing that a write has not left."""
        self.folder = folder
        self.resumed = resumed
        notes = folder.glob(f"*{_DONE}")
        whole = [note for note in notes if note.with_name(note.name[: -len(_DONE)]).exists()]
        self.left = len(whole) if resumed else 0
        self._options = options
        self._before = read_object(folder / _OPTIONS, follow=False)
        with new_file(folder / _OPTIONS) as file:
            file.write(json.dumps(options.to_json()).encode())

    def finished(self, task: ShardTask) -> ShardResult | None:
        """Return the result of a task that an earlier run has done; None if it is to be done."""
        note = read_object(self._note(task), follow=False)
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
        """Note that a task is done."""
        data = {
            "task": task.fingerprint,
            "records": result.records,
            "bytes": result.bytes,
            "payload_bytes": result.payload_bytes,
            "sha256": result.sha256,
        }
        self._write(self._note(task), data)

    def note_cut(self, plan: str, tasks: Iterable[ShardTask]) -> None:
        """Note the shards that a plan had to be cut into anew."""
        records: dict[str, list[int]] = {}
        for task in tasks:
            records.setdefault(task.name.split, []).append(len(task.items))
        self._write(self.folder / _CUT, {"plan": plan, "records": records})

    def cut(self, plan: str) -> Mapping[str, Sequence[int]]:
        """Return the records of the shards that an earlier run cut a plan into anew, by split."""
        note = read_object(self.folder / _CUT, follow=False)
        records = note.get("records") if note.get("plan") == plan else None
        return records if isinstance(records, dict) else {}

    def _write(self, path: Path, data: object) -> None:
        with os_errors_as(WriteError, path, "can't be written"), new_file(path) as file:
            file.write(json.dumps(data).encode())

    def _note(self, task: ShardTask) -> Path:
        return self.folder / f"{task.name}{_DONE}"


@contextlib.contextmanager
def staging_directory(options: WriteOptions) -> Iterator[Staging]:
    """Give a folder to write in, in the dataset's own; take it away at the end.

    Nobody else writes to the dataset meanwhile. Where the process is killed, the folder is left
    for `Existing.RESUME`; and so it is where a write fails that was to resume what it found. The
    dataset's directory is made if it isn't there, and taken away again if nothing came of it.

    Raises:
        UsageError: something is there already, and not to be touched; or another process writes.
    """
    dataset = options.dataset
    if dataset.exists() and not dataset.is_dir():
        raise UsageError("is a file; a dataset is a directory", path=dataset)
    made = _make(dataset)
    try:
        with contextlib.ExitStack() as stack:
            with _errors_of("can't be written to", dataset):
                stack.enter_context(locked(dataset))
            folder = dataset / STAGING
            _end_publishing(folder)
            resumed = _check_target(options)
            with _errors_of("can't be used", folder):
                if not resumed and folder.is_dir() and not folder.is_symlink():
                    shutil.rmtree(folder)
                private_folder(folder)
            keep = resumed
            try:
                with _errors_of("can't be written to", folder):
                    _sweep(folder)
                    staging = Staging(folder, options, resumed=resumed)
                yield staging
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


@contextlib.contextmanager
def _errors_of(what: str, path: Path, hint: str | None = None) -> Iterator[None]:
    """Raise what the system says as a WriteError, which names the very file where it is known."""
    try:
        yield
    except OSError as error:
        raise WriteError(
            f"{what}: {os_reason(error)}", path=error.filename or path, hint=hint
        ) from error


def _make(dataset: Path) -> list[Path]:
    """Make a directory, and return those that had to be made, the innermost first."""
    made = []
    for path in (dataset, *dataset.parents):
        if path.exists():
            break
        made.append(path)
    with os_errors_as(WriteError, dataset, "can't be written to"):
        dataset.mkdir(parents=True, exist_ok=True)
    return made


def _end_publishing(folder: Path) -> None:
    """End an interrupted write that lacked nothing but the final names."""
    hint = f"deleting {PUBLISHING} gives up what it holds"
    with _errors_of("an interrupted write can't be ended", folder, hint):
        if finish_publishing(folder, is_ours):
            shutil.rmtree(folder, ignore_errors=True)


def _sweep(folder: Path) -> bool:
    """Leave nothing but what a resumed write can use, so no links; tell whether it can."""
    useful = False
    with os.scandir(folder) as entries:
        for entry in entries:
            shard = ShardName.parse(entry.name.removesuffix(_DONE)) is not None
            note = entry.name in (_OPTIONS, _CUT)
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif not entry.is_file(follow_symlinks=False) or not (shard or note):
                os.unlink(entry.path)  # noqa: PTH108
            else:
                useful |= shard and not entry.name.endswith(_DONE)
    return useful


def _check_target(options: WriteOptions) -> bool:
    """Raise if a directory may not be written to; return whether to resume a write there."""
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
    foreign = names - {STAGING, *METADATA, *listed_shards(read_object(dataset / REPORT))}
    if complete:  # beside its own, those that would be taken for shards of the new one
        shards = ((name, ShardName.parse(name)) for name in foreign)
        foreign = {name for name, shard in shards if shard and shard.dataset == options.name}
    if foreign or not (complete or interrupted):
        raise UsageError(
            f"holds files that tfrtool did not write ({min(foreign or names)})",
            path=dataset,
            hint=_ELSEWHERE,
        )
    return existing is Existing.RESUME and interrupted
