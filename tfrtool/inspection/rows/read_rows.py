"""Records for programs: as they are, as Arrow record batches, or decoded for a loader."""

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from tfrtool.errors import ShardError, UsageError, reason_of
from tfrtool.examples.dataset_files import find_files
from tfrtool.examples.example import Example, PayloadKind, Value, classify_payload, decode_example
from tfrtool.examples.roles import find_roles, info_beside
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, LocatedFault, Record
from tfrtool.records.random_access import Records
from tfrtool.records.reader import read_shard
from tfrtool.records.shards import find_shards
from tfrtool.records.stream import Location
from tfrtool.storage.locations import Paths, as_paths
from tfrtool.storage.words import as_member

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from tfrtool.examples.arrow.columns import Columns


def _raise(found: LocatedFault) -> None:
    raise as_error(found.path, found.fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatches:
    """The records of shards as Arrow record batches; each iteration reads them anew.

    Memory is bounded by a batch when iterating; the other ways hold all rows.

    Attributes:
        shards: the files, in order.
        columns: what is decoded.
        on_fault: called with damage, which is left out.
    """

    shards: tuple[Path, ...]
    columns: "Columns"
    on_fault: Callable[[LocatedFault], None] = field(repr=False)

    @property
    def schema(self) -> "pa.Schema":
        """The schema of each batch."""
        return self.columns.to_arrow()

    def __iter__(self) -> "Iterator[pa.RecordBatch]":
        from tfrtool.inspection.rows.batches import read_batches

        batches = read_batches(self.shards, self.columns, on_fault=self.on_fault)
        return (batch.table for batch in batches)

    def to_arrow(self) -> "pa.Table":
        """Return all rows as a table."""
        import pyarrow as pa

        return pa.Table.from_batches(self, self.schema)

    def to_pandas(self, **options: Any) -> "pd.DataFrame":
        """Return all rows as a DataFrame of pandas; ``options`` are those of Arrow's table."""
        _check_installed("pandas")
        return self.to_arrow().to_pandas(**options)  # type: ignore[no-any-return]

    def to_polars(self) -> "pl.DataFrame":
        """Return all rows as a DataFrame of polars."""
        _check_installed("polars")
        import polars as pl

        return pl.DataFrame(self.to_arrow())


def _check_installed(library: str) -> None:
    try:
        import_module(library)
    except ImportError as error:
        what = f"to_{library} needs {library}, which is not installed"
        raise UsageError(what, hint=f"pip install {library}") from error


@overload
def read(
    shard: Location, *, compression: str | None = None, verify_payload: bool = True
) -> Iterator[Record | Fault]: ...


@overload
def read(
    shard: Paths,
    *,
    columns: str | Sequence[str],
    on_fault: Callable[[LocatedFault], None] = ...,
) -> RowBatches: ...


def read(
    shard: Location | Paths,
    *,
    compression: str | None = None,
    verify_payload: bool = True,
    columns: str | Sequence[str] | None = None,
    on_fault: Callable[[LocatedFault], None] = _raise,
) -> Iterator[Record | Fault] | RowBatches:
    """Read a shard from start to end, record by record; or shards in Arrow's record batches.

    Record by record, memory is bounded by the longest record (and 16 MiB after damage). A length
    is believed only after its CRC. After damage, reading goes on at the next place where the CRCs
    hold, so that a damaged record is one fault and costs no other record.

    Args:
        shard: a file, or a binary stream; with ``columns`` files, patterns and directories, one or
            several.
        compression: how it is compressed, "none", "gzip" or "zlib"; None finds out from its bytes.
        verify_payload: whether payload CRCs are checked. Length CRCs always are.
        columns: the names of the features to decode, or "all"; nothing else is decoded. The types
            are those that all records fit, so that the shards are read once for these.
        on_fault: called with damage and with records that are no Examples, where there are
            columns; they are left out. By default they are raised.

    Returns:
        Records and faults, in the order of the file; a shard without any record gives one fault.
        Or, with ``columns``, batches, which can also be had as one table or data frame.

    Raises:
        ShardError: the file can't be read.
        CorruptShardError: a record is damaged, where there are columns and no ``on_fault``.
        UsageError: there is no such compression or column.
    """
    if columns is None:
        return read_shard(shard, compression=compression, verify_payload=verify_payload)  # type: ignore[arg-type]
    if compression is not None or not verify_payload:
        raise UsageError("compression and verify_payload are for records, not for columns")
    if hasattr(shard, "read"):
        raise UsageError("columns need shards that can be read twice", found="a stream")
    from tfrtool.inspection.rows.batches import infer_columns

    shards = find_shards(shard)  # type: ignore[arg-type]
    found = infer_columns(shards)
    if columns != "all":
        found = found.select([columns] if isinstance(columns, str) else columns)
    return RowBatches(shards=shards, columns=found, on_fault=on_fault)


class Decode(enum.Enum):
    """What records are decoded to."""

    EXAMPLE = "example"
    IMAGE = "image"


def _example(payload: bytes) -> Example:
    kind = classify_payload(payload)
    if kind not in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE, PayloadKind.EMPTY):
        raise ValueError("no tf.train.Example or SequenceExample")
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
        raise ValueError("there is not one image")
    try:
        with quiet_pillow(), open_image(values[0]) as image:
            return np.array(opaque(image).convert("RGB"))
    except RefusedImageError as error:
        raise ValueError(f"the image: {error.problem}") from error
    except Exception as error:  # decoders raise anything on hostile bytes
        raise ValueError(f"the image can't be decoded: {reason_of(error)}") from error


