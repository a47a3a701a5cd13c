"""Records for programs: as they are, or as Arrow record batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tfrtool.errors import UsageError
from tfrtool.features.type_spelling import check_types
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, LocatedFault, Record
from tfrtool.records.reader import read_shard
from tfrtool.records.shards import find_shards
from tfrtool.records.stream import Location, as_source, path_of
from tfrtool.storage.arguments import Paths
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from tfrtool.examples.arrow.columns import Columns
    from tfrtool.features.explode import ExplodedTable
    from tfrtool.inspection.rows.batches import Batch
    from tfrtool.inspection.rows.extra_columns import ExtraColumns


def _raise(found: LocatedFault) -> None:
    raise as_error(found.path, found.fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatches:
    """Records of shards as Arrow record batches.

    Iterating yields one batch at a time and reads the shards again each time. `to_arrow`,
    `to_pandas` and `to_polars` load all rows into memory.

    Attributes:
        shards: paths of the shards, in order.
        columns: columns to decode.
        extra: columns that no record stores; None without any.
        exploded: how records become a row for each item of a list; None for a row for each record.
        on_fault: called with each fault. Damaged records are skipped.
    """

    shards: tuple[AnyPath, ...]
    columns: "Columns"
    on_fault: Callable[[LocatedFault], None] = field(repr=False)
    extra: "ExtraColumns | None" = None
    exploded: "ExplodedTable | None" = field(default=None, repr=False)

    @property
    def schema(self) -> "pa.Schema":
        """Arrow schema of every batch."""
        if self.exploded is not None:
            return self.exploded.schema
        schema = self.columns.to_arrow()
        return schema if self.extra is None else self.extra.schema(schema)

    def __iter__(self) -> "Iterator[pa.RecordBatch]":
        from tfrtool.inspection.rows.batches import read_batches

        batches = read_batches(self.shards, self.columns, on_fault=self.on_fault)
        if self.extra is not None:
            batches = _extended(batches, self.extra)
        if self.exploded is None:
            return (batch.table for batch in batches)
        from tfrtool.inspection.rows.exploded_rows import Exploder

        return Exploder(self.exploded, self.on_fault).numbered(batches)

    def to_arrow(self) -> "pa.Table":
        """Return all rows as an Arrow table."""
        import pyarrow as pa

        return pa.Table.from_batches(self, self.schema)

    def to_pandas(self) -> "pd.DataFrame":
        """Return all rows as a pandas DataFrame; for other types use ``to_arrow().to_pandas()``."""
        _require("pandas")
        return self.to_arrow().to_pandas()  # type: ignore[no-any-return]

    def to_polars(self) -> "pl.DataFrame":
        """Return all rows as a Polars DataFrame."""
        _require("polars")
        import polars as pl

        return pl.DataFrame(self.to_arrow())


def _require(library: str) -> None:
    """Raise a `UsageError` if a library of data frames is not installed."""
    try:
        import_module(library)
    except ImportError as error:
        hint = f"run pip install {library}"
        raise UsageError(
            f"data frames require {library}, which is not installed", hint=hint
        ) from error


def _extended(batches: "Iterator[Batch]", extra: "ExtraColumns") -> "Iterator[Batch]":
    """Yield batches whose tables have more columns."""
    for batch in batches:
        indexes = [record.index for record in batch.records]
        yield batch._replace(table=extra.add_to(batch.table, batch.path, indexes))


OnFault = Literal["raise", "skip"] | Callable[[LocatedFault], None]
"""What to do about damage: raise it, skip it, or skip it and call a function."""


def on_fault_handler(on_fault: OnFault) -> Callable[[LocatedFault], None]:
    """Return the function that gets faults; `UsageError` if it is not one of the choices."""
    if on_fault == "skip":
        return lambda _: None
    if on_fault == "raise":
        return _raise
    if not callable(on_fault):
        what = f"invalid on_fault {repr(on_fault)[:100]}"
        raise UsageError(what, expected="'raise', 'skip' or a function")
    return on_fault


def read_records(
    shard: Location,
    *,
    on_fault: OnFault = "raise",
    compression: str | None = None,
    verify_payload: bool = True,
) -> Iterator[Record]:
    """Read a shard record by record, in file order.

    Memory is bounded by the longest record (and 16 MiB after damage). A length is used only after
    its CRC has been checked. After damage, reading continues at the next position where the CRCs
    match, so one damaged record is one fault and no other record is lost.

    Args:
        shard: path of a shard, or a binary stream.
        on_fault: "raise" to stop at damage, "skip" to skip it, or a function to call with each
            fault. A shard without any record is one fault.
        compression: "none", "gzip" or "zlib"; None detects it from the content.
        verify_payload: whether to check payload CRCs. Length CRCs are always checked.

    Raises:
        ShardError: the file can't be read.
        CorruptShardError: the shard is damaged, and ``on_fault`` is "raise".
        UsageError: unknown compression or ``on_fault``, or the path is a directory.
    """
    handle = on_fault_handler(on_fault)
    source = as_source(shard)
    if isinstance(source, Path) and source.is_dir():
        hint = "use tfrtool.open_records for the records of a dataset"
        raise UsageError("is a directory: read_records reads one shard", path=source, hint=hint)
    items = read_shard(source, compression=compression, verify_payload=verify_payload)
    return _intact(items, path_of(source), handle)


def _intact(
    items: Iterator[Record | Fault], path: AnyPath, handle: Callable[[LocatedFault], None]
) -> Iterator[Record]:
    for item in items:
        if isinstance(item, Record):
            yield item
        else:
            handle(LocatedFault(path=path, fault=item))


def read_table(
    shards: Paths,
    *,
    columns: str | Sequence[str] = "all",
    lists: bool = False,
    as_stored: bool = False,
    types: Mapping[str, str] | None = None,
    explode: str | Sequence[str] | None = None,
    on_fault: OnFault = "raise",
) -> RowBatches:
    """Read the features of one or more shards as Arrow record batches, a table or a data frame.

    Columns have the types that features.json says, where there is one: structs, lists of structs,
    tensors, booleans. Otherwise, a feature with at most one value in every record is a column of
    single values, null where a record has none; other features are lists. Strings are text if all
    of them are UTF-8 text.

    A feature list of SequenceExamples is a list of values if every step has exactly one. The lists
    of Examples of TensorFlow Ranking have the columns ``context`` and ``examples``. Folders such as
    ``dt=2024-01-01`` are columns.

    Args:
        shards: files, glob patterns and directories, one or several.
        columns: names of the features to decode, or "all". Only these are decoded. Without a
            features.json, an extra pass over the shards determines types that fit all records.
            "_index" is the number of the record among all.
        lists: whether a feature that some records don't have is a list in any case, and a step of
            a feature list, too, where types are inferred.
        as_stored: whether columns are the features as records store them, flat and of three types.
        types: types of features by name, such as ``{"image": "raw:uint8[@height,@width,3]"}``.
        explode: name of a list, such as "steps", to have a row for each of its items: the columns
            are the other features of the record, repeated, the fields of the item, ``_record``, the
            number of the record among all that are read, and ``_item``, from 0. Several lists are
            taken apart side by side. ``columns`` can be fields of the item, such as "steps/action".
            Records without items have no row.
        on_fault: "raise" to stop at a damaged record or one that is not an Example, "skip" to skip
            these, or a function to call with each.

    Raises:
        ShardError: a file can't be read.
        CorruptShardError: a record is damaged, and ``on_fault`` is "raise".
        SchemaError: most records are not what features.json says.
        UsageError: unknown column or ``on_fault``, or ``explode`` is not a list.
    """
    handle = on_fault_handler(on_fault)
    if hasattr(shards, "read"):
        raise UsageError("a stream can't be read as a table: shards are read twice")
    from tfrtool.inspection.rows.batches import infer_columns

    paths = find_shards(shards)
    check_types(types, as_stored=as_stored)
    found = infer_columns(paths, lists=lists, as_stored=as_stored, types=types)
    select = None if columns == "all" else [columns] if isinstance(columns, str) else columns
    fields = [explode] if isinstance(explode, str) else explode
    return _selected(RowBatches(shards=paths, columns=found, on_fault=handle), select, fields)


def _selected(
    rows: RowBatches, select: Sequence[str] | None, explode: Sequence[str] | None
) -> RowBatches:
    """Return rows with only the selected columns, and those that no record stores."""
    from tfrtool.inspection.rows.extra_columns import select_extra

    select, extra = select_extra(rows.shards, rows.columns.to_arrow().names, select)
    rows = replace(rows, extra=extra)
    if explode is not None:
        from tfrtool.inspection.rows.exploded_rows import RECORD, explode_columns

        more = [*extra.fields, RECORD]
        columns, exploded = explode_columns(rows.columns, explode, select, more)
        return replace(rows, columns=columns, exploded=exploded)
    return rows if select is None else replace(rows, columns=rows.columns.select(select))


def read(
    shard: Any,
    *,
    compression: str | None = None,
    verify_payload: bool = True,
    columns: str | Sequence[str] | None = None,
    on_fault: OnFault = "raise",
) -> Any:
    """Deprecated: use `read_records`, or `read_table` for ``columns``.

    Without ``columns``, faults are yielded between the records.
    """
    if columns is None:
        return read_shard(shard, compression=compression, verify_payload=verify_payload)
    return read_table(shard, columns=columns, on_fault=on_fault)
