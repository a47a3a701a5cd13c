"""How a dataset appears: its files become whole out of sight, and get their names together.

In a folder, there are steps, and a process can die at each of them:

1. The new files are in the staging folder, flushed to disk, with a journal that lists them and the
   files that they replace.
2. The staging folder is renamed to `PUBLISHING`. From here on, every reader and every later writer
   sees that the new files are on their way.
3. All old files are moved into that folder: metadata first, since it describes the others.
4. All new files are moved out of it, metadata last.
5. The folder gets its former name back, and is deleted with the old files.

Not even a glob pattern matches old and new files together. The place of each file shows what is
left to do: the next writer does it. After an error everything is moved back, and signals wait. Two
renames of whole folders would be shorter, but the target may be a mount point or hold other files.

`tfrtool.writing.store_staging` does it in a store.
"""

import abc
import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from tfrtool.errors import UsageError, WriteError, os_errors_as, os_reason
from tfrtool.examples.tfds_metadata import DATASET_INFO, FEATURES, LABELS, REPORT
from tfrtool.records.count import INDEX
from tfrtool.records.shard_sets import ShardName
from tfrtool.storage.atomic_files import (
    TEMPORARY,
    move,
    new_file,
    private_folder,
    sync_file,
    sync_folder,
)
from tfrtool.storage.commit import CLAIM, PUBLISHING, STAGING, has_uncommitted_write
from tfrtool.storage.json_values import read_json
from tfrtool.storage.lock import LOCK, locked, signals_wait
from tfrtool.storage.remote_path import AnyPath, RemotePath
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.writing.job_report import FinishedFile, ShardReport
from tfrtool.writing.run_options import Existing, JobSettings

METADATA = (LABELS, FEATURES, DATASET_INFO, REPORT)
"""In the order in which they appear: TFDS takes a dataset without LABELS for one without names."""

_JOURNAL, _REPLACED, _NOTE = "journal.json", "replaced", ".done.json"
_STAGED = (CLAIM, _JOURNAL, _REPLACED, "scratch")
"""Names in a staging folder, besides those of files to publish, and of notes on them."""

_ELSEWHERE = "choose another directory; --overwrite only replaces files that tfrtool wrote"
AT_ONCE = 8  # requests

_OTHER_FORMATS = re.compile(
    r"(?P<dataset>[a-zA-Z]\w*)-\w+\.array_record-\d{5,}-of-\d{5,}"
    r"|(?:(?P<named>[a-zA-Z]\w*)-)?\w+-\d{5,}-of-\d{5,}\.(?:parquet|jsonl|csv|tar)",
    re.ASCII,
)
_METADATA_NAME = re.compile(
    r"(?:features|dataset_info|keypoints|write_report|schema)\.json|README\.md|label_map\.pbtxt|\w[\w.-]*\.labels\.txt",
    re.ASCII,
)


