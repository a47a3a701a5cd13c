"""Samples of WebDataset: members of a tar archive with the same name up to the first dot."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from tfrtool.errors import printable
from tfrtool.sources.archives import read_headers
from tfrtool.sources.folders.listing import is_image_name

_MEMBER = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)
"""A sample's key and a member's extension, as ``webdataset.tariterators`` splits them."""

SKIPPED = re.compile(r"(\./)?__[^/]*__($|/)")
"""Names that the library skips."""


@dataclass(slots=True)
class TarSample:
    """A sample: members with the same key."""

    key: str
    members: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """The name, the offset and the size of each member's data, by extension in lower case."""

    @property
    def images(self) -> list[str]:
        """The extensions of images, which have no dot."""
        return [one for one in self.members if "." not in one and is_image_name(f"a.{one}")]

    def read(self, file: BinaryIO, extension: str) -> bytes:
        """Return the data of a member, of the archive that is open as ``file``."""
        _, offset, size = self.members[extension]
        file.seek(offset)
        return file.read(size)

    @property
    def size(self) -> int:
        """The number of bytes of all members."""
        return sum(size for _, _, size in self.members.values())


class TarSamples:
    """The samples of an archive in order.

    ``where`` names the last member for an error, and ``offset`` is that of its header.
    """

    def __init__(self, file: BinaryIO, most: int | None = None) -> None:
        """Read an archive from the file's position on; at most ``most`` members."""
        self._file, self._most = file, most
        self.where, self.offset = "", 0

    def __iter__(self) -> Iterator[TarSample]:
        """Yield samples; `ValueError` if the archive is damaged, or a sample is ambiguous."""
        sample = TarSample("")
        for number, member in enumerate(read_headers(self._file)):
            if number == self._most:
                break
            self.where, self.offset = f" in or after {printable(member.name)}", member.offset
            match = _MEMBER.fullmatch(member.name)
            if match is None or not member.isreg() or SKIPPED.match(member.name):
                continue
            key, extension = match[1], match[2].lower()
            if key != sample.key and sample.members:
                yield sample  # whose members may be read meanwhile
            if key != sample.key or not sample.members:
                sample = TarSample(key)
            if extension in sample.members:
                raise ValueError("a sample has two members of the same name")
            if member.issparse():
                raise ValueError("sparse members are not supported")
            sample.members[extension] = (member.name, member.offset_data, member.size)
        if sample.members:
            yield sample
