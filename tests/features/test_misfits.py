"""Records that a tree doesn't fit: exactly those are misfits, whatever is in them."""

from __future__ import annotations

import gc
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tfrtool
from tests.records.strategies import shard_of
from tfrtool.errors import SchemaError
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.examples.fields import Field, ListOf, Struct, Values
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.tensor_protos import tensor_proto


def integers(*values: int) -> Feature:
    """Return a feature of integers, perhaps of none."""
    return Feature(dtype=DType.INT64, values=values)


def floats(*values: float) -> Feature:
    """Return a feature of floats, perhaps of none."""
    return Feature(dtype=DType.FLOAT32, values=values)


def strings(*values: bytes) -> Feature:
    """Return a feature of strings, perhaps of none."""
    return Feature(dtype=DType.STRING, values=values)


def lists(spelling: str, levels: int = 1) -> Field:
    """Return lists of values."""
    item: Field = Values.parse(spelling)
    for _ in range(levels):
        item = ListOf(item=item)
    return item


def columns_of(**fields: Field | str) -> FeatureColumns:
    """Return columns; a field may be spelled."""
    parts = {n: Values.parse(f) if isinstance(f, str) else f for n, f in fields.items()}
    return FeatureColumns.of(Struct(parts))


def misfit_of(columns: FeatureColumns, good: dict[str, Any], bad: dict[str, Any]) -> str:
    """Return why a record is a misfit; those before and after it are as without it."""
    payloads = [encode_example(one) for one in (good, bad, good)]
    alone, rejected = columns.decode(payloads[:1])
    assert not rejected
    table, rejected = columns.decode(payloads)
    table.validate(full=True)
    assert [*rejected] == [1]
    assert table.to_pylist() == alone.to_pylist() * 2
    assert table.schema.equals(alone.schema)
    return rejected[1]


RAGGED = {
    "x/ragged_flat_values": integers(1, 2, 3),
    "x/ragged_row_lengths_0": integers(2, 0, 1),
}
RAGGED_3 = {
    "x/ragged_flat_values": integers(1, 2, 3),
    "x/ragged_row_lengths_0": integers(2, 0),
    "x/ragged_row_lengths_1": integers(1, 2),
}


@pytest.mark.parametrize(
    ("lengths", "why"),
    [
        ((2, 0, 2), "found 3 instead of 4"),
        ((2, 0), "found 3 instead of 2"),
        ((-1, 4), "expected lengths of lists, found -1"),
        ((2**31, 1 - 2**31), "expected lengths of lists, found 2147483648"),
        ((2**62, 2**62, 2**62, 2**62, 3), "expected lengths of lists, found 4611686018427387904"),
        ((2**31 - 1, 2**31 - 1), "found 3 instead of 4294967294"),
        ((), "found 3 instead of 0"),
    ],
)
def test_row_lengths(lengths: tuple[int, ...], why: str) -> None:
    """Row lengths are at least 0, below 2**31, and add up to the values of their record."""
    columns = columns_of(x=lists("int64", 2))
    bad = {**RAGGED, "x/ragged_row_lengths_0": integers(*lengths)}
    assert misfit_of(columns, RAGGED, bad).endswith(why)


def test_row_lengths_that_would_shift_the_next_record() -> None:
    """Lengths that add up in all records, but not in each, are misfits of two records."""
    columns = columns_of(x=lists("int64", 3))
    more = {**RAGGED_3, "x/ragged_row_lengths_1": integers(1, 2, 0)}
    less = {**RAGGED_3, "x/ragged_row_lengths_1": integers(3)}
    payloads = [encode_example(one) for one in (RAGGED_3, more, less, RAGGED_3)]
    table, rejected = columns.decode(payloads)
    assert [*rejected] == [1, 2]
    assert table.column("x").to_pylist() == [[[[1], [2, 3]], []]] * 2


SHAPED = {"x/value": strings(bytes(6)), "x/shape": integers(2, 3)}


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ((2, 4), "expected the stored shape, found 6"),
        ((6,), "found 1"),
        ((2, 3, 1), "found 3"),
        ((-2, -3), "expected sizes, found -2"),
        ((2**32, 2**32), "expected sizes, found 4294967296"),
        ((2**31 - 1, 0), "expected the stored shape, found 6"),
        ((), "found 0"),
    ],
)
def test_stored_shapes(shape: tuple[int, ...], why: str) -> None:
    """A stored shape has the sizes of its tensor, none of them negative."""
    columns = columns_of(x="raw:uint8[*,*]")
    assert misfit_of(columns, SHAPED, {**SHAPED, "x/shape": integers(*shape)}).endswith(why)


