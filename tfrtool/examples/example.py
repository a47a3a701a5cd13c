"""Payloads as tf.train.Example and tf.train.SequenceExample: what they are, and what they hold."""

import enum
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from tfrtool.errors import UsageError
from tfrtool.records.wire import field_head, read_spans, varint
from tfrtool.storage.arguments import as_member, parse_enum_fields
from tfrtool.storage.limits import MAX_FEATURES, MAX_FIELDS, MAX_INTEGER_BYTES

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from tfrtool.examples.proto import example_pb2 as pb

Value = bytes | int | float


class DType(enum.Enum):
    """The three types of value that a tf.train.Feature can hold; the values are TensorFlow's."""

    STRING = "string"
    INT64 = "int64"
    FLOAT32 = "float32"


class PayloadKind(enum.Enum):
    """What the payloads of a shard are; the values are part of the JSON output."""

    EXAMPLE = "example"
    SEQUENCE_EXAMPLE = "sequence_example"
    EVENT = "event"
    UNKNOWN = "unknown"
    EMPTY = "empty"

    @property
    def title(self) -> str:
        """What it is called where people read it."""
        return _TITLES.get(self, "empty")


_TITLES = {
    PayloadKind.EXAMPLE: "tf.train.Example",
    PayloadKind.SEQUENCE_EXAMPLE: "tf.train.SequenceExample",
    PayloadKind.EVENT: "TensorBoard events",
    PayloadKind.UNKNOWN: "neither Example nor SequenceExample",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature's values: bytes, ints or floats, all of them of one type."""

    dtype: DType | None  # None where the message sets no kind: a way in which a value is missing
    values: Sequence[Value]

    def __post_init__(self) -> None:
        if self.dtype is not None and type(self.dtype) is not DType:
            parse_enum_fields(self, dtype=DType)
        if self.dtype is None and len(self.values):
            raise ValueError("a feature without a type can't have values")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A tf.train.Example, or a tf.train.SequenceExample where there are feature lists."""

    features: Mapping[str, Feature]  # by name; a SequenceExample's context
    feature_lists: Mapping[str, Sequence[Feature]] = field(default_factory=dict)

    def values(self, name: str | None) -> Sequence[Value]:
        """Return the values of a feature; none where it isn't there, or has no name."""
        feature = None if name is None else self.features.get(name)
        return () if feature is None else feature.values


DTYPES = {"bytes_list": DType.STRING, "float_list": DType.FLOAT32, "int64_list": DType.INT64}
LISTS = {dtype: name for name, dtype in DTYPES.items()}
_EXACT = {bytes: DType.STRING, int: DType.INT64, float: DType.FLOAT32}
_SORTS = {DType.STRING: bytes, DType.INT64: numbers.Integral, DType.FLOAT32: numbers.Real}


def feature_name(key: bytes) -> str:
    """Return a key of a feature map as text; bytes that aren't UTF-8 become lone surrogates.

    So does a command line's argument in Python, and ``json`` writes and reads them.
    """
    return key.decode("utf-8", "surrogateescape")


def feature_key(name: str) -> bytes:
    """Return the key of a name that `feature_name` returned."""
    return name.encode("utf-8", "surrogateescape")


def is_utf8(key: bytes) -> bool:
    """Return whether a key is text, as protobuf and JSON want it; TensorFlow takes any bytes."""
    return key.decode("utf-8", "ignore").encode() == key


LARGE = 256 * 1024
"""Payloads up to this size, in bytes, can't hold enough fields to take much memory."""

_LONG = 1024
"""Fields of large payloads up to this size, in bytes, are not searched for further fields."""

_MANY_NUMBERS = 64 * 1024
"""Longer lists of numbers stay in protobuf's memory: as a tuple they take 4 to 30 times as much."""

_Nested = dict[int, Any]
_INTEGERS: _Nested = {}
_FEATURE: _Nested = {0x0A: {}, 0x12: {}, 0x1A: _INTEGERS}
_CONTEXT_MAP: _Nested = {0x0A: {0x12: _FEATURE}}
_LIST_MAP: _Nested = {0x0A: {0x12: {0x0A: _FEATURE}}}
_MESSAGE: _Nested = {0x0A: _CONTEXT_MAP, 0x12: _LIST_MAP}
"""Messages by the tags of the fields that hold them."""


@cache
def _messages() -> Any:
    """Return the module of the messages; much is done without loading protobuf."""
    from tfrtool.examples.proto import example_pb2

    return example_pb2


@cache
def _decode_error() -> type[Exception]:
    from google.protobuf.message import DecodeError

    return DecodeError


def parse_message(payload: bytes) -> "pb.SequenceExample":
    """Parse an Example or SequenceExample: an Example is one without feature lists, to the byte.

    `DecodeError` if the payload is no such message, or exceeds `MAX_FIELDS`, `MAX_FEATURES` or
    `MAX_INTEGER_BYTES`.
    """
    if len(payload) > LARGE:
        try:
            _count_fields(payload)
        except ValueError as error:
            raise _decode_error()(str(error)) from error
    message: pb.SequenceExample = _messages().SequenceExample.FromString(payload)
    return message


def _count_fields(payload: bytes) -> None:
    """Raise `ValueError` if a large payload exceeds a limit, or is not a message."""
    fields = features = 0
    messages = [(0, len(payload), _MESSAGE)]
    while messages:
        start, end, nested = messages.pop()
        is_map = nested is _CONTEXT_MAP or nested is _LIST_MAP
        if nested is _INTEGERS and end - start > MAX_INTEGER_BYTES:
            raise ValueError("too many integers")
        for tag, first, stop in read_spans(payload, start, end):
            fields += 1
            features += is_map
            if fields > MAX_FIELDS or features > MAX_FEATURES:
                raise ValueError("too many fields or features")
            if stop - first > _LONG and tag in nested:
                messages.append((first, stop, nested[tag]))


def decode_example(payload: bytes, kind: PayloadKind = PayloadKind.EXAMPLE) -> Example:
    """Decode a payload that is known to be an Example or a SequenceExample.

    Of a key that comes twice the last value counts, as for every protobuf map. `ValueError` if the
    bytes aren't such a message.
    """
    if type(kind) is not PayloadKind:
        kind = as_member(PayloadKind, kind, "kind of payload")
    try:
        message = parse_message(payload)
    except _decode_error() as error:
        raise ValueError(f"payload ({len(payload)} bytes) is not a {kind.title}") from error
    context = {feature_name(e.key): _feature(e.value) for e in message.context.feature}
    if kind is not PayloadKind.SEQUENCE_EXAMPLE:
        return Example(features=context)
    lists = {
        feature_name(entry.key): [_feature(step) for step in entry.value.feature]
        for entry in message.feature_lists.feature_list
    }
    return Example(features=context, feature_lists=lists)


def _feature(message: "pb.Feature") -> Feature:
    kind = message.WhichOneof("kind")
    if kind is None:
        return Feature(dtype=None, values=())
    values = getattr(message, kind).value
    keep = kind != "bytes_list" and len(values) > _MANY_NUMBERS
    return Feature(dtype=DTYPES[kind], values=values if keep else tuple(values))


_FEATURES = _ENTRY = _KEY = _BYTES_LIST = _LIST_VALUE = 0x0A
_VALUE, _INT64_LIST = 0x12, 0x1A
"""Tags of fields in an Example."""

_INT64_END = 2**63


def encode_example(features: Mapping[str, Any]) -> bytes:
    """Serialize features as a tf.train.Example; equal features give equal bytes.

    The result equals ``tf.train.Example.SerializeToString(deterministic=True)`` in Python. Keys are
    in the order of their UTF-8 bytes, except that a key comes before its own prefixes. The C++
    implementation of protobuf orders prefixes the other way round.

    Args:
        features: mapping of name to a value, or to several. Bytes and text become strings, integers
            become int64, and other numbers become float32.

    Raises:
        UsageError: a value has another type, or an integer does not fit in 64 bits.
    """
    pieces = [b""]
    for _, key, name in sorted([_key_piece(name) for name in features]):
        head, content = _feature_pieces(name, features[name])
        start = key + field_head(_VALUE, len(head) + len(content)) + head
        pieces += (field_head(_ENTRY, len(start) + len(content)), start, content)
    pieces[0] = field_head(_FEATURES, sum(map(len, pieces)))
    return b"".join(pieces)


@lru_cache(1024)
def _key_piece(name: str) -> tuple[str, bytes, str]:
    """Return what sorts a name as `encode_example` does, its serialized key, and the name itself.

    To sort, the end of a key is above any byte.
    """
    key = feature_key(name)
    return key.decode("latin-1") + "\u0100", field_head(_KEY, len(key)) + key, name


def _feature_pieces(name: str, raw: Any) -> tuple[bytes, bytes]:
    """Return a serialized tf.train.Feature, and of a single string its bytes apart from the rest.

    Protobuf's objects would take several times as long to make as the bytes of a single value.
    """
    if type(raw) is bytes:
        head = field_head(_LIST_VALUE, len(raw))
        return field_head(_BYTES_LIST, len(head) + len(raw)) + head, raw
    if type(raw) is int and -_INT64_END <= raw < _INT64_END:
        number = varint(raw % (2 * _INT64_END))
        return bytes((_INT64_LIST, len(number) + 2, _LIST_VALUE, len(number))) + number, b""
    feature = raw if isinstance(raw, Feature) else _as_feature(name, raw)
    message: pb.Feature = _messages().Feature()
    if feature.dtype is not None:
        values = getattr(message, LISTS[feature.dtype])
        values.SetInParent()
        try:
            values.value.extend(feature.values)
        except (TypeError, ValueError, OverflowError) as error:
            what = f"invalid value for feature {name!r}"
            raise UsageError(what, expected=feature.dtype.value, found=error) from error
    return message.SerializeToString(deterministic=True), b""


def _as_feature(name: str, raw: Any) -> Feature:
    if (exact := _EXACT.get(type(raw))) is not None:  # most are, and need no search
        return Feature(dtype=exact, values=(raw,))
    # Of a dictionary, the keys alone would be taken; a set has no order.
    single = isinstance(raw, str | bytes | Mapping | Set) or not isinstance(raw, Iterable)
    values = [v.encode() if isinstance(v, str) else v for v in ([raw] if single else raw)]
    for dtype, kind in _SORTS.items():
        if values and all(isinstance(value, kind) for value in values):
            converted = map(int, values) if dtype is DType.INT64 else values  # of a bool, too
            return Feature(dtype=dtype, values=tuple(converted))
    found = type(raw).__name__
    what = f"invalid value for feature {name!r}"
    raise UsageError(what, expected="bytes, strings or numbers", found=found)


def classify_payload(payload: bytes) -> PayloadKind:
    """Detect the kind of a payload from its content.

    Protobuf has no type names on the wire, and other messages often parse as an Example by luck.
    What is accepted here has no field that the message type doesn't know, and holds features
    (`holds_features`) if it holds anything.
    """
    return classify_message(payload)[0]


def classify_message(payload: bytes) -> "tuple[PayloadKind, pb.SequenceExample | None]":
    """Do what `classify_payload` does, and return the message if it is one with features."""
    if not payload:
        return PayloadKind.EMPTY, _messages().SequenceExample()
    try:
        message = parse_message(payload)
    except _decode_error():
        message = None
    if message is None or not knows_all_fields(message):
        return PayloadKind.EVENT if _is_event(payload) else PayloadKind.UNKNOWN, None
    if not holds_features(message):
        return PayloadKind.UNKNOWN, None
    sequence = message.HasField("feature_lists")
    return PayloadKind.SEQUENCE_EXAMPLE if sequence else PayloadKind.EXAMPLE, message


def knows_all_fields(message: "pb.SequenceExample") -> bool:
    """Return whether a message holds no unknown field, at any depth."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    # Comparing sizes with and without unknown fields would serialize the message twice.
    return not any(len(UnknownFieldSet(part)) for part in _parts(message))


def _parts(message: "pb.SequenceExample") -> "Iterator[Message]":
    """Yield a message and all messages within it."""
    yield from (message, message.context, message.feature_lists)
    for entry in message.context.feature:
        yield entry
        yield from _feature_parts(entry.value)
    for steps in message.feature_lists.feature_list:
        yield from (steps, steps.value)
        for step in steps.value.feature:
            yield from _feature_parts(step)


def _feature_parts(feature: "pb.Feature") -> "Iterator[Message]":
    yield feature
    if kind := feature.WhichOneof("kind"):
        yield getattr(feature, kind)


def holds_features(message: "pb.SequenceExample") -> bool:
    """Return whether a message that parses as an Example holds a feature, or nothing at all.

    A name may be any bytes; the sign of a feature is the value next to it. An
    ExampleListWithContext parses as a SequenceExample whose names are serialized bytes, and none
    of them has a value: there, a name is a whole map entry.
    """
    entries = [*message.context.feature, *message.feature_lists.feature_list]
    if not entries:
        return knows_all_fields(message)
    return any(entry.HasField("value") for entry in entries)


_EVENT_TAGS = frozenset({0x09, 0x10, *range(0x1A, 0x53, 8)})
_SUMMARY = 0x2A
_EVENT_FIELDS = 64
"""Fields at most; writers set five."""


def count_event_values(payload: bytes) -> int:
    """Return how many values the summary of an event has; 0 if it is damaged."""
    try:
        summaries = [(at, end) for tag, at, end in read_spans(payload) if tag == _SUMMARY]
        return sum(1 for span in summaries for tag, _, _ in read_spans(payload, *span) if tag == 10)
    except ValueError:
        return 0


def _is_event(payload: bytes) -> bool:
    try:
        # Asked first, for protobuf would keep what it doesn't know, however long it is.
        spans = read_spans(payload, most=_EVENT_FIELDS)
        if any(tag not in _EVENT_TAGS for tag, _, _ in spans):
            return False
        event = _messages().Event.FromString(payload)
    except (ValueError, _decode_error()):
        return False
    # Every event of a log has the time of its writing, in seconds since 1970.
    return (
        0 < event.wall_time < 1e11
        and event.step >= 0
        and (event.WhichOneof("what") is not None or event.step > 0)
    )
