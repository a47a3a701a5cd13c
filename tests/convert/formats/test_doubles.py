"""Numbers of tables: they become int64 or float32, and none changes in silence."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfrtool
from tests.convert.formats.test_conversion import payloads_in
from tests.records.strategies import read_strictly, shard_of
from tfrtool.cli import main
from tfrtool.errors import SourceError
from tfrtool.examples.example import DType, Feature, decode_example, encode_example

FORMATS = ("parquet", "csv", "jsonl")
WHOLE = st.integers(-(2**70), 2**70).map(float)
SMALL = st.integers(-(2**24), 2**24).map(float)
NUMBERS = st.one_of(
    st.lists(SMALL | st.none(), min_size=1, max_size=6),
    st.lists(WHOLE | st.none(), min_size=1, max_size=6),
    st.lists(st.floats() | SMALL | st.none(), min_size=1, max_size=6),
    st.lists(st.floats(width=32) | st.sampled_from([-0.0, 1e300, 0.1]), min_size=1, max_size=6),
)
ANY_FLOAT32 = st.floats(width=32, allow_nan=False) | st.just(math.nan)


def table(path: Path, values: Sequence[float | None]) -> Path:
    """Write a table with a column of doubles, in the format that its name says."""
    rows = [(n, value) for n, value in enumerate(values)]
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"n": range(len(values)), "x": pa.array(values, "float64")}), path)
    elif path.suffix == ".csv":
        cells = [f"{n},{'' if value is None else repr(value)}\n" for n, value in rows]
        path.write_text("n,x\n" + "".join(cells))
    else:
        path.write_text("".join(json.dumps({"n": n, "x": value}) + "\n" for n, value in rows))
    return path


def features(folder: Path) -> list[Feature | None]:
    """Return the feature ``x`` of each record, in the order of ``n``."""
    examples = [decode_example(payload).features for payload in payloads_in(folder)]
    examples.sort(key=lambda one: one["n"].values[0])
    return [one.get("x") for one in examples]


def single(value: float) -> float:
    """Return a double as float32 has it."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def true_change(values: Sequence[float | None]) -> float:
    """Return the largest relative change of numbers that become float32, by exact fractions."""
    changes = [0.0]
    for value in values:
        if value and math.isfinite(value):
            rounded = single(value)
            if math.isinf(rounded):
                return math.inf
            changes.append(float(abs(Fraction(rounded) - Fraction(value)) / abs(Fraction(value))))
    return max(changes)


