"""What SHARDS and DATASET mean: which files are shards, and where those of a dataset are."""

import glob
import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from tfrtool.errors import (
    DatasetError,
    ShardError,
    UsageError,
    human_count,
    os_errors_as,
    printable,
    some_of,
)
from tfrtool.records.compression import Compression, detect_compression, starts_record
from tfrtool.records.framing import Fault, FaultKind
from tfrtool.records.partitions import PartitionFolder, is_finished, partition_columns
from tfrtool.records.reader import read_shard
from tfrtool.records.shard_sets import (
    COMPRESSED_NAME,
    VERSION,
    has_other_format,
    is_event_name,
    is_shard_name,
    natural_order,
    run_of,
    split_named,
)
from tfrtool.records.stream import STREAM, Location, Stream, as_source, open_shard
from tfrtool.storage.arguments import Paths, as_path
from tfrtool.storage.commit import check_not_begun, check_not_publishing
from tfrtool.storage.limits import (
    MAX_FILES_LOOKED_INTO,
    MAX_FILES_OF_A_KIND,
    MAX_FOLDERS_BELOW,
    MAX_RUN_FOLDERS,
)
from tfrtool.storage.opening import open_regular, size_of_file
from tfrtool.storage.remote_path import AnyPath, RemotePath, is_url, remote_path

_HEAD = 4096
_NAMED = 8
_MOST_NESTED = 8
"""Folders in each other that are named like splits, or in such a folder."""

_MOST_REMOTE_FOLDERS = 16
"""Folders of a store that are searched for further shards: each takes a request."""
_DISCARDED = "discarded-data-"
"""What TFRecorder's shards of rejected images start with."""
_MOST_EMPTY_BYTES = 64
"""The size of a file that decompresses to nothing is less."""

Locations = Location | Iterable[Location]
_Source = TypeVar("_Source", bound=AnyPath | Stream)


def matching_files(pattern: str) -> list[AnyPath]:
    """Return the files that a pattern matches, in natural order."""
    if is_url(pattern):
        found = remote_path(pattern).matching()
        return sorted(found, key=lambda path: natural_order(str(path)))
    return [path for path in _matches(pattern) if not path.is_dir()]


