"""What a format is, and which there are; files are told by their names, or else by their bytes."""

import abc
import bisect
import contextlib
import importlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrtool.engines.engine import Workers
from tfrtool.engines.pool import map_shards
from tfrtool.errors import SourceError, UsageError, WriteError, os_errors_as
from tfrtool.examples.arrow.columns import METADATA, Columns
from tfrtool.examples.arrow.decode_batch import decode_batch
from tfrtool.examples.arrow.foreign import flat_values
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.dtypes import NumberRange
from tfrtool.examples.example import DType
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.records.framing import Fault, LocatedFault
from tfrtool.records.shard_sets import natural_order
from tfrtool.records.shards import matching_files
from tfrtool.records.tally import Tally, payload_key
from tfrtool.sources.tables.table_columns import check_not_saved_to_disk
from tfrtool.storage.commit import check_not_publishing, current_folder
from tfrtool.storage.opening import open_regular
from tfrtool.storage.progress import OnCounts
from tfrtool.writing.job_report import Faults

_MODULES = {
    "tfrecord": "payload_formats:TfrecordFormat",
    "parquet": "parquet:ParquetFormat",
    "hf": "parquet:HuggingFaceFormat",
    "jsonl": "text_rows:JsonLinesFormat",
    "csv": "text_rows:CsvFormat",
    "arrayrecord": "payload_formats:ArrayRecordFormat",
    "webdataset": "web_dataset:WebDatasetFormat",
}
"""In the order in which they are asked whether a file is theirs."""

NAMES = tuple(_MODULES)
_HEAD = 4096

_PACKED = "compressed, and not a TFRecord file", "decompress it first"
_ARROW = "Arrow files can't be read", "save it as Parquet first"
_UNREADABLE = {
    **dict.fromkeys((".gz", ".bz2", ".xz", ".zst", ".zip"), _PACKED),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), _ARROW),
    ".json": ("one JSON document, not JSON Lines", "write one object per line"),
}
"""Why files with such names are not read, and what to do."""

