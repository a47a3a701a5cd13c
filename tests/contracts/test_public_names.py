"""The public names: each is documented, and does what it shows."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_args

import pytest

import tfrtool
from tests.rules.test_reference import VERBS, reference_names
from tfrtool.records.framing import frame


@pytest.mark.tf
def test_every_public_name_is_documented() -> None:
    """Each name in __all__ exists and has a docstring."""
    assert [name for name in tfrtool.__all__ if not getattr(tfrtool, name).__doc__] == []


@pytest.mark.tf
def test_what_a_verb_returns_is_documented() -> None:
    """A type of tfrtool that a function returns is public, or has an entry in the reference."""
    public, reference = [getattr(tfrtool, one) for one in tfrtool.__all__], reference_names()
    for name in sorted(VERBS):
        for kind in _own_types(inspect.signature(getattr(tfrtool, name)).return_annotation):
            assert kind in public or f"{kind.__module__}.{kind.__qualname__}" in reference, name
            assert kind.__doc__


def _own_types(hint: Any) -> set[Any]:
    if isinstance(hint, type) and hint.__module__.startswith("tfrtool."):
        return {hint}
    return {kind for part in get_args(hint) for kind in _own_types(part)}


def test_convert_is_a_function_and_a_package() -> None:
    """The package ``convert`` can be called as the function is, and shows the same keywords."""
    import tfrtool.convert  # from now on, the name refers to the package

    assert inspect.ismodule(tfrtool.convert)
    shown = inspect.signature(tfrtool.convert).parameters
    assert list(shown)[:2] == ["source", "target"]
    assert {"to", "select", "workers"} <= set(shown)
    assert not [one for one in shown.values() if one.kind is one.VAR_KEYWORD]


def test_former_names_still_work() -> None:
    """The names of an earlier release are the same functions."""
    assert tfrtool.open is tfrtool.open_records
    assert tfrtool.filter is tfrtool.filter_records


def test_unknown_names_are_attribute_errors() -> None:
    """A name that isn't there fails as in any module."""
    with pytest.raises(AttributeError, match="nonsense"):
        tfrtool.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_records_in_and_out(tmp_path: Path) -> None:
    """Plain values become an Example and are read back, also from a shard."""
    values = {"name": "größer", "label": 3, "box": [0.5, 1], "tags": [b"a", "b"], "one": [True]}
    payload = tfrtool.encode_example(values)
    expected = {"name": "größer".encode(), "label": 3, "box": [0.5, 1.0], "tags": [b"a", b"b"]}
    assert tfrtool.parse_example(payload) == {**expected, "one": 1}
    schema = tfrtool.Schema.from_notation(["label:int64", "box:float32:[2]", "other:int64=7"])
    found = {"label": 3, "box": [0.5, 1.0], "other": 7}
    parsed = tfrtool.parse_example(payload, schema)
    assert {**parsed, "box": list(parsed["box"])} == found  # type: ignore[arg-type]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(payload) + frame(payload)[:-1])
    faults: list[Any] = []
    (record,) = tfrtool.read_records(path, on_fault=faults.append)
    assert record.payload == payload
    assert [one.fault.offset for one in faults] == [len(frame(payload))]
    assert [*tfrtool.read_records(path, on_fault="skip")] == [record]
    with pytest.raises(tfrtool.CorruptShardError):
        list(tfrtool.read_records(path))
    record, fault = tfrtool.read(path)
    assert isinstance(fault, tfrtool.Fault)


@pytest.mark.parametrize("value", [None, [], [1, "a"], [[1]], object()])
def test_values_that_are_not_a_feature(value: object) -> None:
    """A value that fits no list of protobuf is an error that names the feature."""
    with pytest.raises(tfrtool.UsageError, match="'x'"):
        tfrtool.encode_example({"x": value})


def test_unknown_options_of_reading(tmp_path: Path) -> None:
    """An unknown compression or `on_fault` is an error before a file is opened."""
    with pytest.raises(tfrtool.UsageError, match="gzip"):
        tfrtool.read_records(tmp_path / "none", compression="zip")
    with pytest.raises(tfrtool.UsageError, match="on_fault"):
        tfrtool.read_records(tmp_path / "none", on_fault="stop")  # type: ignore[arg-type]
    with pytest.raises(tfrtool.ShardError):
        list(tfrtool.read_records(tmp_path / "none"))
