"""Which files of a folder are a dataset, as readers see it while another writer is at work.

A local write publishes its files through a folder, `PUBLISHING`. In a store nothing can be renamed:
a write begins with a claim, an object that only one writer can make, and ends with a commit, one
request that puts the last of the metadata. A dataset that replaces another lies in a folder of its
own in that one's, and the commit names it.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from tfrtool.errors import DatasetError, TfrtoolError
from tfrtool.storage.json_files import read_json
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import RemotePath

STAGING = ".tfrtool-incomplete"
"""The folder in a dataset's folder in which an unfinished write keeps its files."""

PUBLISHING = ".tfrtool-publishing"
"""Its name while files are moved out of it, and those that they replace into it."""

CLAIM = "claim.json"
"""The object in `STAGING` that names the writer."""

COMMITS = ("dataset_info.json", "write_report.json")
"""Objects that can be the commit: the first if TFDS can read the format, else the second."""

VERSION_FOLDER = re.compile(r"v-[0-9a-f]{16}")
_POINTER = re.compile(rf'"(?:filepathTemplate|folder)": "({VERSION_FOLDER.pattern})[/"]'.encode())
_HEAD = 64 * 1024


def version_folder() -> str:
    """Return a name for a folder that nobody else uses."""
    return f"v-{secrets.token_hex(8)}"


def current_folder(folder: Path) -> Path:
    """Return where the files of a dataset are: its folder, or the one in it that a commit names."""
    for name in COMMITS:
        with contextlib.suppress(OSError), open_regular(folder / name) as file:
            found = _POINTER.search(file.read(_HEAD))
            return folder / found[1].decode() if found else folder
    return folder


def has_uncommitted_write(folder: Path) -> bool:
    """Return whether a write to a store has begun in a folder that has no dataset to read yet."""
    commit = None
    if VERSION_FOLDER.fullmatch(folder.name) is None:
        try:
            claim = read_json(folder / STAGING / CLAIM)
            commit = claim.get("commit") if isinstance(claim, dict) else None
        except OSError:
            return False
        except ValueError:
            pass  # whatever it says, it is there
    names = [commit] if commit in COMMITS else COMMITS
    return not any((folder / name).is_file() for name in names)


def check_not_publishing(folder: Path) -> None:
    """Raise a `DatasetError` if files in a folder are being replaced, or that was interrupted."""
    local = not isinstance(folder, RemotePath)
    if has_uncommitted_write(folder) or (local and os.path.lexists(folder / PUBLISHING)):
        raise _interrupted(folder)


def check_not_begun(folder: Path) -> None:
    """Raise a `DatasetError` if a folder without shards is that of an unfinished write."""
    if not isinstance(folder, RemotePath) and os.path.lexists(folder / STAGING):
        raise _interrupted(folder)


def _interrupted(folder: Path) -> DatasetError:
    return DatasetError(
        "a write was interrupted here, or is still running",
        path=folder,
        hint="run the interrupted command again with --resume to finish it, or with --overwrite to "
        "start over",
    )


@contextlib.contextmanager
def unchanged_while_read(folder: Path, name: str) -> Iterator[None]:
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


def _identity(folder: Path, name: str) -> tuple[int | str | None, ...] | None:
    check_not_publishing(folder)
    path = folder / name
    try:
        if isinstance(path, RemotePath):
            return (path.known().etag,)
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