@pytest.mark.parametrize("form", FORMATS)
@given(values=NUMBERS)
def test_any_doubles(
    form: str, tmp_path_factory: pytest.TempPathFactory, values: list[float | None]
) -> None:
    """A column comes back exactly, or a note has its largest change, or it is refused."""
    folder = tmp_path_factory.mktemp("doubles")
    notes: list[str] = []
    held = [value for value in values if value is not None]
    lost = [v for v in held if math.isfinite(v) and v == int(v) and single(v) != v]
    signed = any(value == 0 and math.copysign(1, value) < 0 for value in held)
    whole = not signed and all(
        math.isfinite(value) and value == int(value) and -(2**63) <= value < 2**63 for value in held
    )
    source = table(folder / f"t.{form}", values)
    if lost and not whole:
        with pytest.raises(SourceError, match="column 'x'") as error:
            tfrtool.convert(source, folder / "out", workers=1)
        assert error.value.record == values.index(lost[0])
        return
    tfrtool.convert(source, folder / "out", on_note=notes.append, workers=1)
    said = [note for note in notes if "'x'" in note]
    change = true_change(values)
    if held and whole:
        (note,) = said
        assert note.endswith("become int64")
    elif held:
        number = f"the largest relative change is {change:.3g}" if change else "no value changes"
        (note,) = said
        assert note.endswith(f"become float32; {number}")
    for value, feature in zip(values, features(folder / "out"), strict=True):
        if value is None:
            assert feature is None
        else:
            assert feature is not None
            assert feature.dtype is (DType.INT64 if whole else DType.FLOAT32)
            expected = int(value) if whole else single(value)
            assert repr(list(feature.values)) == repr([expected])


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@settings(max_examples=settings().max_examples // 3)
@given(values=st.lists(ANY_FLOAT32, min_size=1, max_size=6), data=st.data())
def test_any_float32(
    form: str, tmp_path_factory: pytest.TempPathFactory, values: list[float], data: st.DataObject
) -> None:
    """Text has the shortest digits of each float32, as numpy writes them, and they come back."""
    folder = tmp_path_factory.mktemp("singles")
    size = data.draw(st.integers(1, len(values)))
    held = [values[at : at + size] for at in range(0, len(values), size)]
    payloads = [
        encode_example({"x": Feature(dtype=DType.FLOAT32, values=tuple(some))}) for some in held
    ]
    (folder / "a.tfrecord").write_bytes(shard_of(payloads))
    tfrtool.convert(folder / "a.tfrecord", folder / f"b.{form}", workers=1)
    text = (folder / f"b.{form}").read_text()
    words = re.findall(r"nan|-?inf(?:inity)?|-?\d[-+.\de]*", text, re.IGNORECASE)
    finite = [word for word in words if word[-1].isdigit()]
    shortest = [float(str(np.float32(one))) for one in values if math.isfinite(one)]
    assert finite == [*map(repr, shortest)]
    assert len(words) == len(values)
    tfrtool.convert(folder / f"b.{form}", folder / "c.tfrecord", workers=1)
    assert read_strictly((folder / "c.tfrecord").read_bytes()) == payloads


def test_ids_of_pandas_with_a_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gap makes doubles of ids; they are int64 again, to the last digit."""
    frame = pd.DataFrame({"n": [0, 1, 2], "x": [1234567891.0, None, 1700000001.0]})
    frame.to_parquet(tmp_path / "t.parquet")
    assert main(["convert", str(tmp_path / "t.parquet"), str(tmp_path / "out")]) == 0
    first, gap, last = features(tmp_path / "out")
    assert (first, gap, last) == (
        Feature(dtype=DType.INT64, values=(1234567891,)),
        None,
        Feature(dtype=DType.INT64, values=(1700000001,)),
    )
    assert re.search("column 'x'.* int64", capsys.readouterr().err)


@pytest.mark.parametrize("form", FORMATS)
def test_whole_numbers_among_fractions(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What float32 can't hold is refused with its column and row, until a type is given."""
    source = table(tmp_path / f"t.{form}", [0.5, 16777216.0, 16777217.0])
    assert main(["convert", str(source), str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert f"t.{form}, record 2: column 'x' would become float32, which can't hold" in error
    assert re.search("--cast x:float32 .*--cast x:string ", error)
    assert not (tmp_path / "out").exists()
    assert main(["convert", str(source), str(tmp_path / "f"), "--cast", "x:float32"]) == 0
    assert "the largest relative change is 5.96e-08" in capsys.readouterr().err
    assert [one and one.values[0] for one in features(tmp_path / "f")] == [0.5, 2**24, 2**24]
    assert main(["convert", str(source), str(tmp_path / "s"), "--cast", "x:string"]) == 0
    texts = [b"0.5", b"16777216.0", b"16777217.0"]
    assert [one and one.values[0] for one in features(tmp_path / "s")] == texts
    capsys.readouterr()
    assert main(["convert", str(source), str(tmp_path / "i"), "--cast", "x:int64"]) != 0
    assert "column 'x'" in capsys.readouterr().err


@pytest.mark.parametrize("form", FORMATS)
def test_what_no_cast_can_hold(form: str, tmp_path: Path) -> None:
    """A double beyond float32 never becomes infinite."""
    source = table(tmp_path / f"t.{form}", [0.5, 1e300])
    for cast in (None, {"x": "float32"}, {"x": "int64"}):
        with pytest.raises(tfrtool.TfrtoolError, match="column 'x'"):
            tfrtool.convert(source, tmp_path / "out", cast=cast)
    tfrtool.convert(source, tmp_path / "out", cast={"x": "string"})
    assert [one and one.values[0] for one in features(tmp_path / "out")] == [b"0.5", b"1e+300"]


def test_several_files_have_one_type(tmp_path: Path) -> None:
    """A column is whole only where it is in all files; a fraction anywhere refuses large ids."""
    for name, values in (("a", [1.0, 2.0]), ("b", [2.5])):
        table(tmp_path / f"{name}.parquet", values)
    tfrtool.convert(str(tmp_path / "?.parquet"), tmp_path / "out")
    kinds = {one.dtype for one in features(tmp_path / "out") if one}
    assert kinds == {DType.FLOAT32}
    table(tmp_path / "c.parquet", [1234567891.0])
    with pytest.raises(SourceError, match=r"c\.parquet, record 0: column 'x'"):
        tfrtool.convert(str(tmp_path / "?.parquet"), tmp_path / "more")
    frame = pd.DataFrame({"n": [1], "x": [5]})
    frame.to_parquet(tmp_path / "b.parquet")  # int64, as pandas has it without a gap
    tfrtool.convert(str(tmp_path / "?.parquet"), tmp_path / "ids")
    assert {one.dtype for one in features(tmp_path / "ids") if one} == {DType.INT64}


def test_lists_of_doubles(tmp_path: Path) -> None:
    """Lists follow the same rules, over all of their values."""
    whole, mixed = [[1234567891.0, 2.0], None, []], [[0.5], [16777217.0, 1.0], [2.0]]
    data = pa.table({"n": range(3), "x": pa.array(whole), "y": pa.array(mixed)})
    pq.write_table(data, tmp_path / "t.parquet")
    with pytest.raises(SourceError, match="record 1: column 'y'"):
        tfrtool.convert(tmp_path / "t.parquet", tmp_path / "out")
    tfrtool.convert(tmp_path / "t.parquet", tmp_path / "out", select=["n", "x"])
    first, gap, empty = features(tmp_path / "out")
    assert first is not None
    assert first.values == (1234567891, 2)
    assert gap is None
    assert empty is not None
    assert not empty.values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9007199254740993.0", 2**53 + 1),
        ("1234567890123456789", 1234567890123456789),
        ("9.007199254740993e15", 2**53 + 1),
    ],
)
def test_digits_that_no_double_has(tmp_path: Path, text: str, value: int) -> None:
    """A number in text is what its digits say, not the nearest double."""
    (tmp_path / "t.csv").write_text(f"n,x\n0,{text}\n")
    (tmp_path / "t.jsonl").write_text(f'{{"n": 0, "x": {text}}}\n')
    for form in ("csv", "jsonl"):
        tfrtool.convert(tmp_path / f"t.{form}", tmp_path / form)
        (feature,) = features(tmp_path / form)
        assert feature == Feature(dtype=DType.INT64, values=(value,))


def test_a_cast_needs_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another command changes the types of records; unknown columns are named."""
    source = table(tmp_path / "t.csv", [1.0])
    tfrtool.convert(source, tmp_path / "out")
    assert (
        main(["convert", str(tmp_path / "out"), str(tmp_path / "a.tfrecord"), "--cast", "x:string"])
        == 2
    )
    assert "--cast of tfrtool edit" in capsys.readouterr().err
    assert main(["convert", str(source), str(tmp_path / "b"), "--cast", "xx:string"]) == 2
    assert "no column 'xx'" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["jsonl", "csv", "webdataset", "parquet"])
def test_bits_of_nans(to: str, tmp_path: Path) -> None:
    """A warning names the columns whose NaNs lose their bits; with exact payloads they don't."""
    bits = np.array([0x7FC00000, 0xFFC00001], np.uint32)
    plain = tfrtool.encode_example({"usual": np.float32(np.nan), "odd": 1.0, "n": 1})
    changed = tfrtool.encode_example({"usual": 0.5, "odd": bits.view(np.float32)[1], "n": 2})
    (tmp_path / "a.tfrecord").write_bytes(shard_of([plain, changed]))
    options: Any = {"to": to, "workers": 1}
    report = tfrtool.convert(tmp_path / "a.tfrecord", tmp_path / "plain", **options)
    assert [text.partition(":")[0] for text in report.job.warnings] == (
        [] if to == "parquet" else ["column 'odd'"]
    )
    tfrtool.convert(tmp_path / "plain", tmp_path / "back.tfrecord")
    same = (tmp_path / "back.tfrecord").read_bytes() == (tmp_path / "a.tfrecord").read_bytes()
    assert same == (to == "parquet")
    report = tfrtool.convert(tmp_path / "a.tfrecord", tmp_path / "exact", exact=True, **options)
    assert report.job.warnings == ()
