"""Which files of a folder are a dataset, as readers see it while another writer is at work.

A local write publishes its files through a folder, `PUBLISHING`. In a store nothing can be renamed:
a write begins with a claim, an object that only one writer can make, and ends with a commit, one
request that puts the last of the metadata.
"""

import contextlib
import os
from collections.abc import Iterator

from tfrtool.errors import DatasetError, TfrtoolError
from tfrtool.storage.json_values import read_json
from tfrtool.storage.remote_path import AnyPath, RemotePath

STAGING = ".tfrtool-incomplete"
"""The folder in a dataset's folder in which an unfinished write keeps its files."""

PUBLISHING = ".tfrtool-publishing"
"""Its name while files are moved out of it, and those that they replace into it."""

CLAIM = "claim.json"
"""The object in `STAGING` that names the writer."""

COMMITS = ("dataset_info.json", "write_report.json")
"""Objects that can be the commit: the first if TFDS can read the format, else the second."""


def has_uncommitted_write(folder: AnyPath) -> bool:
    """Return whether a write to a store has begun in a folder that has no dataset to read yet."""
    try:
        claim = read_json(folder / STAGING / CLAIM)
        commit = claim.get("commit") if isinstance(claim, dict) else None
    except OSError:
        return False
    except ValueError:
        commit = None
    names = [commit] if commit in COMMITS else COMMITS
    return not any((folder / name).is_file() for name in names)


def check_not_publishing(folder: AnyPath) -> None:
    """Raise a `DatasetError` if files in a folder are being replaced, or that was interrupted."""
    local = not isinstance(folder, RemotePath)
    if has_uncommitted_write(folder) or (local and os.path.lexists(folder / PUBLISHING)):
        raise _interrupted(folder)


def check_not_begun(folder: AnyPath) -> None:
    """Raise a `DatasetError` if a folder without shards is that of an unfinished write."""
    if not isinstance(folder, RemotePath) and os.path.lexists(folder / STAGING):
        raise _interrupted(folder)


def _interrupted(folder: AnyPath) -> DatasetError:
    return DatasetError(
        "a write was interrupted here, or is still running",
        path=folder,
        hint="run the interrupted command again with --resume to finish it, or with --overwrite to "
        "start over",
    )


@contextlib.contextmanager
def unchanged_while_read(folder: AnyPath, name: str) -> Iterator[None]:
    """Raise a `DatasetError` if files are replaced before or while the body reads them.

    ``name`` is a file in the folder that is replaced with them, if it is there.
    """
    before, error = _identity(folder, name), None
    try:
        yield
    except (TfrtoolError, OSError) as caught:
        error = caught
    if _identity(folder, name) != before:
        what = "replaced while it was being read"
        raise DatasetError(what, path=folder, hint="try again") from error
    if error is not None:
        raise error


def _identity(folder: AnyPath, name: str) -> tuple[int | str | None, ...] | None:
    check_not_publishing(folder)
    path = folder / name
    try:
        if isinstance(path, RemotePath):
            return (path.known().etag,)
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
