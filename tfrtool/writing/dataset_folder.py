"""A dataset's directory: where shards become whole, and how all files appear in it together."""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tfrtool.errors import UsageError, WriteError, os_errors_as, os_reason
from tfrtool.examples.tfds_metadata import DATASET_INFO, FEATURES, LABELS, REPORT
from tfrtool.records.crc import file_crc32c
from tfrtool.records.shard_sets import ShardName
from tfrtool.storage.appearing import new_file, private_folder
from tfrtool.storage.json_files import read_json
from tfrtool.storage.lock import LOCK, locked
from tfrtool.storage.opening import file_sha256
from tfrtool.storage.plain import plain
from tfrtool.storage.publishing import PUBLISHING, finish_publishing, publish_files
from tfrtool.storage.signals import signals_wait
from tfrtool.writing.write_options import Existing, WriteOptions, option_differences
from tfrtool.writing.write_report import ShardReport

STAGING = ".tfrtool-incomplete"
"""The folder in a dataset's directory that shards are written in, until all of them are whole."""

_METADATA = (LABELS, FEATURES, DATASET_INFO, REPORT)
"""In the order in which they appear: TFDS takes a dataset without LABELS for one without names."""

_DONE = ".done.json"
_ELSEWHERE = "choose another directory; --overwrite replaces only what tfrtool wrote"

