"""A dataset's folder: files become whole in a staging folder, and appear in it together.

No file system gives several names at once, so the way from old to new has steps, and a process
can die at each of them:

1. The new files lie in the staging folder, whole and flushed to disk. A journal is put there, which
   lists them and the files that they replace.
2. The staging folder is renamed to `PUBLISHING`. From here on, every reader and every later writer
   sees that the new files are on their way.
3. All old files are moved into that folder: metadata first, since it describes the others.
4. All new files are moved out of it, metadata last.
5. The folder gets its former name back, and is deleted with the old files.

Old and new files never have final names at the same time, so not even a glob pattern matches both.
Each file is in one of two places, which shows what remains to be done: the next writer does it,
after a kill or a power cut. After an error everything is moved back, and signals wait.

Two renames of whole folders would be shorter, but the target may be a mount point, "." or hold
files of others, and its parent may be read-only.
"""

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tfrtool.errors import UsageError, WriteError, os_errors_as, os_reason
from tfrtool.examples.tfds_metadata import DATASET_INFO, FEATURES, LABELS, REPORT
from tfrtool.records.shard_sets import ShardName
from tfrtool.storage.atomic_files import move, new_file, private_folder, sync_folder
from tfrtool.storage.commit import PUBLISHING, STAGING, has_uncommitted_write
from tfrtool.storage.json_files import read_json
from tfrtool.storage.limits import MAX_METADATA_BYTES
from tfrtool.storage.lock import LOCK, locked
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import AnyPath, RemotePath
from tfrtool.storage.signals import signals_wait
from tfrtool.writing.job_report import FinishedFile, ShardReport
from tfrtool.writing.run_options import Existing

METADATA = (LABELS, FEATURES, DATASET_INFO, REPORT)
"""In the order in which they appear: TFDS takes a dataset without LABELS for one without names."""

LOG = "plan.jsonl"
"""The plan of a job, and a line for each finished file."""

_UNUSABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a log may raise that somebody else wrote."""

_JOURNAL = "journal.json"
_REPLACED = "replaced"
_ELSEWHERE = "choose another directory; --overwrite only replaces files that tfrtool wrote"

_OTHER_FORMATS = re.compile(
    r"(?P<dataset>[a-zA-Z]\w*)-\w+\.array_record-\d{5,}-of-\d{5,}"
    r"|(?:(?P<named>[a-zA-Z]\w*)-)?\w+-\d{5,}-of-\d{5,}\.(?:parquet|jsonl|csv|tar)",
    re.ASCII,
)
_METADATA_NAME = re.compile(
    r"(?:features|dataset_info|keypoints|write_report|schema)\.json|README\.md|label_map\.pbtxt|\w[\w.-]*\.labels\.txt",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where files are to appear together.

    Attributes:
        folder: the directory.
        name: the dataset's name, as in the files' names.
        existing: what to do with an existing dataset.
        command: the command that resumes an interrupted run, for messages.
        options: options that decide what the files hold, as in the report.
    """

    folder: AnyPath
    name: str
    existing: Existing = Existing.REFUSE
    command: str = "write"
    options: Mapping[str, Any] = field(default_factory=dict)


