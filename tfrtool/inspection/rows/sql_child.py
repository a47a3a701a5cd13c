"""A process to run SQL in."""

import os
from pathlib import Path

from tfrtool.errors import ShardError, human_bytes
from tfrtool.inspection.rows.sql_errors import memory_error
from tfrtool.storage.child import Child, ChildDied
from tfrtool.storage.limits import MAX_SQL_MEMORY, MIN_SQL_MEMORY

_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Keeps libraries from reserving address space that they don't use, some GiB of it."""


def check_address_space() -> None:
    """Check that a limit such as ``ulimit -v`` leaves enough to run SQL; otherwise `ShardError`."""
    try:
        import resource
    except ImportError:  # on Windows
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < MIN_SQL_MEMORY:
        least = human_bytes(MIN_SQL_MEMORY)
        what = f"SQL needs at least {least} of address space, and its limit is {human_bytes(limit)}"
        raise ShardError(what, hint=f"raise ulimit -v to {MIN_SQL_MEMORY // 1024} or more")


class SqlChild(Child):
    """A process with limited memory to run SQL in; it can be killed at any time.

    DuckDB itself can't bound the size of one value, nor how long a query takes.
    """

    def __init__(self) -> None:
        """Start the process; `ShardError` if it would not have enough memory."""
        check_address_space()
        with Path(os.devnull).open("wb") as nowhere:  # what the C++ runtime says as it dies
            super().__init__(nowhere, os.environ | _ENVIRONMENT, memory=MAX_SQL_MEMORY)

    def __enter__(self) -> "SqlChild":
        return self

    def receive(self) -> object:
        """Do what `Child.receive` does; `ShardError` if the memory was not enough."""
        try:
            return super().receive()
        except (ChildDied, MemoryError) as error:
            raise memory_error() from error