class Staging(abc.ABC):
    """Where the files of a job become whole, before they appear together.

    A claim names the plan, and a note each finished file; notes count only for that plan.

    Attributes:
        folder: a private folder of this machine.
        target: where finished files are.
        resumed: whether an interrupted job is resumed.
        left: whether that one left any files.
    """

    def __init__(
        self, settings: JobSettings, folder: Path, target: AnyPath, notes: AnyPath
    ) -> None:
        self.settings, self.folder, self.target, self.notes = settings, folder, target, notes
        self.resumed = self.left = self.published = False
        self._facts: dict[str, Any] = {}  # the content of the claim

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "settings": None}  # only this process publishes

    @contextlib.contextmanager
    def noting_interrupt(self) -> Iterator[None]:
        """Note on an interrupt what remains of the write."""
        try:
            yield
        except KeyboardInterrupt as error:
            if not self.published:
                resumed = self.resumed
                error.add_note("continue with --resume" if resumed else "nothing was written")
            raise

    def begin(self, plan: str, names: Iterable[str]) -> dict[str, FinishedFile]:
        """Begin to write the files of a plan, given by its digest; return those that are finished.

        What another plan has left, or is to be replaced, is deleted.
        """
        usable = self.resumed and self._facts.get("plan") == plan
        with ThreadPoolExecutor(AT_ONCE) as threads:
            files = [*threads.map(self._noted, names if usable else ())]
        finished = {file.shard.path: file for file in files if file is not None}
        self._begin(plan, finished)
        return finished

    def _noted(self, name: str) -> FinishedFile | None:
        with contextlib.suppress(ValueError):  # the note may have come with somebody else's folder
            file = FinishedFile.from_json(read_object(self._note(name), follow=False))
            if file.shard.path == name and is_whole(self.target / name, file.shard):
                return file
        return None

    def _note(self, name: str) -> AnyPath:
        return self.notes / f"{name}{_NOTE}"

    def note(self, file: FinishedFile) -> None:
        """Note that a file is finished; only the process that runs the job does."""
        path, data = self._note(file.shard.path), json.dumps(file.to_json()).encode()
        with os_errors_as(WriteError, path, "can't be written"):
            if isinstance(path, RemotePath):
                path.store.put(path.key, data)
            else:
                path.write_bytes(data)

    def _may_write(
        self, names: Collection[str], owned: Collection[str], *, interrupted: bool, complete: bool
    ) -> None:
        """Find out whether to resume a write; `UsageError` if it may not go where the target is.

        Args:
            names: the files and folders that are there.
            owned: names of what tfrtool wrote there.
            interrupted: whether a write was interrupted there.
            complete: whether there is a dataset.
        """
        dataset, existing = self.settings.folder, self.settings.existing
        if not (names or interrupted or complete):
            return
        if existing is Existing.REFUSE:
            what, hint = "directory is not empty", _ELSEWHERE
            if interrupted:
                running = " or running" if isinstance(dataset, RemotePath) else ""
                what = f"an interrupted{running} write was found"
                hint = "use --resume to continue it, or --overwrite to start over"
            elif complete:
                what, hint = "already exists", "use --overwrite to replace it"
            raise UsageError(what, path=dataset, hint=hint)
        foreign = {*names}.difference(owned, [STAGING])
        if complete:  # besides its own, those that would be taken for shards of the new one
            foreign = {name for name in foreign if is_shard_of(name, self.settings.name)}
        if foreign or not (complete or interrupted):
            what = f"contains files that tfrtool did not write, such as {min(foreign or names)}"
            raise UsageError(what, path=dataset, hint=_ELSEWHERE)
        self.resumed = existing is Existing.RESUME and interrupted

    @abc.abstractmethod
    def _begin(self, plan: str, finished: Mapping[str, FinishedFile]) -> None:
        """Delete everything but finished files of the plan, and put it into the claim."""

    @abc.abstractmethod
    def scratch_dir(self) -> contextlib.AbstractContextManager[Path]:
        """Give a folder of this machine to write files in, by their names."""

    def copy(self, source: AnyPath, name: str) -> str | None:  # noqa: ARG002
        """Copy a file within the store; return the copy's ETag, or None if that can't be done."""
        return None

    @abc.abstractmethod
    def finish(self, path: Path) -> str | None:
        """Bring a complete file to where finished ones are; return its ETag, if it has one."""

    @abc.abstractmethod
    def publish(self, shards: Sequence[ShardReport], metadata: Mapping[str, str]) -> None:
        """Give finished files their final names, with their metadata, in place of existing ones.

        The metadata appears in its order, the report last.

        Raises:
            WriteError: that is impossible; in a folder, what was there still is.
            UsageError: in a store, another write was faster.
        """


class FolderStaging(Staging):
    """Files of a job in a folder inside the dataset's."""

    def __init__(self, settings: JobSettings, dataset: Path) -> None:
        """Check that the dataset's folder may be written to, and use or clear the staging one."""
        folder = dataset / STAGING
        super().__init__(settings, folder, folder, folder)
        if os.path.lexists(dataset / PUBLISHING):
            _finish_publishing(dataset)
        with os_errors_as(WriteError, dataset):
            names = {*os.listdir(dataset)} - {LOCK}  # noqa: PTH208
        if names:
            known = names_of_ours(dataset)
            self._may_write(names, known, interrupted=STAGING in names, complete=REPORT in names)
        with os_errors_as(WriteError, folder, "can't be used"):
            if folder.is_dir() and not folder.is_symlink():
                for name in _foreign_names(folder):
                    what = f"contains files that tfrtool did not write, such as {name}"
                    raise UsageError(what, path=folder, hint="move them away")
                if not self.resumed:
                    shutil.rmtree(folder)
            private_folder(folder)
            if self.resumed:
                self.left = self.sweep()
                self._facts = dict(read_object(folder / CLAIM, follow=False))

    def sweep(self) -> bool:
        """Delete what a resumed write can't use, so all links; return whether there are files."""
        useful = False
        with os.scandir(self.folder) as entries:
            for entry in entries:
                regular = entry.is_file(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                elif regular and is_shard(entry.name.removesuffix(INDEX)):
                    useful = True
                elif not regular or not (entry.name == CLAIM or entry.name.endswith(_NOTE)):
                    os.unlink(entry.path)  # noqa: PTH108
        return useful

    def _begin(self, plan: str, finished: Mapping[str, FinishedFile]) -> None:
        with os_errors_as(WriteError, self.folder, "can't be written to"):
            for name in os.listdir(self.folder):  # noqa: PTH208
                shard = name.removesuffix(_NOTE).removesuffix(INDEX)
                if shard not in finished and (is_shard(shard) or name.endswith(_NOTE)):
                    (self.folder / name).unlink()
            with new_file(self.folder / CLAIM) as file:
                file.write(json.dumps({"plan": plan}).encode())

    @contextlib.contextmanager
    def scratch_dir(self) -> Iterator[Path]:
        """Give a folder inside the staging one: a task may run twice if its node was lost."""
        with ScratchFolder(dir=self.folder, prefix=TEMPORARY) as folder:
            yield Path(folder)

    def finish(self, path: Path) -> None:
        """Flush a file to disk, and move it into the staging folder."""
        sync_file(path)
        move(path, self.folder / path.name)

    def publish(self, shards: Sequence[ShardReport], metadata: Mapping[str, str]) -> None:
        """Swap old files and new ones."""
        dataset = self.folder.parent
        new = [*chain.from_iterable(shard.names for shard in shards), *metadata]
        try:
            is_new = {LOCK, STAGING}.issuperset(os.listdir(dataset))  # noqa: PTH208
            old = [] if is_new else _replaced_names(dataset, new, metadata)
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
                    self.published = True
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
                hint=f"run tfrtool {self.settings.command} --resume to finish the write"
                if left
                else None,
            ) from error


