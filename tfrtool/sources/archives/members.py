"""The members of an archive: their names made keys, their links followed, repeats sorted out."""

from __future__ import annotations

import posixpath

from tfrtool.errors import SourceError, printable
from tfrtool.sources.folders.listing import Entry, is_clutter, is_image_name, size_problem
from tfrtool.sources.items import LeftOut, Place
from tfrtool.storage.limits import unpacked_limit

__all__ = ["Members"]

_MOST_LINKS = 40
"""Links that are followed to one file, as in Linux' path lookup."""

_LOST = "a link to no file in the archive (there, links to folders are not followed)"
_UNNAMED = "a link to a file that is no image by its name"
_OUTSIDE = "its name leads out of the archive"


class Members:
    """Collects the members of an archive, in the archive's order."""

    def __init__(self, *, last_wins: bool) -> None:
        """Start without members.

        Args:
            last_wins: whether a member replaces an earlier one of its name, as tar has it; else it
                is a mistake.
        """
        self._last_wins = last_wins
        self._files: dict[str, Entry] = {}
        self._links: dict[str, str] = {}
        self._problems: list[Entry] = []
        self._ignored: list[LeftOut] = []

    def add(self, name: str, size: int, place: Place) -> None:
        """Add a file.

        Args:
            name: its name.
            size: its size in bytes.
            place: where these are; None where they are not kept.
        """
        key = self._free_key(name)
        if key is not None:
            self._files[key] = Entry(key, size, place)

    def add_link(self, name: str, target: str, *, from_root: bool) -> None:
        """Add a link.

        Args:
            name: its name.
            target: where it leads.
            from_root: whether that is a name in the archive, and not seen from the link's folder.
        """
        key = self._free_key(name)
        if key is None:
            return
        folder = "" if from_root else posixpath.dirname(key)
        joined = posixpath.normpath(posixpath.join(folder, target))
        outside = joined.startswith(("/", "../")) and not from_root
        # An empty target is that of no file.
        self._links[key] = "" if outside else _key(joined) or ""

    def add_problem(self, name: str, problem: str) -> None:
        """Add a file that can't be read."""
        key = self._free_key(name)
        if key is not None:
            self._reject(key, problem)

    def ignore(self, name: str, reason: str) -> None:
        """Add what isn't looked at any further."""
        if _wanted(name):
            self._ignored.append(LeftOut(key=name, reason=reason))

    @staticmethod
    def wants(name: str) -> bool:
        """Return whether a file of this name is neither hidden nor the system's own."""
        return _wanted(name)

    def finish(self, archive: str, size: int) -> tuple[list[Entry], tuple[LeftOut, ...]]:
        """Return the entries, and what is ignored.

        Args:
            archive: its path, for errors.
            size: its size in bytes.

        Raises:
            SourceError: it is a bomb: its images, links to others included, take far more room.
        """
        resolved = [self._resolve(key) for key in self._links]
        entries = [*self._files.values(), *resolved, *self._problems]
        images = [entry for entry in entries if is_image_name(entry.key)]
        total = sum(entry.bytes for entry in images if not size_problem(entry.bytes))
        if total > unpacked_limit(size):
            largest = max(images, key=lambda entry: entry.bytes)
            raise SourceError(
                f"unpacks to images of {total:,} bytes, {printable(largest.key)} alone to "
                f"{largest.bytes:,}",
                path=archive,
                expected=f"at most {unpacked_limit(size):,} from {size:,} bytes",
                hint="if you trust it, unpack it yourself, and write from the folder",
            )
        return entries, tuple(self._ignored)

    def _free_key(self, name: str) -> str | None:
        """Return the key for a name; None for clutter and where there is nothing to add."""
        if not _wanted(name):
            return None
        key = _key(name)
        if key is None:
            self._reject(name, _OUTSIDE)
            return None
        if key in self._files or key in self._links:
            if not self._last_wins:
                self._reject(key, "a second member of the same name")
                return None
            self._files.pop(key, None)
            self._links.pop(key, None)
            self._ignored.append(
                LeftOut(key=key, reason="replaced by a later member of the same name")
            )
        return key

    def _reject(self, key: str, problem: str) -> None:
        if is_image_name(key):
            self._problems.append(Entry(key, problem=problem))
        else:
            self._ignored.append(LeftOut(key=key, reason=f"no image by its name, and {problem}"))

    def _resolve(self, link: str) -> Entry:
        key = link
        for _ in range(_MOST_LINKS):
            key = self._links.get(key, "")
            file = self._files.get(key)
            if file is not None:
                kept = file.place is not None or not is_image_name(link)
                return file._replace(key=link, problem=None if kept else _UNNAMED)
            if not key:
                break
        return Entry(link, problem=_LOST)


def _wanted(name: str) -> bool:
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return bool(parts) and not any(map(is_clutter, parts))


def _key(name: str) -> str | None:
    """Return a member's path from the archive's root; None if it leads out of it."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return None if ".." in parts else "/".join(parts)
