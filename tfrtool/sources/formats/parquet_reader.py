"""Parquet and Arrow files of other software, read by a child process with limited memory.

pyarrow ends its process on some damaged files, and a few bytes can unpack to any number of values.
"""

import contextlib
import functools
import json
import os
import pickle
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tfrtool.errors import SourceError, human_bytes, os_errors_as
from tfrtool.sources.formats.arrow_files import ArrowFile, leaf_paths, naming_columns, open_arrow
from tfrtool.sources.formats.arrow_magic import is_arrow
from tfrtool.storage.child import Child, ChildDied, ChildError, send_to_parent
from tfrtool.storage.limits import (
    MAX_PARQUET_MEMORY,
    MAX_ROWS_PER_BYTE,
    row_limit,
    unpacked_limit,
)
from tfrtool.storage.opening import open_regular, size_of_file
from tfrtool.storage.remote_path import AnyPath, RemotePath, is_url

_BATCH_ROWS, _BATCH_BYTES = 65_536, 4 * 1024 * 1024

_DICTIONARY_BATCH_BYTES = 64 * 1024 * 1024
"""Size of a batch in which every row has the longest value of a dictionary."""

_FEW_ROWS = 4096
"""Rows of a batch that are worth a look at a dictionary's values, if it could have fewer."""

_VALUE_BYTES = 4
"""Bytes that a value takes in memory, roughly, however few a file has for repeated ones."""

_BUFFER_BYTES = 1024 * 1024
"""Bytes of each column that are read at once; by default it is a whole row group."""

_MAGIC_BYTES = 8
_ROW_BYTES = 16
"""What a row counts for besides its values, as a record does."""

_ERRORS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, OSError)


class ParquetFacts(NamedTuple):
    """The footer of a Parquet file, or what an Arrow file holds."""

    schema: pa.Schema  # without dictionaries
    groups: tuple[tuple[int, int], ...]  # rows and uncompressed bytes of row groups or batches
    nullable: frozenset[str]  # paths of columns with nulls, or without a count of them
    blank: frozenset[str]  # paths of columns without values
    leaves: int  # columns, with each field of a struct, a list or a map for itself
    bytes: int  # of the file
    intervals: tuple[str, ...] = ()  # paths of columns that Arrow reads as 12 bytes

    def check_unpacked(self, path: str | AnyPath) -> None:
        """Raise a `SourceError` if all columns have more bytes than they may have."""
        _check_unpacked(path, sum(size for _, size in self.groups), unpacked_limit(self.bytes))


def read_facts(path: str | AnyPath) -> ParquetFacts:
    """Read the footer of a file; `SourceError` if it is damaged."""
    with _reader(path) as (child, size):
        return child.call(_facts, _absolute(path), size)


