"""Files that appear in a folder together, in place of those before them: a transaction.

No file system gives several names at once, so the way from old to new has steps, and a process
can die at each of them:

1. The new files lie in a staging folder beside their final names, whole and on the disk. A
   journal is put there, which lists them and the files that they replace.
2. The staging folder is renamed to `PUBLISHING`. Now it is settled what is to be there, and that
   name tells every reader and every later writer that it isn't yet.
3. All old files are moved into that folder, in an order in which those that describe the others,
   the metadata, go first.
4. All new files are moved out of it; those that describe the others come last.
5. The folder gets its former name back, and that is the end. The old files go with it.

Old and new files are never under final names at the same time, not even for those who know nothing
of all this and take what a pattern matches. Every file is in one of two places at any moment,
and which one it is tells what remains to be done: `finish_publishing` does that, after a kill or
a power cut. After an error everything is taken back, and signals wait until it is over.
"""

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tfrtool.errors import DatasetError, TfrtoolError
from tfrtool.storage.appearing import TEMPORARY, move, new_file, private_folder, sync_folder
from tfrtool.storage.claims import STAGING, is_claimed
from tfrtool.storage.opening import read_bounded
from tfrtool.storage.remote_path import RemotePath
from tfrtool.storage.signals import signals_wait

PUBLISHING = f"{TEMPORARY}publishing"
"""The name of the folder that holds what is not in its place yet."""

_JOURNAL = "journal.json"
_OLD = "replaced"


def publish_files(staging: Path, new: Sequence[str], old: Sequence[str]) -> None:
    """Move files out of a staging folder into the folder around it, in place of others.

    The ``old`` names go, and the ``new`` ones appear, in these orders; a name may be both. In the
    end the staging folder holds the replaced files, for the caller to delete. If this raises an
    `OSError`, everything is as it was; unless even taking back failed, which `check_settled` tells.
    """
    folder = staging.parent
    place = folder / PUBLISHING
    with signals_wait():
        for name in new:
            (staging / name).lstat()  # where it is, tells later whether it has been moved
        private_folder(staging / _OLD)
        with new_file(staging / _JOURNAL) as file:
            file.write(json.dumps({"new": list(new), "old": list(old)}).encode())
        sync_folder(staging)
        move(staging, place)
        try:
            sync_folder(folder)
            _finish(folder, new, old)
            move(place, staging)
        except BaseException:
            _take_back(folder, new, old)
            move(place, staging)
            raise
        with contextlib.suppress(OSError):  # if this does not last, the same is done again
            sync_folder(folder)


def finish_publishing(staging: Path, is_ours: Callable[[str], bool]) -> bool:
    """End what a publisher began that was killed; return whether there was anything to end.

    Only files whose names ``is_ours`` knows are moved; it is an `OSError` if others are to be.
    """
    folder = staging.parent
    place = folder / PUBLISHING
    if not os.path.lexists(place):
        return False
    private_folder(place)
    try:
        journal = json.loads(read_bounded(place / _JOURNAL, follow=False))
        new, old = list(journal["new"]), list(journal["old"])
        known = all(map(is_ours, {*new, *old}))
    except (ValueError, KeyError, TypeError, RecursionError):
        known = False
    if not known:
        raise OSError(errno.EINVAL, "it is not what an interrupted write leaves", str(place))
    with signals_wait():
        for name in new:
            if not os.path.lexists(place / name):
                (folder / name).lstat()
        _finish(folder, new, old)
        move(place, staging)
        sync_folder(folder)
    return True


def _finish(folder: Path, new: Sequence[str], old: Sequence[str]) -> None:
    """Move files out of and into `PUBLISHING`, whatever has been moved before."""
    place = folder / PUBLISHING
    waiting = [name for name in new if os.path.lexists(place / name)]
    moved = set(new).difference(waiting)
    for name in old:
        if name not in moved and os.path.lexists(folder / name):
            move(folder / name, place / _OLD / name)
    sync_folder(place / _OLD)
    sync_folder(folder)
    for name in waiting:
        move(place / name, folder / name)
    sync_folder(folder)


def _take_back(folder: Path, new: Sequence[str], old: Sequence[str]) -> None:
    place = folder / PUBLISHING
    for name in reversed(new):
        if not os.path.lexists(place / name):
            move(folder / name, place / name)
    sync_folder(folder)
    for name in reversed(old):
        if os.path.lexists(place / _OLD / name):
            move(place / _OLD / name, folder / name)
    sync_folder(folder)


def check_settled(folder: Path) -> None:
    """Raise a `DatasetError` if files in a folder are being replaced, or that was interrupted."""
    held = is_claimed(folder)
    if held or (not isinstance(folder, RemotePath) and os.path.lexists(folder / PUBLISHING)):
        raise _interrupted(folder)


def check_begun(folder: Path) -> None:
    """Raise a `DatasetError` if a folder without shards is that of a write which has not ended."""
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

    ``name`` is that of one in the folder that is replaced with them, if it is there.
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
    check_settled(folder)
    path = folder / name
    try:
        if isinstance(path, RemotePath):
            return (path.known().etag,)
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
