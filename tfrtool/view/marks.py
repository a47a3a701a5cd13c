"""Tagged records, in files of the user's that ``tfrtool filter`` and ``edit --tag`` read."""

import hashlib
import re
import threading
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

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
        self.tags: Mapping[str, frozenset[RecordKey]] = {}
        self.tags = self._stored()

    def path(self, tag: str) -> Path:
        """Return the list of a tag, with a line SHARD:RECORD for each record."""
        ending = "" if tag == MARKED else f".{tag}"
        return marks_folder() / f"{self._stem}{ending}.txt"

    def records(self, tag: str) -> frozenset[RecordKey]:
        """Return the records with a tag."""
        return self.tags.get(tag, frozenset())

    def _stored(self) -> dict[str, frozenset[RecordKey]]:
        found = dict[str, frozenset[RecordKey]]()
        paths = {MARKED: self.path(MARKED)}
        with suppress(OSError):
            for path in sorted(marks_folder().glob(f"{self._stem}.*.txt")):
                tag = path.name[len(self._stem) + 1 : -len(".txt")]
                if _TAG.fullmatch(tag) and len(paths) < _MOST_TAGS:
                    paths[tag] = path
        numbers = {shard: number for number, shard in enumerate(self._names)}
        for tag, path in sorted(paths.items()):
            with suppress(OSError, UnicodeDecodeError):
                lines = map(_LINE.fullmatch, path.read_text("utf-8").splitlines())
                found[tag] = frozenset(
                    (numbers[line[1]], int(line[2]))
                    for line in lines
                    if line is not None and line[1] in numbers
                )
        return {tag: records for tag, records in found.items() if records}

    def text(self, tag: str) -> str:
        """Return the list of a tag."""
        return "".join(
            f"{named_record(self._names[shard], record)}\n"
            for shard, record in sorted(self.records(tag))
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
            before = self.tags
            after = dict(before)
            for tag in {*tagged, *untagged}:
                records = self.records(tag).difference(untagged.get(tag, ()))
                after[tag] = records.union(tagged.get(tag, ()))
            self._check(after)
            self.tags = {tag: after[tag] for tag in sorted(after) if after[tag]}
            try:
                for tag in {*tagged, *untagged}:
                    if self.records(tag) != before.get(tag, frozenset()):
                        self._store(tag)
            except BaseException:
                self.tags = before
                raise

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

    def _store(self, tag: str) -> None:
        path = self.path(tag)
        with os_errors_as(WriteError, path, "can't store the marks"):
            if not self.records(tag):
                path.unlink(missing_ok=True)
                return
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with new_file(path) as file:
                file.write(self.text(tag).encode("utf-8"))
