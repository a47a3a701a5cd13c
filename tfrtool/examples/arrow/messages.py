"""Messages of any protobuf type as columns, with the type from a descriptor set."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from tfrtool.errors import UsageError, human_count, os_errors_as, suggestion
from tfrtool.examples.arrow.columns import EXACT, METADATA, PLACES, DecodedColumns
from tfrtool.examples.example import LARGE, PayloadKind
from tfrtool.records.wire import read_spans
from tfrtool.storage.limits import MAX_COLUMNS, MAX_FIELDS, MAX_MESSAGE_BYTES
from tfrtool.storage.opening import read_bounded

_NESTING = 16
"""Levels of messages that become structs; deeper ones, and those within themselves, are bytes."""

_HINT = "make one with protoc --descriptor_set_out=FILE --include_imports"
_BATCH_RECORDS = 1024
"""Messages of a batch: Python holds its values as objects."""

_TYPES = {
    FieldDescriptor.CPPTYPE_INT32: pa.int64(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.uint64(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
}
_KEY_TYPES = {
    getattr(FieldDescriptor, f"TYPE_{name}")
    for name in (
        *("INT32", "INT64", "UINT32", "UINT64", "SINT32", "SINT64"),
        *("FIXED32", "FIXED64", "SFIXED32", "SFIXED64", "BOOL", "STRING"),
    )
}
"""Types of the keys of maps."""


def _same(value: Any) -> Any:
    return value


class MessageField(NamedTuple):
    """A field of a message as a column."""

    kind: pa.DataType
    convert: Callable[[Any], Any] = _same  # the value of a field that is set
    default: Any = None  # the value of others


class _Reader:
    """Gets the values of a message that are set, and the defaults of the others.

    Methods are those of the class, as a field of the message may have the same name.
    """

    def __init__(self, fields: Mapping[str, MessageField]) -> None:
        self._convert = {name: one.convert for name, one in fields.items()}
        known = {name: one.default for name, one in fields.items()}
        self._defaults = {name: one for name, one in known.items() if one is not None}

    def __call__(self, message: Message) -> dict[str, Any]:
        values, convert = self._defaults.copy(), self._convert
        for field, value in type(message).ListFields(message):
            if (name := field.name) in convert:
                values[name] = convert[name](value)
        return values


@dataclass(frozen=True, slots=True)
class MessageColumns(DecodedColumns):
    """The fields of a message as columns.

    A field is a single value, null if the message records that it is not set. Repeated fields are
    lists, maps are maps, enumerations are text, and messages are structs. A message within itself
    is bytes.

    Attributes:
        descriptors: the files of the type, as a serialized FileDescriptorSet.
        message: the full name of the type.
        fields: the names of the fields; None for all.
    """

    descriptors: bytes = b""
    message: str = ""
    fields: tuple[str, ...] | None = None

    @classmethod
    def read(cls, text: str) -> "MessageColumns":
        """Return the columns for ``FILE:MESSAGE``; `UsageError` for unknown messages."""
        path, _, name = text.rpartition(":")
        path, name = (path, name) if path else (name, "")
        with os_errors_as(UsageError, path):
            data = read_bounded(Path(path))
        try:
            known = _messages(data)
        except (DecodeError, TypeError, ValueError) as error:
            raise UsageError("not a descriptor set", path=path, hint=_HINT) from error
        matches = [one for one in known if one == name or one.rpartition(".")[2] == name]
        if name not in known and len(matches) != 1:
            short = {one.rpartition(".")[2]: one for one in known}
            near = suggestion(name, short if name and "." not in name else known, "messages")
            what = f"no message {name!r}" if name else "expected FILE:MESSAGE"
            what = f"{human_count(len(matches), 'message')} named {name!r}" if matches else what
            hint = f"messages are {', '.join(matches)}" if matches else near
            raise UsageError(what, path=path, hint=hint)
        found = cls(
            PayloadKind.UNKNOWN, descriptors=data, message=name if name in known else matches[0]
        )
        try:
            _pool(data).FindMessageTypeByName(found.message)
        except (TypeError, KeyError) as error:
            what = f"the definition of {found.message} is incomplete or invalid"
            raise UsageError(what, path=path, hint=_HINT) from error
        try:
            found.to_arrow()
        except UsageError as error:
            error.path = path
            raise
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each field; some get a ``_``, as the table has such a column."""
        return tuple(map(self._column_name, self.chosen_fields))

    def _column_name(self, field: str) -> str:
        if field not in {EXACT, *PLACES}:
            return field
        name = f"{field}_"
        while name in self.all_fields:
            name += "_"
        return name

    @property
    def batch_records(self) -> int:
        """Records of a batch."""
        return _BATCH_RECORDS

    @property
    def _type(self) -> Descriptor:
        return _pool(self.descriptors).FindMessageTypeByName(self.message)

    @property
    def all_fields(self) -> dict[str, MessageField]:
        """The fields of the type by their names."""
        return _fields_of(self.descriptors, self.message)

    @property
    def chosen_fields(self) -> dict[str, MessageField]:
        """The fields that are columns."""
        known = self.all_fields
        return known if self.fields is None else {name: known[name] for name in self.fields}

    @property
    def required(self) -> set[str]:
        """The names of the columns that are never null, as an unset field has a default value."""
        fields = zip(self.names, self.chosen_fields.values(), strict=True)
        return {name for name, one in fields if one.default is not None}

    def select(self, names: Iterable[str]) -> "MessageColumns":
        """Return the columns of these names, in this order; `UsageError` if there is none such."""
        known = dict(zip(self.names, self.chosen_fields, strict=True))
        chosen = []
        for name in dict.fromkeys(names):
            if name not in known:
                raise UsageError(f"no column {name!r}", hint=suggestion(name, known, "columns"))
            chosen.append(known[name])
        return replace(self, fields=tuple(chosen))

    def to_arrow(
        self,
        *,
        exact: bool = False,  # noqa: ARG002
    ) -> pa.Schema:
        """Return the schema of a table with these columns."""
        kinds = [one.kind for one in self.chosen_fields.values()]
        fields = [pa.field(*one) for one in zip(self.names, kinds, strict=True)]
        return pa.schema(fields, {METADATA: f'{{"message": "{self.message}"}}'})

    def decode(
        self,
        payloads: Sequence[bytes],
        *,
        exact: bool = False,  # noqa: ARG002
    ) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Decode payloads to a batch, with the reasons of those that can't be by their places."""
        schema, rows, rejected = self.to_arrow(), [], dict[int, str]()
        for index, payload in enumerate(payloads):
            try:
                rows.append(self.row(payload))
            except ValueError as error:
                rejected[index] = str(error)
        kind = pa.struct([(name, one.kind) for name, one in self.chosen_fields.items()])
        batch = pa.RecordBatch.from_struct_array(pa.array(rows, kind))
        if batch.columns:  # otherwise, only the struct has a number of rows
            batch = pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        return batch.replace_schema_metadata(schema.metadata), rejected

    def row(self, payload: bytes) -> dict[str, Any]:
        """Return the values of a payload; `ValueError` if it is not such a message."""
        return _Reader(self.chosen_fields)(self._parse(payload))

    def unknown_bytes(self, payload: bytes) -> int:
        """Return how many bytes are of fields that the type doesn't have; 0 for other payloads."""
        try:
            message = self._parse(payload)
        except ValueError:
            return 0
        methods = type(message)
        size = methods.ByteSize(message)
        methods.DiscardUnknownFields(message)
        return size - methods.ByteSize(message)

    def unknown_note(self, count: int) -> str | None:
        """Return a note on as many bytes of unknown fields; None without any."""
        unknown = f"{human_count(count, 'byte')} of fields that {self.message} doesn't have"
        return f"not shown: {unknown}" if count else None

    def _parse(self, payload: bytes) -> Message:
        """Parse a payload; `ValueError` if it is not such a message, or exceeds a limit."""
        if len(payload) > MAX_MESSAGE_BYTES:
            raise ValueError(f"{len(payload):,} bytes; messages have at most {MAX_MESSAGE_BYTES:,}")
        kind = self._type
        if len(payload) > LARGE:
            _count_fields(payload, kind)
        methods: Any = GetMessageClass(kind)
        what = f"payload ({len(payload)} bytes) is not a {self.message}"
        try:
            message: Message = methods.FromString(payload)
        except DecodeError:
            raise ValueError(what) from None
        if not methods.IsInitialized(message):
            missing = methods.FindInitializationErrors(message)
            raise ValueError(f"{what}: required field {missing[0]} is missing")
        return message


