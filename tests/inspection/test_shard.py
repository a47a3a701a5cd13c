"""Looking into one shard."""

from __future__ import annotations

import pytest

from tests.conftest import MakeShard
from tests.examples.strategies import UNSET, int64, string
from tests.records.strategies import offsets_of
from tfrtool.errors import UsageError
from tfrtool.examples.example import PayloadKind, encode_example
from tfrtool.examples.schema import Schema
from tfrtool.inspection.summary.shard_summary import inspect_shard
from tfrtool.records.framing import Fault, FaultKind

JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF"
CAT = encode_example({"image": string(JPEG), "label": int64(0)})
DOG = encode_example({"image": string(JPEG + b"dog"), "label": int64(1)})
CATS_VS_DOGS = Schema.from_notation(["image:string=", "label:int64=-1"])


def places(faults: tuple[Fault, ...]) -> list[tuple[str, int, int | None]]:
    """Return what faults are, and where."""
    return [(fault.kind.value, fault.offset, fault.record) for fault in faults]


@pytest.mark.parametrize("options", [{"limit": -1}, {"record": -1}])
def test_impossible_options(options: dict[str, int], make_shard: MakeShard) -> None:
    """Options that exist can be met."""
    with pytest.raises(UsageError, match="at least 0"):
        inspect_shard(make_shard([CAT]), **options)  # type: ignore[arg-type]


def test_misfits_of_a_schema(make_shard: MakeShard) -> None:
    """Records that don't fit the schema are faults that say which record and why."""
    wrong = encode_example({"image": string(JPEG), "label": string(b"dog")})
    payloads = [CAT, wrong, DOG]
    summary = inspect_shard(make_shard(payloads), schema=CATS_VS_DOGS)
    assert places(summary.faults) == [("parse", offsets_of(payloads)[1], 1)]
    assert "label" in summary.faults[0].message
    assert summary.records == 3


def test_hidden_defaults(make_shard: MakeShard) -> None:
    """Values that a default would stand in for are told by record; they are no faults."""
    payloads = [
        CAT,
        encode_example({"image": string(JPEG)}),
        encode_example({"label": UNSET, "image": string(JPEG)}),
        encode_example({"label": int64(1)}),
    ]
    summary = inspect_shard(make_shard(payloads), schema=CATS_VS_DOGS)
    assert summary.hidden == {
        "label": (1, 2),
        "image": (3,),
    }
    assert summary.faults == ()


def test_stranger_among_examples(make_shard: MakeShard) -> None:
    """A payload that is no Example, among Examples, is a fault of its own."""
    summary = inspect_shard(make_shard([CAT, b"hello world", DOG]))
    assert summary.payload is PayloadKind.EXAMPLE
    assert places(summary.faults) == [("parse", offsets_of([CAT])[1], 1)]
    shown = [sample.parsed is None for sample in summary.sample]
    assert shown == [False, True, False]


def test_examples_among_strangers(make_shard: MakeShard) -> None:
    """A shard of other payloads has no features, and its payloads are no faults."""
    summary = inspect_shard(make_shard([b"hello world", b"hello world 2", CAT]))
    assert summary.payload is PayloadKind.UNKNOWN
    assert (summary.features, summary.faults, summary.records) == ((), (), 3)


@pytest.mark.parametrize("payloads", [[], [b""], [b"", b""]])
def test_nothing(make_shard: MakeShard, payloads: list[bytes]) -> None:
    """An empty file is a fault, and a shard of empty records is not; both hold nothing."""
    summary = inspect_shard(make_shard(payloads))
    assert summary.payload is PayloadKind.EMPTY
    assert summary.records == len(payloads)
    assert [fault.kind for fault in summary.faults] == ([] if payloads else [FaultKind.EMPTY])
