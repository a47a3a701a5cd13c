"""Pieces of data in their order, any number of them, in a scratch file."""

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import overload

from tfrtool.storage.scratch.external_sort import ScratchFile


class PackedRows(Sequence[bytes]):
    """Pieces that are added one after another; several threads may read them in any order.

    Each costs 8 bytes of memory. It can't be pickled.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Start without any; a folder of None is the system's."""
        self._file = ScratchFile(folder)
        self._ends = array("Q", [0])

    def add(self, data: bytes) -> None:
        """Add a piece."""
        self._ends.append(self._file.append(data) + len(data))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(at, slice):
            return tuple(map(self.__getitem__, range(*at.indices(len(self)))))
        start, end = self._ends[at], self._ends[at + 1]
        return self._file.read(start, end - start)
