"""The columns of payloads: what is inferred, what they are called, and what fits them."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples.arrow.checking import (
    any_payloads,
    check,
    columns_of,
    example,
    taken,
)
from tests.examples.strategies import (
    UNSET,
    entry,
    float32,
    int64,
    raw_example,
    string,
)
from tests.examples.wire import field
from tfrtool.errors import UsageError
from tfrtool.examples.arrow import infer
from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import (
    PayloadKind,
)
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.examples.schema_fold import MAX_NAMES


@given(st.lists(any_payloads | st.binary(max_size=40), max_size=6), st.integers(0, 6))
@settings(deadline=None)
def test_parts_make_the_whole(some: list[bytes], cut: int) -> None:
    """Folds over parts merge into the fold over all; what is no Example makes no column."""
    whole, merged, other = ColumnsFold(), ColumnsFold(), ColumnsFold()
    whole.add(some)
    merged.add(some[:cut])
    other.add(some[cut:])
    merged.merge(pickle.loads(pickle.dumps(other)))
    assert merged.columns() == whole.columns()
    assert +merged.kinds == +whole.kinds
    assert whole.kinds.total() == len(some)
    single = ColumnsFold()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(infer, "_LONG", -1)  # as long payloads, one by one by protobuf
        single.add(some)
    assert single.columns() == whole.columns()
    assert +single.kinds == +whole.kinds
    parsed = whole.kinds[PayloadKind.EXAMPLE] + whole.kinds[PayloadKind.SEQUENCE_EXAMPLE]
    assert parsed == len(taken([one for one in some if one]))


def test_misfits() -> None:
    """A record that the columns can't hold is named with the reason."""
    columns = columns_of([example(a=int64(1), b=string(b"x", b"y"))])
    reasons = {
        example(b=string()): "'a': expected one int64 value, found no feature",
        example(a=int64(1, 2)): "'a': expected one int64 value, found 2 values",
        example(a=string(b"x")): "'a': expected one int64 value, found string",
        example(a=int64(1), b=UNSET): "'b': expected string values, found no value",
    }
    for payload, why in reasons.items():
        with pytest.raises(MisfitError) as error:
            decode_batch([example(a=int64(1)), payload], columns)
        assert (error.value.index, error.value.why) == (1, f"feature {why}")


def test_tables_of_other_payloads() -> None:
    """What is no Example for the most part is a table of payloads, whatever some parse as."""
    event = pb.Event(wall_time=1.5e9, file_version=b"brain.Event:2").SerializeToString()
    nested = pb.Example()
    nested.features.feature.add(key=b"a").value.int64_list.value.append(1)
    listed = field(1, nested.SerializeToString())
    for some, kind in (
        ([event] * 2, PayloadKind.EVENT),
        ([b"text", b"", example(a=int64(1)), b"more"], PayloadKind.UNKNOWN),
        ([listed], PayloadKind.UNKNOWN),
        ([b""], PayloadKind.EMPTY),
    ):
        columns = columns_of(some)
        assert columns == Columns(kind)
        assert columns.names == ("payload",)
        assert decode_batch(some, columns.select(["payload"])).column(0).to_pylist() == some
        check(some)


def test_names() -> None:
    """Names are UTF-8, one a column, and none that the table needs; the keys are kept."""
    keys = [b"caf\xe9", rb"caf\xe9", b"", b"_payload", b"_record", b"a\0b", "é日".encode()]
    some = [raw_example([entry(key, int64(1)) for key in keys])]
    columns = columns_of(some)
    assert len(set(columns.names)) == len(keys)
    assert {"caf\\xe9", "caf\\xe9_", "", "_payload_", "_record_", "é日"} < set(columns.names)
    check(some)
    assert columns.select(["é日"]).columns[0].key == "é日".encode()
    with pytest.raises(UsageError, match=r"'payload'.*_payload_"):
        columns.select(["payload"])


def test_schemas() -> None:
    """A schema of ours is known again, or a part of it; any other is none."""
    columns = columns_of([example(a=int64(1), b=float32(1, 2))])
    schema = columns.to_arrow(exact=True)
    schema = schema.with_metadata({**schema.metadata, b"huggingface": b"{}"})
    assert Columns.from_arrow(schema) == columns
    assert Columns.from_arrow(schema.remove(0)) == columns.select(["b"])
    places = schema.append(pa.field("_shard", pa.dictionary(pa.int32(), pa.string())))
    assert Columns.from_arrow(places) == columns
    for other in (
        schema.remove_metadata(),
        schema.append(pa.field("c", pa.int64())),
        schema.set(0, pa.field("a", pa.int32())),
        schema.with_metadata({b"tfrtool": b"[]"}),
        schema.with_metadata({b"tfrtool": b'{"kind": "example", "columns": [1]}'}),
    ):
        assert Columns.from_arrow(other) is None
    assert pickle.loads(pickle.dumps(columns)) == columns


def test_too_many_names() -> None:
    """Names without end cost no memory without end."""
    fold = ColumnsFold()
    for start in range(0, MAX_NAMES + 500, 500):
        some = [example(**{f"n{start + number}": int64(1)}) for number in range(500)]
        fold.add(some)
    assert len(fold.columns().columns) == MAX_NAMES
    assert fold.skipped == 500
    fold.add([raw_example([entry(b"x" * 5_000_000, int64(1))])])
    assert fold.skipped == 501
