"""Reading an ArrayRecord file in a process of its own: the library is C++, and may crash."""

import functools
from collections.abc import Iterator
from typing import Any

from tfrtool.engines.local_copies import local_copies
from tfrtool.errors import SourceError, UsageError, human_bytes, os_errors_as
from tfrtool.records.framing import MAX_RECORD_BYTES
from tfrtool.storage.child import Child, ChildDied
from tfrtool.storage.limits import MAX_LIBRARY_MEMORY
from tfrtool.storage.opening import open_regular
from tfrtool.storage.progress import no_progress
from tfrtool.storage.remote_path import AnyPath, RemotePath

_PART_BYTES, _PART_RECORDS = 16 * 1024 * 1024, 16_384
_MOST_FAULTS = 1000
"""Damaged records of a file; each costs as much as opening it."""

_READING = "readahead_buffer_size:0,max_parallelism:0"


def library() -> Any:
    """Return the library's module; `UsageError` if it isn't installed."""
    try:
        from array_record.python import array_record_module
    except ImportError as error:
        hint = "run pip install array_record"
        raise UsageError("ArrayRecord requires the package array_record", hint=hint) from error
    return array_record_module


def read_parts(path: AnyPath, start: int) -> Iterator[tuple[list[bytes], str]]:
    """Yield payloads from a record on, and why the record that follows is damaged, if it is."""
    with os_errors_as(SourceError, path), open_regular(path):
        library()
    faults = 0
    try:
        with local_copies([path], None, no_progress, needed_for="ArrayRecord"), Child() as child:
            local = str((isinstance(path, RemotePath) and path.store.file) or path)
            while any(part := child.call(_read, local, start)):
                yield part
                start += len(part[0]) + bool(part[1])
                faults += bool(part[1])
                if faults > _MOST_FAULTS:
                    what = f"has more than {_MOST_FAULTS:,} damaged records"
                    raise SourceError(what, path=path, found=part[1])
    except RuntimeError as error:
        # Of a file without its last block, the library says nothing at all.
        size = human_bytes(path.stat().st_size)
        found = str(error)[:300] or f"{size} without an index at the end"
        what = "not an ArrayRecord file, or truncated or damaged"
        raise SourceError(what, path=path, found=found) from error
    except (ChildDied, MemoryError) as error:
        what = "damaged, or too large to read in the memory available"
        raise SourceError(what, path=path, found=repr(error)) from error


@functools.lru_cache(maxsize=1)  # opening one takes the time of many records
def _reader(path: str) -> Any:
    import resource  # array_record is only where this is

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    soft = MAX_LIBRARY_MEMORY if most < 0 else min(MAX_LIBRARY_MEMORY, most)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, most))
    reader = library().ArrayRecordReader(path, _READING)
    if not reader.ok():  # it says that a file which is cut, or something else, has 0 records
        reader.close()  # raises what is wrong
    return reader


def _read(path: str, start: int) -> tuple[list[bytes], str]:
    """Read records until they are many, or one is damaged; nothing at the end."""
    reader, payloads, size = _reader(path), list[bytes](), 0
    left = min(int(reader.num_records()) - start, _PART_RECORDS)
    if left > 0:
        reader.seek(start)
    try:
        while len(payloads) < left and size < _PART_BYTES:
            payload = reader.read()
            if len(payload) > MAX_RECORD_BYTES:
                raise RuntimeError(f"the record has {len(payload)} bytes")
            payloads.append(payload)
            size += len(payload)
    except RuntimeError as error:
        _reader.cache_clear()  # it reads nothing more
        return payloads, str(error)[:300] or "damaged"
    return payloads, ""