class Staging:
    """The folder in which the files of a job become whole, before they appear together.

    A file that is whole has its final name there. A log names the plan, and has a line for each
    finished file; both count only for that plan.

    Attributes:
        folder: where files are written; a private folder.
        place: where finished files are.
        resumed: whether an interrupted job is resumed.
        left: whether that one left any files.
    """

    def __init__(self, folder: Path, *, resumed: bool, left: bool) -> None:
        self.folder = folder
        self.place: AnyPath = folder
        self.resumed = resumed
        self.left = left

    def begin(self, plan: str, names: Iterable[str]) -> dict[str, FinishedFile]:
        """Begin to write the files of a plan, given by its digest; return those that are finished.

        What another plan has left is deleted.
        """
        path, finished = self.folder / LOG, dict[str, FinishedFile]()
        # It may have come with somebody else's folder.
        with contextlib.suppress(*_UNUSABLE), open_regular(path, follow=False) as log:
            lines = map(json.loads, iter(lambda: log.readline(MAX_METADATA_BYTES), b""))
            for line in lines if next(lines, None) == {"plan": plan} else ():
                note = FinishedFile.from_json(line)
                name = note.shard.path
                if is_shard(name) and is_whole(self.folder / name, note.shard):
                    finished[name] = note
        with os_errors_as(WriteError, path, "can't be written"):
            for name in os.listdir(self.folder):  # noqa: PTH208
                if is_shard(name) and name not in finished:
                    (self.folder / name).unlink()
            with new_file(path) as new:
                for entry in ({"plan": plan}, *(note.to_json() for note in finished.values())):
                    new.write(json.dumps(entry).encode() + b"\n")
        return {name: finished[name] for name in names if name in finished}

    @contextlib.contextmanager
    def scratch_dir(self) -> Iterator[Path]:
        """Give a folder of this machine to write files in, by their names."""
        yield self.folder

    def copy(self, source: AnyPath, name: str) -> str | None:  # noqa: ARG002
        """Copy a file within the store; return the copy's ETag, or None if that can't be done."""
        return None

    def upload(self, path: Path) -> str | None:
        """Bring a file to where it will stay; return its ETag, if it has one."""

    def note(self, file: FinishedFile) -> None:
        """Note that a file is finished; only the process that runs the job does."""
        path = self.folder / LOG
        with os_errors_as(WriteError, path, "can't be written"), path.open("ab") as log:
            log.write(json.dumps(file.to_json()).encode() + b"\n")

    def publish(
        self, target: Target, shards: Sequence[ShardReport], metadata: Mapping[str, str]
    ) -> None:
        """Give finished files their final names, with their metadata, in place of existing ones.

        The metadata appears in its order, the report last.

        Raises:
            WriteError: that is impossible; what was there still is.
        """
        dataset = self.folder.parent
        report = read_object(dataset / REPORT)
        described = [*sorted({*listed_metadata(report), *metadata} - {*METADATA}), *METADATA]
        new = [*(shard.path for shard in shards), *metadata]
        shards_before = {*listed_shards(report), *new}.difference(described)
        old = [
            name
            for name in (*reversed(described), *sorted(shards_before))
            if (dataset / name).is_symlink() or (dataset / name).is_file()
        ]
        try:
            for name, text in metadata.items():
                with new_file(self.folder / name) as file:
                    file.write(text.encode())
            with signals_wait():
                for name in new:
                    (self.folder / name).lstat()  # its place shows later whether it was moved
                private_folder(self.folder / _REPLACED)
                with new_file(self.folder / _JOURNAL) as file:
                    file.write(json.dumps({"new": new, "old": old}).encode())
                sync_folder(self.folder)
                move(self.folder, dataset / PUBLISHING)
                try:
                    sync_folder(dataset)
                    _swap(dataset, new, old)
                    move(dataset / PUBLISHING, self.folder)
                except BaseException:
                    _swap(dataset, new, old, back=True)
                    move(dataset / PUBLISHING, self.folder)
                    raise
                with contextlib.suppress(OSError):  # if this doesn't last, the same is done again
                    sync_folder(dataset)
        except OSError as error:
            left = os.path.lexists(dataset / PUBLISHING)
            raise WriteError(
                f"can't be written: {os_reason(error)}",
                path=error.filename or dataset,
                hint=f"run tfrtool {target.command} --resume to finish the write" if left else None,
            ) from error


def _swap(dataset: Path, new: Sequence[str], old: Sequence[str], *, back: bool = False) -> None:
    """Move old files into `PUBLISHING` and new ones out of it, or ``back``; some may be moved."""
    place = dataset / PUBLISHING
    phases = [
        [(dataset / name, place / _REPLACED / name) for name in old],
        [(place / name, dataset / name) for name in new],
    ]
    if back:
        phases = [[pair[::-1] for pair in reversed(pairs)] for pairs in reversed(phases)]
    for pairs in phases:
        for source, goal in pairs:
            # A new file may have the name of an old one, which is in its place already then.
            if os.path.lexists(source) and not os.path.lexists(goal):
                move(source, goal)
        sync_folder(place / _REPLACED)
        sync_folder(dataset)
    for name in () if back else new:
        if os.path.lexists(place / name):  # another program has made a file of that name
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(dataset / name))