def read_batches(
    path: str | AnyPath, *, group: int = 0, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches of bounded size; dictionaries become plain values.

    Args:
        path: the file.
        group: the row group to begin with.
        columns: the names of the columns to read; None reads all.

    Raises:
        SourceError: the file is damaged, takes too much memory, or unpacks to too many bytes.
    """
    with _reader(path) as (child, size):
        child.send(_send_batches, _absolute(path), group, columns, unpacked_limit(size))
        part: Any = child.receive()
        while part is not None:
            data, last = part
            batch = pa.ipc.open_stream(data).read_next_batch()
            if last:
                child.receive()  # from here on, the child can read another file
                break
            yield batch
            part = child.receive()
        else:
            return
    yield batch


def read_cells(path: str | AnyPath, columns: Sequence[str]) -> Iterator[list[object]]:
    """Yield the cells of each row in these columns, as Python values."""
    for batch in read_batches(path, columns=columns):
        for values in zip(*map(batch.column, columns), strict=True):
            yield [value.as_py() for value in values]


def hugging_face_features(schema: pa.Schema) -> dict[str, dict[str, Any]]:
    """Return what the metadata of Hugging Face's ``datasets`` say about columns, by name."""
    features = metadata_json(schema, b"huggingface")
    for key in ("info", "features"):
        features = features.get(key) if isinstance(features, dict) else None
    known = features if isinstance(features, dict) else {}
    return {name: one for name, one in known.items() if isinstance(one, dict)}


def metadata_json(schema: pa.Schema, key: bytes) -> Any:
    """Return the JSON value of a schema's metadata; None if there is none."""
    with contextlib.suppress(KeyError, ValueError, RecursionError):
        return json.loads((schema.metadata or {})[key])
    return None


@contextlib.contextmanager
def _reader(path: str | AnyPath) -> Iterator[tuple[Child, int]]:
    """Give a child that reads a file, and how many bytes the file has."""
    with os_errors_as(SourceError, path), open_regular(path) as file:
        size, is_other = size_of_file(file), is_arrow(file.read(_MAGIC_BYTES))
    kind = "Arrow" if is_other else "Parquet"
    idle, works = _idle_readers(os.getpid()), False
    child = idle.pop() if idle else _start_reader()
    try:
        yield child, size
        works = True
    except ChildDied as error:
        what = f"reading the {kind} file crashed: it is damaged, or needs too much memory"
        code = error.code
        found = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        raise SourceError(what, path=path, found=found) from error
    except MemoryError as error:
        most = human_bytes(MAX_PARQUET_MEMORY)
        what = f"reading the {kind} file needs more than {most} of memory"
        raise SourceError(what, path=path) from error
    except (SourceError, ChildError, pa.ArrowException, *_ERRORS) as error:
        works = isinstance(error.__cause__, ChildError)  # the child reported it, and goes on
        if isinstance(error, SourceError):
            error.path = os.fspath(path)  # as the caller names it
            raise
        text = str(error).partition(": ")[2] if isinstance(error, ChildError) else str(error)
        reason = (text.splitlines() or [type(error).__name__])[0][:200]
        reason = "no Parquet footer" if "magic bytes" in reason else reason
        what = f"not {'an Arrow' if is_other else 'a Parquet'} file, or truncated or damaged"
        raise SourceError(what, path=path, found=reason) from error
    finally:
        if works:
            idle.append(child)
        else:
            child.__exit__()


def _absolute(path: str | AnyPath) -> str | AnyPath:
    """Return a path that means the same in a child, which stays in the directory it started in."""
    remote = isinstance(path, RemotePath) or is_url(str(path))
    return path if remote else Path(path).absolute()


@functools.lru_cache
def _idle_readers(_process: int) -> list[Child]:
    """Return the children of a process that can read another file; to start one takes 0.15 s."""
    import atexit

    idle: list[Child] = []

    def end() -> None:
        for child in idle:
            child.__exit__()

    atexit.register(end)
    return idle


def _start_reader() -> Child:
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - where C++ reports why it aborts
        # The usual pool of memory reserves address space.
        environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
        return Child(nowhere, environment, memory=MAX_PARQUET_MEMORY)


def _check_rows(path: str | AnyPath, rows: int, size: int) -> None:
    """Raise a `SourceError` if a file is too small for its number of rows or values of a column."""
    if rows > (most := row_limit(size, MAX_ROWS_PER_BYTE)):
        what = f"{rows:,} rows or values in a file of only {size:,} bytes"
        raise SourceError(what, path=path, expected=f"at most {most:,}")


def _implied_values(array: pa.Array) -> int:
    """Return how many values within an array take no space of their own: nulls and run-ends."""
    types, kind = pa.types, array.type
    if types.is_struct(kind):
        return sum(_implied_values(array.field(at)) for at in range(kind.num_fields))
    if types.is_map(kind):
        return _implied_values(array.keys) + _implied_values(array.items)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _implied_values(array.values)
    if types.is_dictionary(kind):
        return _implied_values(array.dictionary)
    return len(array) if types.is_null(kind) or types.is_run_end_encoded(kind) else 0


def _check_unpacked(path: str | AnyPath, size: int, most: float) -> None:
    if size > most:
        what = f"the file decompresses to more than {most:,} bytes"
        hint = "if you trust it, write it again without compression and dictionaries"
        raise SourceError(what, path=path, hint=hint)


@contextlib.contextmanager
def _opened(path: str | AnyPath, *, dictionaries: Sequence[str] = ()) -> Iterator[Any]:
    """Open a Parquet file, and read the leaves named ``dictionaries`` as dictionaries."""
    import pyarrow.parquet as pq

    with (
        open_regular(path) as file,
        naming_columns(file),
        pq.ParquetFile(
            file, read_dictionary=[*dictionaries], buffer_size=_BUFFER_BYTES, pre_buffer=False
        ) as parquet,
    ):
        yield parquet


def _is_arrow(path: str | AnyPath) -> bool:
    with open_regular(path) as file:
        return is_arrow(file.read(_MAGIC_BYTES))


def _arrow_facts(path: str | AnyPath, size: int) -> ParquetFacts:
    groups, nullable, valued, paths = [], set[str](), set[str](), set[str]()
    values = 0
    with open_arrow(path) as arrow:
        for batch in arrow.batches():
            values += max(batch.num_rows, *map(_implied_values, batch.columns), 0)
            _check_rows(path, values, size)
            batch.validate(full=True)
            groups.append((batch.num_rows, batch.nbytes))
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                for leaf, array in leaf_paths(name, column):
                    paths.add(leaf)
                    nullable |= {leaf} if array.null_count else set()
                    valued |= {leaf} if array.null_count < len(array) else set()
        schema = _plain_schema(arrow.schema)
    blank = frozenset(paths - valued)
    return ParquetFacts(
        schema, tuple(groups), frozenset(nullable), blank, _leaf_count(schema), size
    )


def _leaf_count(fields: Iterable[pa.Field]) -> int:
    """Return the number of columns that Parquet has for fields."""
    kinds = [field.type for field in fields]
    inner = ([kind.field(at) for at in range(kind.num_fields)] for kind in kinds)
    return sum(_leaf_count(nested) if nested else 1 for nested in inner)


def _facts(path: str | AnyPath, size: int) -> ParquetFacts:
    if _is_arrow(path):
        return _arrow_facts(path, size)
    with _opened(path) as parquet:
        metadata = parquet.metadata
        _check_rows(path, metadata.num_rows, size)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
        values = Counter[str]()
        for one in chunks:
            values[one.path_in_schema] += one.num_values
        _check_rows(path, max(values.values(), default=0), size)
        schema = _plain_schema(parquet.schema_arrow)
        pickle.loads(pickle.dumps(schema))  # the parent must be able to, or it waits
        nullable = [
            one.path_in_schema for one in chunks if not one.statistics or one.statistics.null_count
        ]
        return ParquetFacts(
            schema=schema,
            groups=tuple((group.num_rows, group.total_byte_size) for group in groups),
            nullable=frozenset(nullable),
            blank=_blank_paths(path, parquet, chunks),
            leaves=metadata.num_columns,
            bytes=size,
            intervals=tuple(one.path for one in parquet.schema if one.converted_type == "INTERVAL"),
        )


def _blank_paths(path: str | AnyPath, parquet: Any, chunks: Sequence[Any]) -> frozenset[str]:
    """Return the paths of columns without values; those that no statistics describe are read."""
    valued, unknown = set[str](), set[str]()
    for one in chunks:
        facts = one.statistics
        if facts is None or not facts.has_null_count:
            unknown.add(one.path_in_schema)
        elif facts.num_values:
            valued.add(one.path_in_schema)
    blank = set[str]()
    for leaf in parquet.schema:
        if leaf.path in valued:
            continue
        if leaf.max_repetition_level == 0 and leaf.path not in unknown:
            blank.add(leaf.path)
            continue
        rows, _ = _batch_rows(path, parquet, 0, [leaf.path])
        for number, batch in enumerate(parquet.iter_batches(rows, columns=[leaf.path])):
            name, array = next(leaf_paths(batch.schema.names[0], batch.column(0)))
            blank |= set() if number else {name}
            if array.null_count < len(array):
                blank.discard(name)
                break
    return frozenset(blank)


def _send_batches(
    path: str | AnyPath, group: int, columns: Sequence[str] | None, most: int
) -> None:
    """Send the rows of a file to the parent, as Arrow streams, and whether they are the last."""
    unpacked = 0
    with _open_rows(path, group, columns, most) as batches:
        for rows, is_last in _joined(batches):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as stream:
                stream.write_batch(rows)
            data = sink.getvalue()
            unpacked += data.size + rows.num_rows * _ROW_BYTES
            _check_unpacked(path, unpacked, most)
            send_to_parent((data, is_last))


@contextlib.contextmanager
def _open_rows(
    path: str | AnyPath, group: int, columns: Sequence[str] | None, most: int
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Open a Parquet or Arrow file, and give its rows in small batches."""
    if _is_arrow(path):
        with open_arrow(path) as arrow:
            yield _arrow_batches(arrow, group, columns)
        return
    with _opened(path) as parquet:
        rows, size = _batch_rows(path, parquet, group, columns)
        _check_unpacked(path, size, most)
        yield _batches(parquet, group, columns, rows)


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield larger batches, and whether each is the last."""
    group, size, rows = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        if size >= _BATCH_BYTES or rows >= _BATCH_ROWS:
            yield pa.concat_batches(group), False
            group, size, rows = [], 0, 0
        group.append(batch)
        size, rows = size + batch.nbytes, rows + batch.num_rows
    if group:
        yield pa.concat_batches(group), True


def _arrow_batches(
    arrow: ArrowFile, first: int, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    schema = _plain_schema(arrow.schema)
    for batch in arrow.batches(first):
        batch.validate(full=True)
        if not schema.equals(batch.schema):
            arrays = map(_cast, batch.columns, schema.types)
            batch = pa.RecordBatch.from_arrays([*arrays], schema=schema)
        batch = batch if columns is None else batch.select([*columns])
        step = _BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1)
        step = max(1, min(step, _BATCH_ROWS))
        for at in range(0, batch.num_rows, step):
            yield batch.slice(at, step)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array with another type; Arrow has no function for dictionaries of views."""
    if pa.types.is_dictionary(array.type):
        array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(kind))
    return array.cast(kind)


def _batches(
    parquet: Any, group: int, columns: Sequence[str] | None, rows: int
) -> Iterator[pa.RecordBatch]:
    groups = range(group, parquet.num_row_groups)
    schema = None
    for batch in parquet.iter_batches(rows, groups, columns, use_threads=False):
        batch.validate(full=True)
        schema = schema or _plain_schema(batch.schema)
        yield batch if schema.equals(batch.schema) else batch.cast(schema)


def _batch_rows(
    path: str | AnyPath, parquet: Any, first_group: int, columns: Sequence[str] | None
) -> tuple[int, int]:
    """Return how many rows make a batch of bounded size, and how many bytes there are."""
    most, size = _BATCH_ROWS, 0
    for number in range(first_group, parquet.num_row_groups):
        group = parquet.metadata.row_group(number)
        group_size = values = 0
        longest = dict[str, float]()  # by dictionary, the most bytes that a value can have
        for one in map(group.column, range(group.num_columns)):
            leaf = f"{one.path_in_schema}."
            if columns is not None and not any(leaf.startswith(f"{name}.") for name in columns):
                continue
            group_size += one.total_uncompressed_size
            values += one.num_values
            if one.has_dictionary_page and one.physical_type == "BYTE_ARRAY":
                dictionary = one.data_page_offset - one.dictionary_page_offset
                ratio = one.total_uncompressed_size / max(one.total_compressed_size, 1)
                longest[one.path_in_schema] = dictionary * ratio
        most = min(most, _BATCH_BYTES * group.num_rows // max(group_size, values * _VALUE_BYTES, 1))
        bound = _DICTIONARY_BATCH_BYTES / max(1, min(most, _FEW_ROWS))
        unsure = [leaf for leaf, length in longest.items() if length > bound]
        if unsure and not isinstance(path, RemotePath):  # of which nothing is read twice
            longest |= _longest_values(path, number, unsure)
        for length in longest.values():
            most = min(most, int(_DICTIONARY_BATCH_BYTES / max(length, 1)))
        size += group_size
    return max(most, 1), size


def _longest_values(path: str | AnyPath, group: int, leaves: Sequence[str]) -> dict[str, int]:
    """Return how many bytes the longest value of each dictionary of a row group has, by path.

    As soon as a batch has any value of a column, Arrow has all of the column's dictionary.
    """
    import pyarrow.compute as pc

    longest = dict[str, int]()
    for leaf in leaves:
        opened = _opened(path, dictionaries=[leaf])
        with contextlib.suppress(pa.ArrowException), opened as parquet:
            for batch in parquet.iter_batches(
                _FEW_ROWS, row_groups=[group], columns=[leaf], use_threads=False
            ):
                values = _dictionary_of(batch.column(0))
                if values is None:
                    break
                if len(values):
                    longest[leaf] = pc.max(pc.binary_length(values)).as_py()
                    break
    return longest


def _dictionary_of(array: pa.Array) -> pa.Array | None:
    """Return the values of the dictionary within an array of one leaf; None without any."""
    types = pa.types
    while not types.is_dictionary(array.type):
        if types.is_struct(array.type):
            array = array.field(0)
        elif types.is_list(array.type) or types.is_large_list(array.type):
            array = array.values
        else:
            return None
    return array.dictionary


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([one.with_type(_plain_type(one.type)) for one in schema], schema.metadata)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without dictionaries and views."""
    types = pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind):  # as polars writes them
        return pa.large_string() if types.is_string_view(kind) else pa.large_binary()
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([one.with_type(_plain_type(one.type)) for one in kind])
    for is_list, make in ((types.is_list, pa.list_), (types.is_large_list, pa.large_list)):
        if is_list(kind):
            return make(kind.value_field.with_type(_plain_type(kind.value_type)))
    if types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)), kind.list_size)
    return kind
