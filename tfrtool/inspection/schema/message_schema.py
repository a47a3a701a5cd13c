"""The fields of messages, and how many records have each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tfrtool.examples.arrow.messages import MessageColumns
from tfrtool.inspection.rows.batches import OnFault, read_batches
from tfrtool.records.stream import Stream
from tfrtool.storage.remote_path import AnyPath


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """Fields of the messages in shards.

    Attributes:
        message: full name of the messages' type.
        records: number of intact records.
        fields: of each field the name, the Arrow type, and the number of records that have it: in
            which it is not null, and not empty if it is repeated.
        unknown_bytes: size of the fields that the type doesn't have.
    """

    message: str
    records: int
    fields: Sequence[tuple[str, str, int]]
    unknown_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``inspect schema --proto --json`` prints."""
        keys = ("name", "type", "present")
        return {
            "message": self.message,
            "records": self.records,
            "fields": [dict(zip(keys, one, strict=True)) for one in self.fields],
            "unknown_bytes": self.unknown_bytes,
        }


def message_schema(
    shards: Sequence[AnyPath | Stream], columns: MessageColumns, on_fault: OnFault
) -> MessageSchema:
    """Read the records of shards as messages; other records are faults.

    Raises:
        ShardError: a file can't be read.
    """
    records = unknown = 0
    present = dict.fromkeys(columns.names, 0)
    for table, _, records_read in read_batches(shards, columns, on_fault=on_fault):
        records += len(records_read)
        unknown += sum(columns.unknown_bytes(one.payload) for one in records_read)
        for name, column in zip(table.schema.names, table.columns, strict=True):
            if pa.types.is_list(column.type) or pa.types.is_map(column.type):
                present[name] += sum(map(bool, column.to_pylist()))
            else:
                present[name] += len(column) - column.null_count
    fields = [(one.name, str(one.type), present[one.name]) for one in columns.to_arrow()]
    return MessageSchema(columns.message, records, fields, unknown)
