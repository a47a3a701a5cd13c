"""The members of an archive as a listing: names become keys, links lead to files."""

import posixpath
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from tfrtool.errors import SourceError
from tfrtool.sources.archives.archive_files import UNPACK_HINT
from tfrtool.sources.folders.listing import Entry, Listing, is_clutter, is_image_name, size_problem
from tfrtool.sources.items import ItemReader
from tfrtool.storage.limits import unpacked_limit
from tfrtool.storage.scratch.external_sort import ExternalSort

_MOST_LINKS = 40
"""Links that are followed to one file, as in Linux' path lookup."""

_BROKEN = "broken link (links to folders inside an archive are not followed)"


class Members:
    """Collects the members of an archive, in its order. The last of the same name counts."""

    def __init__(self, scratch: Path | None = None) -> None:
        """Start without members; many are stored in a scratch folder."""
        self._files = ExternalSort[tuple[str, int, int, int, str | None]](scratch)
        self._links: dict[str, str] = {}

    def add(self, name: str, size: int = 0, place: int = 0, problem: str | None = None) -> str:
        """Add a file of ``size`` bytes whose place shows a reader where it is.

        Returns its key; "" for files that are hidden or the system's own.
        """
        parts = [part for part in name.split("/") if part not in ("", ".")]
        names = [part for part in parts if part != ".."]
        if not names or any(map(is_clutter, names)):
            return ""
        key = "/".join(parts)
        if len(names) < len(parts):
            key, problem = name, "path leads outside the archive"
        self._files.add((key, len(self._files), size, place, problem))
        self._links.pop(key, None)
        return key

    def add_link(self, name: str, target: str, *, from_root: bool) -> None:
        """Add a link to a name in the archive, relative to its root or to the link's folder."""
        if key := self.add(name):
            path = posixpath.join("" if from_root else posixpath.dirname(key), target)
            self._links[key] = posixpath.normpath(path.lstrip("/") if from_root else path)

    def listing(self, archive: str, size: int, reader: ItemReader) -> Listing:
        """Return all members of an archive of ``size`` bytes; a bomb is a SourceError."""
        self._files.settle()
        targets = {key: self._target(key) for key in self._links}
        wanted = {target for target in targets.values() if target is not None}
        files = {entry.key: entry for entry in self._last_of_each_name() if entry.key in wanted}
        links = {key: files.get(target or "") for key, target in targets.items()}
        sizes = (
            entry.bytes
            for entry in self._entries(links)
            if is_image_name(entry.key) and not size_problem(entry.bytes)
        )
        total, most = sum(sizes), unpacked_limit(size)
        if total > most:
            what = f"unpacks to {total:,} bytes of images"
            expected = f"at most {most:,} for an archive of {size:,} bytes"
            raise SourceError(what, path=archive, expected=expected, hint=UNPACK_HINT)
        return Listing(self._entries(links), reader)

    def _last_of_each_name(self) -> Iterator[Entry]:
        for key, rows in groupby(self._files, key=itemgetter(0)):
            *_, (_, _, size, place, problem) = rows
            yield Entry(key, size, place, problem)

    def _entries(self, links: Mapping[str, Entry | None]) -> Iterator[Entry]:
        """Yield all files; links as the files that they lead to."""
        for entry in self._last_of_each_name():
            if (file := links.get(entry.key, entry)) is None:
                yield Entry(entry.key, problem=_BROKEN)
            elif file.problem is None or is_image_name(entry.key):
                yield file._replace(key=entry.key)
            else:
                yield Entry(entry.key)  # only images need to be readable

    def _target(self, key: str) -> str | None:
        """Return the name that a link leads to; None if links lead in a circle."""
        for _ in range(_MOST_LINKS):
            if key not in self._links:
                return key
            key = self._links[key]
        return None if key in self._links else key
