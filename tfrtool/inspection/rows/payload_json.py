"""A payload of any kind as JSON values, field by field."""

import base64
from array import array
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tfrtool.errors import UsageError, suggestion
from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.example import (
    PayloadKind,
    classify_message,
    feature_name,
    parse_message,
)
from tfrtool.examples.proto.canonical_pb2 import CanonicalSequenceExample
from tfrtool.examples.tf_parser import canonical_message
from tfrtool.inspection.summary.summary_json import as_json, floats_json
from tfrtool.records.wire import read_fields, read_spans, read_tensor, read_varint

if TYPE_CHECKING:
    import pyarrow as pa

    from tfrtool.examples.arrow.messages import MessageColumns
    from tfrtool.examples.proto import example_pb2 as pb
    from tfrtool.features.feature_columns import FeatureColumns

_DEEPEST = 4
"""Levels of messages in messages; each one is parsed once more."""

_AS_IN_JSON = frozenset({"bool", "int8", "int16", "int32", "int64", "string", "large_string"})
"""Types of Arrow whose values are JSON values."""

# tensorflow/core/util/event.proto and framework/summary.proto: the fields of messages by their
# numbers, from 1 on. A message has the name of the field that holds it.
_FIELDS = {
    "event": "wall_time step file_version graph_def summary log_message session_log "
    "tagged_run_metadata meta_graph_def source_metadata",
    "summary": "value",
    "value": "tag simple_value field_3 image histo audio node_name tensor metadata",
    "image": "height width colorspace encoded",
    "audio": "sample_rate num_channels length_frames encoded content_type",
    "histo": "min max num sum sum_squares bucket_limit bucket",
    "metadata": "plugin_data display_name summary_description data_class",
    "plugin_data": "plugin_name content",
    "log_message": "level message",
    "session_log": "status checkpoint_path msg",
    "tagged_run_metadata": "tag run_metadata",
    "source_metadata": "writer",
}
_DOUBLES = ("bucket_limit", "bucket")

# tensorflow/core/framework/types.proto: a dtype's name, and Python's code for values side by side.
_DTYPES = {
    1: ("float32", "f"), 2: ("float64", "d"), 3: ("int32", "i"), 4: ("uint8", "B"),
    5: ("int16", "h"), 6: ("int8", "b"), 7: ("string", ""), 8: ("complex64", ""), 9: ("int64", "q"),
    10: ("bool", "B"), 14: ("bfloat16", ""), 17: ("uint16", "H"), 18: ("complex128", ""),
    19: ("float16", ""), 22: ("uint32", "I"), 23: ("uint64", "Q"),
}  # fmt: skip
_CONTENT, _FLOATS, _DOUBLE_VALUES = 4, 5, 6


