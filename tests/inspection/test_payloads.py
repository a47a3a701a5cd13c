"""What the payloads of a shard are, by majority."""

from __future__ import annotations

import pytest

from tests.examples.strategies import int64
from tfrtool.examples.example import PayloadKind, encode_example
from tfrtool.examples.schema_fold import SchemaFold
from tfrtool.inspection.summary.shard_summary import PayloadFold
from tfrtool.records.framing import Record

EXAMPLE, TEXT = encode_example({"a": int64(1)}), b"hello world"


def folded(*payloads: bytes) -> PayloadFold:
    """Return a fold over payloads."""
    fold = PayloadFold(SchemaFold())
    for index, payload in enumerate(payloads):
        fold.add(Record(index=index, offset=30 * index, payload=payload, payload_crc=0))
    return fold


@pytest.mark.parametrize(
    ("payloads", "kind", "unparseable"),
    [
        ([EXAMPLE, TEXT], PayloadKind.EXAMPLE, [1]),
        ([TEXT, EXAMPLE, EXAMPLE], PayloadKind.EXAMPLE, [0]),
        ([TEXT] * 60 + [EXAMPLE] * 40, PayloadKind.UNKNOWN, []),
        ([EXAMPLE] * 60 + [TEXT] * 40, PayloadKind.EXAMPLE, list(range(60, 100))),
        ([b"", EXAMPLE], PayloadKind.EXAMPLE, []),
        ([b"", b""], PayloadKind.EMPTY, []),
        ([], PayloadKind.EMPTY, []),
    ],
)
def test_kind(payloads: list[bytes], kind: PayloadKind, unparseable: list[int]) -> None:
    """The first records decide; unparseable are kept among Examples, and not elsewhere."""
    fold = folded(*payloads)
    assert fold.kind is kind
    assert [fault.record for fault in fold.unparseable.kept] == unparseable


def test_unparseable_are_described() -> None:
    """What records hold that are no Examples is told from their bytes."""
    assert folded(TEXT, b"\xff\0", TEXT).described == {"text": 2, "binary": 1}