@pytest.mark.parametrize("shape", [(2**31 - 1, 0), (0, 2**31 - 1), (2**31 - 1, 2**31 - 1, 0)])
def test_tensors_without_values_take_no_memory(shape: tuple[int, ...]) -> None:
    """A few bytes can't claim billions of empty lists; small empty tensors are shown."""
    spelling = f"raw:uint8[{','.join('*' * len(shape))}]"
    good = {"x/value": strings(b""), "x/shape": integers(2, *[0] * (len(shape) - 1))}
    bad = {**good, "x/shape": integers(*shape)}
    assert "the stored shape" in misfit_of(columns_of(x=spelling), good, bad)


def test_many_tensors_without_values() -> None:
    """Empty tensors of many records may be too many for a batch, which is read in parts then."""
    columns = columns_of(x="raw:uint8[*,*]")
    record = encode_example({"x/value": strings(b""), "x/shape": integers(2**20, 0)})
    columns.decode([record] * 2)
    with pytest.raises(SchemaError, match="take too much memory"):
        columns.decode([record] * 20)


def test_other_row_lengths_of_shapes() -> None:
    """Lists of shapes as long as those of tensors are checked for each record."""
    columns = columns_of(x=lists("raw:uint8[*,*]", 2))
    good = {
        "x/value/ragged_flat_values": strings(bytes(2), bytes(3)),
        "x/value/ragged_row_lengths_0": integers(1, 1),
        "x/shape/ragged_flat_values": integers(1, 2, 3, 1),
        "x/shape/ragged_row_lengths_0": integers(1, 1),
    }
    for lengths in ((2, 0), (2,), (1, 1, 0)):
        bad = {**good, "x/shape/ragged_row_lengths_0": integers(*lengths)}
        assert "feature 'x/shape/" in misfit_of(columns, good, bad)


@pytest.mark.parametrize(
    ("spelling", "content", "why"),
    [
        ("zlib:int16[2]", b"no zlib", "expected zlib data, found other bytes"),
        ("zlib:int16[2]", zlib.compress(bytes(4))[:-3], "found an incomplete stream"),
        ("zlib:int16[2]", zlib.compress(bytes(1000)), "found more than 4 bytes"),
        ("zlib:int16[2]", zlib.compress(bytes(2)), "expected 2 values ([2]), found 1"),
        ("zlib:int16[*,2]", zlib.compress(bytes(3)), "expected a multiple of 2 bytes, found 3"),
        ("zlib:int16[*,2]", zlib.compress(bytes(6)), "expected a multiple of 2 values, found 3"),
        ("raw:float64[2]", bytes(15), "expected a multiple of 8 bytes, found 15"),
        ("raw:int16", b"", "expected one string, found 0"),
    ],
)
def test_encoded_tensors(spelling: str, content: bytes, why: str) -> None:
    """Bytes that are no zlib data, or no tensor of that shape, are misfits."""
    good: dict[str, Any] = {"x": bytes(16) if "float" in spelling else bytes(4)}
    if spelling == "raw:int16":
        good = {"x": bytes(2)}
    if "zlib" in spelling:
        good = {"x": zlib.compress(good["x"])}
    assert misfit_of(columns_of(x=spelling), good, {"x": content}).endswith(why)


def test_zlib_bombs_of_a_batch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tensors of unknown size have a limit each; together, records that are read at once have."""
    monkeypatch.setattr("tfrtool.features.encoded_tensors.MOST_UNPACKED", 1000)
    monkeypatch.setattr("tfrtool.features.leaf_build.BATCH_UNPACKED", 1000)
    columns = columns_of(x="zlib:uint8[*]")
    small, bomb = ({"x": zlib.compress(bytes(size))} for size in (600, 1_000_000))
    assert "found more than 1000 bytes" in misfit_of(columns, {"x": zlib.compress(b"1")}, bomb)
    with pytest.raises(SchemaError, match="unpack to more than"):
        columns.decode([encode_example(small)] * 2)
    (tmp_path / "a.tfrecord").write_bytes(shard_of([encode_example(small)] * 3))
    batches = [*tfrtool.read_table(tmp_path / "a.tfrecord", types={"x": "zlib:uint8[*]"})]
    assert [len(batch["x"][0]) for batch in batches] == [600] * 3


def test_tensors_that_repeat_a_value() -> None:
    """A few bytes can't stand for 80 MiB, though they can for some values."""
    good, bad = ({"x": tensor_proto("float32", [size], b"")} for size in (5, 20 * 2**20))
    why = misfit_of(columns_of(x="tensor:float32[*]"), good, bad)
    assert re.search(r"found a tensor of more than 67,1\d\d,\d{3} bytes", why)