def _finish_publishing(dataset: Path) -> None:
    """Finish what a killed publisher began, if any did.

    Raises:
        WriteError: that is impossible, or the journal lists files that tfrtool doesn't write.
    """
    place, staging = dataset / PUBLISHING, dataset / STAGING
    if not os.path.lexists(place):
        return
    try:
        private_folder(place)
        try:
            journal = read_json(place / _JOURNAL, follow=False)
            new, old = list(journal["new"]), list(journal["old"])
            known = all(map(is_ours, [*new, *old]))
        except (ValueError, KeyError, TypeError):
            known = False
        if not known:
            raise OSError(errno.EINVAL, "it is not what an interrupted write leaves", str(place))
        with signals_wait():
            for name in new:
                if not os.path.lexists(place / name):
                    (dataset / name).lstat()
            _swap(dataset, new, old)
            move(place, staging)
            sync_folder(dataset)
    except OSError as error:
        raise WriteError(
            f"an interrupted write can't be finished: {os_reason(error)}",
            path=error.filename or staging,
            hint=f"delete {PUBLISHING} to discard its files",
        ) from error
    shutil.rmtree(staging, ignore_errors=True)


def is_whole(path: AnyPath, shard: ShardReport) -> bool:
    """Return whether a file is there that has the size of a shard, and the ETag if it has one."""
    try:
        same = path.stat().st_size == shard.bytes
        return same and (not isinstance(path, RemotePath) or path.known().etag == shard.etag)
    except OSError:
        return False


