"""What a format of files with records does."""

import abc
import bisect
import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from operator import itemgetter
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from tfrtool.convert.formats.format_specs import FORMATS, FormatSpec
from tfrtool.errors import SchemaError
from tfrtool.examples.arrow.columns import METADATA, Columns
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.dtypes import NumberRange
from tfrtool.examples.example import DType
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.features.arrow_tree import TableTree
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.ranking_columns import nested_columns
from tfrtool.features.schema_files import older_tree
from tfrtool.inspection.rows.batches import LABEL_NAME, class_names_of
from tfrtool.records.framing import Fault
from tfrtool.storage.remote_path import AnyPath

_OF_ONE_RUN = ("label", "native", "named_label")
"""Attributes of a content that a schema next to files doesn't have."""

WriteBatch = Callable[[Any], None]
"""Writes a record batch of the content's schema, or in a format of payloads a list of payloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What all records of a conversion have in common.

    Attributes:
        columns: the features.
        exact: whether a column ``_payload`` has the bytes of each payload, too.
        class_names: class names by the column with their numbers.
        class_files: the texts of all files with class names, by file name.
        images: the columns that hold one encoded image in each record.
        tfds: the content of features.json, if there is one.
        declared: whether the writer of the records gave their types; otherwise they are inferred.
        label: the column that is the label, by the metadata or the user.
        native: the columns of payloads before a cast, if there is one.
        named_label: the column whose class names become a column of tables, `LABEL_NAME`.
    """

    columns: Columns
    exact: bool = False
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    class_files: Mapping[str, str] = field(default_factory=dict)
    images: tuple[str, ...] = ()
    tfds: Mapping[str, Any] | None = None
    declared: bool = True
    label: str | None = None
    native: Columns | None = None
    named_label: str | None = None

    def with_names(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the class names of its labels."""
        if self.named_label is None:
            return batch
        labels = batch.column(self.named_label)
        names = class_names_of(labels, self.class_names[self.named_label])
        return batch.append_column(LABEL_NAME, names)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of its batches."""
        return self.columns.to_arrow(exact=self.exact)

    def to_text(self) -> str:
        """Return the content of a schema next to files."""
        return json.dumps(self.to_json(), indent=1) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        names = [one.name for one in fields(self) if one.name not in _OF_ONE_RUN]
        facts = {name: getattr(self, name) for name in names}
        return facts | {"columns": json.loads(self.schema.metadata[METADATA])}

    @classmethod
    def from_json(cls, data: Any) -> "Content":
        """Read what `to_json` returns; a ValueError or its like if it is something else."""
        return cls(
            columns=columns_of_json(data["columns"]),
            exact=bool(data["exact"]),
            class_names={
                name: tuple(map(str, names)) for name, names in data["class_names"].items()
            },
            class_files={name: str(text) for name, text in data.get("class_files", {}).items()},
            tfds=data["tfds"],
        )


def columns_of_json(data: Any) -> Columns:
    """Read the columns that a schema's metadata holds; the errors of `Columns.from_json`."""
    if any(one.get("logical") or one.get("shape") for one in data.get("columns", ())):
        return FeatureColumns.of(older_tree(data))
    return nested_columns(data) or Columns.from_json(data)


class ReadPosition(NamedTuple):
    """A position in a file from which its rows can be read."""

    row: int = 0  # the number of the row that starts there
    start: int = 0  # an offset, or the number of a row group
    record: int = 0  # the row's number if damaged records, which are not rows, are counted, too


_START = ReadPosition()


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive rows of a file."""

    path: AnyPath
    first: int = 0  # the number of the first row, from 0
    rows: int
    position: ReadPosition = _START  # the nearest before the first row


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Result of reading all of a file."""

    path: AnyPath
    rows: int
    bytes: int  # that the rows hold, approximately
    positions: Sequence[ReadPosition] = (ReadPosition(),)  # ascending
    content: Content
    fold: ColumnsFold = field(default_factory=ColumnsFold)  # of payloads
    numbers: Mapping[str, NumberRange] = field(default_factory=dict)  # by column
    faults: tuple[Fault, ...] = ()
    blank: tuple[str, ...] = ()  # columns without values; all of them without rows
    notes: tuple[str, ...] = ()  # what becomes of types that no feature has, a clause each
    sizes: Mapping[str, Collection[int]] = field(default_factory=dict)  # of lists in others
    table: TableTree | None = None  # the types of a table of other software

    def piece(self, first: int, rows: int) -> Piece:
        """Return some of its rows."""
        at = bisect.bisect(self.positions, first, key=itemgetter(0)) - 1
        return Piece(path=self.path, first=first, rows=rows, position=self.positions[at])


class Format(abc.ABC):
    """A format of files with records. It has no state but options, and is picklable."""

    spec: ClassVar[FormatSpec]  # its declaration in `FORMATS`
    widening: ClassVar[Sequence[DType]] = ()  # each type holds the values of those before it
    has_plain_nans: ClassVar[bool] = False  # whether every NaN is written as the same one
    has_null_structs: ClassVar[bool] = False  # whether null is not a struct of nulls

    @property
    def payloads(self) -> bool:
        """Whether rows are payloads, and not record batches."""
        return self.spec.holds == "payloads"

    def widest(self, dtypes: Collection[DType]) -> DType | None:
        """Return the type that holds values of all these types; `ValueError` if there is none."""
        if len(dtypes) > 1 and not set(dtypes) <= set(self.widening):
            raise ValueError(f"mixes {' and '.join(sorted(one.value for one in dtypes))}")
        return max(dtypes, key=[*self.widening, *dtypes].index, default=None)

    def losses(self, content: Content) -> list[str]:  # noqa: ARG002
        """Return what it can't keep, a clause each; `SchemaError` if it can't be written at all."""
        return []

    @abc.abstractmethod
    def scan(self, path: AnyPath) -> Scan:
        """Read a file through; an error if it isn't of this format."""

    @abc.abstractmethod
    def read(self, path: AnyPath, position: ReadPosition) -> Iterator[Any]:
        """Yield the rows from a position on as they are in the file, in parts of bounded size.

        Payloads are lists of records, whose numbers and offsets count from the position.
        """

    def read_back(self, path: AnyPath, content: Content) -> Iterator[Any]:  # noqa: ARG002
        """Yield the rows of a file that was just written with this content, as `read` does."""
        return self.read(path, ReadPosition())

    @abc.abstractmethod
    def decode(
        self, rows: Any, content: Content, path: AnyPath, first: int
    ) -> Iterator[pa.RecordBatch | Fault]:
        """Yield rows that were read as record batches of the content's schema.

        A payload that isn't such a row is a fault. A row of a table that the columns can't hold is
        a `SchemaError` with its number, counted from ``first``, and the column.
        """

    @abc.abstractmethod
    def write(self, path: Path, content: Content) -> AbstractContextManager[WriteBatch]:
        """Give a file to write; it is complete when the context ends without an exception."""

    def metadata(self, content: Content, info: DatasetInfo) -> Mapping[str, str]:  # noqa: ARG002
        """Return the texts of files next to the records by name, in order of appearance."""
        return {}


@contextlib.contextmanager
def naming_file(path: AnyPath) -> Iterator[None]:
    """Name the file in an error about types or values."""
    try:
        yield
    except SchemaError as error:
        error.path = error.path or str(path)
        raise


def format_of(name: str, *args: Any, **options: Any) -> Format:
    """Return a format by its name, made with these arguments of its class."""
    implementation: Callable[..., Format] = resolve_name(FORMATS[name].implementation)
    return implementation(*args, **options)
