"""Parquet, folders of it for Hugging Face's ``datasets``, and Arrow files."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tfrtool.convert.formats.format_specs import FORMATS
from tfrtool.convert.formats.record_format import (
    Content,
    Format,
    ReadPosition,
    Scan,
    WriteBatch,
)
from tfrtool.errors import SourceError
from tfrtool.examples.arrow.columns import (
    EXACT,
    METADATA,
    PLACES,
    Columns,
)
from tfrtool.examples.arrow.decode_batch import decode_batch
from tfrtool.examples.arrow.encode_batch import encode_payloads
from tfrtool.examples.fields import Struct
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.features.arrow_tree import IMAGE_PATH, TableTree, is_image
from tfrtool.features.conformed_rows import TableFold, table_rows
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.outputs import (
    IMAGE_STRUCT,
    image_leaves,
    table_type,
    with_image_structs,
    without_image_structs,
)
from tfrtool.features.outputs import hugging_face_features as tree_features
from tfrtool.features.ranking_columns import nested_columns_of
from tfrtool.inspection.rows.batches import BATCH_BYTES, BATCH_RECORDS, LABEL_NAME
from tfrtool.sources.formats.parquet_reader import (
    ParquetFacts,
    hugging_face_features,
    metadata_json,
    read_batches,
    read_facts,
)
from tfrtool.sources.formats.table_limits import check_column_count
from tfrtool.storage.remote_path import AnyPath

_GROUP_BYTES = 64 * 1024 * 1024
"""Of a row group in memory: what is held to write one, and what other readers take at once."""

_BUFFER_BYTES = 1024 * 1024
"""Bytes of a column that are read at once; by default it is a whole row group."""

_HUGGING_FACE, _TFDS, _CLASS_FILES = b"huggingface", b"tfds", b"class_files"
_NAMED = b"tfrtool.named"
"""The key of a schema's metadata for the label whose class names are a column."""

_Table = TypeVar("_Table", pa.Schema, pa.RecordBatch)
_NOTHING = pa.field("_record", pa.int64())
"""The column of records without any feature, whose number must be kept."""

_PATHS = (IMAGE_PATH, "image/filename", "filename")
"""Of the column that has an image's path, where one of them is there."""