def read_object(path: AnyPath, *, follow: bool = True) -> Mapping[str, Any]:
    """Return the object that an earlier write left as JSON; nothing where that can't be read."""
    try:
        data = read_json(path, follow=follow)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def listed_shards(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return what a report says of each shard, by its name."""
    try:
        shards = [shard for split in report["splits"].values() for shard in split["shards"]]
        # It may have been edited: only what is a shard's name, and so no path, is believed.
        return {shard["path"]: shard for shard in shards if is_shard(shard["path"])}
    except (KeyError, TypeError, AttributeError):
        return {}


def complete_shards(
    plan: str, target: Target, names: Sequence[str], *, interrupted: bool
) -> list[ShardReport] | None:
    """Return the shards of a dataset that is complete, and of just this plan; sizes are checked.

    None if it is yet to be written; or, where a write was interrupted, to be resumed.

    Args:
        plan: digest of the plan.
        target: where the dataset is.
        names: names of files that it has.
        interrupted: whether a write was interrupted there.

    Raises:
        UsageError: another dataset is complete, or a file is missing or has another size.
    """
    dataset = target.folder
    path = dataset / REPORT
    if not (path.exists() or path.is_symlink()) or has_uncommitted_write(target.folder):
        return None
    report = read_object(path)
    if report.get("plan") == plan:
        try:
            shards = msgspec.convert([*listed_shards(report).values()], list[ShardReport])
        except ValueError:
            shards = []
        amiss = [name for name in listed_metadata(report) if not (dataset / name).is_file()]
        amiss += [shard.path for shard in shards if not is_whole(dataset / shard.path, shard)]
        if shards and not amiss and {shard.path for shard in shards}.issuperset(names):
            return shards
        error = UsageError(
            "missing, or changed since it was written",
            path=dataset / [*amiss, REPORT][0],
            hint="use --overwrite to write the dataset again",
        )
    else:
        what = "already complete, but written with other options, images or records"
        error = UsageError(what, path=target.folder, hint="use --overwrite to replace it")
    if interrupted:
        return None
    raise error


def listed_metadata(report: Mapping[str, Any]) -> list[str]:
    """Return the names of the metadata that a report lies beside, in the order of appearance."""
    listed = report.get("metadata", METADATA)
    some = listed if isinstance(listed, list | tuple) else ()
    return [name for name in some if isinstance(name, str) and _METADATA_NAME.fullmatch(name)]


def is_shard(name: str) -> bool:
    """Return whether a file has the name of a shard, in any format that is written."""
    return ShardName.parse(name) is not None or _OTHER_FORMATS.fullmatch(name) is not None


def is_shard_of(name: str, dataset: str) -> bool:
    """Return whether a file would be taken for a shard of a dataset of some name."""
    shard, other = ShardName.parse(name), _OTHER_FORMATS.fullmatch(name)
    if shard is not None:
        return shard.dataset == dataset
    return other is not None and (other["dataset"] or other["named"] or dataset) == dataset


@contextlib.contextmanager
def staging_folder(target: Target, dataset: Path) -> Iterator[Staging]:
    """Give a folder to write files in, inside the dataset's.

    Nobody else writes to the dataset meanwhile. The folder is deleted in the end, unless the
    process is killed, or a resumed write fails: then it is left for `Existing.RESUME`. The
    dataset's directory is made if it isn't there, and deleted again if nothing came of it.

    Raises:
        UsageError: something is there that may not be touched; or another process writes.
        WriteError: the folder can't be used, or an interrupted write can't be finished.
    """
    if dataset.exists() and not dataset.is_dir():
        raise UsageError("not a directory", path=dataset)
    folder = dataset / STAGING
    new_folders = [path for path in (dataset, *dataset.parents) if not path.exists()]
    try:
        with contextlib.ExitStack() as stack:
            with os_errors_as(WriteError, dataset, "can't be written to"):
                dataset.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(dataset))
            _finish_publishing(dataset)
            with os_errors_as(WriteError, dataset):
                names = {*os.listdir(dataset)} - {LOCK}  # noqa: PTH208
            report = read_object(dataset / REPORT)
            ours = {*METADATA, *listed_metadata(report), *listed_shards(report)}
            resumed = may_write(
                target, names, ours, interrupted=STAGING in names, complete=REPORT in names
            )
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
        for path in new_folders:
            with contextlib.suppress(OSError):
                path.rmdir()


def _sweep(folder: Path) -> bool:
    """Delete what a resumed write can't use, so all links; return whether there are files."""
    useful = False
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif entry.is_file(follow_symlinks=False) and is_shard(entry.name):
                useful = True
            elif entry.name != LOG or entry.is_symlink():
                os.unlink(entry.path)  # noqa: PTH108
    return useful


def is_ours(name: object) -> bool:
    """Return whether what is to be published has the name of something that tfrtool writes."""
    return isinstance(name, str) and (is_shard(name) or bool(_METADATA_NAME.fullmatch(name)))


def may_write(
    target: Target,
    names: AbstractSet[str],
    ours: AbstractSet[str],
    *,
    interrupted: bool,
    complete: bool,
) -> bool:
    """Return whether to resume a write; `UsageError` if it may not go where the target is.

    Args:
        target: where to.
        names: the files and folders that are there.
        ours: names of what tfrtool wrote there.
        interrupted: whether a write was interrupted there.
        complete: whether there is a dataset.
    """
    dataset, existing = target.folder, target.existing
    if not (names or interrupted or complete):
        return False
    if existing is Existing.REFUSE and interrupted:
        remote = isinstance(dataset, RemotePath)
        raise UsageError(
            f"an interrupted{' or running' if remote else ''} write was found",
            path=dataset,
            hint="use --resume to continue it, or --overwrite to start over",
        )
    if existing is Existing.REFUSE:
        hint = "use --overwrite to replace it" if complete else _ELSEWHERE
        raise UsageError(
            "already exists" if complete else "directory is not empty", path=dataset, hint=hint
        )
    foreign = names - ours - {STAGING}
    if complete:  # beside its own, those that would be taken for shards of the new one
        foreign = {name for name in foreign if is_shard_of(name, target.name)}
    if foreign or not (complete or interrupted):
        raise UsageError(
            f"contains files that tfrtool did not write, such as {min(foreign or names)}",
            path=dataset,
            hint=_ELSEWHERE,
        )
    return existing is Existing.RESUME and interrupted