def _matches(pattern: str) -> list[Path]:
    # Path.glob takes neither an absolute pattern nor one that starts with "..".
    matches = sorted(glob.glob(pattern, recursive=True), key=natural_order)  # noqa: PTH207
    return [*map(Path, matches)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A shard file.

    Attributes:
        path: path of the file.
        bytes: size on disk, in bytes.
        compression: compression of the file, detected from its content.
    """

    path: AnyPath
    bytes: int
    compression: Compression

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> "Shard":
        """Return the shard at ``path``; raise `ShardError` if it can't be opened."""
        path = as_path(path)
        with open_shard(path) as file:
            size = size_of_file(file)
            return cls(path=path, bytes=size, compression=detect_compression(file))


class FoundShards(NamedTuple):
    """The shards that some arguments mean."""

    sources: tuple[AnyPath | Stream, ...]  # each shard once, in the order of the arguments
    folders: tuple[
        AnyPath, ...
    ] = ()  # of shards that were named as directories, and are meant whole
    notes: tuple[str, ...] = ()  # what was decided on the way, a sentence each

    @property
    def paths(self) -> tuple[AnyPath, ...]:
        """Those that are files."""
        return tuple(source for source in self.sources if not isinstance(source, Stream))


def find_shards(arguments: Paths) -> tuple[AnyPath, ...]:
    """Find the shards that files, glob patterns and directories refer to.

    Each shard is returned once, in the order of the arguments. A file is used whatever its name is.
    A directory stands for the shards in it or, if it has none, for those of its newest version or
    of its split subdirectories.

    Patterns and directories match files that have a shard name or start with valid framing. Files
    that tfrtool and TFDS write next to shards, such as indexes, never match.

    Args:
        arguments: a path or pattern, or several.

    Raises:
        ShardError: an argument matches no file.
        DatasetError: a directory has no shards, or its shards are being replaced.
        UsageError: an argument is a URL or standard input.
    """
    return locate_shards(arguments).paths


def locate_shards(arguments: Locations) -> FoundShards:
    """Do what `find_shards` does, and report what was decided; a binary stream is a shard, too."""
    if isinstance(arguments, str | os.PathLike) or hasattr(arguments, "read"):
        arguments = (cast(Location, arguments),)
    arguments = tuple(arguments)
    parts = [_expand(argument) for argument in arguments]
    sources = dict.fromkeys(source for part in parts for source in part.sources)
    patterns = [one for one in arguments if isinstance(one, str | os.PathLike)]
    found, empty = _without_empty([*sources])
    earlier = [note for part in parts for note in part.notes]
    if any(note.endswith(text) for note in earlier for text in empty):
        empty = []  # it is a note on the directory
    notes = (*earlier, *note_unmatched(patterns, sources), *empty)
    return FoundShards(
        tuple(found),
        tuple(dict.fromkeys(folder for part in parts for folder in part.folders)),
        tuple(dict.fromkeys(notes)),
    )


def _expand(location: Location) -> FoundShards:
    path = as_source(location)
    if isinstance(path, Stream):
        return FoundShards((path,))
    argument = str(path) if isinstance(path, RemotePath) else os.fspath(cast(str, location))
    if argument == STREAM:
        raise UsageError(
            "standard input can only be read as a single shard, by count, cat, verify, repair, "
            "and inspect shard, schema and stats",
            path=argument,
        )
    with os_errors_as(ShardError, argument):
        if path.is_dir():
            found = find_folders(path)
            notes = tuple(f"{printable(argument)}: {note}" for note in found.notes)
            return FoundShards(found.shards, tuple(one.parent for one in found.shards), notes)
        if path.exists() or not glob.has_magic(argument):
            Shard.at(path)
            return FoundShards((path,))
        files = matching_files(argument)
    for folder in {file.parent for file in files}:
        check_not_publishing(folder)
    # What has the name of another format is none (an index, metadata). If no other file starts as a
    # shard, all of them are taken.
    unknown = (file for file in files if is_shard_name(file.name) is None)
    finder = _ShardFinder()
    shards = tuple(finder.choose(files) or unknown)
    if not shards:
        check_not_begun(
            Path(*takewhile(lambda part: not glob.has_magic(part), Path(argument).parts))
        )
        other = f"{printable(files[0].name)}, which is not a shard by its name" if files else None
        skipped = next(note_unmatched([argument], ()), None)
        raise ShardError("no shard matches", path=argument, found=other, hint=skipped)
    return FoundShards(
        shards, notes=tuple(f"{printable(argument)}: {note}" for note in finder.notes())
    )


class DatasetFolders(NamedTuple):
    """Where the shards of a dataset are."""

    root: AnyPath  # the directory of the dataset itself, at or below the one that was named
    shards: tuple[AnyPath, ...]  # folder by folder, in natural order
    notes: tuple[str, ...] = ()  # what was decided on the way, a clause each


def _without_empty(shards: Sequence[_Source]) -> tuple[Sequence[_Source], list[str]]:
    """Return shards without those that are meant to be empty, and a note on these.

    Others may be empty because their writer stopped. If all of them are empty, they are kept.
    """
    empty = list[str]()
    others = list[_Source]()
    finished = dict[AnyPath, bool]()  # by folder
    for shard in shards:
        if isinstance(shard, Path) and _is_meant_empty(shard, finished):
            empty.append(printable(shard.name))
        else:
            others.append(shard)
    if not empty:
        return shards, []
    count, names = human_count(len(empty), "shard"), some_of(empty, _NAMED)
    if others:
        return others, [f"{count} without records not included ({names})"]
    if any(finished.values()):
        return shards, [f"{count} without records: the job that wrote them has finished ({names})"]
    return shards, []


def _is_meant_empty(shard: Path, finished: dict[AnyPath, bool]) -> bool:
    """Return whether a shard has no records, and its writer was not interrupted.

    ``finished`` caches for which folders this is known.
    """
    with suppress(OSError, ShardError):
        if shard.stat().st_size >= _MOST_EMPTY_BYTES:
            return False
        folder = shard.parent
        if folder not in finished:
            finished[folder] = is_finished(shard)
        if finished[folder] or shard.name.startswith(_DISCARDED):
            first = next(read_shard(shard), None)
            return first is None or (isinstance(first, Fault) and first.kind is FaultKind.EMPTY)
    return False


def is_pattern(location: str | os.PathLike[str]) -> bool:
    """Return whether a path is a glob pattern, and not the name of something that exists."""
    path = as_path(location)
    return glob.has_magic(str(path)) and not path.exists()


def find_folders(directory: str | os.PathLike[str]) -> DatasetFolders:
    """Find the shards that a directory means.

    It may hold the shards itself; or versions of a dataset (``1.0.0``), and the newest is
    used, as TFDS does; or one configuration with versions in it; or a folder for each split, as
    TFX writes them; or event files of TensorBoard at any depth. It is a `DatasetError` if it is not
    a directory, can't be read, has no dataset or several, or is being replaced.
    """
    directory = as_path(directory)
    if not directory.is_dir():
        what = "not a directory" if directory.exists() else "no such directory"
        raise DatasetError(what, path=directory, expected="a directory with shards")
    finder = _ShardFinder()
    with os_errors_as(DatasetError, directory):
        found = _with_runs(_descend(directory, finder), directory, finder)
        if not found.shards:
            for folder in dict.fromkeys((found.root, directory, *finder.folders(found.root))):
                check_not_begun(folder)
    if not found.shards:
        pattern = shlex.quote(f"{glob.escape(str(found.root))}/**")
        raise DatasetError(
            "no shards in this directory or in its subfolders",
            path=found.root,
            found="images; convert them to shards with tfrtool write"
            if _has_images(directory)
            else None,
            hint=f"to search deeper, quote a pattern: {pattern}",
        )
    with os_errors_as(DatasetError, directory):
        below = finder.folders(directory)
        if found.root == directory and isinstance(directory, Path):
            deeper = {shard.parent.parent for shard in found.shards} & {*below}
            below += [one for folder in below if deeper for one in finder.folders(folder)]
    shards, empty = _without_empty(found.shards)
    notes = [*found.notes, *finder.notes(), *empty]
    if below:
        every = f"{glob.escape(str(directory))}/**"
        most = _MOST_REMOTE_FOLDERS if isinstance(directory, RemotePath) else MAX_FOLDERS_BELOW
        unread = _unread(below[:most], {*found.shards}, "subfolder", every, directory)
        notes = [*found.notes, *_partition_notes(shards, directory), *finder.notes()]
        notes += [*unread, *empty]
    return found._replace(shards=tuple(shards), notes=tuple(notes))


def note_unmatched(
    arguments: Iterable[str | os.PathLike[str]], taken: Iterable[object]
) -> Iterator[str]:
    """Report shards in folders that patterns match, which patterns don't include."""
    known = {*taken}
    for pattern in map(str, arguments):
        if is_url(pattern) or not glob.has_magic(pattern) or Path(pattern).exists():
            continue
        matches = _matches(pattern)
        folders = [path for path in matches if path.is_dir()]
        every = Path(pattern).with_name("**") if Path(pattern).name == "*" else f"{pattern}/**"
        for note in _unread(folders, known | {*matches}, "folder", str(every)):
            yield f"{printable(pattern)}: {note}"


def _unread(
    folders: Iterable[AnyPath],
    known: Collection[object],
    noun: str,
    every: str,
    top: AnyPath | None = None,
) -> Iterator[str]:
    """Report how many other shards are in folders; ``every`` is a pattern that includes them.

    Folders are named by their paths below ``top``, or else by their own names.
    """
    counts: dict[str, int] = {}
    for folder in islice(folders, MAX_FOLDERS_BELOW):
        with suppress(OSError):
            if number := sum(shard not in known for shard in _ShardFinder().all_shards(folder)):
                counts[str(folder.relative_to(top)) if top else folder.name] = number
    if counts:
        count, where = human_count(sum(counts.values()), "shard"), human_count(len(counts), noun)
        names = some_of([printable(name) for name in counts], _NAMED)
        verb, hint = "is" if count == "1 shard" else "are", "name a folder to read it"
        if not any(map(_version, counts)):  # several versions of a dataset are not read together
            hint += f", or quote a pattern to read all files: {shlex.quote(every)}"
        yield f"{count} in {where} {verb} not included ({names}); {hint}"


def _has_images(folder: AnyPath) -> bool:
    if isinstance(folder, RemotePath):
        return False
    files = islice(chain(folder.glob("*"), folder.glob("*/*")), MAX_FILES_LOOKED_INTO)
    return any(file.suffix.lower() in (".jpg", ".jpeg", ".png") for file in files)


def shards_in(folder: AnyPath) -> list[AnyPath]:
    """Return the shards in a folder itself, in natural order; `OSError` if it can't be read."""
    return _ShardFinder().shards(folder)


class _ShardFinder:
    """Finds shards among files, with one allowance for files whose names don't show it.

    Once that is spent, the others are what those were: shards, if any of them was one.
    """

    def __init__(self) -> None:
        self._left = MAX_FILES_LOOKED_INTO
        self._found = False
        self._other_formats: dict[AnyPath, None] = {}
        self._listed: dict[RemotePath, tuple[list[RemotePath], list[RemotePath]]] = {}

    def shards(self, folder: AnyPath) -> list[AnyPath]:
        check_not_publishing(folder)
        return self.all_shards(folder)

    def all_shards(self, folder: AnyPath) -> list[AnyPath]:
        """Return the shards in a folder, whether a write has ended there or not."""
        if isinstance(folder, RemotePath):
            listed = self._entries(folder)[0]
            files = [one for one in listed if is_shard_name(one.name) is not False]
            return self.choose(sorted(files, key=lambda path: natural_order(path.name)))
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if is_shard_name(e.name) is not False and e.is_file()]
        return self.choose([folder / name for name in sorted(names, key=natural_order)])

    def folders(self, folder: AnyPath) -> list[AnyPath]:
        """Return the folders in a folder, without hidden ones."""
        if isinstance(folder, RemotePath):
            below = [one for one in self._entries(folder)[1] if not one.name.startswith(".")]
            return sorted(below, key=lambda path: path.name)
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir())
        return [folder / name for name in names]

    def _entries(self, folder: RemotePath) -> tuple[list[RemotePath], list[RemotePath]]:
        """List a folder in a store, once."""
        if folder not in self._listed:
            self._listed[folder] = folder.entries()
        return self._listed[folder]

    def choose(self, paths: Iterable[AnyPath]) -> list[AnyPath]:
        """Return the shards among files, by their names, or else by their first bytes.

        A file stands for all with names of its kind, so damaged shards count, too. Files whose
        names show another format, such as the ArrayRecord files that TFDS may write next to
        shards, count only if there are no others: then they are what was meant.
        """
        kinds: dict[str, list[AnyPath]] = {}
        chosen: dict[AnyPath, bool] = {}
        for path in paths:
            shard = is_shard_name(path.name)
            chosen[path] = bool(shard)
            if shard is None:
                kinds.setdefault(_kind(path.name), []).append(path)
        for of_kind in kinds.values():
            if any(map(self._holds_records, of_kind[:MAX_FILES_OF_A_KIND])):
                chosen |= dict.fromkeys(of_kind, True)
        shards = [path for path, shard in chosen.items() if shard]
        others = [path for path in shards if has_other_format(path.name)]
        if len(others) == len(shards):
            return shards
        self._other_formats |= dict.fromkeys(others)
        return [path for path in shards if path not in self._other_formats]

    def notes(self) -> Iterator[str]:
        """Report the files of other formats that were not chosen."""
        if self._other_formats:
            names = [printable(path.name) for path in self._other_formats]
            count = human_count(len(names), "file")
            yield f"{count} of another format not included ({some_of(names, _NAMED)})"

    def _holds_records(self, path: AnyPath) -> bool:
        if not self._left:
            return self._found
        self._left -= 1
        try:
            with open_regular(path, buffering=0) as file:
                found = starts_record(file.read(_HEAD))
        except OSError:
            return False
        self._found |= found
        return found


