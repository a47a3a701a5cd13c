"""What a write says of its shards: write_report.json, read again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import DatasetError, os_reason
from tfrtool.records.names import ShardName
from tfrtool.storage.json_files import read_member, text_of, whole_number

REPORT = "write_report.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenShard:
    """A shard as it was when it was written.

    Attributes:
        records: how many records it had.
        bytes: its size.
        sha256: its digest, in hexadecimal.
    """

    records: int
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if self.records < 0 or self.bytes < 0:
            raise ValueError("a shard has no negative size")


def read_written_shards(directory: Path) -> Mapping[str, WrittenShard]:
    """Read the report of a write; nothing if there is none.

    Returns:
        The shards by their names in the directory.

    Raises:
        DatasetError: the report is there, and can't be read.
    """
    path = directory / REPORT
    try:
        splits = read_member(path, "splits")  # what follows may be as long as the source
        return {
            shard["path"]: WrittenShard(
                records=whole_number(shard["records"]),
                bytes=whole_number(shard["bytes"]),
                sha256=text_of(shard["sha256"]),
            )
            for split in splits.values()
            for shard in split["shards"]
            # It may have been edited: only what is a shard's name, and so no path, is believed.
            if ShardName.parse(text_of(shard["path"])) is not None
        }
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DatasetError(f"can't be read: {os_reason(error)}", path=path) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"not as tfrtool writes it: {error}", path=path) from error