def _count_fields(payload: bytes, kind: Descriptor) -> None:
    """Raise `ValueError` if a large payload has too many fields, or is not a message."""
    count, messages = 0, [(0, len(payload), kind)]
    while messages:
        start, end, kind = messages.pop()
        for tag, first, stop in read_spans(payload, start, end):
            count += 1
            if count > MAX_FIELDS:
                raise ValueError("too many fields")
            field = kind.fields_by_number.get(tag >> 3)
            if field is not None and field.message_type is not None and tag & 7 == 2:
                messages.append((first, stop, field.message_type))


@functools.lru_cache(4)
def _files(data: bytes) -> list[Any]:
    """Return the files of a descriptor set, without extensions: their fields are unknown ones.

    `ValueError` if it has maps that protoc doesn't make: protobuf would read them out of bounds.
    """
    files = list(descriptor_pb2.FileDescriptorSet.FromString(data).file)
    entries, others = set[str](), set[str]()
    for file in files:
        del file.extension[:]
        for name, message in _walk(f".{file.package}" if file.package else "", file.message_type):
            del message.extension[:]
            if message.options.map_entry:
                entries |= {name, name.rpartition(".")[2]}
                if not _is_map_entry(message):
                    raise ValueError("invalid map entry")
            others |= {one.type_name for one in message.field if not _is_repeated_message(one)}
    if not entries.isdisjoint(others):
        raise ValueError("a map entry is the type of a single field")
    return files


