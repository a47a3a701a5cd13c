"""JSON: of files that somebody else may have written, and of results, also as a notebook shows."""

import enum
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any

from tfrtool.errors import DatasetError, os_reason, printable
from tfrtool.storage.limits import MAX_JSON_VALUES, MAX_MEMBER_BYTES
from tfrtool.storage.opening import open_regular, read_bounded
from tfrtool.storage.remote_path import RemotePath

_INT64_DIGITS = 20
"""Of a 64-bit integer, with its sign."""

_LONGEST_TEXT = 1024
"""Characters of a name; most become parts of file names, which have up to 255."""


@contextmanager
def reading_metadata(path: str | os.PathLike[str], writer: str) -> Iterator[None]:
    """Raise errors of a metadata file, except for its absence, as `DatasetError`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DatasetError(f"can't be read: {os_reason(error)}", path=path) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        if isinstance(error, json.JSONDecodeError):
            what = f"not valid JSON (line {error.lineno}, column {error.colno})"
        raise DatasetError(f"invalid metadata of {writer}: {what}", path=path) from error


def read_json(path: str | os.PathLike[str], *, follow: bool = True) -> Any:
    """Return what a JSON file holds; ``follow`` says whether its name may be a link.

    `OSError` if it can't be read or is too large, `ValueError` if it is not JSON, or has more
    values, longer numbers or deeper lists than are read.
    """
    content = read_bounded(path, follow=follow)
    values = sum(map(content.count, (b",", b"[", b"{")))
    if values > MAX_JSON_VALUES:
        raise ValueError(f"about {values:,} values (limit {MAX_JSON_VALUES:,})")
    try:
        return json.loads(content, parse_int=bounded_integer, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_member(path: str | os.PathLike[str], name: str) -> Any:
    """Return the first member with a name in a JSON file, without reading what follows.

    `ValueError` if there is none in the first `MAX_MEMBER_BYTES`.
    """
    with open_regular(path) as file:
        text = file.read(MAX_MEMBER_BYTES).decode("utf-8", "replace")
    found = re.search(rf'"{name}"\s*:\s*', text)
    if found is None:
        raise ValueError(f"no {name}")
    try:
        decoder = json.JSONDecoder(parse_int=bounded_integer, parse_constant=_refuse)
        return decoder.raw_decode(text, found.end())[0]
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def text_of(value: object) -> str:
    """Return a value that is a short text, such as a name; `ValueError` if it is something else."""
    if not isinstance(value, str):
        raise ValueError(f"expected a string, found {type(value).__name__}")
    if len(value) > _LONGEST_TEXT:
        raise ValueError(f"a string of {len(value):,} characters (limit {_LONGEST_TEXT:,})")
    return value


def bounded_integer(text: str) -> int:
    """Return a number in JSON; `ValueError` if it is longer than 64 bits can be."""
    if len(text) > _INT64_DIGITS:
        raise ValueError(f"a number of {len(text):,} digits")
    return int(text)


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is not valid JSON")


def whole_number(value: object) -> int:
    """Return a number from 0 to 2**63 - 1; in protobuf's JSON, 64-bit integers are strings."""
    number = value
    if isinstance(value, str) and len(value) <= _INT64_DIGITS and value.isdecimal():
        number = int(value)
    if type(number) is not int or not 0 <= number < 2**63:
        found = repr(value)[:40] if isinstance(value, str | int | float) else type(value).__name__
        raise ValueError(f"expected a whole number from 0, found {found}")
    return number


_FEW, _BRIEF = 3, 60
"""Items and characters of a value that a ``repr`` has."""


def to_json_values(value: object) -> Any:
    """Return a value as JSON values: an object by its fields, an enumeration's member by its value.

    A field that holds a dataclass is replaced by the fields of that: a fault in a file has the keys
    of both. What counts in no comparison is left out where it is None: causes that nobody looked
    for.
    """
    if isinstance(value, PurePath | RemotePath):
        return printable(str(value))
    if is_dataclass(value) and not isinstance(value, type):
        data: dict[str, Any] = {}
        for field in fields(value):
            part = getattr(value, field.name)
            if part is None and not field.compare:
                continue
            values = to_json_values(part)
            is_part = is_dataclass(part) and isinstance(values, dict)
            data |= values if is_part else {field.name: values}
        return data
    if isinstance(value, Mapping):
        return {printable(str(key)): to_json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_values(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    return value


class Shown:
    """A result that a notebook displays as tables, and whose ``repr`` is one short line."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the fields, of long ones their beginning."""
        values = [f"{one.name}={_brief(getattr(self, one.name))}" for one in fields(self)]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(values)})"

    def _repr_html_(self) -> str:
        """Return the values as tables, in HTML."""
        from tfrtool.storage.html_tables import html_of

        return html_of(getattr(self, "to_json", lambda: to_json_values(self))())


def _brief(value: object) -> str:
    """Return a value for one line: of collections of more than a few words their number."""
    if isinstance(value, Mapping | list | tuple):
        items = [*value.values()] if isinstance(value, Mapping) else value
        if len(items) > _FEW or not all(isinstance(one, str | int | float) for one in items):
            return f"<{len(items):,} item{'s' * (len(items) != 1)}>"
    elif is_dataclass(value):
        return f"<{type(value).__name__}>"
    text = repr(value.value if isinstance(value, enum.Enum) else value)
    if isinstance(value, PurePath | RemotePath):
        text = repr(printable(str(value)))
    return text if len(text) <= _BRIEF else f"{text[: _BRIEF - 3]}..."