class PayloadJson:
    """Payloads as JSON values.

    Attributes:
        seen: the names of all features, printed or not.
    """

    def __init__(
        self,
        *,
        select: Sequence[str] | None = None,
        as_base64: bool = False,
        most: int | None = None,
        proto: "MessageColumns | None" = None,
        columns: "FeatureColumns | None" = None,
        extra: Collection[str] = (),
    ) -> None:
        """Choose what to print.

        Args:
            select: the features, or None for all.
            as_base64: whether binary values are printed in full, or summarized.
            most: the most values of a list that are printed.
            proto: the fields of other messages.
            columns: the fields of Examples, as features.json has them.
            extra: selected names that records need not have.
        """
        self._proto = proto if proto is None or select is None else proto.select(select)
        self._columns = columns if columns is None or select is None else columns.select(select)
        self._unknown = 0
        self._select, self._base64, self._most = select, as_base64, most
        self.seen: set[str] = set()
        self._qualified = {*extra}  # selected names such as context.a that exist

    def unknown_note(self) -> str | None:
        """Return a note on fields that the type of the messages doesn't have, if there were any."""
        return None if self._proto is None else self._proto.unknown_note(self._unknown)

    def unseen(self) -> list[str]:
        """Return the selected features that no record had; none before there was any feature."""
        if self._columns is not None:
            return []
        known = self.seen | self._qualified
        return [name for name in self._select or () if self.seen and name not in known]

    def check_selection(self) -> None:
        """Check that each selected feature exists; `UsageError` suggests the nearest name."""
        for name in self.unseen():
            hint = suggestion(name, sorted(self.seen), "features")
            raise UsageError(f"no feature {name!r}", hint=hint)

    def describe_all(self, payloads: Sequence[bytes]) -> list[dict[str, Any] | str]:
        """Return what `describe` does for each payload, or why it can't be described."""
        if self._columns is None:
            return [self.try_describe(payload) for payload in payloads]
        table, rejected = self._columns.decode(payloads)
        rows: Iterator[dict[str, Any]] = self.rows(table)
        if not {*table.schema.names} <= {"context", "feature_lists"}:
            rows = ({"features": row} for row in rows)
        return [
            rejected[index] if index in rejected else next(rows) for index in range(len(payloads))
        ]

    def rows(self, table: "pa.RecordBatch") -> Iterator[dict[str, Any]]:
        """Yield the values of the rows of a table by column, without those that are missing."""
        from tfrtool.examples.arrow.value_types import (
            innermost_type,
            logical_word,
            map_values,
            shown_texts,
        )

        for at, field in enumerate(table.schema):
            if logical_word(innermost_type(field.type)) is not None:
                texts = map_values(table.column(at), shown_texts)
                table = table.set_column(at, field.name, texts)
        columns = [self._all_typed(column.to_pylist(), column.type) for column in table.columns]
        names = table.schema.names
        for row in zip(*columns, strict=True) if columns else [()] * table.num_rows:
            yield {name: value for name, value in zip(names, row, strict=True) if value is not None}

    def describe_string(self, value: bytes) -> Any:
        """Return what `describe` has for a string of a feature."""
        return self._bytes(value, 0)

    def try_describe(self, payload: bytes) -> dict[str, Any] | str:
        """Return what `describe` does, or why it can't be described."""
        try:
            return self.describe(payload)
        except ValueError as error:
            return str(error)

    def describe(self, payload: bytes) -> dict[str, Any]:
        """Return what ``tfrtool cat`` prints of a payload.

        `ValueError` if it is not a message of the type that was chosen.
        """
        if self._proto is not None:
            table, rejected = self._proto.decode([payload])
            if rejected:
                raise ValueError(rejected[0])
            (row,) = table.to_pylist()
            self._unknown += self._proto.unknown_bytes(payload)
            values = {one.name: self._typed(row[one.name], one.type) for one in table.schema}
            return {"message": {name: one for name, one in values.items() if one is not None}}
        example = canonical_message(payload, CanonicalSequenceExample)
        if example is not None and (example.context.feature or example.feature_lists.feature_list):
            return self._example(example, 0)
        kind, message = classify_message(payload)
        if kind is PayloadKind.EVENT:
            return {"event": self._message(payload, "event")}
        if message is None:
            return self._nested(payload, 0) or {"payload": self._bytes(payload, _DEEPEST)}
        return self._example(message, 0)

    def _all_typed(self, values: list[Any], kind: Any) -> list[Any]:
        """Return what `_typed` does for each of some values of an Arrow type."""
        if str(kind) in _AS_IN_JSON:
            return values
        return [self._typed(value, kind) for value in values]

    def _typed(self, value: Any, kind: Any) -> Any:
        """Return a value of an Arrow type."""
        if isinstance(value, bytes):
            return self._bytes(value, _DEEPEST)
        if hasattr(kind, "item_type"):  # a map
            types = kind.key_type, kind.item_type
            return [[*map(self._typed, pair, types)] for pair in value]
        if isinstance(value, list):
            more = len(value) - (self._most or len(value))
            shown = self._all_typed(value[: self._most], kind.value_type)
            return [*shown, _more(more)] if more > 0 else shown
        if isinstance(value, dict):
            values = {one.name: self._typed(value[one.name], one.type) for one in kind}
            return {name: one for name, one in values.items() if one is not None}
        return as_json(value, short=str(kind) == "float")

    def _example(
        self, message: "pb.SequenceExample | CanonicalSequenceExample", depth: int
    ) -> dict[str, Any]:
        context = {feature_name(entry.key): entry.value for entry in message.context.feature}
        lists = {
            feature_name(entry.key): entry.value.feature
            for entry in message.feature_lists.feature_list
        }
        names: Sequence[str] = sorted({*context, *lists})
        of_context, of_lists = names, names
        if not depth:
            self.seen.update(names)
            if self._select is not None:
                of_context = self._selected("context", context)
                of_lists = self._selected("feature_lists", lists)
        features = {
            name: self._feature(context[name], depth) for name in of_context if name in context
        }
        if not lists:
            return {"features": features}
        steps = {name: self._steps(lists[name], depth) for name in of_lists if name in lists}
        return {"context": features, "feature_lists": steps}

    def _selected(self, part: str, features: Collection[str]) -> list[str]:
        """Return the selected ones of some features; ``context.a`` is the one of the context."""
        names = []
        for name in self._select or ():
            prefix, _, rest = name.partition(".")
            if prefix == part and rest in features and name not in self.seen:
                self._qualified.add(name)
                names.append(rest)
            elif name in features:
                names.append(name)
        return names

    def _steps(self, steps: "Sequence[pb.Feature]", depth: int) -> list[Any]:
        """Return single values if each step has one; otherwise a list for each step."""
        shown = [self._values(step, depth) for step in steps]
        if all(values is None or len(values) == 1 for values in shown):
            return [values and values[0] for values in shown]
        return shown

    def _feature(self, feature: "pb.Feature", depth: int) -> Any:
        """Return null without a kind, a single value as such, and else a list."""
        kind = feature.WhichOneof("kind")
        if kind is None:
            return None
        stored = getattr(feature, kind).value
        if len(stored) != 1:
            return self._list(kind, stored, depth)
        value = stored[0]
        if kind == "int64_list":
            return value
        return self._bytes(value, depth) if kind == "bytes_list" else as_json(value, short=True)

    def _values(self, feature: "pb.Feature", depth: int) -> list[Any] | None:
        """Return the values of a feature, None without a kind."""
        kind = feature.WhichOneof("kind")
        return None if kind is None else self._list(kind, getattr(feature, kind).value, depth)

    def _list(self, kind: str, stored: Any, depth: int) -> list[Any]:
        """Return the first values of a list of this kind, and how many more there are."""
        values: list[Any] = stored[: self._most]
        if kind == "bytes_list":
            values = [self._bytes(value, depth) for value in values]
        elif kind == "float_list":
            values = floats_json(values)
        if len(stored) > len(values):
            values.append(_more(len(stored) - len(values)))
        return values

    def _bytes(self, value: bytes, depth: int) -> Any:
        text = decode_text(value)
        if text is not None:
            return text
        if self._base64:
            return {"base64": base64.b64encode(value).decode()}
        summary = {"bytes": len(value), "content": describe_bytes(value)}
        return self._nested(value, depth + 1) or summary

    def _nested(self, value: bytes, depth: int) -> dict[str, Any] | None:
        """Return what a message in bytes says; None if it is none that is known."""
        if depth > _DEEPEST:
            return None
        match describe_bytes(value):
            case "tf.train.Example":
                return {"example": self._example(parse_message(value), depth)}
            case "tf.train.SequenceExample":
                return {"sequence_example": self._example(parse_message(value), depth)}
            case "ExampleListWithContext":
                parts: dict[int, list[Any]] = {1: [], 2: []}  # the examples, and their context
                for number, part in read_fields(value):
                    if isinstance(part, bytes):
                        parts[number].append(self._example(parse_message(part), depth))
                return {"examples": parts[1]} | ({"context": parts[2][-1]} if parts[2] else {})
            case "TensorProto":
                return {"tensor": self._tensor(value, depth)}
        return None

    def _message(self, data: bytes, kind: str) -> Any:
        """Return the fields of a message of TensorBoard's; those that are not known as numbers."""
        names = dict(enumerate(_FIELDS[kind].split(), start=1))
        found: dict[str, Any] = {}
        try:
            for tag, start, stop in read_spans(data):
                number, wire = divmod(tag, 8)
                name, part = names.get(number, f"field_{number}"), data[start:stop]
                value: Any
                if wire != 2:
                    (value,) = _numbers(part, {0: "", 1: "d", 5: "f"}[wire])[0]
                elif name in _DOUBLES:
                    value, count = _numbers(part, "d", self._most)
                    value += [_more(count - len(value))] if count > len(value) else []
                elif name == "tensor":
                    value = self._tensor(part, 0)
                else:
                    value = self._message(part, name) if name in _FIELDS else self._bytes(part, 0)
                if name == "value":  # the only one that is repeated
                    found.setdefault(name, []).append(value)
                else:
                    found[name] = value
        except ValueError:
            return self._bytes(data, _DEEPEST)
        return found

    def _tensor(self, data: bytes, depth: int) -> Any:
        try:
            dtype, shape, fields = read_tensor(data)
            name, code = _DTYPES.get(dtype, (f"dtype {dtype}", ""))
            codes = {_CONTENT: code, _FLOATS: "f", _DOUBLE_VALUES: "d"}
            values, count = list[Any](), 0
            for number, content in fields:
                room = None if self._most is None else self._most - len(values)
                if isinstance(content, int):
                    found, size = [_signed(content)][:room], 1
                elif code:
                    found, size = _numbers(content, codes.get(number, ""), room)
                else:
                    found, size = [self._bytes(one, depth) for one in [content][:room]], 1
                values += found
                count += size
        except ValueError:
            return self._bytes(data, _DEEPEST)
        if count > len(values):
            values.append(_more(count - len(values)))
        return {"dtype": name, "shape": list(shape), "values": values}


def _more(count: int) -> str:
    """Return what stands for the rest of a list."""
    return f"... {count:,} more"


def _numbers(data: bytes, code: str, most: int | None = None) -> tuple[list[Any], int]:
    """Return the first of the numbers side by side, and how many there are.

    They are of Python's code, or varints without one.
    """
    if code:
        numbers = array(code, data)
        return [as_json(value, short=code == "f") for value in numbers[:most]], len(numbers)
    values, count, position = list[Any](), 0, 0
    while position < len(data):
        value, position = read_varint(data, position)
        count += 1
        if most is None or count <= most:
            values.append(_signed(value))
    return values, count


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
