"""Records for programs: as they are, as Arrow record batches, or decoded for a loader."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from tfrtool.errors import ShardError, UsageError, reason_of
from tfrtool.examples.dataset_files import find_files
from tfrtool.examples.example import Example, PayloadKind, Value, classify_payload, decode_example
from tfrtool.examples.roles import info_beside
from tfrtool.inspection.first_records import FirstRecords
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, LocatedFault, Record
from tfrtool.records.random_access import Records
from tfrtool.records.reader import read_shard
from tfrtool.records.shards import find_shards
from tfrtool.records.stream import Location, as_source, path_of
from tfrtool.storage.arguments import Paths, as_paths
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from tfrtool.examples.arrow.columns import Columns


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
        on_fault: called with each fault. Damaged records are skipped.
    """

    shards: tuple[AnyPath, ...]
    columns: "Columns"
    on_fault: Callable[[LocatedFault], None] = field(repr=False)

    @property
    def schema(self) -> "pa.Schema":
        """Arrow schema of every batch."""
        return self.columns.to_arrow()

    def __iter__(self) -> "Iterator[pa.RecordBatch]":
        from tfrtool.inspection.rows.batches import read_batches

        batches = read_batches(self.shards, self.columns, on_fault=self.on_fault)
        return (batch.table for batch in batches)

    def to_arrow(self) -> "pa.Table":
        """Return all rows as an Arrow table."""
        import pyarrow as pa

        return pa.Table.from_batches(self, self.schema)

    def to_pandas(self) -> "pd.DataFrame":
        """Return all rows as a pandas DataFrame; for other types use ``to_arrow().to_pandas()``."""
        return self.to_arrow().to_pandas()  # type: ignore[no-any-return]

    def to_polars(self) -> "pl.DataFrame":
        """Return all rows as a Polars DataFrame."""
        import polars as pl

        return pl.DataFrame(self.to_arrow())


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
        UsageError: unknown compression or ``on_fault``.
    """
    handle = on_fault_handler(on_fault)
    source = as_source(shard)
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
    on_fault: OnFault = "raise",
) -> RowBatches:
    """Read the features of one or more shards as Arrow record batches.

    A feature with at most one value in every record is a column of single values, null where a
    record has none; other features are lists. Strings are text if all of them are UTF-8 text.

    Args:
        shards: files, glob patterns and directories, one or several.
        columns: names of the features to decode, or "all". Only these are decoded. An extra pass
            over the shards determines types that fit all records.
        lists: whether a feature that some records don't have is a list in any case.
        on_fault: "raise" to stop at a damaged record or one that is not an Example, "skip" to skip
            these, or a function to call with each.

    Returns:
        Batches, which can also be loaded as one table or data frame.

    Raises:
        ShardError: a file can't be read.
        CorruptShardError: a record is damaged, and ``on_fault`` is "raise".
        UsageError: unknown column or ``on_fault``.
    """
    handle = on_fault_handler(on_fault)
    if hasattr(shards, "read"):
        raise UsageError("a stream can't be read as a table: shards are read twice")
    from tfrtool.inspection.rows.batches import infer_columns

    paths = find_shards(shards)
    found = infer_columns(paths, lists=lists)
    if columns != "all":
        found = found.select([columns] if isinstance(columns, str) else columns)
    return RowBatches(shards=paths, columns=found, on_fault=handle)


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


def _example(payload: bytes) -> Example:
    kind = classify_payload(payload)
    if kind not in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE, PayloadKind.EMPTY):
        raise ValueError("not a tf.train.Example or SequenceExample")
    return decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)


def _features(payload: bytes) -> dict[str, Any]:
    example = _example(payload)
    found = {name: _arrays(one.values) for name, one in example.features.items() if one.dtype}
    lists = example.feature_lists.items()
    return found | {name: [_arrays(step.values) for step in steps] for name, steps in lists}


def _arrays(values: Sequence[Value]) -> Any:
    """Return numbers as an array, of no dimension if it is one; bytes as they are."""
    import numpy as np

    single = len(values) == 1
    if values and isinstance(values[0], bytes):
        return values[0] if single else list(values)
    dtype = np.float32 if values and isinstance(values[0], float) else np.int64
    return np.array(values[0] if single else list(values), dtype)


def _pixels(values: Sequence[Value]) -> Any:
    import numpy as np

    from tfrtool.images.audit import opaque
    from tfrtool.images.decoder import RefusedImageError, open_image, quiet_pillow

    if len(values) != 1 or not isinstance(values[0], bytes):
        raise ValueError("not a single image")
    try:
        with quiet_pillow(), open_image(values[0]) as image:
            return np.array(opaque(image).convert("RGB"))
    except RefusedImageError as error:
        raise ValueError(f"image: {error.problem}") from error
    except Exception as error:  # decoders raise anything on hostile bytes
        raise ValueError(f"image can't be decoded: {reason_of(error)}") from error


def _image_and_label(payload: bytes, image: str, label: str) -> tuple[Any, int]:
    example = _example(payload)
    number = example.values(label)
    if len(number) != 1 or not isinstance(number[0], int):
        raise ValueError("label is not a single int64")
    return _pixels(example.values(image)), number[0]


@overload
def open_records(shards: Paths, *, split: str | None = None) -> Records[Record]: ...


@overload
def open_records(
    shards: Paths,
    *,
    split: str | None = None,
    decode: Literal["example", "image"],
    label_feature: str | None = None,
) -> Records[Any]: ...


def open_records(
    shards: Paths,
    *,
    split: str | None = None,
    decode: Literal["example", "image"] | None = None,
    label_feature: str | None = None,
) -> Records[Any]:
    """Open one or more uncompressed shards for random access.

    Args:
        shards: path of a shard, a dataset directory or a glob pattern; or several, in order.
        split: split to open, according to the names of the shards or their directories.
        decode: None for `Record` objects. "example" for a dictionary of the record's features:
            numbers as NumPy arrays (zero-dimensional for a single value), bytes unchanged. "image"
            for a pair of the image's pixels (uint8, height x width x RGB) and its label (int), as
            the default collate function of PyTorch accepts them if all images have the same size.
        label_feature: the label feature, for "image". None uses the one in the metadata, or one
            with a common name.

    Raises:
        ShardError: a file does not exist, can't be read or is compressed; or no image or label was
            detected in its first record.
        CorruptShardError: the framing of a shard is damaged.
        UsageError: unknown split or value of ``decode``; or a directory has several splits and
            ``split`` is None.
    """
    if decode not in (None, "example", "image"):
        expected = "one of example, image"
        raise UsageError(f"invalid decode {repr(decode)[:100]}", expected=expected)
    paths: dict[AnyPath, None] = {}
    known: set[str] = set()
    for location in as_paths(shards):
        files = find_files(location).splits.items()
        splits = {name: some.shards for name, some in files if some.shards}
        names = {name or "shards of no split" for name in splits}
        if split is None and location.is_dir() and len(splits) > 1:
            raise UsageError(
                "has several splits",
                path=location,
                found=", ".join(sorted(names)),
                hint=f"pass one of them, such as split={min(filter(None, splits))!r}",
            )
        known |= names
        for name in [*splits] if split is None else [split]:
            paths |= dict.fromkeys(splits.get(name, ()))
    if split is not None and not paths:
        raise UsageError("no such split", expected=", ".join(sorted(known)), found=repr(split))
    records = Records(tuple(paths))
    if decode == "example":
        return records.decoded_by(_features)
    if decode is None or not len(records):
        return records
    first, shard = FirstRecords(), records.shards[0]
    first.add(records.decoded_by(_example)[0], info_beside(shard.parent))
    image, label = first.roles.image, label_feature or first.roles.label
    if image is None or label is None:
        found = ", ".join(map(repr, list(first.features)[:10]))
        what = "can't choose the image and the label among the features"
        hint = None if image is None else "pass label_feature=NAME to choose the label"
        raise ShardError(what, path=shard, record=0, found=found, hint=hint)
    return records.decoded_by(partial(_image_and_label, image=image, label=label))
