"""Marked records, in a file of the user's that ``tfrtool filter --drop`` reads."""

import hashlib
import re
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from tfrtool.errors import UsageError, WriteError, named_record, os_errors_as
from tfrtool.inspection.table.record_query import RecordKey
from tfrtool.storage.atomic_files import new_file
from tfrtool.storage.remote_path import AnyPath
from tfrtool.view.user_folders import user_folder


def marks_folder() -> Path:
    """Return the folder for lists of marks in the user's data folder."""
    return user_folder("XDG_DATA_HOME", ".local/share", "marks")


class Marks:
    """The marked records of some shards.

    Attributes:
        path: the list, with a line SHARD:RECORD for each record.
        records: the marked records.
    """

    def __init__(self, title: str, shards: Sequence[AnyPath], names: Sequence[str]) -> None:
        """Read the marks that were made in these shards before; a list has them by these names."""
        full = [str(path.absolute()) for path in shards]
        digest = hashlib.sha256("\n".join(full).encode("utf-8", "surrogateescape")).hexdigest()
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", title)[:60].strip("-.")
        self.path = marks_folder() / f"{name or 'shards'}-{digest[:12]}.txt"
        self._names = names
        self._lock = threading.Lock()
        self.records: frozenset[RecordKey] = frozenset()
        number = {shard: n for n, shard in enumerate(self._names)}
        with suppress(OSError, UnicodeDecodeError):
            lines = [
                re.split("[ :](?=[0-9]{1,18}$)", line)  # the list of an earlier version has spaces
                for line in self.path.read_text("utf-8").splitlines()
            ]
            self.records = frozenset(
                (number[shard], int(record))
                for shard, record in (line for line in lines if len(line) == 2)
                if shard in number
            )

    def text(self) -> str:
        """Return the list."""
        return "".join(
            f"{named_record(self._names[shard], record)}\n"
            for shard, record in sorted(self.records)
        )

    def change(self, mark: Iterable[RecordKey], unmark: Iterable[RecordKey]) -> None:
        """Mark and unmark records, and store the list.

        Raises:
            UsageError: the name of a shard can't be in a list, or there is no such shard.
            WriteError: the list can't be stored.
        """
        with self._lock:
            before = self.records
            self.records = before.difference(unmark).union(mark)
            try:
                for shard in {shard for shard, _ in self.records}:
                    if shard >= len(self._names):
                        raise UsageError("no such record")
                    name = self._names[shard]
                    if not name.isprintable() or name != name.strip():
                        what = "the file's name has characters that a list of records can't contain"
                        raise UsageError(what, path=name, hint="rename the file")
                with os_errors_as(WriteError, self.path, "can't store the marks"):
                    self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    with new_file(self.path) as file:
                        file.write(self.text().encode("utf-8"))
            except BaseException:
                self.records = before
                raise
