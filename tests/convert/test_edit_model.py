"""Edits of random records compared with operations on dictionaries."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.examples.tables import (
    Row,
    mixed_rows,
    placements,
    read_splits,
    write_placed,
)
from tfrtool.examples.example import DType, Feature, decode_example, encode_example

_DIGITS = (b"1", b" -12\n", b"3.0", b"2.5", b"1e3", b"nan", b"-.5", b"", b"\xff", b"1_0")
_NUMBERS: dict[bytes, float] = {
    b"1": 1.0,
    b" -12\n": -12.0,
    b"3.0": 3.0,
    b"2.5": 2.5,
    b"1e3": 1000.0,
    b"nan": math.nan,
    b"-.5": -0.5,
}
"""The numbers that texts stand for; the other texts stand for none."""

_ADDED: dict[str, tuple[Any, Feature]] = {
    "new": (7, Feature(dtype=DType.INT64, values=(7,))),
    "Größe": (0.5, Feature(dtype=DType.FLOAT32, values=(0.5,))),
    "t,1": ("ü", Feature(dtype=DType.STRING, values=("ü".encode(),))),
    "box": ([1, 2], Feature(dtype=DType.INT64, values=(1, 2))),
}
"""Features to add: how they are passed, and what they become."""


class _UncastableError(Exception):
    pass


def _as_float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _cast(value: Any, dtype: DType) -> Any:
    """Return a value in another type; raise an error if it would change."""
    if dtype is DType.STRING:
        return value if isinstance(value, bytes) else str(value).encode()
    number = _NUMBERS.get(value) if isinstance(value, bytes) else value
    if number is None:
        raise _UncastableError
    if dtype is DType.INT64:
        if not math.isfinite(number) or number != int(number):
            raise _UncastableError
        return int(number)
    if isinstance(number, int) and _as_float32(number) != number:
        raise _UncastableError
    return float(number)


def _cast_feature(feature: Feature, dtype: DType | None) -> Feature:
    if dtype is None or feature.dtype in (None, dtype):
        return feature
    return Feature(dtype=dtype, values=tuple(_cast(value, dtype) for value in feature.values))


@st.composite
def _edits(draw: st.DrawFn, known: list[str]) -> dict[str, Any]:
    """Draw the options of an edit that is possible for records with these features."""
    some = st.sets(st.sampled_from(known))
    select = draw(st.none() | st.sets(st.sampled_from(known), min_size=1))
    drop = draw(some)
    remaining = [name for name in known if name not in drop and (not select or name in select)]
    options: dict[str, Any] = {"drop": sorted(drop)}
    if select:
        options["select"] = sorted(select)
    add = draw(st.sets(st.sampled_from([*_ADDED]), min_size=0 if remaining else 1))
    options["add"] = {name: _ADDED[name][0] for name in sorted(add)}
    if remaining:
        several = st.sets(st.sampled_from(remaining), min_size=1)
        options["cast"] = {
            name: draw(st.sampled_from([*DType])).value for name in sorted(draw(several))
        }
        if "digits" in remaining:
            options["cast"]["digits"] = draw(st.sampled_from(["int64", "float32"]))
        renamed = sorted(draw(several))
        targets = draw(st.permutations([*renamed, "r1", "ü2"]))
        options["rename"] = dict(zip(renamed, targets, strict=False))
    return options


def _edited(row: Row, options: dict[str, Any]) -> Row:
    """Return a record as the options change it."""
    select, casts, names = options.get("select"), options.get("cast", {}), options.get("rename", {})
    edited = {}
    for name, feature in row.items():
        if name in options["drop"] or (select is not None and name not in select):
            continue
        dtype = DType(casts[name]) if name in casts else None
        edited[names.get(name, name)] = _cast_feature(feature, dtype)
    return edited | {name: _ADDED[name][1] for name in options["add"]}


def _plain(row: Any) -> dict[str, str]:
    """Return the features of a record as text, in which NaN is equal to itself."""
    return {name: f"{feature.dtype} {[*feature.values]!r}" for name, feature in row.items()}


@given(data=st.data())
def test_edits_are_those_of_dictionaries(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every feature is as a dictionary has it; what can't be cast is skipped, with its number."""
    texts = st.lists(st.sampled_from(_DIGITS), max_size=2).map(
        lambda values: {"digits": Feature(dtype=DType.STRING, values=tuple(values))}
    )
    rows = [row | data.draw(texts) for row in data.draw(mixed_rows)]
    options = data.draw(_edits(sorted({name for row in rows for name in row})))
    folder = tmp_path_factory.mktemp("edit")
    payloads = [encode_example(row) for row in rows]
    sizes = data.draw(placements(len(rows), ("test", "train")))
    locations = write_placed(folder / "in", payloads, sizes)
    expected: dict[str, list[dict[str, str]]] = {split: [] for split in sizes}
    unchanged, faults = dict[str, list[bytes]](), []
    for row, payload, location in zip(rows, payloads, locations, strict=True):
        try:
            edited = _edited(row, options)
        except _UncastableError:
            faults.append((location.shard, location.record))
            continue
        expected[location.split].append(_plain(edited))
        if [*_plain(edited).items()] == [*_plain(row).items()]:
            unchanged.setdefault(location.split, []).append(payload)
    if len(faults) == len(rows):
        with pytest.raises(tfrtool.DatasetError, match="no record can be used"):
            tfrtool.edit(folder / "in", folder / "out", on_error="skip", workers=1, **options)
        return
    report = tfrtool.edit(folder / "in", folder / "out", on_error="skip", workers=1, **options)
    found = read_splits(folder / "out")
    assert {
        split: [_plain(decode_example(payload).features) for payload in records]
        for split, records in found.items()
    } == expected
    assert [(fault.path.name, fault.fault.record) for fault in report.faults] == faults
    assert all(payload in found[split] for split, some in unchanged.items() for payload in some)
