"""Errors: their facts, their one line, their exit codes."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.errors import (
    CorruptShardError,
    ShardError,
    TfrtoolError,
    UsageError,
    WriteError,
    os_errors_as,
    printable,
    reason_of,
)


def family(error: type[TfrtoolError]) -> list[type[TfrtoolError]]:
    """Return a class of errors and all below it."""
    return [error, *(below for child in error.__subclasses__() for below in family(child))]


def test_line_has_all_facts_in_order() -> None:
    """The line says where, what, what was expected and found, and what to do."""
    error = ShardError(
        "the CRC does not hold",
        path=Path("a.tfrecord"),
        record=3,
        offset=48,
        expected="29039807",
        found="00000000",
        hint="tfrtool repair saves the rest",
    )
    assert str(error) == (
        "a.tfrecord:3, offset 48: the CRC does not hold: expected 29039807, "
        "found 00000000; tfrtool repair saves the rest"
    )


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (TfrtoolError("it broke"), "it broke"),
        (TfrtoolError("it broke", path="a"), "a: it broke"),
        (TfrtoolError("it broke", record=0, offset=0), "record 0, offset 0: it broke"),
        (TfrtoolError("it broke", found=0), "it broke: found 0"),
        (TfrtoolError("it broke", expected=0), "it broke: expected 0"),
        (TfrtoolError("two\nlines"), "two lines"),
    ],
)
def test_line_of_fewer_facts(error: TfrtoolError, line: str) -> None:
    """Facts that are not known leave no trace; those that are zero do."""
    assert str(error) == line


@pytest.mark.parametrize("error", family(TfrtoolError))
def test_errors_cross_processes(error: type[TfrtoolError]) -> None:
    """An error that is pickled keeps its class, its facts and its line."""
    one = error("it broke", path="a", record=1, offset=2, expected=3, found=4, hint="help")
    other = pickle.loads(pickle.dumps(one))
    assert type(other) is error
    assert vars(other) == vars(one)
    assert str(other) == str(one)


def test_errors_of_the_system_become_ours(tmp_path: Path) -> None:
    """What the system says is one line that names the file; other errors pass as they are."""
    path = tmp_path / "none"
    with pytest.raises(WriteError) as raised, os_errors_as(WriteError, path, "can't be used"):
        path.read_bytes()
    assert str(raised.value) == f"{path}: can't be used: no such file or directory"
    assert isinstance(raised.value.__cause__, FileNotFoundError)
    with pytest.raises(KeyError), os_errors_as(WriteError, path):
        raise KeyError


def test_what_tensorflow_says_is_not_lost_behind_what_it_says_first() -> None:
    """It names a node that nobody has named; what went wrong comes last."""
    node = "{{function_node __wrapped__SaveV2_dtypes_47_device_/job:localhost/device:CPU:0}} "
    assert reason_of(OSError(f"{node}a; No space\nleft")) == "a; No space left"


def test_exit_codes() -> None:
    """A wrong request is 2, all else that stops the work is 1."""
    assert UsageError("").exit_code == 2
    assert CorruptShardError("").exit_code == 1
    assert issubclass(CorruptShardError, ShardError)


@given(text=st.text() | st.binary().map(lambda data: data.decode("utf-8", "surrogateescape")))
def test_printable(text: str) -> None:
    """Whatever a file's name is, what is shown of it is one printable line."""
    shown = printable(text)
    assert shown.isprintable()
    shown.encode()
    if text.isprintable():
        assert shown == text


@given(path=st.text(min_size=1))
def test_line_is_one_line(path: str) -> None:
    """Whatever the path is, an error is one line."""
    assert len(str(ShardError("it broke", path=path)).splitlines()) == 1


def test_a_long_reason_takes_no_time() -> None:
    """A payload that looks like TensorFlow's messages, again and again, would take hours."""
    assert len(reason_of(ValueError("{{function_node " * 1_000_000))) <= 200
