"""The classes of a dataset that doesn't name them, told from its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from google.protobuf.message import DecodeError

from tfrtool.errors import DatasetError
from tfrtool.examples.content import decode_text
from tfrtool.examples.example import DType, Value
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.loading.dataset.corrupt_report import OnCorrupt
from tfrtool.records.compression import Compression
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.records.reader import ReadOptions, read_records
from tfrtool.records.stream import open_shard
from tfrtool.storage.limits import MAX_CLASSES

__all__ = ["find_classes", "label_problem", "read_items", "single_values"]

_LONGEST_NAME = 1024
_NUMBER, _NAME = b"image/class/label", b"image/class/text"
"""TensorFlow's models keep the number of an image's class and its name side by side."""


def find_classes(
    shards: Iterable[Path], label: str, dtype: DType, on_corrupt: OnCorrupt
) -> tuple[str, ...]:
    """Read all records, and return the names of the classes that there are, by number.

    Numbers stay as they are, and those that no record has keep their place; their names are those
    that stand beside them in ``image/class/text``, else the numbers. Strings are names, and are
    numbered in sorted order.

    Raises:
        ShardError: a file can't be read.
        CorruptShardError: a shard is damaged; not with SKIP.
        DatasetError: a record has no label that can be a class; not with SKIP.
    """
    key = label.encode("utf-8", "surrogateescape")
    companion = _NAME if key == _NUMBER else None
    found: dict[Value, set[bytes]] = {}
    for path in shards:
        for item in read_items(path):
            if isinstance(item, Fault):
                if on_corrupt is OnCorrupt.STOP and item.kind is not FaultKind.EMPTY:
                    raise as_error(path, item, in_dataset=True)
                continue
            values = single_values(item.payload, (key, companion or key)) or {}
            value = values.get(key)
            problem = label_problem(label, value, dtype, MAX_CLASSES)
            if problem is None and value is not None:
                texts = found.setdefault(value, set())
                text = values.get(companion) if companion else None
                if isinstance(text, bytes) and len(texts) < 2:  # more than one is no name
                    texts.add(text)
            elif on_corrupt is OnCorrupt.STOP:
                raise DatasetError(
                    problem or "no class", path=path, record=item.index, offset=item.offset
                )
    if dtype is DType.STRING:
        return tuple(sorted(_text(value) for value in found))
    named = {value: _text(next(iter(names))) for value, names in found.items() if len(names) == 1}
    if not len(named) == len(found) == len(set(named.values())):
        named = {}
    count = max((int(number) for number in found), default=-1) + 1
    return tuple(named.get(number) or str(number) for number in range(count))


def read_items(
    path: Path, compression: Compression | None = None, *, verify: bool = True
) -> Iterator[Record | Fault]:
    """Yield the records of a shard and the damage in it; ``verify`` is of payloads' CRCs."""
    options = ReadOptions(compression=compression, verify_payload=verify)
    with open_shard(path) as file:
        yield from read_records(file, options)


def _text(value: Value) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def single_values(payload: bytes, keys: Iterable[bytes]) -> dict[bytes, Value | None] | None:
    """Return the values of some features of an Example; None if it is no Example.

    A feature is not in the result if the record doesn't have it or it has no kind, and None if it
    has none or several values. Straight from the message: most of a record is its image.
    """
    wanted = frozenset(keys)
    try:
        message = pb.Example.FromString(payload)
    except DecodeError:
        return None
    found: dict[bytes, Value | None] = {}
    for entry in message.features.feature:
        if entry.key in wanted:
            kind = entry.value.WhichOneof("kind")
            if kind is not None:
                values = getattr(entry.value, kind).value
                # Of a key that comes twice the last counts, as in every protobuf map.
                found[entry.key] = values[0] if len(values) == 1 else None
    return found


def label_problem(label: str, value: Value | None, dtype: DType, classes: int) -> str | None:
    """Return why a value can't be a class; None if it can.

    Args:
        label: the name of its feature.
        value: the value; None where there is none, or more than one.
        dtype: INT64 or STRING, whichever the label is.
        classes: how many classes there are.
    """
    what = f"the feature {label!r} is no class"
    if value is None:
        return f"{what}: expected one {dtype.value} value, found none or several"
    if dtype is DType.STRING:
        if not isinstance(value, bytes):
            return f"{what}: expected a string, found the number {value}"
        if len(value) > _LONGEST_NAME or decode_text(value) is None:
            return f"{what}: expected a name in UTF-8, found {len(value)} bytes"
        return None
    if not isinstance(value, int):
        found = f"{len(value)} bytes" if isinstance(value, bytes) else f"the float {value}"
        return f"{what}: expected an int64, found {found}"
    if not 0 <= value < classes:
        return f"{what}: expected a number from 0 to {classes - 1}, found {value}"
    return None
