"""Shard files: what SHARDS on a command line means, and what is known before reading one."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import ShardError, os_reason
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.names import is_shard_name

__all__ = ["Shard", "find_shards", "natural_order"]


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
    def at(cls, path: Path) -> Shard:
        """Look at the file at ``path``.

        Raises:
            ShardError: it can't be opened, or is a directory.
        """
        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                return cls(path=path, bytes=size, compression=detect_compression(file))
        except OSError as error:
            raise ShardError(f"can't be read: {os_reason(error)}", path=path) from error


def natural_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts ``shard-9`` before ``shard-10``."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), part) if part.isdecimal() else (-1, part) for part in parts]


def find_shards(arguments: Iterable[str]) -> tuple[Path, ...]:
    """Find the shards that a mix of files, globs and directories means.

    A file is taken as it is, whatever its name. A directory means the files in it whose names are
    those of shards, never its JSON or text files. Each shard comes once, in the order of the
    arguments, those of a glob or a directory in natural order.

    Raises:
        ShardError: an argument means no file at all.
    """
    found: dict[Path, None] = {}
    for argument in arguments:
        found.update(dict.fromkeys(_expand(argument)))
    return tuple(found)


def _expand(argument: str) -> list[Path]:
    if not argument:  # Path would make the current directory of it
        raise ShardError("an empty name is no file")
    path = Path(argument)
    try:
        if path.is_dir():
            return _shards_in(path)
        if path.exists() or not glob.has_magic(argument):
            Shard.at(path)
            return [path]
        # Path.glob takes neither an absolute pattern nor one that starts with "..".
        matches = sorted(glob.glob(argument, recursive=True), key=natural_order)  # noqa: PTH207
    except OSError as error:
        raise ShardError(f"can't be read: {os_reason(error)}", path=argument) from error
    files = [Path(match) for match in matches if not Path(match).is_dir()]
    if not files:
        raise ShardError("no file matches", path=argument)
    return files


def _shards_in(directory: Path) -> list[Path]:
    names = (
        entry.name for entry in directory.iterdir() if is_shard_name(entry.name) and entry.is_file()
    )
    shards = [directory / name for name in sorted(names, key=natural_order)]
    if not shards:
        raise ShardError(
            "no shard files in this directory",
            path=directory,
            hint=f"for folders below it, quote a glob: '{directory}/**/*.tfrecord*'",
        )
    return shards
