"""Lists of Examples with a context, as TensorFlow Ranking stores them, as columns."""

import enum
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tfrtool.errors import UsageError, human_count, some_of
from tfrtool.examples.arrow.arrays import Ints, list_array, scattered, struct_array
from tfrtool.examples.arrow.columns import METADATA, Column, Columns
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.arrow.encode_batch import encode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import (
    DType,
    Feature,
    PayloadKind,
    classify_payload,
    encode_example,
    parse_message,
)
from tfrtool.examples.fields import Field, ListOf, Struct, leaves_of
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.misfits import FieldMisfit
from tfrtool.features.nested import arrow_type
from tfrtool.features.sources import AS_STORED
from tfrtool.records.wire import read_spans, varint

CONTEXT, EXAMPLES = "context", "examples"

# tensorflow_serving/apis/input.proto: examples = 1, context = 2
_EXAMPLES_TAG, _CONTEXT_TAG = 0x0A, 0x12
_SERIALIZED = (b"serialized_context", b"serialized_examples")
_NO_FEATURES = encode_example({})
_SHOWN = 3
_NO_COLUMNS = Columns(PayloadKind.EMPTY)


class Packing(enum.Enum):
    """How a record holds a list of Examples and their context."""

    MESSAGE = "ExampleListWithContext"
    FEATURES = "Example-in-Example"
    """Features ``serialized_context`` and ``serialized_examples``: EIE in TensorFlow Ranking."""


class _Parts(NamedTuple):
    """The Examples in some records.

    Attributes:
        contexts: that of each record; None where it has none.
        examples: those of all records, one after the other.
        counts: how many each record has.
        rejected: why others are no such records, by their places; they have no Examples here.
    """

    contexts: list[bytes | None]
    examples: list[bytes]
    counts: Ints
    rejected: dict[int, str]


def split_records(payloads: Sequence[bytes], packing: Packing) -> _Parts:
    """Return the Examples in records."""
    if packing is Packing.FEATURES:
        return _split_features(payloads)
    contexts, examples = list[bytes | None](), list[bytes]()
    counts, rejected = np.zeros(len(payloads), np.int64), dict[int, str]()
    for row, payload in enumerate(payloads):
        size, context = len(examples), list[bytes]()
        try:
            for tag, start, stop in read_spans(payload):
                if tag == _EXAMPLES_TAG:
                    examples.append(payload[start:stop])
                elif tag == _CONTEXT_TAG:
                    context.append(payload[start:stop])
                else:
                    raise ValueError("unknown field")
        except ValueError:
            del examples[size:]
            context.clear()
            rejected[row] = f"payload ({len(payload)} bytes) is not an {packing.value}"
        counts[row] = len(examples) - size
        # Protobuf merges a message that comes in several parts.
        contexts.append(b"".join(context) if context else None)
    return _Parts(contexts, examples, counts, rejected)


def _split_features(payloads: Sequence[bytes]) -> _Parts:
    columns = (Column.of_lists(key, DType.STRING) for key in _SERIALIZED)
    batch, places, rejected = _decode(payloads, Columns(PayloadKind.EXAMPLE, tuple(columns)))
    contexts: list[bytes | None] = [None] * len(payloads)
    counts, examples = np.zeros(len(payloads), np.int64), list[bytes]()
    lists = zip(places.tolist(), *(column.to_pylist() for column in batch.columns), strict=True)
    for row, context, items in lists:
        if len(context or ()) > 1:
            name = _SERIALIZED[0].decode()
            rejected[row] = f"feature {name!r}: expected one value, found {len(context)}"
            continue
        contexts[row] = context[0] if context else None
        examples += items or ()
        counts[row] = len(items or ())
    return _Parts(contexts, examples, counts, rejected)


def _decode(
    payloads: Sequence[bytes], columns: Columns
) -> tuple[pa.RecordBatch, Ints, dict[int, str]]:
    """Decode Examples; return their table, their places, and why others can't be decoded."""
    places, rejected = np.arange(len(payloads)), dict[int, str]()
    while True:
        try:
            chosen = [payloads[row] for row in places.tolist()]
            return decode_batch(chosen, columns, unset_is_absent=True), places, rejected
        except MisfitError as error:
            bad = np.array([*error.others])
            rejected |= zip(places[bad].tolist(), error.others.values(), strict=True)
            places = np.delete(places, bad)


def packing_of(payload: bytes) -> Packing | None:
    """Return how a record holds Examples, if it does and these have features."""
    packing = Packing.MESSAGE
    if classify_payload(payload) is PayloadKind.EXAMPLE:
        packing = Packing.FEATURES
        features = parse_message(payload).context.feature
        if not {one.key for one in features} <= {*_SERIALIZED}:
            return None
    contexts, examples, _, rejected = split_records([payload], packing)
    parts = [part for part in (*contexts, *examples) if part and part != _NO_FEATURES]
    if rejected or not parts or any(describe_bytes(one) != "tf.train.Example" for one in parts):
        return None
    return packing