def _image_and_label(payload: bytes, image: str, label: str) -> tuple[Any, int]:
    example = _example(payload)
    number = example.values(label)
    if len(number) != 1 or not isinstance(number[0], int):
        raise ValueError("the label is not one int64")
    return _pixels(example.values(image)), number[0]


@overload
def open_rows(shards: Paths, *, split: str | None = None) -> Records[Record]: ...


@overload
def open_rows(
    shards: Paths, *, split: str | None = None, decode: str, label_feature: str | None = None
) -> Records[Any]: ...


def open_rows(
    shards: Paths,
    *,
    split: str | None = None,
    decode: str | None = None,
    label_feature: str | None = None,
) -> Records[Any]:
    """Open one or more uncompressed shards for random access.

    Args:
        shards: a file, a dataset's directory, or a pattern; or several of them, in order.
        split: the split to open, as the names of the shards or their folders say it.
        decode: None for records. "example" for a dictionary of each record's features, numbers as
            arrays of numpy, of no dimension where there is one, and bytes as they are. "image" for
            the pixels of its image, uint8 in rows of RGB, and its label as an int, as PyTorch's
            default collate takes them where all images have one size.
        label_feature: the feature that is the label, for "image"; None takes the one that the
            metadata says, or that has a usual name.

    Raises:
        ShardError: there is no such file, or it can't be read, or is compressed; or no image and
            label can be told in its first record.
        CorruptShardError: the framing of a shard is damaged.
        UsageError: there is no such split or way to decode; or a directory has several splits, and
            none is named.
    """
    how = None if decode is None else as_member(Decode, decode, "way to decode")
    paths: dict[Path, None] = {}
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
                hint=f"open one of them: split={min(filter(None, splits))!r}",
            )
        known |= names
        for name in [*splits] if split is None else [split]:
            paths |= dict.fromkeys(splits.get(name, ()))
    if split is not None and not paths:
        raise UsageError(
            "there is no such split", expected=", ".join(sorted(known)), found=repr(split)
        )
    records = Records(tuple(paths))
    if how is Decode.EXAMPLE:
        return records.decoded_by(_features)
    if how is None or not len(records):
        return records
    features, shard = records.decoded_by(_example)[0].features, records.shards[0]
    roles = find_roles(features, info_beside(shard.parent))
    image, label = roles.image, label_feature or roles.label
    if image is None or label is None:
        found = ", ".join(map(repr, list(features)[:10]))
        what = "no feature is the one encoded image, or the one label"
        hint = None if image is None else "label_feature=NAME says which feature is the label"
        raise ShardError(what, path=shard, record=0, found=found, hint=hint)
    return records.decoded_by(partial(_image_and_label, image=image, label=label))
