"""The records of datasets that TFDS prepared, without TFDS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from tfrtool.errors import SourceError, os_errors_as
from tfrtool.examples.example import Feature, Value, decode_example
from tfrtool.records.count import reader_at
from tfrtool.records.crc import masked_crc32c
from tfrtool.records.framing import CRC, HEADER, HEADER_SIZE, LENGTH, MAX_RECORD_BYTES, Fault
from tfrtool.records.reader import read_records
from tfrtool.sources.items import Item
from tfrtool.storage.opening import open_regular

_ANEW = "prepare the dataset anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class TfdsReader:
    """Reads the images of records of TFDS' shards.

    An item's place is its record's offset and the number of its shard in one integer, which takes
    a third of the memory of a tuple: ``offset * len(shards) + number``.

    Attributes:
        shards: the paths of the shards.
        image: the feature that holds the image.
    """

    shards: tuple[str, ...]
    image: str

    def read(self, item: Item) -> bytes:
        """Return the encoded image of a record, whose CRCs are checked."""
        shard, offset = self._place(item)
        with open_regular(shard, buffering=0) as file, contextlib.suppress(ValueError):
            image = single_value(decode_example(_payload(file, offset)).features, self.image)
            if isinstance(image, bytes):
                return image
        raise SourceError(
            "the record is damaged, or was changed after it was listed", path=shard, offset=offset
        )

    def describe(self, item: Item) -> str:
        """Return the shard of an item's record, and the offset there."""
        shard, offset = self._place(item)
        return f"{shard}, offset {offset}"

    def _place(self, item: Item) -> tuple[str, int]:
        offset, number = divmod(item.place, len(self.shards))
        return self.shards[number], offset


def _payload(file: BinaryIO, offset: int) -> bytes:
    """Return a record's payload; a ValueError where one of its CRCs does not hold."""
    read_at = reader_at(file)
    head = read_at(HEADER_SIZE, offset)
    if len(head) == HEADER_SIZE:
        length, crc = HEADER.unpack(head)
        if masked_crc32c(LENGTH.pack(length)) == crc and length <= MAX_RECORD_BYTES:
            body = read_at(length + CRC.size, offset + HEADER_SIZE)
            payload = body[:length]
            if body[length:] == CRC.pack(masked_crc32c(payload)):
                return payload
    raise ValueError("no record")


class TfdsShard(NamedTuple):
    """A shard of a prepared dataset.

    Attributes:
        path: the file.
        split: the split's name.
        first: the number of its first record in the split.
        records: how many records it has, by the dataset's metadata.
    """

    path: str
    split: str
    first: int
    records: int


def read_examples(shard: TfdsShard) -> Iterator[tuple[int, int, Mapping[str, Feature]]]:
    """Yield the number, the offset and the features of each record of a shard."""
    count = 0
    with os_errors_as(SourceError, shard.path), open_regular(shard.path) as file:
        for record in read_records(file) if shard.records else ():
            if isinstance(record, Fault):
                raise SourceError(
                    record.message,
                    path=shard.path,
                    record=record.record,
                    offset=record.offset,
                    hint=_ANEW,
                )
            try:
                features = decode_example(record.payload).features
            except ValueError as error:
                raise SourceError(
                    str(error), path=shard.path, record=record.index, offset=record.offset
                ) from error
            yield record.index, record.offset, features
            count += 1
    if count != shard.records:
        raise SourceError(
            "has not the records that its dataset_info.json says",
            path=shard.path,
            expected=shard.records,
            found=count,
            hint=_ANEW,
        )


def single_value(features: Mapping[str, Feature], name: str) -> Value | None:
    """Return the one value of a feature; None where there is none, or several."""
    feature = features.get(name)
    return feature.values[0] if feature is not None and len(feature.values) == 1 else None
