"""The columns of a table of payloads, and their Arrow schema."""

import abc
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tfrtool.errors import SchemaError, UsageError, suggestion
from tfrtool.examples.example import DTYPES, DType, PayloadKind, feature_key, feature_name, is_utf8
from tfrtool.examples.fields import Field, Kind, ListOf, Null, Values, stored_values
from tfrtool.storage.limits import MAX_DIMENSIONS, MAX_TENSOR_VALUES

METADATA = b"tfrtool"
"""The key of a schema's metadata under which the columns are, as JSON."""

PAYLOAD = "payload"
"""The one column of payloads that are neither Examples nor SequenceExamples."""

EXACT = "_payload"
"""The column that holds the bytes of the payloads, next to the others."""

PLACES = ("_shard", "_record", "_offset", "_bytes", "_split")
"""The columns that say where a record came from."""

CONTEXT, LISTS = "context", "feature_lists"

TYPES = {DType.STRING: pa.binary(), DType.FLOAT32: pa.float32(), DType.INT64: pa.int64()}
FEATURE = pa.struct([pa.field(name, pa.list_(TYPES[dtype])) for name, dtype in DTYPES.items()])

_KINDS = (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE)


_FORMS = {
    None: "scalar",
    Null.ABSENT: "optional",
    Null.EMPTY: "optional_empty",
    Null.UNSET: "optional_unset",
    Null.ANY: "optional_any",
}
"""The words of a schema's metadata for columns of single values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A feature as a column.

    Attributes:
        key: the feature's name.
        item: what it holds: a value; or a list of values, where null is a feature that is absent,
            and ``[]`` one without values; or, if records differ in type, a struct of a list for
            each type, all null where the feature has no type.
        is_list: whether it is a feature list of a SequenceExample: a list of steps.
        null: what null stands for in a column of single values; None if it has none.
    """

    key: bytes
    item: Field
    is_list: bool = False
    null: Null | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "null", self.item.null if isinstance(self.item, Values) else None)
        if self.is_list and self.null is not None:
            raise ValueError("each step of a feature list has one value, or any number")

    @classmethod
    def of_lists(cls, key: bytes, dtype: DType | None, *, is_list: bool = False) -> "Column":
        """Return a column that has lists of values of a type; of any type if it is None."""
        if dtype is None:
            return cls(key=key, item=Values(kind=Kind.MIXED), is_list=is_list)
        return cls(key=key, item=ListOf(item=stored_values(dtype)), is_list=is_list)

    @property
    def values(self) -> Values:
        """The values, also those in lists."""
        values = self.item.item if isinstance(self.item, ListOf) else self.item
        if not isinstance(values, Values):
            raise TypeError("lists in a feature")
        return values

    @property
    def is_single(self) -> bool:
        """Whether a record or a step has at most one value."""
        return isinstance(self.item, Values) and self.item.kind is not Kind.MIXED

    @property
    def is_scalar(self) -> bool:
        """Whether every record, or step, has one value."""
        return self.is_single and self.null is None

    @property
    def dtype(self) -> DType | None:
        """The type of the feature's values; None if there are several."""
        if self.values.kind is Kind.MIXED:
            return None
        return DType(self.values.dtype) if self.values.kind is Kind.NUMBER else DType.STRING

    @property
    def is_text(self) -> bool:
        """Whether all values are UTF-8 text, so that they are strings in Arrow."""
        return self.values.kind is Kind.TEXT

    @property
    def value_type(self) -> pa.DataType:
        """The type of single values in Arrow."""
        if self.dtype is None:
            return FEATURE
        return pa.string() if self.is_text else TYPES[self.dtype]

    @property
    def type(self) -> pa.DataType:
        """The column's type in Arrow."""
        arrow_type = self.value_type
        if isinstance(self.item, ListOf):
            arrow_type = pa.list_(arrow_type)
        return pa.list_(arrow_type) if self.is_list else arrow_type


