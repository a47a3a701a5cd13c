"""Parquet, and folders of it for Hugging Face's ``datasets``."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tfrtool.convert.formats.registry import (
    BATCH_BYTES,
    BATCH_ROWS,
    Content,
    Format,
    OnBad,
    Piece,
    Scan,
    fitted,
    good_rows,
)
from tfrtool.errors import SchemaError, SourceError
from tfrtool.examples.arrow.columns import EXACT, Columns, Form
from tfrtool.examples.arrow.decode_batch import decode_batch
from tfrtool.examples.arrow.foreign import conform
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.storage.opening import open_regular

_GROUP_BYTES = 64 * 1024 * 1024
"""Of a row group in memory: what is held to write one, and what other readers take at once."""

_PAGE_BYTES = 1024 * 1024
"""That are read at a time of each column, and not all of a row group."""

_HUGGING_FACE, _TFDS = b"huggingface", b"tfds"
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_NOTHING = pa.field("_record", pa.int64())
"""The column of records without any feature, whose number must be kept."""

_UNFOLDED_BYTES = 512 * 1024 * 1024
"""Of a batch, if all its rows had the longest value of a dictionary."""

_PATHS = ("{}/filename", "image/filename", "filename")
"""Of the column that has an image's path, where one of them is there."""


class ParquetFormat(Format):
    """Files with zstd and row groups; an image is a struct of its bytes and its path."""

    name = "parquet"
    endings = (".parquet",)

    def starts(self, head: bytes) -> bool:
        """Return whether bytes start as Parquet does."""
        return head.startswith(b"PAR1")

    def file_name(self, dataset: str, split: str, index: int, count: int) -> str:  # noqa: ARG002
        """Return a name of which ``datasets`` knows the split."""
        return f"{split}-{index:05d}-of-{count:05d}.parquet"

    def scan(self, path: Path, *, columns: bool) -> Scan:  # noqa: ARG002
        """Read the schema and where the row groups are."""
        with _opened(path) as parquet:
            content, _, notes = _content(parquet)
            marks, rows, size = [], 0, 0
            for number in range(parquet.num_row_groups):
                group = parquet.metadata.row_group(number)
                marks.append((rows, number))
                rows, size = rows + group.num_rows, size + group.total_byte_size
        return Scan(
            path=path,
            rows=rows,
            bytes=size,
            marks=marks or [(0, 0)],
            content=content,
            notes=notes,
        )

    def read(
        self, piece: Piece, content: Content, on_bad: OnBad | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows as batches."""
        with _opened(piece.path) as parquet:
            _, own, _ = _content(parquet)
            first, end = piece.first - piece.skip, piece.first + piece.rows
            groups = range(piece.start, parquet.num_row_groups)
            rows = _batch_rows(parquet.metadata, groups)
            for batch in parquet.iter_batches(rows, row_groups=groups, use_threads=False):
                start, stop = max(first, piece.first), min(first + batch.num_rows, end)
                if start < stop:
                    make = partial(_conformed, batch, own, content, first)
                    yield from good_rows(make, start, stop, on_bad)
                first += batch.num_rows
                if first >= end:
                    return
        raise SourceError("was changed while it was read", path=piece.path)

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> "Iterator[_ParquetSink]":
        """Give a file to write."""
        images = [f"{name}.bytes" for name in content.images]
        fields = [
            one.with_type(_IMAGE) if one.name in content.images else one for one in content.schema
        ] or [_NOTHING]
        features: dict[str, Any] = {name: {"_type": "Image"} for name in content.images}
        for name, names in content.class_names.items():
            features[name] = {"_type": "ClassLabel", "names": names}
        metadata = {
            **content.schema.metadata,
            _HUGGING_FACE: json.dumps({"info": {"features": features}}),
            _TFDS: json.dumps(content.tfds),
        }
        schema = pa.schema(fields, metadata)
        draft = pa.BufferOutputStream()
        pq.ParquetWriter(draft, schema).close()
        leaves = [one.path for one in pq.ParquetFile(pa.BufferReader(draft.getvalue())).schema]
        others = [leaf for leaf in leaves if leaf not in images]
        compression = {leaf: "none" if leaf in images else "zstd" for leaf in leaves}
        with pq.ParquetWriter(
            path, schema, compression=compression, use_dictionary=others, write_statistics=others
        ) as writer:
            sink = _ParquetSink(writer, schema, content)
            yield sink
            sink.flush()


class HuggingFaceFormat(ParquetFormat):
    """A folder of Parquet files with a dataset card, which ``datasets.load_dataset`` opens."""

    name = "hf"

    def beside(self, content: Content, info: DatasetInfo) -> Mapping[str, str]:
        """Return the card."""
        names = [split.name for split in info.splits]
        files = "".join(f"  - split: {name}\n    path: {name}-*.parquet\n" for name in names)
        head = f"---\nconfigs:\n- config_name: default\n  data_files:\n{files}---\n"
        counts = "".join(f"| {split.name} | {split.records:,} |\n" for split in info.splits)
        columns = "".join(f"| `{one.name}` | {one.type} |\n" for one in content.schema)
        tables = f"\n| split | rows |\n|---|---|\n{counts}\n| column | type |\n|---|---|\n{columns}"
        return {"README.md": f"{head}\n# {info.name}\n{tables}"}


class _ParquetSink:
    def __init__(self, writer: pq.ParquetWriter, schema: pa.Schema, content: Content) -> None:
        self._writer, self._schema, self._content = writer, schema, content
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        for name in self._content.images:
            paths = pa.nulls(rows.num_rows, pa.string())
            for known in (place.format(name) for place in _PATHS):
                if known in rows.schema.names and pa.types.is_binary(rows.column(known).type):
                    with contextlib.suppress(pa.ArrowInvalid):  # bytes that are no text
                        paths = rows.column(known).cast(pa.string())
                        break
            image = pa.StructArray.from_arrays([rows.column(name), paths], fields=list(_IMAGE))
            rows = rows.set_column(rows.schema.get_field_index(name), name, image)
        arrays = rows.columns or [pa.nulls(rows.num_rows, _NOTHING.type)]
        self._held.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._bytes += rows.nbytes
        if self._bytes >= _GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._held:
            table = pa.Table.from_batches(self._held)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._held, self._bytes = [], 0


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Give a file that is read; what is wrong with it is a `SourceError`."""
    try:
        with (
            open_regular(path) as file,
            pq.ParquetFile(file, buffer_size=_PAGE_BYTES, pre_buffer=False) as parquet,
        ):
            yield parquet
    except (pa.ArrowException, ValueError, LookupError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise SourceError("no Parquet, cut or damaged", path=path, found=reason) from error


def _batch_rows(metadata: pq.FileMetaData, groups: range) -> int:
    """Return how many rows make a batch of bounded size, whatever they say that they hold."""
    rows = BATCH_ROWS
    for group in map(metadata.row_group, groups):
        rows = min(rows, BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1))
        for one in map(group.column, range(group.num_columns)):
            if one.has_dictionary_page:  # all rows may have its longest value
                rows = min(rows, _UNFOLDED_BYTES // max(one.total_uncompressed_size, 1))
    return max(rows, 1)


def _conformed(
    batch: pa.RecordBatch, own: Columns, content: Content, offset: int, start: int, stop: int
) -> pa.RecordBatch:
    """Return rows of a file, by their numbers in it, of a batch that begins at one of them."""
    if not content.schema.names:
        return decode_batch([b""] * (stop - start), content.columns)
    rows = _without_structs(batch.slice(start - offset, stop - start), start)
    return fitted(conform(rows, own, start), own, content)


def _is_image(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and {one.name for one in kind} == {"bytes", "path"}


def _without_structs(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Return a batch with the bytes of images, and their paths beside them, in place of structs."""
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in [one.name for one in batch.schema if _is_image(one.type)]:
        image = arrays[name]
        held = dict(zip([one.name for one in image.type], image.flatten(), strict=True))
        lost = pc.and_(held["bytes"].is_null(), held["path"].is_valid())
        if (row := pc.index(lost, True).as_py()) >= 0:
            what = f"column {name!r}, row {first + row}: the path of an image without its bytes"
            raise SchemaError(what)
        arrays[name] = held["bytes"]
        arrays.setdefault(_PATHS[0].format(name), held["path"])
    return pa.RecordBatch.from_arrays(
        list(arrays.values()), names=list(arrays), metadata=batch.schema.metadata
    )


def _content(parquet: pq.ParquetFile) -> tuple[Content, Columns, tuple[str, ...]]:
    """Return what a file holds, its columns by their types alone, and notes on other types.

    A column of single values with nulls becomes one of lists.
    """
    schema = parquet.schema_arrow
    images = tuple(one.name for one in schema if _is_image(one.type))
    fields = [one.with_type(pa.binary()) if one.name in images else one for one in schema]
    notes: tuple[str, ...] = ()
    found = Columns.from_arrow(pa.schema(fields, schema.metadata))
    if found is not None:
        columns = widened = found
    else:
        paths = [_PATHS[0].format(name) for name in images]
        fields += [pa.field(name, pa.string()) for name in paths if name not in schema.names]
        columns, notes = Columns.foreign(pa.schema(fields, schema.metadata))
        nulls = _names_with_nulls(parquet, images)
        images = tuple(name for name in images if name not in nulls)
        some = [
            replace(one, form=Form.LIST) if one.form is Form.SCALAR and name in nulls else one
            for name, one in zip(columns.names, columns.columns, strict=True)
        ]
        widened = replace(columns, columns=tuple(some))
    names: dict[str, tuple[str, ...]] = {}
    features = _json(schema, _HUGGING_FACE)
    with contextlib.suppress(KeyError, TypeError, AttributeError):
        for name, one in features["info"]["features"].items():
            if one["_type"] == "ClassLabel" and name in schema.names:
                names[name] = tuple(map(str, one["names"]))
    content = Content(
        columns=widened,
        exact=EXACT in schema.names,
        class_names=names,
        images=images,
        tfds=_json(schema, _TFDS),
    )
    return content, columns, notes


def _names_with_nulls(parquet: pq.ParquetFile, images: Sequence[str]) -> set[str]:
    """Return the names of columns of single values that have a null, or may have one."""
    places = {f"{name}.bytes": name for name in images}
    places |= {f"{name}.path": _PATHS[0].format(name) for name in images}
    found = set()
    for number in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(number)
        for one in map(group.column, range(group.num_columns)):
            known = one.statistics is not None and one.statistics.has_null_count
            if not known or one.statistics.null_count:
                found.add(places.get(one.path_in_schema, one.path_in_schema))
    return found


def _json(schema: pa.Schema, key: bytes) -> Any:
    with contextlib.suppress(KeyError, ValueError, RecursionError):
        return json.loads((schema.metadata or {})[key])
    return None
