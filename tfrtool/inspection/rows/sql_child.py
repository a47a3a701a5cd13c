"""A process to run SQL in."""

import os
from pathlib import Path

from tfrtool.inspection.rows.sql_errors import memory_error
from tfrtool.storage.child import Child, ChildDied
from tfrtool.storage.limits import MAX_SQL_MEMORY

_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Keeps libraries from reserving address space that they don't use, some GiB of it."""


class SqlChild(Child):
    """A process with limited memory to run SQL in; it can be killed at any time.

    DuckDB itself can't bound the size of one value, nor how long a query takes.
    """

    def __init__(self) -> None:
        """Start the process."""
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