def _walk(prefix: str, messages: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the full name of each message, and the message."""
    for message in messages:
        name = f"{prefix}.{message.name}"
        yield name, message
        yield from _walk(name, message.nested_type)


def _is_map_entry(message: Any) -> bool:
    """Return whether a message has a key and a value, as those that protoc makes for maps."""
    fields = [(one.name, one.number, one.label) for one in message.field]
    optional = FieldDescriptor.LABEL_OPTIONAL
    expected = [("key", 1, optional), ("value", 2, optional)]
    return fields == expected and message.field[0].type in _KEY_TYPES


def _is_repeated_message(field: Any) -> bool:
    expected = FieldDescriptor.LABEL_REPEATED, FieldDescriptor.TYPE_MESSAGE
    return (field.label, field.type) == expected


def _messages(data: bytes) -> list[str]:
    """Return the full names of all messages of a descriptor set; `ValueError` without any."""
    names = [
        name.removeprefix(".")
        for file in _files(data)
        for name, message in _walk(f".{file.package}" if file.package else "", file.message_type)
        if not message.options.map_entry
    ]
    if not names:
        raise ValueError("no messages")
    return names


@functools.lru_cache(4)
def _pool(data: bytes) -> DescriptorPool:
    """Return the types of a descriptor set."""
    pool = DescriptorPool()
    for file in _files(data):
        pool.Add(file)
    return pool


@functools.lru_cache(4)
def _fields_of(data: bytes, message: str) -> dict[str, MessageField]:
    """Return the fields of a type by their names."""
    left = MAX_COLUMNS

    def field_of(field: FieldDescriptor, outer: tuple[str, ...]) -> MessageField:
        nonlocal left
        left -= 1
        if left < 0:
            what = f"{message} has more than {MAX_COLUMNS:,} fields, with the fields of its parts"
            raise UsageError(what)
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            key, value = (value_of(one, outer) for one in inner.fields)
            pairs = partial(_pairs, key.convert, value.convert)
            return MessageField(pa.map_(key.kind, value.kind), pairs, [])
        single = value_of(field, outer)
        if field.is_repeated:
            items = list if single.convert is _same else partial(_items, single.convert)
            return MessageField(pa.list_(single.kind), items, [])
        return single._replace(default=None) if field.has_presence else single

    def value_of(field: FieldDescriptor, outer: tuple[str, ...]) -> MessageField:
        inner, number = field.message_type, field.default_value
        if field.enum_type is not None:
            names = {one.number: one.name for one in field.enum_type.values}
            convert = partial(_enum_name, names)
            return MessageField(
                pa.string(), convert, None if field.is_repeated else convert(number)
            )
        if field.type == FieldDescriptor.TYPE_BYTES:
            return MessageField(pa.binary(), _same, number)
        if inner is None:
            is_text = field.type == FieldDescriptor.TYPE_STRING
            as_text = partial(_text, field.name) if is_text else _same
            return MessageField(_TYPES[field.cpp_type], as_text, number)
        if inner.full_name in outer or len(outer) >= _NESTING or not inner.fields:
            return MessageField(pa.binary(), _serialized)
        parts = {one.name: field_of(one, (*outer, inner.full_name)) for one in inner.fields}
        kind = pa.struct([pa.field(name, one.kind) for name, one in parts.items()])
        return MessageField(kind, _Reader(parts))

    kind = _pool(data).FindMessageTypeByName(message)
    return {one.name: field_of(one, (message,)) for one in kind.fields}


def _serialized(message: Message) -> bytes:
    return type(message).SerializeToString(message, deterministic=True)


def _items(convert: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    return [convert(one) for one in values]


def _pairs(
    convert_key: Callable[[Any], Any], convert: Callable[[Any], Any], values: Mapping[Any, Any]
) -> list[tuple[Any, Any]]:
    """Return the entries of a map by their keys, as protobuf has no order."""
    return [(key, convert(values[key])) for key in sorted(map(convert_key, values))]


def _text(field: str, value: str | bytes) -> str:
    """Return a string; `ValueError` for bytes, which protobuf returns if they are not UTF-8."""
    if isinstance(value, bytes):
        raise ValueError(f"field {field!r} is not UTF-8 text")
    return value


def _enum_name(names: Mapping[int, str], number: int) -> str:
    return names.get(number) or str(number)
