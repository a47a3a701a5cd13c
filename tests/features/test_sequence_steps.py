"""Steps of SequenceExamples that have one value each."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import tfrtool
from tests.examples.wire import field
from tests.records.strategies import read_strictly, shard_of
from tfrtool.examples.arrow.columns import Column, Columns
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.example import PayloadKind, decode_example
from tfrtool.examples.fields import Values


def sequence(*steps: bytes, name: bytes = b"f") -> bytes:
    """Return a SequenceExample with one feature list."""
    entry = field(1, field(1, name), field(2, *(field(1, step) for step in steps)))
    return field(2, entry)


def integers(*values: int) -> bytes:
    """Return a feature."""
    return field(3, field(1, bytes(values)))


SINGLE = [sequence(integers(1), integers(2)), sequence(integers(3)), sequence()]
SEVERAL = [sequence(integers(1, 2), integers(3)), sequence()]
OTHERS = {
    "several values": sequence(integers(1), integers(1, 2)),
    "no values": sequence(integers(1), integers()),
    "no kind": sequence(integers(1), b""),
    "two types": sequence(integers(1), field(1, field(1, b"x"))),
}


def write(path: Path, payloads: list[bytes]) -> Path:
    """Write a shard."""
    path.write_bytes(shard_of(payloads))
    return path


def test_steps_of_one_value_are_values(tmp_path: Path) -> None:
    """They are a list of values, or of lists where that is asked for."""
    path = write(tmp_path / "a.tfrecord", SINGLE)
    rows = tfrtool.read_table(path)
    assert rows.schema.field("feature_lists").type == pa.struct({"f": pa.list_(pa.int64())})
    assert rows.to_arrow().column("feature_lists").to_pylist() == [
        {"f": values} for values in ([1, 2], [3], [])
    ]
    lists = tfrtool.read_table(path, lists=True).schema.field("feature_lists").type
    assert lists == pa.struct({"f": pa.list_(pa.list_(pa.int64()))})


@pytest.mark.parametrize("case", OTHERS)
def test_other_steps_are_lists(case: str, tmp_path: Path) -> None:
    """One step with no value, two or another type makes all of them lists."""
    path = write(tmp_path / "a.tfrecord", [*SINGLE, OTHERS[case]])
    kind = tfrtool.read_table(path).schema.field("feature_lists").type.field("f").type
    assert pa.types.is_nested(kind.value_type)


@pytest.mark.parametrize("to", ["parquet", "jsonl", "csv"])
def test_they_come_back_as_they_were(to: str, tmp_path: Path) -> None:
    """So do those of a file that has such steps, next to one that has lists."""
    records = []
    for name, payloads in (("a", SINGLE), ("b", SEVERAL)):
        write(tmp_path / f"{name}.tfrecord", payloads)
        tfrtool.convert(tmp_path / f"{name}.tfrecord", tmp_path / f"{name}.{to}", workers=1)
        records += [decode_example(one, PayloadKind.SEQUENCE_EXAMPLE) for one in payloads]
    tables = [tmp_path / f"{name}.{to}" for name in "ab"]
    tfrtool.convert(tables, tmp_path / "back.tfrecord", workers=1)
    back = read_strictly((tmp_path / "back.tfrecord").read_bytes()) or []
    assert [decode_example(one, PayloadKind.SEQUENCE_EXAMPLE) for one in back] == records


def test_tables_keep_their_types(tmp_path: Path) -> None:
    """A table of a table has values, too."""
    write(tmp_path / "a.tfrecord", SINGLE)
    tfrtool.convert(tmp_path / "a.tfrecord", tmp_path / "a.parquet", workers=1)
    tfrtool.convert(tmp_path / "a.parquet", tmp_path / "b.jsonl", workers=1)
    lines = (tmp_path / "b.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"feature_lists": {"f": values}} for values in ([1, 2], [3], [])
    ]


@pytest.mark.parametrize("case", OTHERS)
def test_a_step_that_does_not_fit_is_a_misfit(case: str) -> None:
    """It never becomes null in a list of values."""
    column = Column(key=b"f", item=Values.parse("int64"), is_list=True)
    columns = Columns(PayloadKind.SEQUENCE_EXAMPLE, (column,))
    with pytest.raises(MisfitError, match="'f': expected one int64 value") as caught:
        decode_batch([SINGLE[0], OTHERS[case]], columns)
    assert [*caught.value.others] == [1]