class RankingFold:
    """Finds the columns of the Examples in records."""

    def __init__(self, packing: Packing) -> None:
        """Begin with nothing."""
        self.packing = packing
        self._folds = {CONTEXT: ColumnsFold(), EXAMPLES: ColumnsFold()}

    def add(self, payloads: Sequence[bytes]) -> None:
        """Take in records."""
        contexts, examples, _, _ = split_records(payloads, self.packing)
        self._folds[CONTEXT].add([one for one in contexts if one is not None])
        self._folds[EXAMPLES].add(examples)

    def merge(self, other: "RankingFold") -> None:
        """Take in what another fold has seen."""
        for name, fold in self._folds.items():
            fold.merge(other._folds[name])

    def columns(self, *, exact: bool) -> "RankingColumns":
        """Return the columns, without features that have several types.

        ``exact`` says whether records can be restored from a table of them.
        """
        inner, notes = dict[str, Columns](), list[str]()
        for name, fold in self._folds.items():
            columns = fold.table_columns(exact=exact)
            named = dict(zip(columns.names, columns.columns, strict=False))
            mixed = [f"{name}/{key}" for key, one in named.items() if one.dtype is None]
            if mixed:
                what = f"{human_count(len(mixed), 'feature')} of several types"
                notes.append(f"not shown: {what}: {some_of(mixed, _SHOWN)}; {AS_STORED}")
            typed = tuple(one for one in named.values() if one.dtype is not None)
            inner[name] = Columns(PayloadKind.EXAMPLE, typed)
        found = RankingColumns.of_parts(self.packing, inner[CONTEXT], inner[EXAMPLES])
        return replace(found, notes=tuple(notes))


@dataclass(frozen=True, slots=True)
class RankingColumns(FeatureColumns):
    """A context and a list of examples as columns.

    Attributes:
        packing: how records hold them.
        context_columns: the features of contexts.
        example_columns: the features of examples.
        notes: what is not shown, a clause each.
    """

    packing: Packing = Packing.MESSAGE
    context_columns: Columns = _NO_COLUMNS
    example_columns: Columns = _NO_COLUMNS
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def of_parts(cls, packing: Packing, context: Columns, examples: Columns) -> "RankingColumns":
        """Return the columns for features of contexts and of examples."""
        fields = dict[str, Field]()
        for name, columns in ((CONTEXT, context), (EXAMPLES, examples)):
            named = zip(columns.names, columns.columns, strict=True)
            struct = Struct({key: column.item for key, column in named})
            if columns.columns:
                fields[name] = struct if name == CONTEXT else ListOf(item=struct)
        return cls(
            PayloadKind.UNKNOWN,
            root=Struct(fields),
            packing=packing,
            context_columns=context,
            example_columns=examples,
        )

    @classmethod
    def from_json(cls, data: Any) -> "RankingColumns":
        """Read what a schema's metadata holds; a ValueError or its like if it is something else."""
        parts = (Columns.from_json(data[name]) for name in (CONTEXT, EXAMPLES))
        return cls.of_parts(Packing[data["ranking"]], *parts)

    def to_arrow(self, *, exact: bool = False) -> pa.Schema:
        """Return the schema of a table with these columns.

        Records can be made of it unless it has parts of the context or the examples as columns.
        """
        content: dict[str, Any] = {"message": self.packing.value}
        if self.root.fields.keys() <= {CONTEXT, EXAMPLES}:
            content = {"ranking": self.packing.name}
            for name in (CONTEXT, EXAMPLES):
                content[name] = json.loads(self._used(name).to_arrow().metadata[METADATA])
        schema = FeatureColumns.to_arrow(self, exact=exact)
        return schema.with_metadata({METADATA: json.dumps(content)})

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """Return the records that hold the rows of a table."""
        import pyarrow.compute as pc

        contexts: list[bytes | None] = [None] * batch.num_rows
        examples, counts = list[bytes](), np.zeros(batch.num_rows, np.int64)
        for name, array in zip(self.names, batch.columns, strict=True):
            columns = self._used(name)
            items = array.flatten() if name == EXAMPLES else array.drop_null()
            table = pa.RecordBatch.from_arrays(items.flatten(), schema=columns.to_arrow())
            payloads = encode_batch(table, columns)
            if name == EXAMPLES:
                examples = payloads
                counts = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
            else:
                rows = np.flatnonzero(np.asarray(array.is_valid())).tolist()
                for row, payload in zip(rows, payloads, strict=True):
                    contexts[row] = payload
        ends = np.cumsum(counts)
        bounds = zip((ends - counts).tolist(), ends.tolist(), strict=True)
        documents = [examples[start:end] for start, end in bounds]
        return [*map(_PACKERS[self.packing], contexts, documents)]

    def checked(
        self,
        payloads: Sequence[bytes],
        *,
        strict: bool,  # noqa: ARG002
        other_keys: Counter[bytes] | None = None,  # noqa: ARG002
    ) -> tuple[pa.StructArray, dict[int, dict[str, FieldMisfit]], dict[int, str]]:
        """Decode payloads, and return the records that fit as an array of structs.

        Besides, by the places of the others, why they don't.
        """
        places, damaged = np.arange(len(payloads)), dict[int, str]()
        while True:
            chosen = [payloads[row] for row in places.tolist()]
            parts = split_records(chosen, self.packing)
            columns, rejected = self._columns_of(parts)
            if not rejected:
                break
            damaged |= {int(places[row]): why for row, why in rejected.items()}
            places = np.delete(places, [*rejected])
        kinds = [pa.field(name, array.type) for name, array in columns.items()]
        table = struct_array(pa.struct(kinds), len(places), None, [*columns.values()])
        return table, {}, damaged

    def _columns_of(self, parts: _Parts) -> tuple[dict[str, pa.Array], dict[int, str]]:
        """Return the columns of records, or why some can't be decoded, by their places."""
        rejected = {**parts.rejected}
        examples, _, others = _decode(parts.examples, self._used(EXAMPLES))
        owners = np.repeat(np.arange(len(parts.counts)), parts.counts)
        for index, why in others.items():
            rejected.setdefault(int(owners[index]), f"in an Example: {why}")
        rows = [row for row, one in enumerate(parts.contexts) if one is not None]
        contexts = [one for one in parts.contexts if one is not None]
        context, _, others = _decode(contexts, self._used(CONTEXT))
        for index, why in others.items():
            rejected.setdefault(rows[index], f"in the context: {why}")
        if rejected:
            return {}, rejected
        columns, size, every = dict[str, pa.Array](), len(owners), np.arange(len(parts.counts))
        for name, item in self.root.fields.items():
            if name.partition("/")[0] == CONTEXT:
                array = _part(name, item, context, len(rows))
                is_full = len(rows) == len(every)
                columns[name] = (
                    array if is_full else scattered(array, len(every), np.array(rows, np.int64))
                )
            else:
                array = _part(name, item.item if isinstance(item, ListOf) else item, examples, size)
                kind = pa.list_(array.type)
                columns[name] = list_array(kind, len(every), every, parts.counts, array)
        return columns, {}

    def _used(self, part: str) -> Columns:
        """Return the features of contexts or examples that are in the tree."""
        columns = self.context_columns if part == CONTEXT else self.example_columns
        paths = {leaf.path for leaf in leaves_of(self.root)}
        named = zip(columns.names, columns.columns, strict=False)
        used = (one for name, one in named if f"{part}/{name}" in paths)
        return Columns(PayloadKind.EXAMPLE, tuple(used))


