"""Shard files: what SHARDS on a command line means, and what is known before reading one."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

from tfrtool.errors import ShardError, UsageError, os_errors_as, printable
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.dataset_folders import choose_shards, find_folders
from tfrtool.records.shard_sets import natural_order
from tfrtool.records.stream import STREAM, Location, Stream, as_source, open_shard, size_of
from tfrtool.storage.locations import as_path

Locations = Location | Iterable[Location]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A shard file.

    Attributes:
        path: where it is.
        bytes: its size on disk, in bytes.
        compression: how it is compressed, told from its bytes.
    """

    path: Path
    bytes: int
    compression: Compression

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Shard:
        """Look at the file at ``path``; `ShardError` if it can't be opened."""
        path = as_path(path)
        with open_shard(path) as file:
            size = size_of(path, file)
            return cls(path=path, bytes=size, compression=detect_compression(file))


class FoundShards(NamedTuple):
    """The shards that some arguments mean.

    Attributes:
        sources: each shard once, in the order of the arguments.
        folders: those of the shards that were named as directories, and so are meant whole.
        notes: what was decided on the way, a sentence each.
    """

    sources: tuple[Path | Stream, ...]
    folders: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """Those that are files."""
        return tuple(source for source in self.sources if isinstance(source, Path))


def find_shards(
    arguments: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> tuple[Path, ...]:
    """Find the shards that files, patterns and directories mean, each once, in their order.

    A file is taken as it is, whatever its name. A directory means the shards in it, or else those
    of the newest version, or of the splits, in the folders in it. What a pattern matches, or a
    directory holds, is a shard by its name, or else by its first bytes; never what tfrtool or TFDS
    write beside shards, such as an index.

    Args:
        arguments: one, or several.

    Raises:
        ShardError: an argument means no file at all.
        DatasetError: a directory has no shards, or they are being replaced.
        UsageError: an argument is a URL, or standard input.
    """
    return locate_shards(arguments).paths


def locate_shards(arguments: Locations, *, keep: bool = False) -> FoundShards:
    """Do what `find_shards` does, and tell what was decided.

    A binary stream is a shard, too; ``keep`` says whether it will be read again (`Stream`).
    """
    if isinstance(arguments, str | os.PathLike) or hasattr(arguments, "read"):
        arguments = (cast(Location, arguments),)
    parts = [_expand(argument, keep) for argument in arguments]
    return FoundShards(
        tuple(dict.fromkeys(source for part in parts for source in part.sources)),
        tuple(dict.fromkeys(folder for part in parts for folder in part.folders)),
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def _expand(location: Location, keep: bool) -> FoundShards:
    path = as_source(location, keep=keep)
    if isinstance(path, Stream):
        return FoundShards(sources=(path,))
    argument = os.fspath(cast(str, location))
    if argument == STREAM:
        raise UsageError(
            "standard input is one shard: count, verify, repair, inspect shard and inspect schema "
            "read it, without any others",
            path=argument,
        )
    with os_errors_as(ShardError, argument):
        if path.is_dir():
            found = find_folders(path)
            if not found.shards:
                raise found.nothing()
            notes = tuple(f"{printable(argument)}: {note}" for note in found.notes)
            folders = tuple(dict.fromkeys(shard.parent for shard in found.shards))
            return FoundShards(sources=found.shards, folders=folders, notes=notes)
        if path.exists() or not glob.has_magic(argument):
            Shard.at(path)
            return FoundShards(sources=(path,))
        # Path.glob takes neither an absolute pattern nor one that starts with "..".
        matches = sorted(glob.glob(argument, recursive=True), key=natural_order)  # noqa: PTH207
    files = [file for match in matches if not (file := Path(match)).is_dir()]
    shards = choose_shards(files)
    if not shards:
        other = f"{printable(files[0].name)}, which is none by its name" if files else None
        raise ShardError("no shard matches", path=argument, found=other)
    return FoundShards(sources=tuple(shards))
