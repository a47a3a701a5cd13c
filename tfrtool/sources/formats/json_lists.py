"""Lists of objects in JSON files of any size, read window by window."""

import re
from collections.abc import Callable, Container, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import msgspec

from tfrtool.errors import SourceError
from tfrtool.examples.objects.annotation import NOT_FINITE
from tfrtool.storage.limits import MAX_PART_BYTES
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

_WINDOW, _HEAD = 2**21, 2**16
_BOM = b"\xef\xbb\xbf"
_QUOTE, _OPEN, _CLOSE = 1, 2, 3
_MARKS = bytes(
    {'"': _QUOTE, "[": _OPEN, "{": _OPEN, "]": _CLOSE, "}": _CLOSE}.get(chr(n), 0)
    for n in range(256)
)
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_KEY = re.compile(rb"\s*(,?)\s*(" + _STRING + rb")\s*:\s*", re.DOTALL)
_SCALAR = re.compile(_STRING + rb"|[^][{}\",\s]+", re.DOTALL)
_NOT_JSON = re.compile(rb"(" + _STRING + rb")|-?(?:NaN|Infinity)", re.DOTALL)
_PLACE = re.compile(r"(?:JSON is malformed: )?(.*?)(?: \(byte (\d+)\))?")
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class JsonWindow(NamedTuple):
    """Some elements of a list: where each is in the file, and their text."""

    path: AnyPath
    name: str  # of the list
    first: int  # the number of the first of them
    starts: "Integers"
    sizes: "Integers"
    at: int  # the offset of the text
    text: bytes

    def head(self, count: int) -> "JsonWindow":
        """Return the first elements alone."""
        starts, sizes = self.starts[:count], self.sizes[:count]
        end = int(starts[-1] + sizes[-1]) - self.at if len(starts) else 0
        return self._replace(starts=starts, sizes=sizes, text=self.text[:end])

    def decode(self, kind: Any, otherwise: Callable[[bytes], Any] | None = None) -> list[Any]:
        """Return the elements as such a type of objects; a `SourceError` says where they aren't.

        ``otherwise`` makes one of an object that doesn't fit the type.
        """
        start = b"[{}" if self.first else b"["  # a window that isn't the first starts with a comma
        decode = msgspec.json.Decoder(list[kind]).decode
        try:
            try:
                return decode(start + self.text + b"]")[bool(self.first) :]
            except msgspec.ValidationError:
                raise
            except msgspec.DecodeError:
                return decode(start + without_nan(self.text) + b"]")[bool(self.first) :]
        except msgspec.ValidationError as error:
            if otherwise is not None:
                self.decode(dict[str, msgspec.Raw])  # all are objects
                return [otherwise(bytes(text)) for text in self.decode(msgspec.Raw)]
            match = re.search(r"\[(\d+)\]", str(error))
            number = self.first + (int(match[1]) - bool(self.first) if match else 0)
            what = f"{self.name or 'the list'}[{number}] is not an object"
            raise SourceError(what, path=self.path) from error
        except _ERRORS as error:
            raise _malformed(self.path, error, self.at - len(start)) from error


def without_nan(text: bytes) -> bytes:
    """Replace NaN and infinity, which Python's json writes, by a number out of any range."""
    return _NOT_JSON.sub(lambda match: match[1] or NOT_FINITE.encode(), text)


