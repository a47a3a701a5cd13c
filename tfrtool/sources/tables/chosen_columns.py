"""Which columns of a table are paths and labels, by what is in its first rows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tfrtool.errors import SourceError, printable, some_of
from tfrtool.sources.folders.annotated import CLASSES_CSV, annotations_at, write_command
from tfrtool.sources.folders.store_listing import StoreFiles
from tfrtool.sources.items import UnfitError
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import (
    TEXT_SHOWN,
    TableColumns,
    path_candidates,
    plain_name,
    quoted,
)
from tfrtool.sources.tables.table_files import TableFiles, plain_path
from tfrtool.sources.tables.table_rows import flag, roles_of, sample_rows
from tfrtool.storage.remote_path import AnyPath, RemotePath

_LOOKED_FOR = 20
"""Rows whose files are looked for."""

_SAMPLED = 1000
"""Rows that show which columns are 0 or 1."""

_NUMBERING = ("", "unnamed0", "index")
"""Names of columns that number the rows, as `plain_name` has them."""

_SHOWN = 3


def choose_columns(
    table: AnyPath, options: SourceOptions, files: TableFiles | StoreFiles
) -> tuple[SourceOptions, list[str]]:
    """Return options that name the columns of paths and labels, and what a user should know of it.

    ``files`` are to be used for this alone.
    """
    try:
        names, rows = sample_rows(table, options, _SAMPLED)
    except SourceError as error:
        found = None if isinstance(table, RemotePath) else annotations_at(table)
        if found is None:
            raise
        hint = f"run {write_command('IMAGES', found)} to write the boxes"
        raise SourceError("not a table, but annotations", path=table, hint=hint) from error
    notices = list[str]()
    roles = roles_of(names, options)
    if options.path_column is None:
        path = _path_column(names, rows[:_LOOKED_FOR], options, files)
        if path is not None and path != roles.path:
            options = replace(options, path_column=path)
            roles = roles._replace(path=path)
            if path not in {one for group in path_candidates(names) for one in group}:
                notices.append(f"paths are read from column {quoted([path])}")
    is_open = options.label_column is options.multi_label is None
    is_open = is_open and not options.writes_columns
    if is_open and not options.label_columns and roles.label is None:
        flags = _flag_columns(names, rows, roles, options)
        if len(flags) > (table.name != CLASSES_CSV):
            options = replace(options, label_columns=tuple(flags))
            notices.append(f"labels are the columns of 0 and 1: {quoted(flags)}")
    return options, notices


def no_file(
    table: AnyPath,
    names: Sequence[str],
    reason: str,
    options: SourceOptions,
    files: TableFiles | StoreFiles,
) -> SourceError:
    """Return the error for a table whose rows name files that aren't there.

    Args:
        table: the table.
        names: what its first rows name.
        reason: why the first row is none.
        options: how it was understood, with `choose_columns`.
        files: what looked for the files.
    """
    columns, _ = sample_rows(table, options, 1)
    path = roles_of(columns, options).path
    others = [name for name in columns if name.strip() and name != path]
    hint = "use --root DIR for the folder that the paths start from"
    if others:
        hint += f", or --path-column NAME for another column, such as {quoted(others[:_SHOWN])}"
    tried = ""
    if isinstance(files, TableFiles):
        tried = f"; tried {some_of([printable(one) for one in files.tried(names[0])], _SHOWN)}"
        if (folder := files.folder_of(names)) is not None:
            hint = f"use --root {printable(folder)}, where such files are"
    shown = ", ".join(f"'{printable(name[:TEXT_SHOWN])}'" for name in names[:_SHOWN])
    return SourceError(
        f"no usable rows ({reason}{tried})",
        path=table,
        expected="paths of images",
        found=shown + (f" in column {quoted([path])}" if path else ""),
        hint=hint,
    )


def _path_column(
    names: Sequence[str],
    rows: Sequence[Mapping[str, object]],
    options: SourceOptions,
    files: TableFiles | StoreFiles,
) -> str | None:
    """Return the column whose values name files, or else has the name of one; None without any."""
    used = {options.label_column, options.group_by, *options.label_columns}
    used |= {column.partition(":")[0] for column in options.columns}
    sure, likely = path_candidates(names)
    if len(sure) == 1 and not likely:
        return sure[0]
    likely = [name for name in likely if name not in used]
    for name in (*sure, *likely):
        if any(_names_file(row.get(name), files, trusted=name in sure) for row in rows):
            return name
    if sure:
        return sure[0]
    others = [name for name in names if name not in used]
    found = [
        name for name in others if rows and all(_names_file(row.get(name), files) for row in rows)
    ]
    return found[0] if len(found) == 1 else next(iter(likely), None)


def _names_file(value: object, files: TableFiles | StoreFiles, *, trusted: bool = False) -> bool:
    """Return whether a cell names a file; a ``trusted`` one may name what must not be read."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return False
    try:
        files.find(plain_path(str(value)), 0)
    except UnfitError:
        return False
    except SourceError:
        return trusted
    return True


def _flag_columns(
    names: Sequence[str],
    rows: Sequence[Mapping[str, object]],
    roles: TableColumns,
    options: SourceOptions,
) -> list[str]:
    """Return the columns but for those of paths and splits if all of their values are 0 or 1."""
    others = [
        name
        for name in names
        if name not in (*roles, options.group_by) and plain_name(name) not in _NUMBERING
    ]
    is_flagged = rows and all(flag(row.get(name)) is not None for row in rows for name in others)
    return others if is_flagged else []
