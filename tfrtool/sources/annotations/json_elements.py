"""Lists in large JSON files, element by element, with memory bounded by a window."""

import codecs
import contextlib
import json
import mmap
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tfrtool.errors import SourceError, WriteError, os_errors_as
from tfrtool.storage.limits import MAX_PART_BYTES
from tfrtool.storage.opening import open_regular

Members = dict[str, msgspec.Raw]

_BLOCK = 2**20
_WINDOW = 2**22
"""Bytes of a list that are decoded at once, if its elements are not longer."""

_TRIES = 20  # places to cut a window at, before it is enlarged
_NEXT = re.compile(rb"\s*,\s*\{")
_GAP = re.compile(rb'\s*[{,]\s*"(?:[^"\\]++|\\.)*+"\s*:\s*', re.DOTALL)
_LAST = re.compile(rb"\s*\}\s*\Z")
_COLON = re.compile(rb'"\s*:')
_QUOTE = ord('"')
_NOT_JSON = re.compile(rb'"(?:[^"\\]++|\\.)*+"|-?(?:NaN|Infinity)', re.DOTALL)
_OUT_OF_RANGE = b"9e9"
"""Stands for NaN and infinity, which Python's json writes: no coordinate, size or area is valid
beyond 1e9, so that each is reported where it stands."""

_PLACE = re.compile(r" \(byte (\d+)\)")
_MEMBERS, _ELEMENTS = msgspec.json.Decoder(Members), msgspec.json.Decoder(list[msgspec.Raw])
parse_members = _MEMBERS.decode
"""Decode an object to its members, which stay text."""


class JsonFile:
    """A JSON object with long lists, such as COCO's annotations; its members by their names.

    The file is copied to a scratch folder, without a name, and mapped from there. So it may be in a
    store, and may change meanwhile.
    """

    def __init__(self, path: Path, scratch: Path) -> None:
        """Read a file, or raise a `SourceError` with the offset at which it is not valid JSON."""
        self._path = path
        self._data = _copied(path, scratch)
        try:
            self.members = _MEMBERS.decode(self._data)
        except (msgspec.DecodeError, RecursionError) as error:
            if isinstance(error, RecursionError) or not _replace_numbers(self._data):
                raise self._malformed(error) from error
            try:
                self.members = _MEMBERS.decode(self._data)
            except (msgspec.DecodeError, RecursionError) as other:
                raise self._malformed(other) from other
        self._starts, end = dict[str, int](), 0
        first = np.frombuffer(self._data, np.uint8).ctypes.data
        for name, raw in self.members.items():
            start = self._starts[name] = np.frombuffer(raw, np.uint8).ctypes.data - first
            gap = _GAP.match(self._data, end)
            if gap is None or gap.end() != start:
                raise self._malformed("duplicate member name", end)
            end = start + len(memoryview(raw))
        if not _LAST.match(self._data, end):
            raise self._malformed("duplicate member name", end)

    def elements(self, name: str) -> Iterator[tuple[int, bytes, Members]]:
        """Yield each element of a list of objects: its offset in the list, its text and members."""
        view, number = memoryview(self.members[name]), 0
        if bytes(view[:1]) != b"[":
            raise SourceError(f"'{name}' is not a list", path=self._path)
        for start, window, elements in self._windows(name, view):
            at = end = 0
            for raw in elements:
                text = bytes(raw)
                try:
                    members = _MEMBERS.decode(text)
                    at = window.index(b"{", end)
                    end = at + len(text)
                    if len(members) != text.count(b":") and _has_more_keys(text, members):
                        json.loads(text, object_pairs_hook=_check_unique, parse_int=float)
                except msgspec.ValidationError as error:
                    what = f"{name}[{number}] is not an object"
                    raise SourceError(what, path=self._path) from error
                except (ValueError, RecursionError) as error:
                    raise self._malformed(error, self._starts[name] + start + at) from error
                yield start + at, text, members
                number += 1

    def _windows(
        self, name: str, view: memoryview
    ) -> Iterator[tuple[int, bytes, list[msgspec.Raw]]]:
        """Yield parts of a list, which is valid JSON: their offsets, texts and elements."""
        start, size = 1, _WINDOW
        while start + size < len(view):
            window = bytes(view[start : start + size])
            if cut := _cut(window):
                elements, length = cut
                yield start, window, elements
                start, size = start + length, _WINDOW
            elif size < MAX_PART_BYTES:
                size *= 2
            else:
                what = f"an element longer than {MAX_PART_BYTES:,} bytes, or not an object"
                raise self._malformed(what, self._starts[name] + start)
        window = bytes(view[start:])
        yield start, window, _ELEMENTS.decode(b"[" + window)

    def _malformed(self, error: object, offset: int | None = None) -> SourceError:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        if offset is None:
            place = _PLACE.search(reason)
            end = 0 if isinstance(error, msgspec.ValidationError) else len(self._data)
            offset = int(place[1]) if place else end
            reason = _PLACE.sub("", reason).removeprefix("JSON is malformed: ")
        text = self._data[offset : offset + 20].decode("utf-8", "replace")
        found = repr(text) if text else "the end of the file"
        reason = reason[:1].lower() + reason[1:]
        return SourceError(f"invalid JSON: {reason}", path=self._path, offset=offset, found=found)


def _cut(window: bytes) -> tuple[list[msgspec.Raw], int] | None:
    """Return the elements that end in a part of a list, and where the next one starts."""
    end = len(window)
    for _ in range(_TRIES):
        end = window.rfind(b"}", 0, end)
        if end >= 0 and (gap := _NEXT.match(window, end + 1)):
            # Not valid JSON where the brace is that of an inner object, or in a string.
            with contextlib.suppress(msgspec.DecodeError):
                return _ELEMENTS.decode(b"[" + window[: end + 1] + b"]"), gap.end() - 1
    return None


def _copied(path: Path, scratch: Path) -> mmap.mmap | bytes:
    """Return the bytes of a file, as a mapped copy; a `SourceError` if they are not UTF-8."""
    decoder, size = codecs.getincrementaldecoder("utf-8")(), 0
    with _scratch_errors(scratch), tempfile.TemporaryFile(dir=scratch) as copy:
        with os_errors_as(SourceError, path), open_regular(path) as file:
            while block := file.read(_BLOCK):
                waiting = len(decoder.getstate()[0])
                try:
                    decoder.decode(block)
                except UnicodeDecodeError as error:
                    offset = size - waiting + error.start
                    raise SourceError("not valid UTF-8", path=path, offset=offset) from error
                with _scratch_errors(scratch):
                    copy.write(block)
                size += len(block)
        if not size:
            return b""
        copy.flush()
        data = mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_COPY)
    if data[:3] == codecs.BOM_UTF8:
        data[:3] = b"   "
    return data


def _scratch_errors(scratch: Path) -> contextlib.AbstractContextManager[None]:
    return os_errors_as(WriteError, scratch, "temporary files can't be written")


def _replace_numbers(data: mmap.mmap | bytes) -> bool:
    """Replace NaN and infinity, in a private copy; return whether there were any."""
    replaced = False
    for match in _NOT_JSON.finditer(data):
        start, end = match.span()
        if data[start] != _QUOTE:
            data[start:end] = _OUT_OF_RANGE.ljust(end - start)  # type: ignore[index]
            replaced = True
    return replaced


def _has_more_keys(text: bytes, members: Members) -> bool:
    """Return whether a text seems to have more keys: of inner objects, or duplicate ones."""
    return len(_COLON.findall(text)) != len(members)


def _check_unique(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("duplicate key in an object")