@pytest.mark.parametrize(
    ("field", "good", "bad", "why"),
    [
        ("uint8", 255, 256, "expected uint8, found 256"),
        ("int8", -128, -129, "expected int8, found -129"),
        ("uint32", 2**32 - 1, -1, "expected uint32, found -1"),
        ("bool", 1, 2, "expected 0 or 1, found 2"),
        ("text", "größe", b"\xff", "expected text, found bytes that are not UTF-8"),
        ("int64", 1, 1.0, "expected int64 values, found float32"),
        ("int64", 1, [1, 2], "expected one value, found 2"),
        ("int64", 1, integers(), "expected one value, found 0"),
        ("float32[2,3]", [1.0] * 6, [1.0] * 5, "expected 6 values ([2,3]), found 5"),
        ("float32[*,3]", [1.0] * 6, [1.0] * 5, "expected a multiple of 3 values, found 5"),
        ("int64[0]", integers(), 1, "found 1"),
        ("timestamp", 1, 2**62 + 1, None),
        ("date", 86_400_000_000, 1, "expected date, found another value"),
        ("decimal(4,2)", "1.25", "1.255", "expected decimal(4,2), found another value"),
    ],
)
def test_values_out_of_range(field: str, good: Any, bad: Any, why: str | None) -> None:
    """A value that its type doesn't have is a misfit, not a number cut to size."""
    columns = columns_of(x=field)
    if why is None:
        assert not columns.decode([encode_example({"x": bad})])[1]
    else:
        assert misfit_of(columns, {"x": good}, {"x": bad}).endswith(why)


STEPS = ListOf(
    item=Struct(
        {
            "action": Values.parse("float32[2]"),
            "reward": Values.parse("float32"),
            "words": ListOf(item=Values.parse("text")),
        }
    )
)
EPISODE = {
    "steps/action": floats(*range(6)),
    "steps/reward": floats(1, 2, 3),
    "steps/words/ragged_flat_values": strings(b"a"),
    "steps/words/ragged_row_lengths_0": integers(1, 0, 0),
}


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("steps/reward", floats(1, 2), "as many items as 'steps/action', found 2 instead of 3"),
        ("steps/action", floats(*range(5)), "expected a multiple of 2 values, found 5"),
        (
            "steps/action",
            floats(*range(4)),
            "as many items as 'steps/reward', found 2 instead of 3",
        ),
        ("steps/words/ragged_row_lengths_0", integers(1, 0), "found 2 instead of 3"),
    ],
)
def test_fields_of_unequal_length(key: str, value: Feature, why: str) -> None:
    """All fields of a list of structs have as many items, and the misfit names both fields."""
    assert misfit_of(columns_of(steps=STEPS), EPISODE, {**EPISODE, key: value}).endswith(why)


def test_missing_features_are_null() -> None:
    """A feature that a record doesn't have is null: of a struct in a list, in each item."""
    columns = columns_of(steps=STEPS, label="label", depth="zlib:int8[*,*]")
    without = {key: value for key, value in EPISODE.items() if key != "steps/action"}
    records: list[dict[str, Any]] = [without, {}, EPISODE]
    table, rejected = columns.decode([encode_example(one) for one in records])
    assert not rejected
    first, second, _ = table.to_pylist()
    words = [["a"], [], []]
    assert first["steps"] == [
        {"action": None, "reward": reward, "words": words[at]}
        for at, reward in enumerate((1.0, 2.0, 3.0))
    ]
    assert second == {"steps": None, "label": None, "depth": None}


def test_missing_large_tensors_take_no_memory() -> None:
    """Null tensors take memory in Arrow: more than a batch may have is an error, not a crash."""
    item = Struct({"a": Values.parse("int64"), "x": Values.parse("float32[67108864]")})
    payload = encode_example({"s/a": integers(1, 2, 3)})
    with pytest.raises(SchemaError, match="missing tensors take too much memory"):
        columns_of(s=ListOf(item=item)).decode([payload])
    assert columns_of(x="float32[67108864]").batch_records == 1