@contextlib.contextmanager
def stage_in_folder(settings: JobSettings, dataset: Path) -> Iterator[FolderStaging]:
    """Give a place to write files, inside the dataset's folder.

    That folder is made if it isn't there, and deleted if nothing came. Nobody else writes to it
    meanwhile. What was staged is deleted in the end, unless the process is killed, or a resumed
    write fails: then it is left for `Existing.RESUME`.

    Raises:
        UsageError: something is there that may not be touched; or another process writes.
        WriteError: the folder can't be used, or an interrupted write can't be finished.
    """
    if dataset.exists() and not dataset.is_dir():
        raise UsageError("not a directory", path=dataset)
    new_folders = [path for path in (dataset, *dataset.parents) if not path.exists()]
    try:
        with contextlib.ExitStack() as stack:
            with os_errors_as(WriteError, dataset, "can't be written to"):
                dataset.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(dataset))
            staged = FolderStaging(settings, dataset)
            keep = staged.resumed
            try:
                with staged.noting_interrupt():
                    yield staged
                keep = False
            finally:
                with signals_wait():
                    with contextlib.suppress(OSError):
                        keep = staged.sweep() and keep
                    if not keep:
                        shutil.rmtree(staged.folder, ignore_errors=True)
    finally:
        for path in new_folders:
            with contextlib.suppress(OSError):
                path.rmdir()


def _replaced_names(dataset: Path, new: Sequence[str], metadata: Iterable[str]) -> list[str]:
    """Return the existing files that a dataset replaces, the report first."""
    report = read_object(dataset / REPORT)
    described = [*sorted({*listed_metadata(report), *metadata} - {*METADATA}), *METADATA]
    shards_before = {*with_indexes(listed_shards(report)), *new}.difference(described)
    return [
        name
        for name in (*reversed(described), *sorted(shards_before))
        if (dataset / name).is_symlink() or (dataset / name).is_file()
    ]


def _swap(dataset: Path, new: Sequence[str], old: Sequence[str], *, back: bool = False) -> None:
    """Move old files into `PUBLISHING` and new ones out of it, or ``back``; some may be moved."""
    publishing = dataset / PUBLISHING
    phases = [
        [(dataset / name, publishing / _REPLACED / name) for name in old],
        [(publishing / name, dataset / name) for name in new],
    ]
    if back:
        phases = [[pair[::-1] for pair in reversed(pairs)] for pairs in reversed(phases)]
    for pairs in phases:
        for source, destination in pairs:
            # A new file may have the name of an old one, which is in its place already then.
            if os.path.lexists(source) and not os.path.lexists(destination):
                move(source, destination)
        sync_folder(publishing / _REPLACED)
        sync_folder(dataset)
    for name in () if back else new:
        if os.path.lexists(publishing / name):  # another program has made a file of that name
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(dataset / name))


