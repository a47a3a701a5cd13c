"""Fuzzing ``--proto``: types from hostile descriptor sets, and payloads as such messages.

An input is a descriptor set and the payloads of records, with a mark between them.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import random
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, text_format
from google.protobuf.message import DecodeError

import tfrtool
from tests.fuzz.target import Scramble, Target, scratch
from tests.records.strategies import shard_of
from tfrtool.examples.arrow.messages import MessageColumns
from tfrtool.inspection.rows.payload_json import PayloadJson

__all__ = ["MARK", "TARGET", "seed"]

MARK = b"\xff\xfe--\xfe\xff"
_MOST_TYPES = 4
"""Messages of a descriptor set that are tried."""
_TARGETS = ("a.jsonl", "a.parquet", "a.csv", "a.arrow")

_NAMES = (
    *("ListFields", "ByteSize", "DiscardUnknownFields", "SerializeToString", "FromString"),
    *("IsInitialized", "FindInitializationErrors", "HasField", "DESCRIPTOR", "__class__", "None"),
    *("_record", "_record_", "_shard", "_payload", "_payload_", "label_name", "context", "a", "A"),
    *("a.b", "", "ü", "a b", "x" * 300),
)
_TYPE_NAMES = (".p.M", ".p.N", ".p.M.E", ".p.Color", ".p.None", "M", "", ".google.protobuf.Any")
_DEFAULTS = ("", "1", "-1", "nan", "true", "RED", "x", "\\377", "1e400")
_PAYLOADS = (
    *(b"", b"\x08\x01", b"\x0a\x01\xff", b"\x0a\x02\xc3\xbc", b"\x08\xff", b"\x0d\0\0\x80\x7f"),
    *(b"\x0a\x04\x0a\x02\x0a\0", b"\x0a\x03\x0a\x01\xff", b"\x09" + b"\xff" * 8, b"\x0b\x0c"),
    *(b"\x08" + b"\xff" * 9 + b"\x01", b"\x12\x02\x08\x01", b"\x1a\x01a\x18\x05", b"\xa0\x06\x01"),
)

_FILES = (
    'name: "a" package: "p" message_type { name: "M" field { name: "s" number: 1 type: %s '
    "label: %s } }",
    'name: "a" package: "p" message_type { name: "M" field { name: "ListFields" number: 1 type: '
    '%s label: %s } field { name: "ByteSize" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL } '
    'field { name: "n" number: 3 type: TYPE_MESSAGE type_name: ".p.N" label: LABEL_REPEATED } } '
    'message_type { name: "N" field { name: "m" number: 1 type: TYPE_MESSAGE type_name: ".p.M" '
    "label: LABEL_OPTIONAL } }",
)
_SPECIAL = (
    'name: "a" package: "p" message_type { name: "M" }',
    'name: "a" message_type { name: "M" field { name: "_record" number: 1 type: TYPE_INT32 '
    'label: LABEL_OPTIONAL } field { name: "_record_" number: 2 type: TYPE_INT32 label: '
    'LABEL_OPTIONAL json_name: "r" } }',
    'name: "a" package: "p" message_type { name: "M" field { name: "e" number: 1 type: '
    'TYPE_MESSAGE type_name: ".p.M.E" label: LABEL_REPEATED } nested_type { name: "E" field { '
    'name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } field { name: "value" '
    "number: 2 type: TYPE_STRING label: LABEL_OPTIONAL } options { map_entry: true } } }",
    'name: "a" package: "p" message_type { name: "M" field { name: "c" number: 1 type: TYPE_ENUM '
    'type_name: ".p.Color" label: LABEL_OPTIONAL default_value: "RED" } } enum_type { name: '
    '"Color" value { name: "RED" number: 3 } value { name: "BLUE" number: -1 } }',
    'name: "a" package: "p" syntax: "proto3" message_type { name: "M" field { name: "s" number: 1 '
    'type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 } oneof_decl { name: "o" } }',
    'name: "a" package: "p" message_type { name: "M" field { name: "g" number: 1 type: TYPE_GROUP '
    'type_name: ".p.M" label: LABEL_OPTIONAL } }',
)


def seed(text: str, payloads: Sequence[bytes] = _PAYLOADS) -> bytes:
    """Return an input of a file of types, in protobuf's text format."""
    file = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
    return MARK.join([descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), *payloads])