class ParquetFormat(Format):
    """Files with zstd and row groups; an image is a struct of its bytes and its path."""

    spec = FORMATS["parquet"]
    has_null_structs = True

    def scan(self, path: AnyPath) -> Scan:
        """Read the schema and where the row groups are."""
        facts = read_facts(path)
        check_column_count(max(len(facts.schema), facts.leaves), path)
        facts.check_unpacked(path)
        facts = facts._replace(schema=_without_names(facts.schema))
        columns, table = _columns_of(facts.schema), None
        fold = TableFold(Struct({}))
        if columns is None:
            table = TableTree.of(facts.schema, facts.nullable)
            columns, fold = FeatureColumns.of(table.root), TableFold(table.root)
            for batch in read_batches(path, columns=fold.names) if fold.names else ():
                fold.add(batch)
        positions, rows, size = list[ReadPosition](), 0, 0
        for number, (group_rows, group_bytes) in enumerate(facts.groups):
            positions.append(ReadPosition(rows, number))
            rows, size = rows + group_rows, size + group_bytes
        return Scan(
            path=path,
            rows=rows,
            bytes=size,
            positions=positions or [ReadPosition()],
            content=_content(facts.schema, columns),
            numbers=fold.numbers,
            blank=tuple(_blank_names(facts, rows)),
            notes=() if table is None else (*table.notes, *_interval_notes(facts)),
            sizes=fold.sizes,
            table=table,
        )

    def read(self, path: AnyPath, position: ReadPosition) -> Iterator[pa.RecordBatch]:
        """Yield rows as the file has them."""
        return map(_without_names, read_batches(path, group=position.start))

    def read_back(self, path: AnyPath, content: Content) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that was just written, with the columns of its content."""
        schema, tree = content.schema, content.columns
        fields = tree.root.fields if isinstance(tree, FeatureColumns) else {}
        items = dict(zip(tree.names, fields.values(), strict=False))
        with _arrow_errors(path):
            for batch in self._written(path):
                if batch.schema.metadata[METADATA] != schema.metadata[METADATA]:
                    raise ValueError("its metadata differ from what was written")
                arrays = [batch.column(name) for name in schema.names]
                for at, name in enumerate(schema.names):
                    if name in items:
                        arrays[at] = without_image_structs(items[name], arrays[at])
                    elif name in content.images:
                        arrays[at] = pc.struct_field(arrays[at], "bytes")
                yield pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else batch

    def _written(self, path: AnyPath) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that was just written, in batches of about `BATCH_BYTES`."""
        with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            for number in range(file.num_row_groups):
                group = file.metadata.row_group(number)
                rows = BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)
                rows = max(1, min(rows, BATCH_RECORDS))
                yield from file.iter_batches(rows, row_groups=[number], use_threads=False)

    def decode(
        self, rows: pa.RecordBatch, content: Content, path: AnyPath, first: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows as one batch."""
        if rows.schema.equals(content.schema, check_metadata=True):  # of a file just written
            yield rows
            return
        tree, known = _tree_of(rows.schema), content.columns
        with _arrow_errors(path):
            if tree is not None:
                yield _tree_batch(rows, tree, content, first)
            elif type(known) is FeatureColumns:
                yield table_rows(rows, known, first, exact=content.exact)
            else:
                yield _flat_batch(rows, content)

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> Iterator[WriteBatch]:
        """Give a file to write."""
        tree = content.columns.root.fields if isinstance(content.columns, FeatureColumns) else {}
        items = dict(zip(content.columns.names, tree.values(), strict=False))
        images = [f"{name}.bytes" for name in content.images if name not in items]
        images += [leaf for name, item in items.items() for leaf in image_leaves(item, name)]
        kinds = {name: table_type(item) for name, item in items.items()}
        kinds |= dict.fromkeys(content.images, IMAGE_STRUCT)
        fields = [one.with_type(kinds.get(one.name, one.type)) for one in content.schema]
        fields = fields or [_NOTHING]
        metadata = {
            **content.schema.metadata,
            _HUGGING_FACE: json.dumps({"info": {"features": _features(content)}}),
            _TFDS: json.dumps(content.tfds),
            _CLASS_FILES: json.dumps(content.class_files),
        }
        if content.named_label is not None:
            metadata[_NAMED] = content.named_label
            fields.append(pa.field(LABEL_NAME, pa.dictionary(pa.int32(), pa.string())))
        schema = pa.schema(fields, metadata)
        batches: list[pa.RecordBatch] = []
        size = 0

        def flush() -> None:
            nonlocal size
            if batches:
                write(pa.Table.from_batches(batches))
                batches.clear()
                size = 0

        def put(rows: pa.RecordBatch) -> None:
            rows = content.with_names(rows)
            arrays = _with_structs(rows, content.images) or [pa.nulls(rows.num_rows, pa.int64())]
            for at, name in enumerate(rows.schema.names):
                if name in items and name not in content.images:
                    arrays[at] = with_image_structs(items[name], arrays[at], rows)
            nonlocal size
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
            size += batches[-1].nbytes
            if size >= _GROUP_BYTES:
                flush()

        with self._writer(path, schema, images) as write:
            yield put
            flush()

    @contextlib.contextmanager
    def _writer(
        self, path: Path, schema: pa.Schema, images: Sequence[str]
    ) -> Iterator[Callable[[pa.Table], None]]:
        """Give a function that writes a row group."""
        draft = pa.BufferOutputStream()
        pq.ParquetWriter(draft, schema).close()
        leaves = [one.path for one in pq.ParquetFile(pa.BufferReader(draft.getvalue())).schema]
        others = [leaf for leaf in leaves if leaf not in images]
        compression = {leaf: "none" if leaf in images else "zstd" for leaf in leaves}
        with pq.ParquetWriter(
            path, schema, compression=compression, use_dictionary=others, write_statistics=others
        ) as writer:
            yield lambda table: writer.write_table(table, row_group_size=table.num_rows)


class ArrowFormat(ParquetFormat):
    """Arrow IPC files, which pandas and others call Feather, and streams."""

    spec = FORMATS["arrow"]

    @contextlib.contextmanager
    def _writer(
        self,
        path: Path,
        schema: pa.Schema,
        images: Sequence[str],  # noqa: ARG002
    ) -> Iterator[Callable[[pa.Table], None]]:
        """Give a function that writes a record batch, compressed in Feather files."""
        is_feather = path.suffix.lower() == ".feather"
        options = pa.ipc.IpcWriteOptions(compression="lz4" if is_feather else None)
        create = pa.ipc.new_stream if path.suffix.lower() == ".arrows" else pa.ipc.new_file
        with path.open("xb") as file, create(file, schema, options=options) as writer:
            yield lambda table: writer.write_table(table.combine_chunks())

    def _written(self, path: AnyPath) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a file that was just written."""
        opened = pa.ipc.open_stream if path.suffix.lower() == ".arrows" else pa.ipc.open_file
        with pa.memory_map(str(path)) as file, opened(file) as reader:
            if isinstance(reader, pa.RecordBatchStreamReader):
                yield from reader
            else:
                yield from map(reader.get_batch, range(reader.num_record_batches))


class HuggingFaceFormat(ParquetFormat):
    """A folder of Parquet files with a dataset card, which ``datasets.load_dataset`` opens."""

    spec = FORMATS["hf"]  # which doesn't name labels: ClassLabel has the class names

    def metadata(self, content: Content, info: DatasetInfo) -> Mapping[str, str]:  # noqa: ARG002
        """Return the dataset card."""
        files = "".join(
            f"  - split: {one.name}\n    path: {one.name}-*.parquet\n" for one in info.splits
        )
        head = f"---\nconfigs:\n- config_name: default\n  data_files:\n{files}---\n"
        counts = "".join(f"| {split.name} | {split.records:,} |\n" for split in info.splits)
        return {"README.md": f"{head}\n# {info.name}\n\n| split | rows |\n|---|---|\n{counts}"}


def _without_names(table: _Table) -> _Table:
    """Return a schema or a batch without the class names that this tool has added."""
    schema = table if isinstance(table, pa.Schema) else table.schema
    if _NAMED not in (schema.metadata or {}) or LABEL_NAME not in schema.names:
        return table
    at = schema.get_field_index(LABEL_NAME)
    return table.remove(at) if isinstance(table, pa.Schema) else table.remove_column(at)


def _blank_names(facts: ParquetFacts, rows: int) -> Iterator[str]:
    """Yield the columns without values; those of structs have none in any field."""
    for column in facts.schema:
        if not rows or facts.blank.issuperset(_leaf_names(column.name, column.type)):
            yield column.name


def _leaf_names(name: str, kind: pa.DataType) -> Iterator[str]:
    """Yield the paths of a column, or of the fields of a struct; of an image, that of the bytes."""
    if not pa.types.is_struct(kind):
        yield name
    for one in kind if pa.types.is_struct(kind) else ():
        if one.name == "bytes" or not is_image(kind):
            yield from _leaf_names(f"{name}.{one.name}", one.type)


def _features(content: Content) -> dict[str, Any]:
    """Return what Hugging Face's metadata say of images and class names."""
    if isinstance(content.columns, FeatureColumns):
        items = zip(content.columns.names, content.columns.root.fields.values(), strict=True)
        return {name: tree_features(item) for name, item in items}
    features: dict[str, Any] = {name: {"_type": "Image"} for name in content.images}
    lists = {one.name for one in content.schema if pa.types.is_list(one.type)}
    for name, names in content.class_names.items():
        features[name] = {"_type": "ClassLabel", "names": names}
        if name in lists:
            features[name] = {"_type": "Sequence", "feature": features[name], "length": -1}
    return features


def _with_structs(rows: pa.RecordBatch, images: Sequence[str]) -> list[pa.Array]:
    """Return the columns of a batch, those of images with their paths."""
    arrays = dict(zip(rows.schema.names, rows.columns, strict=True))
    for name in images:
        paths = pa.nulls(rows.num_rows, pa.string())
        for known in (place.format(name) for place in _PATHS):
            if known in rows.schema.names and pa.types.is_string(rows.column(known).type):
                paths = rows.column(known)
                break
        images_of, nulls = arrays[name], arrays[name].is_null() if arrays[name].null_count else None
        paths = paths if nulls is None else pc.if_else(nulls, pa.scalar(None, pa.string()), paths)
        arrays[name] = pa.StructArray.from_arrays(
            [images_of, paths], fields=list(IMAGE_STRUCT), mask=nulls
        )
    return list(arrays.values())


@contextlib.contextmanager
def _arrow_errors(path: AnyPath) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, ValueError, LookupError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        what = "not a table that Arrow can read, or truncated or damaged"
        raise SourceError(what, path=path, found=reason) from error


def _tree_of(schema: pa.Schema) -> FeatureColumns | None:
    """Return the tree of a table that this tool made; None of any other table."""
    columns = nested_columns_of(schema)
    if columns is None:
        return None
    items = dict(zip(columns.names, columns.root.fields.values(), strict=True))
    chosen = [field for field in schema if field.name not in (EXACT, *PLACES)]
    if any(one.name not in items or table_type(items[one.name]) != one.type for one in chosen):
        return None
    return columns.narrowed([field.name for field in chosen])


def _tree_batch(
    rows: pa.RecordBatch, tree: FeatureColumns, content: Content, first: int
) -> pa.RecordBatch:
    """Return rows of a tree's table with the columns of a conversion."""
    arrays = [
        without_image_structs(item, rows.column(name))
        for name, item in zip(tree.names, tree.root.fields.values(), strict=True)
    ]
    exact = EXACT in rows.schema.names
    arrays += [rows.column(EXACT)] if exact else []
    batch = pa.RecordBatch.from_arrays(arrays, schema=tree.to_arrow(exact=exact))
    if tree == content.columns and exact == content.exact:
        return batch.replace_schema_metadata(content.schema.metadata)
    if {*content.schema.names} <= {*batch.schema.names}:
        chosen = batch.select(content.schema.names)
        if chosen.schema.types == content.schema.types:
            return chosen.replace_schema_metadata(content.schema.metadata)
    if isinstance(content.columns, FeatureColumns):
        return table_rows(batch, content.columns, first, exact=content.exact)
    return decode_batch(encode_payloads(batch, tree), content.columns, exact=content.exact)


def _columns_of(schema: pa.Schema) -> Columns | None:
    """Return the columns of a table that this tool made; None of any other table."""
    tree = _tree_of(schema)
    return tree or Columns.from_arrow(_without_images(schema))


def _without_images(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the bytes alone of images."""
    fields = [one.with_type(pa.binary()) if is_image(one.type) else one for one in schema]
    return pa.schema(fields, schema.metadata)


def _flat_batch(rows: pa.RecordBatch, content: Content) -> pa.RecordBatch:
    """Return rows of a table of features with the columns of a conversion."""
    schema = _without_images(rows.schema)
    columns = Columns.from_arrow(schema)
    if columns is None:
        raise ValueError("the columns are not the ones that the file's metadata names")
    arrays = [
        pc.struct_field(array, "bytes") if is_image(array.type) else array for array in rows.columns
    ]
    exact = EXACT in schema.names
    batch = pa.RecordBatch.from_arrays(arrays, names=schema.names)
    known = columns.to_arrow(exact=exact)
    batch = batch.select(known.names).replace_schema_metadata(known.metadata)
    if columns == content.columns and exact == content.exact:
        return batch
    return decode_batch(encode_payloads(batch, columns), content.columns, exact=content.exact)


def _content(schema: pa.Schema, columns: Columns) -> Content:
    """Return what a file holds."""
    files = metadata_json(schema, _CLASS_FILES)
    return Content(
        columns=columns,
        exact=EXACT in schema.names and METADATA in (schema.metadata or {}),
        class_names=_class_names(schema),
        class_files={k: str(v) for k, v in files.items()} if isinstance(files, dict) else {},
        tfds=metadata_json(schema, _TFDS),
    )


def _interval_notes(facts: ParquetFacts) -> list[str]:
    """Return a note for each column of intervals, a clause each."""
    return [
        f"column {name!r}: intervals become 12 bytes each"
        for name in facts.schema.names
        if "[12]" in str(facts.schema.field(name).type)
        and any(f"{path}.".startswith(f"{name}.") for path in facts.intervals)
    ]


def _class_names(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Return the class names that Hugging Face's metadata have, by path."""
    names: dict[str, tuple[str, ...]] = {}
    found = [*hugging_face_features(schema).items()]
    for name, entry in found:  # which grows
        known = entry.get("names") if entry.get("_type") == "ClassLabel" else None
        if isinstance(known, list):
            names[name] = tuple(map(str, known))
        inner = {"": entry["feature"]} if "feature" in entry else {} if "_type" in entry else entry
        paths = [(f"{name}/{key}" if key else name, value) for key, value in inner.items()]
        found += [(path, value) for path, value in paths if isinstance(value, dict)]
    return names
