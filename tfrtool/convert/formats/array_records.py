"""ArrayRecord files: payloads as they are, of which TFDS and Grain read any by its number."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tfrtool.convert.formats.array_reader import library, read_parts
from tfrtool.convert.formats.payload_format import PayloadFormat
from tfrtool.convert.formats.registry import Content, Mark, Put
from tfrtool.errors import SourceError, WriteError
from tfrtool.records.crc import masked_crc32c
from tfrtool.records.framing import Fault, FaultKind, Record

_WRITING = "group_size:1"
"""Each record in a chunk of its own, as TFDS 4.9.10 writes them: one is read without others."""

_PLACE = re.compile(r"\bchunk at (\d{1,18})\b")
"""Where a message of the library says that a chunk starts, in bytes."""

_MOST_FAULTS = 1000
"""Of a file; each costs as much as opening it."""


class ArrayRecordFormat(PayloadFormat):
    """Files of the library ``array_record``, named as TFDS names them."""

    name, tfds_name = "arrayrecord", "array_record"
    own_names = re.compile(r"\.array_?records?(-\d{5,}-of-\d{5,})?$", re.IGNORECASE)
    magic = bytes.fromhex("83af70d10d884a3f 0000000000000000 4000000000000000")
    """The header of Riegeli's first block (riegeli/records/block.h)."""

    file_name = "{dataset}-{split}.array_record-{index:05d}-of-{count:05d}"

    def read(
        self, path: Path, mark: Mark, tell: Callable[[Fault], None] = lambda _: None
    ) -> Iterator[list[Record]]:
        """Yield payloads as records, whose offsets nobody knows, and tell of damaged chunks."""
        first = damaged = 0
        for payloads, following, reason in read_parts(path, mark.record):
            numbered = enumerate(payloads, start=first)
            yield [Record(number, 0, one, masked_crc32c(one)) for number, one in numbered]
            first = following - mark.record
            if reason:
                place, kind = _PLACE.search(reason), FaultKind.PAYLOAD_CRC
                offset = int(place[1]) if place else 0
                tell(Fault(kind=kind, offset=offset, record=following - 1, message=reason))
                damaged += 1
            if damaged > _MOST_FAULTS:
                what = f"has more than {_MOST_FAULTS:,} damaged records"
                raise SourceError(what, path=path, found=reason)

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> Iterator[Put]:  # noqa: ARG002
        """Give a file to write."""
        try:
            writer = library().ArrayRecordWriter(str(path), _WRITING)
            try:

                def put(payloads: Sequence[bytes]) -> None:
                    for payload in payloads:
                        writer.write(payload)

                yield put
            finally:
                writer.close()
        except RuntimeError as error:
            raise WriteError("can't be written", path=path, found=str(error)[:300]) from error