def seeds() -> Iterator[bytes]:
    """Yield a file for each type and label of fields, and others that are hard to read."""
    field = descriptor_pb2.FieldDescriptorProto
    labels = field.Label.keys()
    for kind in field.Type.keys()[:18]:
        if kind not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM"):
            yield seed(_FILES[0] % (kind, labels[len(kind) % 3]))
            yield seed(_FILES[1] % (kind, labels[(len(kind) + 1) % 3]))
    yield from map(seed, _SPECIAL)
    yield seed(_SPECIAL[0], ())


def check(data: bytes) -> None:
    """A type is refused, or each payload is a row or a fault, the same wherever it is shown."""
    descriptors, *payloads = data.split(MARK)
    path = scratch() / "a.desc"
    path.write_bytes(descriptors)
    names = _names(descriptors)
    for name in names:
        with contextlib.suppress(tfrtool.UsageError):
            columns = MessageColumns.read(f"{path}:{name}")
            _check_columns(pickle.loads(pickle.dumps(columns)), payloads)
    _check_convert(f"{path}:{names[0]}", payloads)


def _names(descriptors: bytes) -> list[str]:
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
    except DecodeError:
        return ["M"]
    names = [f"{file.package}.{one.name}".strip(".") for file in files for one in file.message_type]
    return names[:_MOST_TYPES] or ["M"]


def _check_columns(columns: MessageColumns, payloads: Sequence[bytes]) -> None:
    assert len({*columns.names}) == len(columns.names)
    table, rejected = columns.decode(payloads)
    table.validate(full=True)
    assert table.schema.equals(columns.to_arrow(), check_metadata=True)
    assert table.num_rows + len(rejected) == len(payloads)
    assert not any("\n" in reason for reason in rejected.values())
    assert columns.select(columns.names[:1]).decode(payloads)[0].num_rows == table.num_rows
    for index, payload in enumerate(payloads):
        assert columns.unknown_bytes(payload) >= 0
        try:
            shown = PayloadJson(proto=columns).describe(payload)
        except ValueError as error:
            assert str(error) == rejected[index]
        else:
            assert index not in rejected
            json.dumps(shown, allow_nan=False)


def _check_convert(proto: str, payloads: Sequence[bytes]) -> None:
    source, target = scratch() / "a.tfrecord", scratch() / _TARGETS[len(payloads) % len(_TARGETS)]
    source.write_bytes(shard_of([*payloads]))
    with contextlib.suppress(tfrtool.TfrtoolError):
        tfrtool.convert(source, target, proto=proto, workers=1, existing="overwrite")


def mutate(data: bytes, rng: random.Random, scramble: Scramble) -> bytes:
    """Change a part of a type, or a payload."""
    parts = data.split(MARK)
    at = rng.randrange(len(parts))
    if rng.random() < 0.5:
        with contextlib.suppress(DecodeError):
            files = descriptor_pb2.FileDescriptorSet.FromString(parts[0])
            _change(files, rng)
            parts[0] = files.SerializeToString()
    elif at and rng.random() < 0.5:
        parts[at] = rng.choice(_PAYLOADS)
    elif rng.random() < 0.2:
        parts.append(rng.choice(_PAYLOADS))
    else:
        parts[at] = scramble(parts[at])
    return MARK.join(parts)


def _change(files: descriptor_pb2.FileDescriptorSet, rng: random.Random) -> None:
    """Change a message of a descriptor set, or one of its fields."""
    messages = [one for file in files.file for one in file.message_type]
    messages += [one for message in messages for one in message.nested_type]
    if not messages:
        return
    message = rng.choice(messages)
    field: Any = rng.choice([*message.field] or [message.field.add()])
    match rng.randrange(9):
        case 0:
            message.name = rng.choice(("M", "N", "E", *_NAMES))
        case 1:
            field.name = rng.choice(_NAMES)
        case 2:
            field.type = rng.randrange(1, 19)
            field.type_name = rng.choice(_TYPE_NAMES)
        case 3:
            field.label = rng.randrange(1, 4)
        case 4:
            field.number = rng.choice((0, 1, 2, 3, 19_000, 2**29 - 1, 2**31 - 1, -1))
        case 5:
            field.default_value = rng.choice(_DEFAULTS)
        case 6:
            message.field.add().CopyFrom(field)
            message.field[-1].name, message.field[-1].number = rng.choice(_NAMES), rng.randrange(9)
        case 7:
            message.options.map_entry = not message.options.map_entry
        case _:
            content = rng.choice(messages).SerializeToString()  # which may be the same message
            nested = message.nested_type.add()
            nested.MergeFromString(content)
            nested.name = rng.choice(("M", "N", "E", *_NAMES))


TARGET = Target(check=check, seeds=seeds, mutate=mutate, max_length=4096, memory=1024)