_OTHER_FORMATS = re.compile(
    r"(?P<dataset>[a-zA-Z]\w*)-\w+\.array_record-\d{5,}-of-\d{5,}"
    r"|(?:(?P<named>[a-zA-Z]\w*)-)?\w+-\d{5,}-of-\d{5,}\.(?:parquet|jsonl|csv|tar)",
    re.ASCII,
)
_METADATA_NAME = re.compile(
    r"(?:features|dataset_info|write_report|schema)\.json|README\.md|\w[\w.-]*\.labels\.txt",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A directory that files are to appear in together.

    Attributes:
        folder: the directory.
        name: the dataset's name, as the files' names have it.
        existing: what becomes of what is there.
        command: the one that resumes what was interrupted, for messages.
        options: those that decide what the files hold, as the report tells them.
    """

    folder: Path
    name: str
    existing: Existing = Existing.REFUSE
    command: str = "write"
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_write(cls, options: WriteOptions) -> "Target":
        """Return where a write goes."""
        return cls(
            folder=options.dataset,
            name=options.name,
            existing=options.existing,
            options=options.to_json(),
        )


class StagedTask(Protocol):
    """What makes one file."""

    @property
    def name(self) -> object:
        """The file's name."""

    @property
    def fingerprint(self) -> str:
        """A digest of all that the file's bytes depend on."""


class Staging:
    """The shards of a write that are whole already, and those that aren't.

    A shard counts as whole if a note of its plan lies beside it, and its bytes are those that the
    note tells. The note names everything that the bytes depend on, contents of images included.
    """

    def __init__(self, folder: Path, *, resumed: bool, left: bool) -> None:
        self.folder = folder  # where shards are written; this user's alone
        self.resumed = resumed  # whether an interrupted write is resumed
        self.left = left  # whether that one left any shards
        self.taken_over = 0  # how many shards were found whole

    def noted(self, shard: StagedTask) -> Mapping[str, Any] | None:
        """Return what was noted of a shard that is whole already; None if it is to be written."""
        note = _read_object(self.folder / f"{shard.name}{_DONE}", follow=False)
        if note.get("task") != shard.fingerprint:
            return None
        path = self.folder / str(shard.name)
        return note if _whole_shard(path, note, follow=False) else None

    def finished(self, shard: StagedTask) -> ShardReport | None:
        """Return what became of a shard that is whole already; None if it is to be written."""
        if (note := self.noted(shard)) is None:
            return None
        self.taken_over += 1
        return _shard_report(str(shard.name), note)

    def note(self, shard: StagedTask, result: object) -> None:
        """Note that a shard is whole; the result has at least the fields of a `ShardReport`."""
        path = self.folder / f"{shard.name}{_DONE}"
        with os_errors_as(WriteError, path, "can't be written"), new_file(path) as file:
            file.write(json.dumps({"task": shard.fingerprint, **plain(result)}).encode())


def _shard_report(name: str, noted: Mapping[str, Any]) -> ShardReport:
    records, size, payload = (int(noted[k]) for k in ("records", "bytes", "payload_bytes"))
    sha256, crc = noted["sha256"], noted.get("crc32c")
    return ShardReport(name, records, size, payload, sha256, crc if sha256 is None else None)


def _whole_shard(path: Path, noted: Mapping[str, Any], *, follow: bool) -> ShardReport | None:
    """Return what was noted of a shard; None if that is not the file that is there."""
    try:
        result = _shard_report(path.name, noted)
        same = path.stat(follow_symlinks=follow).st_size == result.bytes
        if same and result.sha256 is None:
            return result if file_crc32c(path, follow=follow) == result.crc32c else None
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


def complete_shards(plan: str, target: Target, *, interrupted: bool) -> list[ShardReport] | None:
    """Return the shards of a write that is complete, and of just this plan.

    None if it is yet to be begun; or, where one was interrupted, to be resumed. `UsageError` if
    another dataset is complete.
    """
    dataset = target.folder
    if not os.path.lexists(dataset / REPORT):
        return None
    report = _read_object(dataset / REPORT)
    if report.get("plan") == plan:
        listed = _listed_shards(report).items()
        found = {name: _whole_shard(dataset / name, noted, follow=True) for name, noted in listed}
        amiss = [name for name in _listed_metadata(report) if not (dataset / name).is_file()]
        amiss += [name for name, shard in found.items() if shard is None]
        if found and not amiss:
            return [shard for shard in found.values() if shard is not None]
        error = UsageError(
            "is gone, or not what was written",
            path=dataset / (amiss or [REPORT])[0],
            hint="--overwrite writes the dataset anew",
        )
    else:
        others = option_differences(target.options, report.get("options"))
        what = f"is complete, and was written with {others}"
        error = UsageError(what, path=dataset, hint="--overwrite replaces it")
    if interrupted:
        return None
    raise error


def _listed_metadata(report: Mapping[str, Any]) -> list[str]:
    """Return the names of the metadata that a report lies beside, in the order of appearance."""
    listed = report.get("metadata", _METADATA)
    if not isinstance(listed, list | tuple):
        return []
    return [name for name in listed if isinstance(name, str) and _METADATA_NAME.fullmatch(name)]


def publish(
    target: Target, staging: Path, shards: Sequence[str], metadata: Mapping[str, str]
) -> None:
    """Give whole shards their final names, with their metadata, in place of what was there.

    The metadata appears in its order, the report last. If it is a WriteError, what was there before
    still is.
    """
    dataset = target.folder
    try:
        for name, text in metadata.items():
            with new_file(staging / name) as file:
                file.write(text.encode())
        new = [*shards, *metadata]
        report = _read_object(dataset / REPORT)
        more = {*_listed_metadata(report), *metadata}.difference(_METADATA)
        described = [*sorted(more), *_METADATA]
        before = {*_listed_shards(report), *new}.difference(described)
        old = [
            name
            for name in (*reversed(described), *sorted(before))
            if os.path.lexists(path := dataset / name) and (path.is_symlink() or not path.is_dir())
        ]
        publish_files(staging, new, old)
    except OSError as error:
        left = os.path.lexists(dataset / PUBLISHING)
        raise WriteError(
            f"can't be written: {os_reason(error)}",
            path=error.filename or dataset,
            hint=f"tfrtool {target.command} --resume ends what was begun" if left else None,
        ) from error


def _is_shard(name: str) -> bool:
    return ShardName.parse(name) is not None or _OTHER_FORMATS.fullmatch(name) is not None


def _is_shard_of(name: str, dataset: str) -> bool:
    """Return whether a file would be taken for a shard of a dataset of some name."""
    shard, other = ShardName.parse(name), _OTHER_FORMATS.fullmatch(name)
    if shard is not None:
        return shard.dataset == dataset
    return other is not None and (other["dataset"] or other["named"] or dataset) == dataset


@contextlib.contextmanager
def staging_folder(target: Target) -> Iterator[Staging]:
    """Give a folder to write in, in the dataset's own; take it away at the end.

    Nobody else writes to the dataset meanwhile. Where the process is killed, the folder is left
    for `Existing.RESUME`; and so it is where a write fails that was to resume what it found. The
    dataset's directory is made if it isn't there, and taken away again if nothing came of it.

    Raises:
        UsageError: something is there already, and not to be touched; or another process writes.
    """
    dataset = target.folder
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
                if finish_publishing(folder, _is_ours):
                    shutil.rmtree(folder, ignore_errors=True)
            except OSError as error:
                raise WriteError(
                    f"an interrupted write can't be ended: {os_reason(error)}",
                    path=error.filename or folder,
                    hint=f"deleting {PUBLISHING} gives up what it holds",
                ) from error
            resumed = _check_target(target)
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


def _is_ours(name: object) -> bool:
    """Return whether what is to be published has the name of something that tfrtool writes."""
    return isinstance(name, str) and (_is_shard(name) or bool(_METADATA_NAME.fullmatch(name)))


def _check_target(target: Target) -> bool:
    """Raise if a directory may not be written to; return whether to resume a write there."""
    dataset, existing = target.folder, target.existing
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
    report = _read_object(dataset / REPORT)
    foreign = names - {STAGING, *_METADATA, *_listed_metadata(report), *_listed_shards(report)}
    if complete:  # beside its own, those that would be taken for shards of the new one
        foreign = {name for name in foreign if _is_shard_of(name, target.name)}
    if foreign or not (complete or interrupted):
        raise UsageError(
            f"holds files that tfrtool did not write ({min(foreign or names)})",
            path=dataset,
            hint=_ELSEWHERE,
        )
    return existing is Existing.RESUME and interrupted