def _part(name: str, item: Field, table: pa.RecordBatch, size: int) -> pa.Array:
    """Return one feature of Examples, or several as structs."""
    feature = name.partition("/")[2]
    if feature or not isinstance(item, Struct):
        return table.column(feature)
    return struct_array(arrow_type(item), size, None, [table.column(one) for one in item.fields])


def _pack_message(context: bytes | None, examples: Sequence[bytes]) -> bytes:
    """Return an ExampleListWithContext."""
    tagged = [(_EXAMPLES_TAG, one) for one in examples]
    tagged += [] if context is None else [(_CONTEXT_TAG, context)]
    return b"".join(bytes([tag]) + varint(len(one)) + one for tag, one in tagged)


def _pack_features(context: bytes | None, examples: Sequence[bytes]) -> bytes:
    """Return an Example with serialized Examples."""
    values = (() if context is None else (context,), tuple(examples))
    names = (key.decode() for key in _SERIALIZED)
    features = {
        name: Feature(dtype=DType.STRING, values=some_values)
        for name, some_values in zip(names, values, strict=True)
    }
    if context is None:
        del features[_SERIALIZED[0].decode()]
    return encode_example(features)


_PACKERS = {Packing.MESSAGE: _pack_message, Packing.FEATURES: _pack_features}


def nested_columns(data: Any) -> FeatureColumns | None:
    """Return the columns of a tree or of lists of Examples, if a schema's metadata has them.

    A ValueError or its like if it is something else.
    """
    if "ranking" in data:
        return RankingColumns.from_json(data)
    return FeatureColumns.from_json(data) if "features" in data else None


def nested_columns_of(schema: pa.Schema) -> FeatureColumns | None:
    """Return what `nested_columns` does for the metadata of a schema; None for anything else."""
    try:
        return nested_columns(json.loads((schema.metadata or {})[METADATA]))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, UsageError):
        return None
