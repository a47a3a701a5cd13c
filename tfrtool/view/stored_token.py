"""A token that stays the same from one start of the viewer to the next, so that bookmarks work.

Whoever has the token can see the records, also after a restart. So there is one for each dataset
and port, in a file that only the user can read, for 30 days at most, and never for viewers that
other machines can reach: there it would be sent over the network.
"""

import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tfrtool.errors import WriteError, os_errors_as
from tfrtool.storage.atomic_files import private_folder
from tfrtool.storage.opening import open_descriptor
from tfrtool.storage.remote_path import AnyPath
from tfrtool.view.user_folders import user_folder

TOKEN_DAYS = 30
"""Age at which a token is replaced, and a browser forgets it."""

_TOKEN = re.compile(rb"[A-Za-z0-9_-]{32}")


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(24)


def tokens_folder() -> Path:
    """Return the folder for tokens in the user's state folder."""
    return user_folder("XDG_STATE_HOME", ".local/state", "tokens")


def stored_token(arguments: Sequence[AnyPath], port: int) -> str:
    """Return the token of a dataset at a port: the stored one, or a new one, which is stored.

    Args:
        arguments: what the user named.
        port: the port, not 0.

    Raises:
        WriteError: the token can't be stored.
    """
    named = "\0".join([str(port), *(str(path.absolute()) for path in arguments)])
    digest = hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()
    path = tokens_folder() / digest[:32]
    with os_errors_as(WriteError, path, "can't store the token"):
        path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        private_folder(path.parent)
        token = _read(path)
        if token is None:
            path.unlink(missing_ok=True)
            token = new_token()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
            with open(os.open(path, flags, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
                file.write(token.encode())
    return token


def _read(path: Path) -> str | None:
    """Return a token from a file that nobody else can read or write, unless it is too old."""
    with suppress(OSError):
        with open(open_descriptor(path, follow=False), "rb") as file:  # noqa: PTH123
            status, content = os.fstat(file.fileno()), file.read(64)
        is_private = os.name == "nt" or (
            status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077
        )
        is_young = time.time() - status.st_mtime < TOKEN_DAYS * 86400
        if is_private and is_young and _TOKEN.fullmatch(content):
            return content.decode()
    return None