Put = Callable[[Any], None]
"""Writes a record batch of the content's schema to a file; in a format of payloads a list of them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What all records of a conversion hold, beside their values.

    Attributes:
        columns: the features.
        exact: whether a column ``_payload`` has the bytes of each payload, too.
        class_names: by the name of a column with class numbers.
        class_files: the texts of all files with class names, by their names, as others wrote them.
        images: names of the columns that hold one encoded image in each record.
        tfds: the contents of features.json, where there is one.
        declared: whether whoever wrote the records says their types; else these were inferred.
        changes: by column the largest relative change of a number that becomes float32.
        label: the column that is the label, by the metadata or the user.
    """

    columns: Columns
    exact: bool = False
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    class_files: Mapping[str, str] = field(default_factory=dict)
    images: tuple[str, ...] = ()
    tfds: Mapping[str, Any] | None = None
    declared: bool = True
    changes: Mapping[str, float] = field(default_factory=dict)
    label: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of its batches."""
        return self.columns.to_arrow(exact=self.exact)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        facts = {one.name: getattr(self, one.name) for one in fields(self)}
        del facts["changes"], facts["label"]
        return facts | {"columns": json.loads(self.schema.metadata[METADATA])}

    @classmethod
    def from_json(cls, data: Any) -> "Content":
        """Read what `to_json` returns; a ValueError or its like if it is something else."""
        return cls(
            columns=Columns.from_json(data["columns"]),
            exact=bool(data["exact"]),
            class_names={name: tuple(map(str, some)) for name, some in data["class_names"].items()},
            class_files={name: str(text) for name, text in data.get("class_files", {}).items()},
            tfds=data["tfds"],
        )


class Mark(NamedTuple):
    """A row of a file, from which on it can be read."""

    row: int = 0
    start: int = 0  # an offset or a row group's number, as the format has it
    record: int = 0  # the row's number if damaged records, which are no rows, are counted, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows of one file that follow one another."""

    path: Path
    first: int = 0  # the number of its first row in the file, from 0
    rows: int
    mark: Mark  # the nearest before that row


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A file, as a look through all of it found it."""

    path: Path
    rows: int
    bytes: int  # of what its rows hold, about
    marks: Sequence[Mark] = (Mark(),)  # ascending
    content: Content
    fold: ColumnsFold = field(default_factory=ColumnsFold)  # of payloads
    numbers: Mapping[str, NumberRange] = field(default_factory=dict)  # by column
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()  # what becomes of types that no feature has, a clause each

    def piece(self, first: int, rows: int) -> Piece:
        """Return some of its rows."""
        mark = self.marks[bisect.bisect(self.marks, first, key=itemgetter(0)) - 1]
        return Piece(path=self.path, first=first, rows=rows, mark=mark)


class Format(abc.ABC):
    """A format of files with records. It has no state, and is picklable."""

    name: ClassVar[str]
    own_names: ClassVar[re.Pattern[str]]  # is found in the names of its files
    magic: ClassVar[bytes] = b""  # what they start with; nothing where that tells nothing
    file_name: ClassVar[str]  # of a file to write, of dataset, split, index and count
    payloads: ClassVar[bool] = False  # whether its rows are payloads, and no record batches
    widening: ClassVar[Sequence[DType]] = ()  # types of which each holds values of those before

    def starts(self, head: bytes) -> bool:
        """Return whether the first bytes of a file are those of this format."""
        return bool(self.magic) and head.startswith(self.magic)

    def widest(self, dtypes: Collection[DType]) -> DType | None:
        """Return the type that holds values of all of some; `ValueError` if there is none."""
        if len(dtypes) > 1 and not set(dtypes) <= set(self.widening):
            raise ValueError(f"mixes {' and '.join(sorted(one.value for one in dtypes))}")
        return max(dtypes, key=[*self.widening, *dtypes].index, default=None)

    def losses(self, content: Content) -> list[str]:  # noqa: ARG002
        """Return what it can't keep, a clause each; `SchemaError` if it can't be written at all."""
        return []

    @abc.abstractmethod
    def scan(self, path: Path) -> Scan:
        """Look through a file; an error if it is none of this format."""

    def scans(
        self,
        paths: Sequence[Path],
        workers: Workers,
        worth: int,
        on_counts: OnCounts | None = None,
    ) -> Iterator[Scan]:
        """Look through files, on several workers; a process has ``worth`` bytes to do."""
        return map_shards(self.scan, paths, workers, worth, on_counts=on_counts)

    @abc.abstractmethod
    def read(self, path: Path, mark: Mark) -> Iterator[Any]:
        """Yield its rows from a mark on as they are, in sequences of bounded size.

        Those of payloads are lists of records, whose places are counted from the mark on.
        """

    def read_back(self, path: Path) -> Iterator[Any]:
        """Yield the rows of a file that was just written, as `read` does."""
        return self.read(path, Mark())

    @abc.abstractmethod
    def decode(
        self, rows: Any, content: Content, path: Path, first: int
    ) -> Iterator[pa.RecordBatch | Fault]:
        """Yield rows that were read as record batches of the content's schema.

        What is no such payload is a fault. A row of a table that the columns can't hold is a
        `SchemaError`, which names it and the column; ``first`` is the first row's number.
        """

    def doubles(
        self,
        rows: Any,  # noqa: ARG002
        content: Content,  # noqa: ARG002
    ) -> dict[str, tuple[NDArray[np.float64], NDArray[np.int64]]]:
        """Return the doubles of rows that were read, as they are in the file, with their rows.

        By the names of the content's columns of numbers; without nulls. Rows are counted from 0.
        """
        return {}

    @abc.abstractmethod
    def write(self, path: Path, content: Content) -> AbstractContextManager[Put]:
        """Give a file to write; it is whole when the context ends without an exception."""

    def beside(self, content: Content, info: DatasetInfo) -> Mapping[str, str]:  # noqa: ARG002
        """Return the texts of files beside the records, by name, in the order of appearance."""
        return {}


def read_rows(
    form: Format,
    piece: Piece,
    content: Content,
    read: Tally,
    faults: Faults,
    *,
    verify: bool = False,
    own: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield rows of a file as record batches of the content's schema.

    All rows count as ``read``; payloads that are no such rows are left out, and are ``faults``.
    To ``verify`` them, numbers are compared with those of the file. A file of our ``own`` was just
    written, and can be trusted.
    """
    mark, row, end = piece.mark, piece.mark.row, piece.first + piece.rows
    parts = form.read_back(piece.path) if own else form.read(piece.path, mark)
    while row < end:
        if (part := next(parts, None)) is None:
            raise SourceError("changed while it was being read", path=piece.path)
        first = max(piece.first, row)
        rows = part[first - row : end - row]
        row += len(part)
        batches = form.decode(rows, content, piece.path, first)
        if form.payloads:
            read.add_keys([payload_key(one.payload_crc, len(one.payload)) for one in rows])
        else:
            read.records += len(rows)
            if not content.schema.names:  # of records without any feature
                batches = iter([decode_batch([b""] * len(rows), content.columns)])
        for one in batches:
            if isinstance(one, Fault):
                offset, record = mark.start + one.offset, mark.record + (one.record or 0)
                fault = replace(one, offset=offset, record=record)
                faults.add(LocatedFault(path=piece.path, fault=fault))
            else:
                for name, (values, places) in form.doubles(rows, content).items() if verify else ():
                    where = _first_change(
                        values, places, one.column(name), content.changes.get(name)
                    )
                    if where is not None:
                        what = f"column {name!r}: the converted values differ from the source"
                        raise WriteError(what, path=piece.path, record=first + where)
                yield one