@dataclass(frozen=True, slots=True)
class Columns:
    """The schema of a table of payloads.

    Attributes:
        kind: Examples have a column a feature, SequenceExamples the structs ``context`` and
            ``feature_lists`` of such columns, anything else one binary column, ``payload``.
            A SequenceExample without columns of a context has no such struct, and where there are
            none of feature lists, ``feature_lists`` says whether it has any.
        columns: those columns; none of anything else.
    """

    kind: PayloadKind
    columns: tuple[Column, ...] = ()

    def __post_init__(self) -> None:
        places = {(column.key, column.is_list) for column in self.columns}
        if len(places) < len(self.columns):
            raise ValueError("duplicate feature")
        sequence = self.kind is PayloadKind.SEQUENCE_EXAMPLE
        if (self.columns and not self.parsed) or (not sequence and any(self.lists)):
            raise ValueError(f"{self.kind.title} have no such columns")

    @property
    def parsed(self) -> bool:
        """Whether the payloads are Examples or SequenceExamples."""
        return self.kind in _KINDS

    @property
    def context(self) -> tuple[Column, ...]:
        """The columns of an Example, or of a SequenceExample's context."""
        return tuple(column for column in self.columns if not column.is_list)

    @property
    def lists(self) -> tuple[Column, ...]:
        """The columns of a SequenceExample's feature lists."""
        return tuple(column for column in self.columns if column.is_list)

    @property
    def names(self) -> tuple[str, ...]:
        """One name per column: unique, and none that the table itself needs.

        It is the feature's name; bytes that aren't UTF-8 are written as escapes.
        """
        if not self.parsed:
            return (PAYLOAD,)
        taken = {EXACT, *PLACES}
        plain = {feature_name(column.key) for column in self.columns if _is_plain(column.key)}
        names = []
        for column in self.columns:
            name = column.key.decode("utf-8", "backslashreplace").replace("\0", "\\x00")
            while name in taken or (name in plain and not _is_plain(column.key)):
                name += "_"
            taken.add(name)
            names.append(name)
        return tuple(names)

    def arrays(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the array of each column in a batch that has them."""
        if self.kind is not PayloadKind.SEQUENCE_EXAMPLE:
            return [batch.column(name) for name in self.names]
        arrays_by_name: dict[str, pa.Array] = {}
        for column in batch.schema:
            if column.name in (CONTEXT, LISTS) and pa.types.is_struct(column.type):
                names = [one.name for one in column.type]
                arrays_by_name |= zip(names, batch.column(column.name).flatten(), strict=True)
        return [arrays_by_name[name] for name in self.names]

    def is_single(self, name: str) -> bool:
        """Return whether a record has at most one value in a column."""
        return self.select([name]).columns[0].is_single

    @property
    def batch_records(self) -> int:
        """Records of a batch whose columns take some tens of MiB, however many there are."""
        return max(1, 4_000_000 // max(1, len(self.columns)))

    def select(self, names: Iterable[str]) -> "Columns":
        """Return the columns of these names, in this order.

        Raises:
            UsageError: unknown column; the error suggests the nearest name.
        """
        known = dict(zip(self.names, self.columns or [None], strict=False))
        if self.kind is PayloadKind.SEQUENCE_EXAMPLE:
            for column in self.columns:
                part = LISTS if column.is_list else CONTEXT
                known.setdefault(f"{part}.{feature_name(column.key)}", column)
        chosen = []
        for name in dict.fromkeys(names):
            if name not in known:
                raise UsageError(f"no column {name!r}", hint=suggestion(name, known, "columns"))
            chosen.append(known[name])
        return Columns(self.kind, tuple(column for column in chosen if column is not None))

    def to_arrow(self, *, exact: bool = False) -> pa.Schema:
        """Return the schema of a table with these columns.

        Args:
            exact: whether a column ``_payload`` with the payloads' own bytes is there, too.
        """
        if not self.parsed:
            fields = [pa.field(PAYLOAD, pa.binary())]
        else:
            named = list(zip(self.names, self.columns, strict=True))
            fields = [pa.field(name, one.type) for name, one in named if not one.is_list]
            if self.kind is PayloadKind.SEQUENCE_EXAMPLE:
                lists = [pa.field(name, one.type) for name, one in named if one.is_list]
                # Parquet has no struct without fields.
                list_field = pa.field(LISTS, pa.struct(lists) if lists else pa.bool_())
                fields = [*([pa.field(CONTEXT, pa.struct(fields))] if fields else []), list_field]
            if exact:
                fields.append(pa.field(EXACT, pa.binary()))
        content = {"kind": self.kind.value, "columns": [_column_json(one) for one in self.columns]}
        return pa.schema(fields, {METADATA: json.dumps(content)})

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> "Columns | None":
        """Return the columns of a schema that `to_arrow` made, or some of its columns.

        None if it is another, or has been changed.
        """
        declared = cls.declared(schema)
        if declared is None:
            return None
        fields = {field.name: field for field in schema}
        present = list(declared.columns)
        if declared.kind is PayloadKind.EXAMPLE:
            named = zip(declared.names, declared.columns, strict=True)
            by_name = {name: column for name, column in named if name in fields}
            present = [by_name[name] for name in fields if name in by_name]
        found = replace(declared, columns=tuple(present))
        expected = {field.name: field.type for field in found.to_arrow(exact=EXACT in fields)}
        actual = {name: field.type for name, field in fields.items() if name not in PLACES}
        return found if actual == expected else None

    @classmethod
    def declared(cls, schema: pa.Schema) -> "Columns | None":
        """Return the columns that a schema's metadata says it has, if it does."""
        try:
            return cls.from_json(json.loads((schema.metadata or {})[METADATA]))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            return None

    @classmethod
    def from_json(cls, data: Any) -> "Columns":
        """Read what a schema's metadata holds; a ValueError or its like if it is something else.

        `SchemaError` if it is a table of other messages.
        """
        if "message" in data:
            what = f"the table has decoded {data['message']} messages"
            hint = "they can't be converted back; use the TFRecord files that it was made from"
            raise SchemaError(what, hint=hint)
        if "exploded" in data:
            what = f"the table has a row for each item of {' and '.join(data['exploded'])}"
            hint = "records can't be made of it; use the TFRecord files that it was made from"
            raise SchemaError(what, hint=hint)
        columns = tuple(map(column_of_json, data["columns"]))
        return cls(PayloadKind(data["kind"]), columns)


class DecodedColumns(Columns, abc.ABC):
    """Columns that are not a feature each, such as the fields of other messages."""

    __slots__ = ()

    @property
    @abc.abstractmethod
    def required(self) -> set[str]:
        """The names of the columns that are never null."""

    @abc.abstractmethod
    def decode(
        self, payloads: Sequence[bytes], *, exact: bool = False
    ) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Decode payloads to a batch, with the reasons of those that can't be by their places.

        ``exact`` says whether the batch has a column ``_payload`` with their bytes.
        """

    def encode(self, batch: pa.RecordBatch) -> Sequence[bytes]:  # noqa: ARG002
        """Return the payloads of a batch that has these columns."""
        raise SchemaError("records can't be made of these columns")


def check_shape(sizes: Sequence[int]) -> None:
    """Raise a `ValueError` if no tensor in a table has this shape; the first size may be -1."""
    problem = None
    if len(sizes) > MAX_DIMENSIONS:
        problem = f"{len(sizes):,} dimensions (limit {MAX_DIMENSIONS})"
    elif 0 in sizes or min(sizes[:1], default=1) < -1 or min(sizes[1:], default=1) < 1:
        problem = f"sizes must be at least 1, got {[*sizes]}"
    elif abs(math.prod(sizes)) > MAX_TENSOR_VALUES:
        problem = f"{[*sizes]} has more than {MAX_TENSOR_VALUES:,} values"
    if problem is not None:
        raise ValueError(f"invalid shape of a tensor: {problem}")


def _is_plain(key: bytes) -> bool:
    return is_utf8(key) and b"\0" not in key


def _column_json(column: Column) -> dict[str, Any]:
    data = {
        "key": feature_name(column.key),
        "form": _FORMS[column.null] if column.is_single else "list",
        "dtype": None if column.dtype is None else column.dtype.value,
        "list": column.is_list,
    }
    data |= {"form": "feature"} if column.dtype is None else {}
    return data | ({"text": True} if column.is_text else {})


def column_of_json(data: Mapping[str, Any]) -> Column:
    """Read what `_column_json` returns; a ValueError or its like if it is something else."""
    key, form, is_list = feature_key(data["key"]), data["form"], bool(data["list"])
    if form in ("list", "feature"):
        dtype = None if data["dtype"] is None else DType(data["dtype"])
        column = Column.of_lists(key, dtype, is_list=is_list)
        if (dtype is None) is not (form == "feature"):
            raise ValueError("a column has a type, or holds features of any")
    else:
        null = {word: null for null, word in _FORMS.items()}[form]
        values = stored_values(DType(data["dtype"]), null and null.info)
        column = Column(key=key, item=values, is_list=is_list)
    if not data.get("text"):
        return column
    if column.dtype is not DType.STRING:
        raise ValueError("only strings can be text")
    return with_kind(column, Kind.TEXT)


def with_kind(column: Column, kind: Kind, **info: Any) -> Column:
    """Return a column of strings that are of a kind, with more info."""
    values = replace(column.values, kind=kind, info={**column.values.info, **info})
    item = replace(column.item, item=values) if isinstance(column.item, ListOf) else values
    return replace(column, item=item)