def _kind(name: str) -> str:
    """Return what files of one writer have in common: an ending, or all but the numbers."""
    ending = Path(name).suffix.lower()
    if ending.strip(".0123456789") and COMPRESSED_NAME.search(name) is None:
        return ending
    return re.sub(r"\d+", "0", name)


def _descend(directory: AnyPath, finder: _ShardFinder) -> DatasetFolders:
    if shards := finder.shards(directory):
        return DatasetFolders(directory, tuple(shards))
    below = finder.folders(directory)
    versions = {n: path for path in below if (n := _version(path.name)) is not None}
    if versions:
        last = [versions[number].name for number in sorted(versions)[-_NAMED:]]
        names = ", ".join(["..."] * (len(versions) > len(last)) + last)
        which = "the only one" if len(versions) == 1 else f"the newest of {names}"
        return _with_note(
            _descend(versions[max(versions)], finder), f"using version {last[-1]}, {which}"
        )
    if shards := _in_partitions(below, finder):
        return DatasetFolders(directory, tuple(shards))
    if shards := [shard for folder in below for shard in _partitioned(folder, finder)]:
        tops = (shard.relative_to(directory).parts[0] for shard in shards)
        folders = [*dict.fromkeys(map(printable, tops))]
        note = f"reading the shards in its folders {some_of(folders, _NAMED)}"
        return DatasetFolders(directory, tuple(shards), (note,))
    configs = [path for path in below if any(_version(one.name) for one in finder.folders(path))]
    names = ", ".join(printable(path.name) for path in configs)
    if len(configs) > 1:
        what = "contains several datasets; name one of them"
        raise DatasetError(what, path=directory, found=names)
    if configs:
        return _with_note(
            _descend(configs[0], finder), f"using configuration {names}, the only one"
        )
    return DatasetFolders(directory, ())