class JsonFile:
    """A JSON object with long lists, such as COCO's annotations.

    Memory is bounded by a window, which grows for a longer element up to `MAX_PART_BYTES`.
    """

    def __init__(self, file: BinaryIO, path: AnyPath) -> None:
        """Take an open file; the path is for errors."""
        self._file, self._path, self._end = file, path, 0

    def _read(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(size)

    def parts(self, wanted: Container[str]) -> Iterator[tuple[str, JsonWindow | None]]:
        """Yield each member's name with None, and again with each window of a list that is wanted.

        A `SourceError` has the offset of what is not valid JSON.
        """
        at = 3 * (self._read(0, 3) == _BOM)
        if (opening := re.match(rb"\s*\{", self._read(at, _HEAD))) is None:
            raise self._malformed("expected an object", at)
        at += opening.end()
        names = set[str]()
        while True:
            text = self._read(at, _HEAD)
            if closing := re.match(rb"\s*\}\s*", text):
                if rest := text[closing.end() :].strip():
                    raise self._malformed("text after the object", at + text.index(rest))
                return
            key = _KEY.match(text)
            if key is None or bool(key[1]) != bool(names):
                raise self._malformed("expected a member of the object", at)
            try:
                name: str = msgspec.json.decode(key[2], type=str)
            except _ERRORS as error:
                raise self._malformed(error, at) from error
            if name in names:
                raise self._malformed("duplicate member name", at + key.start(2))
            names.add(name)
            yield name, None
            at += key.end()
            first = self._read(at, 1)
            if name in wanted and first not in (b"[", b"n", b""):
                raise SourceError(f"'{name}' is not a list", path=self._path)
            if first == b"[":
                for window in self._windows(name, at + 1):
                    if name in wanted:
                        yield name, window
                at = self._end
            elif first == b"{":
                at = self._after(at)
            elif scalar := _SCALAR.match(text, key.end()):
                at += scalar.end() - key.end()
            else:
                raise self._malformed("expected a value", at)

    def elements(self, start: int) -> Iterator[tuple[int, bytes]]:
        """Yield the objects of a file that is a list, each with the offset of its end.

        ``start`` is 0, or the end of an object.
        """
        at = start
        if not at:
            opening = re.match(rb"(?:\xef\xbb\xbf)?\s*\[", self._read(0, _HEAD))
            if opening is None:
                raise self._malformed("expected a list", 0)
            at = opening.end()
        for window in self._windows("", at, int(start > 0)):
            window.decode(dict[str, msgspec.Raw])
            for first, size in zip(window.starts.tolist(), window.sizes.tolist(), strict=True):
                yield first + size, window.text[first - window.at : first - window.at + size]
        if self._read(self._end, _HEAD).strip():
            raise self._malformed("text after the list", self._end)

    def _windows(self, name: str, at: int, number: int = 0) -> Iterator[JsonWindow]:
        """Yield the elements of a list from its first byte on, and set where it ends."""
        import numpy as np

        size = _WINDOW
        while True:
            text = self._read(at, size)
            places, depths = _brackets(text)
            closing = np.flatnonzero(depths < 0)[:1]
            end = int(places[closing[0]]) if len(closing) else 0
            if len(closing):
                places, depths = places[: closing[0]], depths[: closing[0]]
            ends = places[depths == 0] + 1
            if not len(closing) and not len(ends):
                if len(text) < size:
                    raise self._malformed("input data was truncated", at + len(text))
                if size >= MAX_PART_BYTES:
                    what = f"an element longer than {MAX_PART_BYTES:,} bytes, or not an object"
                    raise self._malformed(what, at)
                size *= 2
                continue
            starts = places[(depths == 1) & (np.diff(depths, prepend=0) > 0)][: len(ends)]
            part = text[: end if len(closing) else int(ends[-1])]
            try:
                part.decode()
            except UnicodeDecodeError as error:
                raise self._malformed(error, at + error.start) from error
            yield JsonWindow(self._path, name, number, at + starts, ends - starts, at, part)
            number, size, at = number + len(ends), _WINDOW, at + len(part)
            if len(closing):
                self._end = at + 1
                return

    def _after(self, at: int) -> int:
        size = _HEAD
        while True:
            text = self._read(at, size)
            places, depths = _brackets(text)
            if len(ends := places[depths == 0]):
                return at + int(ends[0]) + 1
            if len(text) < size or size >= MAX_PART_BYTES:
                raise self._malformed("input data was truncated, or is too long", at + len(text))
            size *= 2

    def _malformed(self, error: object, offset: int) -> SourceError:
        return _malformed(self._path, error, offset, self._read(offset, 20))


def _malformed(path: AnyPath, error: object, offset: int, text: bytes = b"") -> SourceError:
    reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    reason = "not valid UTF-8" if isinstance(error, UnicodeDecodeError) else reason
    if (match := _PLACE.fullmatch(reason)) and match[2]:
        offset += int(match[2])
    reason = (match[1] if match else reason) or "malformed"
    found = repr(text.decode("utf-8", "replace")) if text else None
    what = f"invalid JSON: {reason[0].lower()}{reason[1:]}"
    return SourceError(what, path=path, offset=max(offset, 0), found=found)


def _brackets(text: bytes) -> "tuple[Integers, Integers]":
    """Return where the brackets outside of strings are, and how deep it is after each."""
    import numpy as np

    if b"\\" in text:
        text = _ESCAPE.sub(b"__", text)
    marks = np.frombuffer(text.translate(_MARKS), np.uint8)
    places = np.flatnonzero(marks.astype(bool))
    kinds = marks[places]
    quotes = kinds == _QUOTE
    outside = ~(np.logical_xor.accumulate(quotes) | quotes)
    return places[outside], np.cumsum(np.where(kinds[outside] == _OPEN, 1, -1))
