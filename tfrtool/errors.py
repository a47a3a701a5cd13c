"""Every error that tfrtool raises on purpose.

An error carries its facts as attributes, and ``str()`` composes them into one line, always in
the same order: where, what, what was expected and found, what to do.
"""

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar


class TfrtoolError(Exception):
    """Base class of every error that tfrtool raises on purpose.

    Attributes:
        what: description of the problem, a clause without a full stop.
        path: file or directory concerned.
        record: index of the record in its shard, counted from 0.
        offset: byte offset of that record's header in the uncompressed stream.
        expected: the expected value.
        found: the value found instead.
        hint: how to fix the problem, as an imperative.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        what: str,
        *,
        path: str | os.PathLike[str] | None = None,
        record: int | None = None,
        offset: int | None = None,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.path = None if path is None else os.fspath(path)
        self.record = record
        self.offset = offset
        self.expected = expected
        self.found = found
        self.hint = hint

    def __str__(self) -> str:
        where = [] if self.path is None else [printable(self.path)]
        is_of_shard = isinstance(self, ShardError) or self.offset is not None
        if where and is_of_shard and self.record is not None:
            where = [named_record(where[0], self.record)]
        elif self.record is not None:  # FILE:NUMBER would be a line of a table's file
            where.append(f"record {self.record}")
        if self.offset is not None:
            where.append(f"offset {self.offset}")
        text = ": ".join([*([", ".join(where)] if where else []), self.what])
        if self.expected is not None:
            text += f": expected {self.expected}"
        if self.found is not None:
            text += f"{',' if self.expected is not None else ':'} found {self.found}"
        if self.hint is not None:
            text += f"; {self.hint}"
        return " ".join(text.splitlines())

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows of an error: the lines of the caller, and the message.

        https://ipython.readthedocs.io/en/stable/config/integrating.html, "Custom exception
        tracebacks". Python itself still has the whole traceback, as ``%debug`` does.
        """
        import traceback  # imports much

        package = os.path.dirname(__file__)  # noqa: PTH120 - this module imports no pathlib
        lines = list[str]()
        for frame in traceback.extract_tb(self.__traceback__):
            if frame.filename.startswith(package):
                break
            if frame.line and "IPython" not in frame.filename:
                file = "" if "ipykernel" in frame.filename else f"{frame.filename}, "
                lines.append(f"{file}line {frame.lineno}: {frame.line}")
        return [*lines, f"{type(self).__name__}: {self}"]

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by their positional arguments; the facts travel as state.
        return type(self), (self.what,), self.__dict__


class UsageError(TfrtoolError):
    """Invalid arguments or options, regardless of what the files contain."""

    exit_code = 2


class SourceError(TfrtoolError):
    """The images to write can't be found, read or used."""


class WriteError(TfrtoolError):
    """A file can't be written. ``path`` is its final path, not that of a temporary file."""

    def __init__(
        self, what: str, *, path: str | os.PathLike[str] | None = None, **facts: Any
    ) -> None:
        super().__init__(what, path=None if path is None else _final_path(os.fspath(path)), **facts)


class ShardError(TfrtoolError):
    """A shard can't be opened or read."""


class CorruptShardError(ShardError):
    """A shard is damaged, and the operation does not tolerate damage."""


class ClusterError(TfrtoolError):
    """A cluster can't be reached, or one of its nodes can't do the work."""


class DatasetError(TfrtoolError):
    """A dataset directory or its metadata can't be used."""


class SchemaError(TfrtoolError):
    """Values or types don't match a schema, or a feature description is malformed."""


class TrainingError(TfrtoolError):
    """A training run can't continue. Everything saved so far is kept."""


class WeightsError(TfrtoolError):
    """The weights of a model can't be loaded."""


def printable(text: str) -> str:
    """Return ``text`` so that it prints on one line in any terminal.

    File names may hold line breaks, escape sequences, and bytes that aren't UTF-8.
    """
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def named_record(shard: str | os.PathLike[str], record: int) -> str:
    """Return the name of a record on pages, in messages and in lists of records."""
    return f"{os.fspath(shard)}:{record}"


