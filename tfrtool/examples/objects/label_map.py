"""The TF Object Detection API's label map: names of classes by their numbers, as protobuf text."""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tfrtool.errors import DatasetError
from tfrtool.examples.tfds_metadata import LABEL_MAP, read_class_names
from tfrtool.storage.json_files import reading_metadata
from tfrtool.storage.limits import MAX_CLASS_FILE_BYTES, MAX_CLASSES
from tfrtool.storage.opening import read_bounded

_TOKEN = re.compile(
    r"(?P<blank>[ \t\r\n\f\v,;]+|#[^\n]*)|(?P<mark>[][{}<>:])|(?P<word>[\w.+-]+)"
    r"|(?P<text>\"[^\"\\\n]*(?:\\.[^\"\\\n]*)*\"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')"
)
_ESCAPE = re.compile(
    rb"\\(?:[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_SIGNS = {**dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v", strict=True)), **{n: n for n in b"\\'\"?"}}
_ENDS = {"{": "}", "<": ">"}
_ITEM = re.compile(r"(?:\s|#.*\n)*item\s{0,9}:?\s{0,9}[{<[]")
_KINDS = {"word": "a name or a number", "text": "a text", "colon": "a colon", "mark": "a bracket"}
_DEEPEST = 100
"""Messages in messages: the limit of protobuf."""


class _Token(NamedTuple):
    line: int
    kind: str
    text: str


_Fields = dict[str, "_Token | _Fields"]


def label_map_text(names: Mapping[int, str]) -> str:
    """Return the contents of a ``label_map.pbtxt``: names by numbers above 0."""
    items = names.items()
    return "\n".join(f"item {{\n  id: {n}\n  name: {_quoted(name)}\n}}\n" for n, name in items)


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)  # protobuf text has the same escapes


def is_label_map(text: str) -> bool:
    """Return whether a text begins as a label map does."""
    return _ITEM.match(text) is not None


def read_label_map(path: str | os.PathLike[str]) -> dict[int, str]:
    """Read a label map: names by their numbers, which are 0 or more, in the order of the file.

    Where an item has a ``display_name``, that is its name, as the Object Detection API has it.

    Raises:
        DatasetError: it can't be read, or is none; the message has the line.
        FileNotFoundError: it isn't there.
    """
    with reading_metadata(path, "the TF Object Detection API"):
        return parse_label_map(read_bounded(path, MAX_CLASS_FILE_BYTES).decode("utf-8-sig"))


def object_names(directory: Path) -> dict[int, str]:
    """Return the names of objects' classes by the numbers in records, as files beside them say.

    Files that are not there, or that can't be read, name none.
    """
    with contextlib.suppress(DatasetError, FileNotFoundError):
        return read_label_map(directory / LABEL_MAP)
    with contextlib.suppress(DatasetError):
        return dict(enumerate(read_class_names(directory, "objects-label") or ()))
    return {}


def parse_label_map(text: str) -> dict[int, str]:
    """Return the names in the text of a label map; `ValueError` with the line if it is none."""
    names: dict[int, str] = {}
    for line, field, item in _Reader(text).message("", 0):
        if field != "item" or isinstance(item, _Token):
            raise ValueError(f"line {line}: expected item {{, found {field[:40]!r}")
        number, *said = (item.get(key) for key in ("id", "display_name", "name"))
        texts = [one.text for one in said if isinstance(one, _Token) and one.kind == "text"]
        name = next(filter(None, texts), None)
        if not isinstance(number, _Token) or not re.fullmatch("[0-9]{1,10}", number.text):
            raise ValueError(f"line {line}: its item has no id that is a number from 0 on")
        if name is None:
            raise ValueError(f"line {line}: its item has no name")
        if int(number.text) in names:
            raise ValueError(f"line {number.line}: the id {number.text} is there twice")
        names[int(number.text)] = name
        if len(names) > MAX_CLASSES:
            raise ValueError(f"more than {MAX_CLASSES:,} items")
    return names


class _Reader:
    """Reads the fields of protobuf text, whatever they are called."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._token = next(self._tokens)

    def message(self, end: str, depth: int) -> Iterator[tuple[int, str, "_Token | _Fields"]]:
        """Yield the fields of a message, each with its line, up to the mark that ends it."""
        if depth > _DEEPEST:
            raise ValueError(f"line {self._token.line}: nested too deeply")
        while not self._take(end):
            name = self._next("word")
            colon = self._take(":")
            if not self._take("["):
                yield name.line, name.text, self._value(depth, colon=bool(colon))
                continue
            while not self._take("]"):
                yield name.line, name.text, self._value(depth, colon=True)

    def _value(self, depth: int, *, colon: bool) -> "_Token | _Fields":
        if mark := self._take(*_ENDS):
            return {name: value for _, name, value in self.message(_ENDS[mark], depth + 1)}
        if not colon or self._token.kind != "text":
            return self._next("word" if colon else "colon")
        line, texts = self._token.line, list[str]()
        while self._token.kind == "text":
            texts.append(self._next("text").text[1:-1])
        try:
            unescaped = (_ESCAPE.sub(_unescaped, text.encode()) for text in texts)
            return _Token(line, "text", b"".join(unescaped).decode())
        except ValueError:
            raise ValueError(f"line {line}: no text in UTF-8 with escapes of C") from None

    def _take(self, *marks: str) -> str | None:
        if self._token.kind != "mark" or self._token.text not in marks:
            return None
        return self._next("mark").text or "end"

    def _next(self, kind: str) -> _Token:
        line, found, text = token = self._token
        if kind != found:
            shown = repr(text[:40]) if text else "the end"
            raise ValueError(f"line {line}: expected {_KINDS[kind]}, found {shown}")
        self._token = next(self._tokens, token)
        return token


def _tokens(text: str) -> Iterator[_Token]:
    line = end = 0
    for match in _TOKEN.finditer(text):
        if match.start() != end:
            break
        kind, end = match.lastgroup or "", match.end()
        if kind != "blank":
            yield _Token(line + 1, kind, match[0])
        line += match[0].count("\n")
    if end != len(text):
        raise ValueError(f"line {line + 1}: {text[end : end + 20].splitlines()[0]!r} is no token")
    yield _Token(line + 1, "mark", "")


def _unescaped(match: re.Match[bytes]) -> bytes:
    short, octal, *wide, sign = match.groups()
    if short or octal:
        return bytes([int(short, 16) if short else int(octal, 8) & 255])
    if sign is None:
        return chr(int(wide[0] or wide[1], 16)).encode()
    if sign[0] not in _SIGNS:
        raise ValueError("an escape that C does not have")
    return bytes([_SIGNS[sign[0]]])