def _finish_publishing(dataset: Path) -> None:
    """Finish what a killed publisher began.

    Raises:
        WriteError: that is impossible, or the journal lists files that tfrtool doesn't write.
    """
    publishing, staged = dataset / PUBLISHING, dataset / STAGING
    try:
        private_folder(publishing)
        try:
            journal = read_json(publishing / _JOURNAL, follow=False)
            new, old = list(journal["new"]), list(journal["old"])
            known = all(map(is_ours, [*new, *old])) and not _foreign_names(publishing)
        except (ValueError, KeyError, TypeError):
            known = False
        if not known:
            raise OSError(
                errno.EINVAL, "it is not what an interrupted write leaves", str(publishing)
            )
        with signals_wait():
            for name in new:
                if not os.path.lexists(publishing / name):
                    (dataset / name).lstat()
            _swap(dataset, new, old)
            move(publishing, staged)
            sync_folder(dataset)
    except OSError as error:
        raise WriteError(
            f"an interrupted write can't be finished: {os_reason(error)}",
            path=error.filename or staged,
            hint=f"delete {PUBLISHING} to discard its files",
        ) from error
    shutil.rmtree(staged, ignore_errors=True)


def is_whole(path: AnyPath, shard: ShardReport) -> bool:
    """Return whether a shard has its size, its ETag if it has one, and an index of its size."""
    try:
        same = path.stat().st_size == shard.bytes
        if shard.index is not None:
            same &= path.with_name(f"{path.name}{INDEX}").stat().st_size == shard.index
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


def listed_metadata(report: Mapping[str, Any]) -> list[str]:
    """Return the names of the metadata that a report lies next to, in the order of appearance."""
    listed = report.get("metadata", METADATA)
    names = listed if isinstance(listed, list | tuple) else ()
    return [name for name in names if isinstance(name, str) and _METADATA_NAME.fullmatch(name)]


def names_of_ours(folder: AnyPath) -> set[str]:
    """Return the names of the files that a report lists, and of metadata."""
    report = read_object(folder / REPORT)
    return {*METADATA, *listed_metadata(report), *with_indexes(listed_shards(report))}


def with_indexes(names: Iterable[str]) -> set[str]:
    """Return names, and those of the indexes that shards with these names may have."""
    return {name + end for name in names for end in ("", *([INDEX] if is_shard(name) else ()))}


def complete_shards(
    plan: str, settings: JobSettings, names: Sequence[str], *, interrupted: bool
) -> list[ShardReport] | None:
    """Return the shards of a dataset that is complete, and of just this plan; sizes are checked.

    None if it is yet to be written; or, where a write was interrupted, to be resumed.

    Args:
        plan: digest of the plan.
        settings: where the dataset is.
        names: names of files that it has.
        interrupted: whether a write was interrupted there.

    Raises:
        UsageError: another dataset is complete, or a file is missing or has another size.
    """
    dataset = settings.folder
    path = dataset / REPORT
    if not (path.exists() or path.is_symlink()) or has_uncommitted_write(dataset):
        return None
    report, at_fault = read_object(path), dataset
    what = "already complete, but written with other options, images or records"
    hint = "use --overwrite to replace it"
    if report.get("plan") == plan:
        try:
            shards = msgspec.convert([*listed_shards(report).values()], list[ShardReport])
        except ValueError:
            shards = []
        amiss = [name for name in listed_metadata(report) if not (dataset / name).is_file()]
        amiss += [shard.path for shard in shards if not is_whole(dataset / shard.path, shard)]
        if shards and not amiss and {shard.path for shard in shards}.issuperset(names):
            return shards
        what, at_fault = "missing, or changed since it was written", dataset / [*amiss, REPORT][0]
        hint = "use --overwrite to write the dataset again"
    if interrupted:
        return None
    raise UsageError(what, path=at_fault, hint=hint)


def is_shard(name: str) -> bool:
    """Return whether a file has the name of a shard, in any format that is written."""
    return ShardName.parse(name) is not None or _OTHER_FORMATS.fullmatch(name) is not None


def is_shard_of(name: str, dataset: str) -> bool:
    """Return whether a file would be taken for a shard of a dataset of some name."""
    shard, other = ShardName.parse(name), _OTHER_FORMATS.fullmatch(name)
    if shard is not None:
        return shard.dataset == dataset
    return other is not None and (other["dataset"] or other["named"] or dataset) == dataset


def is_ours(name: object) -> bool:
    """Return whether what is to be published has the name of something that tfrtool writes."""
    if not isinstance(name, str):
        return False
    return is_shard(name.removesuffix(INDEX)) or bool(_METADATA_NAME.fullmatch(name))


def _foreign_names(staging: Path) -> list[str]:
    """Return what is in the folder of an earlier write under names that no write uses."""
    return [
        name
        for name in sorted(os.listdir(staging))  # noqa: PTH208
        if not (name in _STAGED or name.startswith(TEMPORARY) or is_ours(name))
        and not is_ours(name.removesuffix(_NOTE))
    ]


def is_metadata(name: str) -> bool:
    """Return whether a file has the name of metadata that tfrtool writes."""
    return is_ours(name) and not is_shard(name.removesuffix(INDEX))
