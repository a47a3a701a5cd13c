"""The names of records in addresses: SHARD:RECORD, as in messages and lists."""

import re
from collections.abc import Sequence
from urllib.parse import quote

from tfrtool.errors import UsageError, named_record
from tfrtool.inspection.table.record_query import RecordKey


class RecordNames:
    """The names of the records of shards, which lists call by different names."""

    def __init__(self, shards: Sequence[str]) -> None:
        numbered = enumerate(shards)
        # A name of other bytes than UTF-8 can't be in an address: the shard's number can.
        self._shards = [name if _is_utf8(name) else str(number) for number, name in numbered]
        self._numbers = {name: number for number, name in enumerate(self._shards)}

    def name(self, shard: int, record: int) -> str:
        """Return the name of a record."""
        return named_record(self._shards[shard], record)

    def path(self, shard: int, record: int) -> str:
        """Return the path of a record's page."""
        return f"/record/{quote(self.name(shard, record), safe=':')}"

    def find(self, name: str) -> RecordKey:
        """Return the record of a name; `UsageError` if the shard isn't shown."""
        shard, _, record = name.rpartition(":")
        if shard not in self._numbers or re.fullmatch("[0-9]{1,18}", record) is None:
            expected = "SHARD:RECORD, with one of these shards"
            raise UsageError("no such record", expected=expected)
        return self._numbers[shard], int(record)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
