"""The members of an archive as a listing: names become keys, links lead to files."""

import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tfrtool.errors import SourceError
from tfrtool.sources.archives.archive_files import UNPACK_HINT
from tfrtool.sources.folders.listing import Entry, is_clutter, is_image_name, size_problem
from tfrtool.storage.limits import unpacked_limit

_MOST_LINKS = 40
"""Links that are followed to one file, as in Linux' path lookup."""

_BROKEN = "broken link (links to folders inside an archive are not followed)"


class Member(NamedTuple):
    """A file in an archive, or a link."""

    name: str
    bytes: int = 0
    place: int = 0  # shows a reader where the bytes are
    problem: str | None = None  # why it can't be read
    target: str | None = None  # the name that a link leads to
    from_root: bool = False  # whether that is relative to the archive, not to the link's folder


def list_members(read: Callable[[], Iterator[Member]], archive: str, size: int) -> Iterator[Entry]:
    """Yield the files of an archive, and its links as the files that they lead to.

    Of several members with the same key the last one counts, and it comes last.

    Args:
        read: reads the members in the order of the archive; again, if there are links.
        archive: path of the archive, for errors.
        size: its bytes.

    Raises:
        SourceError: in the end, if all images together unpack to too much.
    """
    links: dict[str, str] = {}
    total, most = 0, unpacked_limit(size)
    for entry, target in _entries(read()):
        links.pop(entry.key, None)
        if target is None:
            total += _image_bytes(entry)
            yield _listed(entry)
        else:
            links[entry.key] = target
    targets = {key: _follow(key, links) for key in links}
    ends = {*targets.values()}
    files = {entry.key: entry for entry, _ in _entries(read()) if entry.key in ends} if ends else {}
    for key, end in targets.items():
        file = files.get(end or "")
        entry = Entry(key, problem=_BROKEN) if file is None else file._replace(key=key)
        total += _image_bytes(entry)
        yield entry if file is None else _listed(entry)
    if total > most:
        what = f"unpacks to {total:,} bytes of images"
        expected = f"at most {most:,} for an archive of {size:,} bytes"
        raise SourceError(what, path=archive, expected=expected, hint=UNPACK_HINT)


def _entries(members: Iterator[Member]) -> Iterator[tuple[Entry, str | None]]:
    """Yield what is listed of members, and the key that a link leads to."""
    for name, size, place, problem, target, from_root in members:
        parts = [part for part in name.split("/") if part not in ("", ".")]
        names = [part for part in parts if part != ".."] if ".." in parts else parts
        if not names or any(map(is_clutter, names)):
            continue
        key = "/".join(parts)
        if names is not parts:
            yield Entry(name, problem="path leads outside the archive"), None
        elif target is None:
            yield Entry(key, size, place, problem), None
        else:
            if from_root:
                path = target.lstrip("/")
            else:
                path = posixpath.join(posixpath.dirname(key), target)
            yield Entry(key), posixpath.normpath(path)


def _listed(entry: Entry) -> Entry:
    """Return an entry without its problem if it isn't an image: only images have to be readable."""
    return entry if entry.problem is None or is_image_name(entry.key) else Entry(entry.key)


def _image_bytes(entry: Entry) -> int:
    return entry.bytes if is_image_name(entry.key) and not size_problem(entry.bytes) else 0


def _follow(key: str, links: Mapping[str, str]) -> str | None:
    """Return the key that links lead to; None if they lead in a circle."""
    for _ in range(_MOST_LINKS):
        if key not in links:
            return key
        key = links[key]
    return None if key in links else key