def _with_runs(found: DatasetFolders, directory: AnyPath, finder: _ShardFinder) -> DatasetFolders:
    """Return the event files of all folders below a directory, if it has nothing else."""
    if not all(is_event_name(shard.name) for shard in found.shards):
        return found
    most = MAX_FOLDERS_BELOW if isinstance(directory, RemotePath) else MAX_RUN_FOLDERS
    folders = [*islice(_folders_below(directory, finder), most + 1)]
    shards = [
        shard
        for folder in folders[:most]
        for shard in finder.all_shards(folder)
        if is_event_name(shard.name)
    ]
    if len(shards) <= len(found.shards):
        return found
    runs = [*dict.fromkeys(printable(run_of(shard.parent, directory)) for shard in shards)]
    notes = [
        f"reading the event files of {human_count(len(runs), 'run')} ({some_of(runs, _NAMED)})"
    ]
    if len(folders) > most:
        notes.append(f"only {most:,} folders were searched for event files")
    return DatasetFolders(directory, tuple(shards), tuple(notes))


def _folders_below(folder: AnyPath, finder: _ShardFinder) -> Iterator[AnyPath]:
    """Yield a folder and those below it, at any depth, without links."""
    waiting = [folder]
    while waiting:
        yield (folder := waiting.pop())
        waiting += (one for one in reversed(finder.folders(folder)) if not _is_link(one))


