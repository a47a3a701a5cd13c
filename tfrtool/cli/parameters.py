"""Paths of the command line, options that commands share, and what SHARDS and DATASET mean."""

import io
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from tfrtool.cli.output import note
from tfrtool.errors import ShardError, UsageError, printable
from tfrtool.storage.locations import as_path

if TYPE_CHECKING:
    from tfrtool.records.stream import Stream


class LocalPath(click.Path):
    """A path on this machine, and no URL; or a word that no file has, such as ``tfds:NAME``."""

    def __init__(self, *, written: bool = False, **checks: Any) -> None:
        """Take paths of something that is there, or, if it is written, of something to make."""
        super().__init__(readable=False, **checks)
        self._written = written

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """Return the path."""
        as_path(value)
        if self._written and value == "-":
            raise UsageError("standard output takes no files", hint="./- is a file named -")
        return super().convert(value, param, ctx)


INPUT, OUTPUT = LocalPath(), LocalPath(written=True)

DEBUG = "--debug"
"""It may stand before or after the command's name; `tfrtool.cli.app.run` looks for it."""

debug_option = click.option(
    DEBUG, is_flag=True, expose_value=False, help="Show a traceback with an error."
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON Lines on stdout, and nothing else."
)

_Command = TypeVar("_Command", bound=Callable[..., Any])
_KINDS: Mapping[str, Any] = {"N": click.IntRange(1), "DIR": OUTPUT}


def options(
    table: dict[str, str], kinds: Mapping[str, Any] = _KINDS
) -> Callable[[_Command], _Command]:
    """Add options to a command, in the order of its help.

    Args:
        table: by each option its help. ``--limit N=3`` is its name, what stands for its value, and
            its default; ``none|gzip`` are the words that it takes; ``--flat`` is a flag.
        kinds: the types of values, by what stands for them or by the option; the rest is text.
    """

    def add(command: _Command) -> _Command:
        for key, text in reversed(table.items()):
            name, _, rest = key.partition(" ")
            metavar, _, default = rest.partition("=")
            flag = not rest or "/" in name
            kind = kinds.get(name) or kinds.get(metavar) or _KINDS.get(metavar)
            if kind is None and metavar.islower():
                kind, metavar = click.Choice(metavar.split("|")), ""
            command = click.option(
                name,
                type=kind,
                metavar=metavar or None,
                is_flag=flag or None,
                default=default == "true" if flag else default or None,
                show_default=bool(default),
                help=text,
            )(command)
        return command

    return add


workers_option = options({"--workers N": "How many processes at most.  [default: the cores]"})


def image_size(text: str | None) -> int | tuple[int, int] | None:
    """Read a size of images: 224 for the shorter side, 224x160 for width and height."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,6})(?:x(\d{1,6}))?", text.strip(), re.ASCII | re.IGNORECASE)
    if match is None:
        raise UsageError(f"{text!r} is no size of images; 224 and 224x160 are")
    return int(match[1]) if match[2] is None else (int(match[1]), int(match[2]))


def shards_of(arguments: Iterable[str]) -> tuple[Path, ...]:
    """Return the shards that SHARDS means, and say what was decided on the way."""
    from tfrtool.records.shards import locate_shards

    found = locate_shards(arguments)
    for text in found.notes:
        note(text)
    return found.paths


def sources_of(arguments: Sequence[str]) -> "tuple[Path | Stream, ...]":
    """Return the shards that SHARDS means, or standard input."""
    from tfrtool.records.stream import Stream

    return (Stream(standard_input()),) if tuple(arguments) == ("-",) else shards_of(arguments)


def standard_input() -> BinaryIO:
    """Return standard input, where it can be a shard: it is no terminal and no device."""
    if sys.stdin is None:
        raise ShardError("can't be read: standard input is closed", path="-")
    if sys.stdin.isatty():
        raise UsageError("standard input is a terminal", path="-", hint="pipe a shard into it")
    stream = sys.stdin.buffer
    with suppress(io.UnsupportedOperation):  # something stands in for it
        mode = os.fstat(stream.fileno()).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise ShardError("can't be read: standard input is a device", path="-")
    return stream


def dataset_of(argument: str) -> Path:
    """Return the directory that DATASET means, and say what was decided on the way."""
    from tfrtool.records.shards import find_folders

    found = find_folders(argument)
    for text in found.notes:
        note(f"{printable(argument)}: {text}")
    return found.root
