"""DuckDB in memory, without files, network, extensions or settings; and names in its SQL."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tfrtool.engines.engine import cores
from tfrtool.storage.limits import MAX_DUCKDB_MEMORY

_THREADS = 8
"""Each takes 8 MiB of address space, and one thread alone reads records."""

_CONFIG = {
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "allow_persistent_secrets": "false",
    "secret_directory": "none",  # "" would be one in the home directory, which a query could show
    "memory_limit": f"{MAX_DUCKDB_MEMORY}B",
}


def connect(folder: Path | None = None) -> Any:
    """Return a database in memory that reaches nothing, or only the files in a folder."""
    import duckdb

    config = {**_CONFIG, "threads": str(min(cores(), _THREADS))}
    connection = duckdb.connect(":memory:", config=config)
    if folder is not None:
        connection.execute("SET allowed_directories = [$1]", (str(folder),))
    # As part of the configuration, it would allow files in the working directory.
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def quoted(name: str) -> str:
    """Return a name as SQL has it, in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as SQL has it, in single quotes."""
    return "'" + text.replace("'", "''") + "'"


def unique_names(names: Iterable[str]) -> list[str]:
    """Return what columns of these names are called in a view.

    Of names that differ in case alone, the later ones get a ``_``.
    """
    taken: set[str] = set()
    unique = []
    for name in names:
        shown = name or "_"
        while shown.casefold() in taken:
            shown += "_"
        taken.add(shown.casefold())
        unique.append(shown)
    return unique
