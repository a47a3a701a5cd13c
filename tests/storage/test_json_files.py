"""JSON that somebody else may have written: bounded in size, number, depth and digits."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.storage.json_values import read_json, read_member, whole_number

_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.floats(-1e9, 1e9),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=8,
)


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file that a property writes to again and again."""
    return tmp_path_factory.mktemp("json") / "a.json"


@given(value=_values, indent=st.none() | st.just(2))
def test_what_is_written_is_read(scratch: Path, value: Any, indent: int | None) -> None:
    """Usual JSON is read as it is, whole and member by member."""
    scratch.write_text(json.dumps({"member": value, "rest": [1]}, indent=indent))
    assert read_json(scratch) == {"member": value, "rest": [1]}
    assert read_member(scratch, "member") == value


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000, "[" * 900 + "]" * 900 + "x", "1" * 5000, '{"a": ' + "9" * 21 + "}", "NaN",
        '{"a": Infinity}', "", "{", "\udcff", "[" + "0," * 4_000_001 + "0]",
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, text: str) -> None:
    """Lists too deep, numbers too long, values too many, and what is no JSON: a ValueError."""
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=r".+") as caught:
        read_json(path)
    assert len(str(caught.value)) < 120


def test_a_member_of_a_long_file(tmp_path: Path) -> None:
    """What follows a member is not read, however long it is, and need not be JSON."""
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.write(b'{"name": "x", "splits": {"train": [1]}, "rejected": [')
        file.truncate(2**40)  # a sparse terabyte
    assert read_member(path, "splits") == {"train": [1]}
    for name in ("rejected", "missing"):
        with pytest.raises(ValueError, match=r".+"):
            read_member(path, name)
    with pytest.raises(OSError, match="larger than"):
        read_json(path)


def test_only_files(tmp_path: Path) -> None:
    """A pipe is not waited for."""
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(OSError, match="pipe"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("value", [0, 7, "7", "0", 2**63 - 1, str(2**63 - 1)])
def test_whole_numbers(value: object) -> None:
    """Numbers that count something, as numbers and as protobuf's JSON has them."""
    assert whole_number(value) == int(str(value))


@pytest.mark.parametrize(
    "value",
    [-1, "-1", 2**63, str(2**63), "1" * 5000, "0" * 30 + "1", 1.0, 1e999, True, None, "1_0", "²",
     " 1", "", [], {"a": []}],
)  # fmt: skip
def test_what_is_no_whole_number(value: object) -> None:
    """Anything else is refused in a few words."""
    with pytest.raises(ValueError, match=r".+") as caught:
        whole_number(value)
    assert len(str(caught.value)) < 120
