"""A payload of any kind as JSON values, field by field."""

import base64
import difflib
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfrtool.errors import UsageError, printable
from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.example import Feature, PayloadKind, Value, classify_payload, decode_example
from tfrtool.inspection.summary.summary_json import value_json
from tfrtool.records.wire import read_fields, read_spans, read_tensor, read_varint

_DEEPEST = 4
"""Messages in messages that are told; each level is looked through once more."""

# tensorflow/core/util/event.proto and framework/summary.proto: the fields of each message by
# number, and of what type those are that the wire does not tell.
_FIELDS: Mapping[str, Mapping[int, tuple[str, str]]] = {
    "Event": {
        1: ("wall_time", ""), 2: ("step", ""), 3: ("file_version", ""), 4: ("graph_def", ""),
        5: ("summary", "Summary"), 6: ("log_message", "LogMessage"),
        7: ("session_log", "SessionLog"), 8: ("tagged_run_metadata", "TaggedRunMetadata"),
        9: ("meta_graph_def", ""), 10: ("source_metadata", "SourceMetadata"),
    },
    "Summary": {1: ("value", "Value")},
    "Value": {
        1: ("tag", ""), 2: ("simple_value", ""), 4: ("image", "Image"), 5: ("histo", "Histogram"),
        6: ("audio", "Audio"), 7: ("node_name", ""), 8: ("tensor", "TensorProto"),
        9: ("metadata", "SummaryMetadata"),
    },
    "Image": {1: ("height", ""), 2: ("width", ""), 3: ("colorspace", ""), 4: ("encoded", "")},
    "Audio": {
        1: ("sample_rate", ""), 2: ("num_channels", ""), 3: ("length_frames", ""),
        4: ("encoded", ""), 5: ("content_type", ""),
    },
    "Histogram": {
        1: ("min", ""), 2: ("max", ""), 3: ("num", ""), 4: ("sum", ""), 5: ("sum_squares", ""),
        6: ("bucket_limit", "doubles"), 7: ("bucket", "doubles"),
    },
    "SummaryMetadata": {
        1: ("plugin_data", "PluginData"), 2: ("display_name", ""),
        3: ("summary_description", ""), 4: ("data_class", ""),
    },
    "PluginData": {1: ("plugin_name", ""), 2: ("content", "")},
    "LogMessage": {1: ("level", ""), 2: ("message", "")},
    "SessionLog": {1: ("status", ""), 2: ("checkpoint_path", ""), 3: ("msg", "")},
    "TaggedRunMetadata": {1: ("tag", ""), 2: ("run_metadata", "")},
    "SourceMetadata": {1: ("writer", "")},
}  # fmt: skip
_REPEATED = {("Summary", "value")}

# tensorflow/core/framework/types.proto: a dtype's name, and Python's code for values side by side.
_DTYPES = {
    1: ("float32", "f"), 2: ("float64", "d"), 3: ("int32", "i"), 4: ("uint8", "B"),
    5: ("int16", "h"), 6: ("int8", "b"), 7: ("string", ""), 8: ("complex64", ""), 9: ("int64", "q"),
    10: ("bool", "B"), 14: ("bfloat16", ""), 17: ("uint16", "H"), 18: ("complex128", ""),
    19: ("float16", ""), 22: ("uint32", "I"), 23: ("uint64", "Q"),
}  # fmt: skip
_CONTENT, _FLOATS, _DOUBLES = 4, 5, 6