def human_count(count: int, noun: str) -> str:
    """Return a number with its noun: "1 record", "1,203 records"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def human_bytes(size: int) -> str:
    """Return a size for people: "17 B", "23.4 KiB", "1.2 GiB"."""
    if size < 1024:
        return f"{size} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1024 or unit == "TiB":
            break
    return f"{value:.1f} {unit}"


_COLUMNS_NAMED = 100
"""Columns that an error names at most."""


def some_of(texts: Sequence[str], shown: int, separator: str = ", ") -> str:
    """Return texts with commas between them; of many the first, and how many more there are."""
    more = len(texts) - shown
    return separator.join(texts[:shown]) + (f" and {more:,} more" if more > 0 else "")


def enumeration(names: Sequence[str], conjunction: str) -> str:
    """Return names as a sentence lists them: "a, b and c"."""
    *firsts, last = names
    return f"{', '.join(firsts)} {conjunction} {last}" if firsts else last


def nearest(name: str, known: Iterable[str], first: int = 10) -> list[str]:
    """Return which of the known names are most like one; if none is, the ``first`` of them."""
    import difflib  # for errors only

    names = list(known)
    return difflib.get_close_matches(name, names, 6, 0.5) or names[:first]


def suggestion(name: str, known: Iterable[str], plural: str) -> str | None:
    """Return a hint for an unknown name: the closest known one, or else some of them."""
    import difflib  # for errors only

    names = list(known)
    longer = [one for one in names if len(name) > 2 and name.lower() in one.lower()]
    for close in sorted(longer, key=len) or difflib.get_close_matches(name, names, 1):
        return f"did you mean {close!r}?"
    return f"{plural} are {some_of([*map(printable, names)], 10)}" if names else None


def _final_path(path: str) -> str:
    """Return the path that a file in one of our temporary folders was to have in the end."""
    import re  # for errors only

    path = re.sub(r"(^|[/\\])\.tfrtool-incomplete[/\\]scratch([/\\].*)?$", r"\1", path)
    path = re.sub(r"(?:^|(?<=[/\\]))\.tfrtool-[^/\\]*(?:[/\\]|$)", "", path)
    return (path.rstrip("/\\") or path) or "."


def os_reason(error: OSError) -> str:
    """Return what the operating system said, without the errno and the path."""
    text = error.strerror or str(error)
    return _disk_reason(text) or text[:1].lower() + text[1:]


def _disk_reason(text: str) -> str | None:
    """Return what the operating system said of a disk, if a library's message quotes it."""
    codes = (getattr(errno, name, 0) for name in ("ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EIO"))
    reasons = [os.strerror(code) for code in codes if code]
    found = next((one for one in reasons if one.lower() in text.lower()), None)
    return None if found is None else found[:1].lower() + found[1:]


def reason_of(error: object) -> str:
    """Return what an error of a library says, on one line of bounded length."""
    import re  # for errors only

    text = str(getattr(error, "message", error))  # TensorFlow's names its operations otherwise
    if (reason := _disk_reason(text)) is not None:
        return reason
    text = text[:4000]  # it may quote a payload, and the expressions take quadratic time
    text = re.sub(r"\{\{function_node .*?\}\} *", "", text)  # and nodes that nobody has named
    # Keras begins with the layer that it was in, and makes the reason bold.
    text = re.sub(r"\x1b\[\d*m|Exception encountered when calling [^ ]*\(\)\.", "", text)
    return " ".join(text.split())[:200] or type(error).__name__


@contextmanager
def os_errors_as(
    kind: type[TfrtoolError], path: str | os.PathLike[str], what: str = "can't be read"
) -> Iterator[None]:
    """Raise what the operating system says of a file as an error of ours."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {os_reason(error)}", path=path) from error


def conversion_error(
    whys: Sequence[str], path: str | os.PathLike[str] | None = None, hint: str | None = None
) -> SchemaError:
    """Return the error for several columns that can't be converted, each with its reason."""
    what = f"{len(whys)} columns can't be converted: {some_of(whys, _COLUMNS_NAMED, '; ')}"
    return SchemaError(what, path=path, hint=hint)
