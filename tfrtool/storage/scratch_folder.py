"""Private folders for temporary files, which outlive no process for long."""

import contextlib
import functools
import os
import re
import shutil
import tempfile
import weakref

_PREFIX = ".tfrtool-scratch-"
_NAME = re.compile(re.escape(_PREFIX) + r"[a-z0-9_]+")


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A private folder among the system's temporary files, which is deleted at the end.

    The process holds a lock on it. One whose process was killed is deleted by the next process of
    the same user that makes such a folder.
    """

    def __init__(self) -> None:
        """Make a folder; `OSError` if that is impossible."""
        _delete_abandoned(tempfile.gettempdir())
        while True:
            super().__init__(prefix=_PREFIX)
            descriptor = _hold_folder(self.name, wait=True)
            if descriptor is not None:
                weakref.finalize(self, os.close, descriptor)
            if os.path.isdir(self.name):  # noqa: PTH112
                return
            self._finalizer.detach()  # type: ignore[attr-defined]  # deleted before it was locked


@functools.cache
def _delete_abandoned(place: str) -> None:
    """Delete the scratch folders of this user that no process holds."""
    names: list[str] = []
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        names += (one.path for one in entries if _NAME.fullmatch(one.name))
    for name in names:
        descriptor = _hold_folder(name)
        if descriptor is not None:
            try:
                shutil.rmtree(name, ignore_errors=True)
            finally:
                os.close(descriptor)


def _hold_folder(name: str, *, wait: bool = False) -> int | None:
    """Lock a folder of this user, which is no link; None if another process holds it."""
    try:
        import fcntl  # not on Windows
    except ImportError:
        return None
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return descriptor
    except OSError:  # held; or a file system without locks
        pass
    os.close(descriptor)
    return None