class PayloadJson:
    """How payloads are told.

    Attributes:
        seen: the names of all features that there were, told or not.
    """

    def __init__(self, *, select: Sequence[str] | None = None, as_base64: bool = False) -> None:
        """Tell of these features, or all; and of bytes that are no text all, or what they are."""
        self._select, self._base64 = select, as_base64
        self.seen: set[str] = set()

    def check_selection(self) -> None:
        """Check that there was each feature that was selected; `UsageError` says the nearest."""
        for name in self._select or ():
            if self.seen and name not in self.seen:
                near = difflib.get_close_matches(name, self.seen, n=3) or sorted(self.seen)[:10]
                known = ", ".join(map(printable, near))
                what = f"no record has a feature {name!r}"
                raise UsageError(what, expected=f"one of {known}")

    def tell(self, payload: bytes) -> dict[str, Any]:
        """Return what ``tfrtool cat`` prints of a payload."""
        kind = classify_payload(payload)
        if kind is PayloadKind.EVENT:
            return {"event": self._message(payload, "Event", 0)}
        if kind is PayloadKind.UNKNOWN:
            found = self._nested(payload, 0)
            return {"payload": self._bytes(payload, _DEEPEST)} if found is None else found
        return self._example(payload, 0)

    def _example(self, payload: bytes, depth: int) -> dict[str, Any]:
        example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
        if not depth:
            self.seen.update(example.features, example.feature_lists)
        context, lists = example.features, example.feature_lists
        names = sorted({*context, *lists}) if depth or self._select is None else self._select
        features = {name: self._feature(context[name], depth) for name in names if name in context}
        if not lists:
            return {"features": features}
        steps = {
            name: [self._feature(step, depth) for step in lists[name]]
            for name in names
            if name in lists
        }
        return {"context": features, "feature_lists": steps}

    def _feature(self, feature: Feature, depth: int) -> Any:
        """Return null without a kind, a single value as such, and else a list."""
        if feature.dtype is None:
            return None
        values = [self._value(value, depth) for value in feature.values]
        return values[0] if len(values) == 1 else values

    def _value(self, value: Value, depth: int) -> Any:
        return self._bytes(value, depth) if isinstance(value, bytes) else value_json(value)

    def _bytes(self, value: bytes, depth: int) -> Any:
        text = decode_text(value)
        if text is not None:
            return text
        if self._base64:
            return {"base64": base64.b64encode(value).decode()}
        found = self._nested(value, depth + 1)
        return {"bytes": len(value), "content": describe_bytes(value)} if found is None else found

    def _nested(self, value: bytes, depth: int) -> dict[str, Any] | None:
        """Return what a message in bytes says; None if it is none that is known."""
        if depth > _DEEPEST:
            return None
        match describe_bytes(value):
            case "tf.train.Example":
                return {"example": self._example(value, depth)}
            case "tf.train.SequenceExample":
                return {"sequence_example": self._example(value, depth)}
            case "ExampleListWithContext":
                parts: dict[int, list[Any]] = {1: [], 2: []}  # the examples, and their context
                for number, part in _messages(value):
                    parts[number].append(self._example(part, depth))
                return {"examples": parts[1]} | ({"context": parts[2][-1]} if parts[2] else {})
            case "TensorProto":
                return {"tensor": self._tensor(value, depth)}
        return None

    def _message(self, data: bytes, kind: str, depth: int) -> Any:
        """Return the fields of a message of TensorBoard's; those that are not known as numbers."""
        found: dict[str, Any] = {}
        try:
            for tag, start, stop in read_spans(data):
                number, wire = divmod(tag, 8)
                name, inner = _FIELDS[kind].get(number, (f"field_{number}", ""))
                part = data[start:stop]
                value: Any
                if wire == 0:
                    value = _signed(read_varint(part, 0)[0])
                elif wire in (1, 5):
                    (single,) = struct.unpack("<d" if wire == 1 else "<f", part)
                    value = _double(single) if wire == 1 else value_json(single)
                elif inner == "doubles":
                    value = [_double(one) for (one,) in struct.iter_unpack("<d", part)]
                elif inner == "TensorProto":
                    value = self._tensor(part, depth)
                elif inner:
                    value = self._message(part, inner, depth + 1)
                else:
                    value = self._bytes(part, depth)
                if (kind, name) in _REPEATED:
                    found.setdefault(name, []).append(value)
                else:
                    found[name] = value
        except (ValueError, struct.error):
            return self._bytes(data, _DEEPEST)
        return found

    def _tensor(self, data: bytes, depth: int) -> Any:
        try:
            dtype, shape, fields = read_tensor(data)
            name, code = _DTYPES.get(dtype, (f"dtype {dtype}", ""))
            values = list(self._tensor_values(fields, code, depth))
        except (ValueError, struct.error):
            return self._bytes(data, _DEEPEST)
        return {"dtype": name, "shape": list(shape), "values": values}

    def _tensor_values(
        self, fields: Iterator[tuple[int, int | bytes]], code: str, depth: int
    ) -> Iterator[Any]:
        for number, held in fields:
            if isinstance(held, int):
                yield _signed(held)
            elif number in (_CONTENT, _FLOATS, _DOUBLES) and (code or number != _CONTENT):
                values = array({_FLOATS: "f", _DOUBLES: "d"}.get(number, code), held)
                yield from map(value_json if values.typecode == "f" else _double, values)
            elif not code:
                yield self._bytes(held, depth)
            else:
                position = 0
                while position < len(held):
                    value, position = read_varint(held, position)
                    yield _signed(value)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    return ((number, part) for number, part in read_fields(data) if isinstance(part, bytes))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _double(value: float) -> Any:
    """Return a number of any type as JSON has it; `value_json` would take it for a float32."""
    odd = isinstance(value, float) and (value != value or value in (float("inf"), -float("inf")))
    return value_json(value) if odd else value
