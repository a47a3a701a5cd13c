"""Tagged records, in files of the user's that ``tfrtool filter`` and ``edit --tag`` read.

Other viewers of the same shards, and the user, may change these files at any time: they are read
again before they are written.
"""

import hashlib
import os
import re
import threading
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tfrtool.errors import UsageError, WriteError, named_record, os_errors_as
from tfrtool.inspection.table.record_query import RecordKey
from tfrtool.storage.atomic_files import new_file
from tfrtool.storage.remote_path import AnyPath
from tfrtool.view.user_folders import user_folder

MARKED = "marked"
"""The tag of records without another one."""

_TAG = re.compile(r"\w[\w-]{0,39}")
_MOST_TAGS = 50
_LINE = re.compile(r"(.+)[ :]([0-9]{1,18})")
"""A line of a list; those of earlier versions have a space."""


def marks_folder() -> Path:
    """Return the folder for lists of marks in the user's data folder."""
    return user_folder("XDG_DATA_HOME", ".local/share", "marks")


def parse_tag(text: str) -> str:
    """Return a tag in lower case, as file systems may not tell cases apart.

    Raises:
        UsageError: it has other characters than letters, digits, ``_`` and ``-``, or is too long.
    """
    tag = unicodedata.normalize("NFC", text.strip()).lower()
    if _TAG.fullmatch(tag) is None:
        expected = "1 to 40 letters, digits, _ and -"
        raise UsageError("invalid tag", expected=expected, found=repr(text[:60]))
    return tag


class _TagList(NamedTuple):
    """What the file of a tag holds.

    Attributes:
        stamp: what changes with the file.
        records: the records.
        other_lines: comments, and whatever else isn't a record of these shards.
    """

    stamp: tuple[int, ...]
    records: frozenset[RecordKey]
    other_lines: tuple[str, ...] = ()


class Marks:
    """The tags of the records of some shards.

    Attributes:
        tags: the records of each tag, in the order of the tags' names.
    """

    def __init__(self, title: str, shards: Sequence[AnyPath], names: Sequence[str]) -> None:
        """Read the tags that these shards have; a list has the shards by these names."""
        full = "\n".join(str(path.absolute()) for path in shards)
        digest = hashlib.sha256(full.encode("utf-8", "surrogateescape")).hexdigest()
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", title)[:60].strip("-.")
        self._stem = f"{name or 'shards'}-{digest[:12]}"
        self._names = names
        self._lock = threading.Lock()
        self._lists: dict[str, _TagList] = {}
        self.tags: Mapping[str, frozenset[RecordKey]] = {}
        self.refresh()

    def path(self, tag: str) -> Path:
        """Return the list of a tag, with a line SHARD:RECORD for each record."""
        ending = "" if tag == MARKED else f".{tag}"
        return marks_folder() / f"{self._stem}{ending}.txt"

    def records(self, tag: str) -> frozenset[RecordKey]:
        """Return the records with a tag."""
        return self.tags.get(tag, frozenset())

    def refresh(self) -> None:
        """Read the lists that have changed since."""
        with self._lock:
            self._refresh()

    def _refresh(self) -> None:
        lists = dict[str, _TagList]()
        for tag, path in self._paths().items():
            # What can't be read is not a tag, and `_store` doesn't replace it.
            with suppress(OSError, UnicodeDecodeError):
                stamp, known = _stamp_of(path.stat()), self._lists.get(tag)
                lists[tag] = known if known and known.stamp == stamp else self._read(path, stamp)
        if lists != self._lists:
            self._lists = lists
            self._take()

    def _take(self) -> None:
        self.tags = {tag: one.records for tag, one in sorted(self._lists.items()) if one.records}

    def _paths(self) -> dict[str, Path]:
        """Return the lists that may be there."""
        paths = {MARKED: self.path(MARKED)}
        with suppress(OSError):
            for path in sorted(marks_folder().glob(f"{self._stem}.*.txt")):
                tag = path.name[len(self._stem) + 1 : -len(".txt")]
                if _TAG.fullmatch(tag) and len(paths) < _MOST_TAGS:
                    paths[tag] = path
        return paths

    def _read(self, path: Path, stamp: tuple[int, ...]) -> _TagList:
        numbers = {shard: number for number, shard in enumerate(self._names)}
        records, others = set[RecordKey](), list[str]()
        for line in path.read_text("utf-8").splitlines():
            found = _LINE.fullmatch(line)
            if found is not None and found[1] in numbers:
                records.add((numbers[found[1]], int(found[2])))
            else:
                others.append(line)
        return _TagList(stamp, frozenset(records), tuple(others))

    def text(self, tag: str) -> str:
        """Return the list of a tag."""
        return self._text(self.records(tag))

    def _text(self, records: frozenset[RecordKey]) -> str:
        return "".join(
            f"{named_record(self._names[shard], record)}\n" for shard, record in sorted(records)
        )

    def change(
        self, tagged: Mapping[str, Iterable[RecordKey]], untagged: Mapping[str, Iterable[RecordKey]]
    ) -> None:
        """Give records tags, take tags from them before that, and store the lists.

        Raises:
            UsageError: the name of a shard can't be in a list, there is no such shard, or there
                are too many tags.
            WriteError: a list can't be stored.
        """
        with self._lock:
            self._refresh()
            before = self.tags
            after = dict(before)
            for tag in {*tagged, *untagged}:
                records = self.records(tag).difference(untagged.get(tag, ()))
                after[tag] = records.union(tagged.get(tag, ()))
            self._check(after)
            try:
                for tag in {*tagged, *untagged}:
                    if after[tag] != before.get(tag, frozenset()):
                        self._store(tag, after[tag])
            finally:
                self._take()

    def _check(self, tags: Mapping[str, frozenset[RecordKey]]) -> None:
        if len(tags) > _MOST_TAGS:
            raise UsageError(f"more than {_MOST_TAGS} tags")
        for shard in {shard for records in tags.values() for shard, _ in records}:
            if shard >= len(self._names):
                raise UsageError("no such record")
            name = self._names[shard]
            if not name.isprintable() or name != name.strip():
                what = "the file's name has characters that a list of records can't contain"
                raise UsageError(what, path=name, hint="rename the file")

    def _store(self, tag: str, records: frozenset[RecordKey]) -> None:
        path, known = self.path(tag), self._lists.get(tag)
        others = () if known is None else known.other_lines
        with os_errors_as(WriteError, path, "can't store the marks"):
            if known is None and path.exists():
                what = "can't store the marks: the list of this tag can't be read"
                raise WriteError(what, path=path, hint="move the file away")
            if not records and not others:
                path.unlink(missing_ok=True)
                self._lists.pop(tag, None)
                return
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with new_file(path) as file:
                lines = "".join(f"{line}\n" for line in others) + self._text(records)
                file.write(lines.encode("utf-8"))
                file.flush()
                stamp = _stamp_of(os.fstat(file.fileno()))
        self._lists[tag] = _TagList(stamp, records, others)


def _stamp_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mtime_ns, status.st_size, status.st_ino