def test_a_batch_is_freed_at_once() -> None:
    """A batch that nobody holds takes no memory, though garbage is not collected meanwhile."""
    columns = columns_of(x="float32[1000]", y=lists("text"))
    payloads = [encode_example({"y": ["a"]})] * 20
    gc.disable()
    try:
        columns.decode(payloads)
        before = pa.total_allocated_bytes()
        for _ in range(3):
            columns.decode(payloads)
        assert pa.total_allocated_bytes() <= before  # other threads may free theirs
    finally:
        gc.enable()


def test_lists_of_a_length() -> None:
    """A list of a declared length has that many items in each record that has it."""
    columns = columns_of(x=ListOf(item=Values.parse("int64"), length=3))
    assert misfit_of(columns, {"x": [1, 2, 3]}, {"x": [1, 2]}) == (
        "feature 'x': expected 3 items, found 2"
    )
    table, rejected = columns.decode([encode_example({})])
    assert (table.to_pylist(), rejected) == ([{"x": None}], {})


def test_payloads_that_are_no_examples() -> None:
    """Other bytes are rejected among the records that fit; a batch may have nothing else."""
    columns = columns_of(x="int64")
    good = encode_example({"x": 1})
    table, rejected = columns.decode([b"\xff\xff", good, b"\x0a\xff"])
    assert (table.to_pylist(), [*rejected]) == ([{"x": 1}], [0, 2])
    for payloads in ([], [b"\xff\xff"], [encode_example({"x": 1.0})]):
        for kind in ("int64", "zlib:int8[*,*]", "text", "raw:float32[2]"):
            table, _ = columns_of(x=kind, y=lists(kind), z=lists(kind, 2)).decode(payloads)
            table.validate(full=True)
            assert table.num_rows == 0 or payloads[0] != b"\xff\xff"


def test_what_tfds_needs_is_checked_strictly() -> None:
    """What can be shown all the same, but TFDS refuses, is a misfit of a strict check alone."""
    label = Values(kind=Values.parse("label").kind, info={"numClasses": "3"})
    columns = columns_of(label=label, name="text")
    records: list[dict[str, Any]] = [
        {"label": 2, "name": "a"},
        {"label": 3, "name": "a"},
        {"label": -1},
        {"name": b"\xff"},
    ]
    payloads = [encode_example(one) for one in records]
    _, misfits, damaged = columns.checked(payloads, strict=True)
    assert not damaged
    assert {row: {*map(str, found.values())} for row, found in misfits.items()} == {
        1: {"feature 'label': expected a class from -1 to 2, found 3"},
        2: {"feature 'name': expected text, found no such feature"},
        3: {
            "feature 'label': expected label, found no such feature",
            "feature 'name': expected text, found bytes that are not UTF-8",
        },
    }
    assert [one.is_text for one in misfits[3].values() if one.path == "name"] == [True]
    table, rejected = columns.decode(payloads)
    assert ([*rejected], table.num_rows) == ([3], 3)


def test_many_misfits_in_many_fields() -> None:
    """Every field of a record is compared: the misfits of a record name all of them."""
    columns = columns_of(a="uint8", b="text", c="float32[2]", d=lists("bool"))
    bad = {"a": 300, "b": b"\xff", "c": [1.0], "d": [2]}
    good = {"a": 3, "b": "x", "c": [1.0, 2.0], "d": [1]}
    payloads = [encode_example(bad if row % 3 else good) for row in range(9)]
    rows, misfits, _ = columns.checked(payloads, strict=False)
    assert isinstance(rows, pa.StructArray)
    assert len(rows) == 3
    assert {row: {*found} for row, found in misfits.items()} == {
        row: {"a", "b", "c", "d"} for row in (1, 2, 4, 5, 7, 8)
    }


def test_values_of_each_type() -> None:
    """Numbers have their own type and value: 64 bits unsigned, doubles, halves as floats."""
    columns = columns_of(
        u="uint64", d="raw:float64", h="raw:float16[2]", b="raw:bfloat16", f="float64", t="bool"
    )
    payload = encode_example(
        {
            "u": -1,
            "d": np.array([1e300], "<f8").tobytes(),
            "h": np.array([0.5, -2], "<f2").tobytes(),
            "b": b"\x80\x3f",
            "f": 0.5,
            "t": 1,
        }
    )
    table, _ = columns.decode([payload])
    assert table.to_pylist() == [
        {"u": 2**64 - 1, "d": 1e300, "h": [0.5, -2.0], "b": 1.0, "f": 0.5, "t": True}
    ]
    assert [str(field.type) for field in table.schema] == [
        "uint64", "double", "fixed_size_list<item: float>[2]", "float", "double", "bool"
    ]  # fmt: skip
