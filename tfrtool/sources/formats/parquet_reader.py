"""Parquet files of other software, read by a child process with limited memory.

pyarrow ends its process on some damaged files, and a few bytes can unpack to any number of values.
"""

import contextlib
import functools
import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tfrtool.errors import SourceError, human_bytes, os_errors_as
from tfrtool.storage.child import Child, ChildDied, ChildError, send_to_parent
from tfrtool.storage.limits import MAX_PARQUET_MEMORY, unpacked_limit
from tfrtool.storage.opening import open_regular, size_of_file
from tfrtool.storage.remote_path import AnyPath, RemotePath, is_url

_BATCH_ROWS, _BATCH_BYTES = 65_536, 4 * 1024 * 1024

_DICTIONARY_BATCH_BYTES = 64 * 1024 * 1024
"""Size of a batch in which every row has the longest value of a dictionary."""

_BUFFER_BYTES = 1024 * 1024
"""Bytes of each column that are read at once; by default it is a whole row group."""

_ROW_BYTES = 16
"""What a row counts for besides its values, as a record does."""

_ERRORS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, OSError)


class ParquetFacts(NamedTuple):
    """The footer of a Parquet file."""

    schema: pa.Schema  # without dictionaries
    groups: tuple[tuple[int, int], ...]  # the rows and the uncompressed bytes of each row group
    nullable: frozenset[str]  # paths of columns with nulls, or without a count of them
    leaves: int  # columns, with each field of a struct for itself
    bytes: int  # of the file

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


def read_cells(path: str | Path, columns: Sequence[str]) -> Iterator[list[object]]:
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


def read_own_batches(path: AnyPath) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that this process has just written, without limits."""
    with _opened(path) as parquet:
        yield from _batches(parquet, 0, None, _batch_rows(parquet, 0, None)[0])


@contextlib.contextmanager
def _reader(path: str | AnyPath) -> Iterator[tuple[Child, int]]:
    """Give a child that reads a file, and how many bytes the file has."""
    with os_errors_as(SourceError, path), open_regular(path) as file:
        size = size_of_file(file)
    idle, works = _idle_readers(os.getpid()), False
    child = idle.pop() if idle else _start_reader()
    try:
        yield child, size
        works = True
    except ChildDied as error:
        what = "reading the Parquet file crashed: it is damaged, or needs too much memory"
        code = error.code
        found = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        raise SourceError(what, path=path, found=found) from error
    except MemoryError as error:
        most = human_bytes(MAX_PARQUET_MEMORY)
        what = f"reading the Parquet file needs more than {most} of memory"
        raise SourceError(what, path=path) from error
    except (SourceError, ChildError, pa.ArrowException, *_ERRORS) as error:
        works = isinstance(error.__cause__, ChildError)  # the child reported it, and goes on
        if isinstance(error, SourceError):
            error.path = os.fspath(path)  # as the caller names it
            raise
        text = str(error).partition(": ")[2] if isinstance(error, ChildError) else str(error)
        reason = (text.splitlines() or [type(error).__name__])[0][:200]
        reason = "no Parquet footer" if "magic bytes" in reason else reason
        what = "not a Parquet file, or truncated or damaged"
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


def _check_unpacked(path: str | AnyPath, size: int, most: int) -> None:
    if size > most:
        what = f"the Parquet file decompresses to more than {most:,} bytes"
        hint = "if you trust it, write it again without compression and dictionaries"
        raise SourceError(what, path=path, hint=hint)


@contextlib.contextmanager
def _opened(path: str | AnyPath) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with (
        open_regular(path) as file,
        pq.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False) as parquet,
    ):
        yield parquet


def _facts(path: str | Path, size: int) -> ParquetFacts:
    with _opened(path) as parquet:
        metadata = parquet.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
        nullable = [
            one.path_in_schema for one in chunks if not one.statistics or one.statistics.null_count
        ]
        return ParquetFacts(
            schema=_plain_schema(parquet.schema_arrow),
            groups=tuple((group.num_rows, group.total_byte_size) for group in groups),
            nullable=frozenset(nullable),
            leaves=metadata.num_columns,
            bytes=size,
        )


def _send_batches(path: str | Path, group: int, columns: Sequence[str] | None, most: int) -> None:
    """Send the rows of a file to the parent, as Arrow streams, and whether they are the last."""
    with _opened(path) as parquet:
        rows, left, size = _batch_rows(parquet, group, columns)
        _check_unpacked(path, size, most)
        unpacked, held, held_bytes, held_rows = 0, list[pa.RecordBatch](), 0, 0
        for batch in _batches(parquet, group, columns, rows):
            held.append(batch)
            held_bytes += batch.get_total_buffer_size()
            held_rows += batch.num_rows
            left -= batch.num_rows
            if left > 0 and held_bytes < _BATCH_BYTES and held_rows < _BATCH_ROWS:
                continue
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(pa.concat_batches(held) if len(held) > 1 else batch)
            data = sink.getvalue()
            unpacked += data.size + held_rows * _ROW_BYTES
            _check_unpacked(path, unpacked, most)
            send_to_parent((data, left <= 0))
            if left <= 0:
                return
            held, held_bytes, held_rows = [], 0, 0


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
    parquet: Any, first_group: int, columns: Sequence[str] | None
) -> tuple[int, int, int]:
    """Return how many rows make a batch of bounded size, and how many rows and bytes there are."""
    most, rows, size = _BATCH_ROWS, 0, 0
    for number in range(first_group, parquet.num_row_groups):
        group = parquet.metadata.row_group(number)
        group_size = 0
        for one in map(group.column, range(group.num_columns)):
            path = f"{one.path_in_schema}."
            if columns is not None and not any(path.startswith(f"{name}.") for name in columns):
                continue
            group_size += one.total_uncompressed_size
            if one.has_dictionary_page and one.physical_type == "BYTE_ARRAY":
                dictionary = one.data_page_offset - one.dictionary_page_offset
                ratio = one.total_uncompressed_size / max(one.total_compressed_size, 1)
                most = min(most, int(_DICTIONARY_BATCH_BYTES / max(dictionary * ratio, 1)))
        most = min(most, _BATCH_BYTES * group.num_rows // max(group_size, 1))
        rows, size = rows + group.num_rows, size + group_size
    return max(most, 1), rows, size


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([one.with_type(_plain_type(one.type)) for one in schema], schema.metadata)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without dictionaries."""
    types = pa.types
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