def _first_change(
    values: NDArray[np.float64],
    rows: NDArray[np.int64],
    column: pa.Array,
    change: float | None,
) -> int | None:
    """Return the first row where a column differs from doubles by more than a relative change."""
    found, places = flat_values(column)
    if len(found) != len(values) or (places != rows).any():
        return int(next((a for a, b in zip(rows, places, strict=False) if a != b), 0))
    with np.errstate(all="ignore"):
        if found.dtype == np.int64:
            same = (values == np.trunc(values)) & (values.astype(np.int64) == found)
        else:
            most = (change or 0.0) * (1 + 1e-9) * np.abs(values)
            same = (values == found) | (np.isnan(values) & np.isnan(found))
            same |= np.abs(found.astype(np.float64) - values) <= most
    wrong = np.flatnonzero(~same)
    return int(rows[wrong[0]]) if len(wrong) else None


def format_of(name: str) -> Format:
    """Return a format by its name; `UsageError` lists those that there are."""
    if name not in _MODULES:
        raise UsageError(f"invalid format {name!r}", expected=f"one of {', '.join(NAMES)}")
    module, _, kind = _MODULES[name].partition(":")
    found: type[Format] = getattr(importlib.import_module(f"{__package__}.{module}"), kind)
    return found()


def look_for(path: Path, name: str | None) -> Sequence[Path]:
    """Return the files that a pattern means, or a file; or those of one format in a directory.

    These are in it or in folders in it, by their names. None are where shards are to be found.
    """
    if not path.is_dir():
        return [path] if path.exists() else matching_files(str(path)) or [path]
    check_not_saved_to_disk(path)
    check_not_publishing(path)
    inside: list[Path] = []
    for one in current_folder(path).iterdir():
        if one.name.startswith("."):  # such as the folder of a write that has not ended
            continue
        with contextlib.suppress(OSError):
            inside += [one] if one.is_file() else [p for p in one.iterdir() if p.is_file()]
    for form in map(format_of, NAMES if name is None else (name,)):
        own = [p for p in inside if form.own_names.search(p.name) and not p.name.startswith(".")]
        if own:
            own.sort(key=lambda one: natural_order(str(one)))
            return own if form.name != "tfrecord" else ()
    odd = [one for one in inside if one.name.lower().endswith((*_UNREADABLE,))]
    return odd[:1]


def format_of_files(paths: Sequence[Path]) -> Format:
    """Return the format that files have; `UsageError` if they have several."""
    formats = {_format_of_file(path): path for path in reversed(paths)}
    if len(formats) > 1:
        raise UsageError(
            "the files have different formats",
            found=" and ".join(f"{one} ({path.name})" for one, path in sorted(formats.items())[:2]),
            hint="use --from to read those of one format",
        )
    return format_of(next(iter(formats)))


def _format_of_file(path: Path) -> str:
    with os_errors_as(SourceError, path), open_regular(path) as file:
        head = file.read(_HEAD)
    forms = [format_of(name) for name in NAMES]
    told = [one.name for one in forms if one.own_names.search(path.name)]
    told += [one.name for one in forms if one.starts(head)]
    lines = head.split(b"\n") if path.suffix.lower() == ".json" else []
    with contextlib.suppress(ValueError, RecursionError):
        told += ["jsonl"] if lines and isinstance(json.loads(lines[0]), dict) else []
    if told:
        return told[0]
    what, hint = next(
        (why for suffix, why in _UNREADABLE.items() if path.name.lower().endswith(suffix)),
        ("unknown format", "use --from NAME to choose one"),
    )
    raise SourceError(what, path=path, expected=f"one of {', '.join(NAMES)}", hint=hint)