def _in_partitions(folders: Iterable[AnyPath], finder: _ShardFinder) -> list[AnyPath]:
    """Return the shards in those of some folders that are values of a column."""
    partitions = [one for one in folders if PartitionFolder.parse(one.name) is not None]
    return [shard for one in partitions for shard in _partitioned(one, finder)]


def _partitioned(folder: AnyPath, finder: _ShardFinder, depth: int = 0) -> list[AnyPath]:
    """Return the shards in a folder, or else in the folders in it that are values of a column.

    Otherwise, they are those in folders that are named like splits, or in that of a split.
    """
    if (shards := finder.shards(folder)) or depth > _MOST_NESTED:
        return shards
    below = [one for one in finder.folders(folder) if not _is_link(one)]
    if shards := _in_partitions(below, finder):
        return shards
    if split_named(folder.name) is None:
        below = [one for one in below if split_named(one.name) is not None]
    return [shard for one in below for shard in _partitioned(one, finder, depth + 1)]


def _is_link(path: AnyPath) -> bool:
    return isinstance(path, Path) and path.is_symlink()


def _partition_notes(shards: Sequence[AnyPath], directory: AnyPath) -> tuple[str, ...]:
    """Report the columns that the folders in a directory are, or why they aren't."""
    columns = [
        f"{printable(one.name)} ({human_count(len({*one.values.values()}), 'value')})"
        for one in partition_columns(shards)
    ]
    if columns:
        noun, them = ("column", "it") if len(columns) == 1 else ("columns", "them")
        names = some_of(columns, _NAMED)
        return (f"its folders give the {noun} {names}; records don't contain {them}",)
    parents = {shard.parent for shard in shards} - {directory}
    others = {one.name for one in parents if PartitionFolder.parse(one.name) is not None}
    if not others:
        return ()
    names = some_of([*map(printable, sorted(others, key=natural_order))], _NAMED)
    return (f"its folders give no columns, because their names differ ({names})",)


def _with_note(found: DatasetFolders, note: str) -> DatasetFolders:
    return found._replace(notes=(note, *found.notes))


def _version(name: str) -> tuple[int, ...] | None:
    found = VERSION.fullmatch(name)
    return None if found is None else tuple(map(int, found.groups()))
