"""A dataset's directory: where shards become whole, and how all files appear in it together."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError, WriteError, os_errors_as, os_reason
from tfrtool.examples.tfds_metadata import DATASET_INFO, FEATURES, LABELS, REPORT
from tfrtool.records.shard_sets import ShardName
from tfrtool.storage.appearing import new_file, private_folder
from tfrtool.storage.json_files import read_json
from tfrtool.storage.lock import LOCK, locked
from tfrtool.storage.opening import file_sha256
from tfrtool.storage.publishing import PUBLISHING, finish_publishing, publish_files
from tfrtool.storage.signals import signals_wait
from tfrtool.writing.write_options import Existing, WriteOptions
from tfrtool.writing.write_plan import PlannedShard
from tfrtool.writing.write_report import ShardReport

STAGING = ".tfrtool-incomplete"
"""The folder in a dataset's directory that shards are written in, until all of them are whole."""

_METADATA = (LABELS, FEATURES, DATASET_INFO, REPORT)
"""In the order in which they appear: TFDS takes a dataset without LABELS for one without names."""

_DONE = ".done.json"
_ELSEWHERE = "choose another directory; --overwrite replaces only what tfrtool wrote"


class Staging:
    """The shards of a write that are whole already, and those that aren't.

    A shard counts as whole if a note of its plan lies beside it, and its bytes are those that the
    note tells. The note names everything that the bytes depend on, contents of images included.
    """

    def __init__(self, folder: Path, *, resumed: bool, left: bool) -> None:
        self.folder = folder  # where shards are written; this user's alone
        self.resumed = resumed  # whether an interrupted write is resumed
        self.left = left  # whether that one left any shards

    def finished(self, shard: PlannedShard) -> ShardReport | None:
        """Return what became of a shard that is whole already; None if it is to be written."""
        note = _read_object(self.folder / f"{shard.name}{_DONE}", follow=False)
        if note.get("task") != shard.fingerprint:
            return None
        return _whole_shard(self.folder / str(shard.name), note, follow=False)

    def note(self, shard: PlannedShard, result: ShardReport) -> None:
        """Note that a shard is whole."""
        path = self.folder / f"{shard.name}{_DONE}"
        with os_errors_as(WriteError, path, "can't be written"), new_file(path) as file:
            file.write(json.dumps({"task": shard.fingerprint, **asdict(result)}).encode())


def _whole_shard(path: Path, noted: Mapping[str, Any], *, follow: bool) -> ShardReport | None:
    """Return what was noted of a shard; None if that is not the file that is there."""
    try:
        records, size, payload = (int(noted[k]) for k in ("records", "bytes", "payload_bytes"))
        result = ShardReport(path.name, records, size, payload, str(noted["sha256"]))
        same = path.stat(follow_symlinks=follow).st_size == size
        return result if same and file_sha256(path, follow=follow) == result.sha256 else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _read_object(path: Path, *, follow: bool = True) -> Mapping[str, Any]:
    """Return the object that an earlier write left as JSON; nothing where that can't be read."""
    try:
        data = read_json(path, follow=follow)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _listed_shards(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return what a report says of each shard, by its name."""
    try:
        shards = [shard for split in report["splits"].values() for shard in split["shards"]]
        # It may have been edited: only what is a shard's name, and so no path, is believed.
        return {shard["path"]: shard for shard in shards if _is_shard(shard["path"])}
    except (KeyError, TypeError, AttributeError):
        return {}


def complete_shards(
    plan: str, options: WriteOptions, *, interrupted: bool
) -> list[ShardReport] | None:
    """Return the shards of a write that is complete, and of just this plan.

    None if it is yet to be begun; or, where one was interrupted, to be resumed. `UsageError` if
    another dataset is complete.
    """
    dataset = options.dataset
    if not os.path.lexists(dataset / REPORT):
        return None
    report = _read_object(dataset / REPORT)
    if report.get("plan") == plan:
        listed = _listed_shards(report).items()
        found = {name: _whole_shard(dataset / name, noted, follow=True) for name, noted in listed}
        amiss = [name for name in _METADATA if not (dataset / name).is_file()]
        amiss += [name for name, shard in found.items() if shard is None]
        if found and not amiss:
            return [shard for shard in found.values() if shard is not None]
        error = UsageError(
            "is gone, or not what was written",
            path=dataset / (amiss or [REPORT])[0],
            hint="--overwrite writes the dataset anew",
        )
    else:
        what = f"is complete, and was written with {options.differences(report.get('options'))}"
        error = UsageError(what, path=dataset, hint="--overwrite replaces it")
    if interrupted:
        return None
    raise error


def publish(
    dataset: Path, staging: Path, shards: Sequence[str], metadata: Mapping[str, str]
) -> None:
    """Give whole shards their final names, with their metadata, in place of what was there.

    If it is a WriteError, what was there before still is.
    """
    try:
        for name, text in metadata.items():
            with new_file(staging / name) as file:
                file.write(text.encode())
        new = [*shards, *sorted(metadata, key=_METADATA.index)]
        before = {*_listed_shards(_read_object(dataset / REPORT)), *new}.difference(_METADATA)
        old = [name for name in (*reversed(_METADATA), *sorted(before)) if _is_file(dataset / name)]
        publish_files(staging, new, old)
    except OSError as error:
        left = os.path.lexists(dataset / PUBLISHING)
        raise WriteError(
            f"can't be written: {os_reason(error)}",
            path=error.filename or dataset,
            hint="tfrtool write --resume ends what was begun" if left else None,
        ) from error


def _is_file(path: Path) -> bool:
    return os.path.lexists(path) and (path.is_symlink() or not path.is_dir())


def _is_shard(name: str) -> bool:
    return ShardName.parse(name) is not None


@contextlib.contextmanager
def staging_folder(options: WriteOptions) -> Iterator[Staging]:
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
    folder = dataset / STAGING
    made = [path for path in (dataset, *dataset.parents) if not path.exists()]
    try:
        with contextlib.ExitStack() as stack:
            with os_errors_as(WriteError, dataset, "can't be written to"):
                dataset.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(dataset))
            try:
                # It lacked nothing but the final names.
                if finish_publishing(folder, lambda name: name in _METADATA or _is_shard(name)):
                    shutil.rmtree(folder, ignore_errors=True)
            except OSError as error:
                raise WriteError(
                    f"an interrupted write can't be ended: {os_reason(error)}",
                    path=error.filename or folder,
                    hint=f"deleting {PUBLISHING} gives up what it holds",
                ) from error
            resumed = _check_target(options)
            with os_errors_as(WriteError, folder, "can't be used"):
                if not resumed and folder.is_dir() and not folder.is_symlink():
                    shutil.rmtree(folder)
                private_folder(folder)
                left = _sweep(folder)
            keep = resumed
            try:
                yield Staging(folder, resumed=resumed, left=left)
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


def _sweep(folder: Path) -> bool:
    """Leave nothing but what a resumed write can use, so no links; tell whether it can."""
    useful = False
    with os.scandir(folder) as entries:
        for entry in entries:
            shard = _is_shard(entry.name.removesuffix(_DONE))
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif not entry.is_file(follow_symlinks=False) or not shard:
                os.unlink(entry.path)  # noqa: PTH108
            else:
                useful |= not entry.name.endswith(_DONE)
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
    foreign = names - {STAGING, *_METADATA, *_listed_shards(_read_object(dataset / REPORT))}
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
