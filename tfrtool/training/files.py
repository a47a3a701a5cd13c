"""Files that are whole, or not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["TEMPORARY", "replace_file"]

TEMPORARY = ".incomplete-"
"""What the name of a file that is being written starts with."""


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under a temporary name, and give it its own when it is whole and on the disk.

    What stood there before stays until then.

    Args:
        path: the file.
        write: gets the temporary name, in the same directory and with the same ending.

    Raises:
        OSError: the disk is full, or fails otherwise.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105
    finally:
        temporary.unlink(missing_ok=True)
