"""Data in pickles, read without running anything.

Python's `pickle` calls what a file names. This reader has no calls at all: it follows the opcodes
that make numbers, text, bytes, lists, dicts and NumPy's arrays, and refuses any others.
"""

import pickletools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MOST_VALUES = 4_000_000
"""Opcodes of a pickle: at worst about 400 MB in Python. CIFAR-100 has 500,000."""

_MAX_AXES = 32
_DTYPE = re.compile(r"[|<>=]?(?P<kind>[biufSU])(?P<size>[0-9]{1,9})")
_ATOMS = (str, bytes, int)
_MARK = object()


class UnsafePickleError(ValueError):
    """A pickle has something other than data; the message says what."""


@dataclass(frozen=True, slots=True)
class _Global:
    """A name in a pickle that is known; it is never imported or called."""

    make: Callable[..., Any]


class _Dtype:
    """A type of arrays; its byte order follows in a state."""

    def __init__(self, code: str) -> None:
        if (match := _DTYPE.fullmatch(code)) is None:
            raise UnsafePickleError(f"arrays of {code[:40]!r}")
        self._plain, self._order = match["kind"] + match["size"], "|"

    def set_state(self, state: Any) -> None:
        """Take the state that NumPy has for a type: a version, the order of bytes, and sizes."""
        order = _text(state[1]) if isinstance(state, tuple) and len(state) > 1 else ""
        if order not in ("|", "<", ">", "="):
            raise UnsafePickleError("an invalid type of arrays")
        self._order = order

    def numpy(self) -> "np.dtype[Any]":
        """Return NumPy's own object."""
        import numpy

        return numpy.dtype(self._order.replace("|", "=") + self._plain)


class _PickledArray:
    """An array, whose values follow in a state."""

    def __init__(self) -> None:
        self.values: NDArray[Any] | None = None

    def set_state(self, state: Any) -> None:
        """Take the state that NumPy has for an array."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise UnsafePickleError("an invalid array")
        _, shape, dtype, by_columns, data = state
        self.values = _array_of(data, dtype, shape, by_columns=bool(by_columns))


def read_pickle(file: BinaryIO, size: int) -> Any:
    """Return what a pickle holds.

    Dicts have keys that are text, bytes or integers. Strings of Python 2 are text, one character
    per byte. Memory is bounded by the file's ``size`` in bytes, which the caller limits.

    Raises:
        UnsafePickleError: it has anything but data.
        ValueError: it is truncated or damaged.
    """
    machine = _Machine(size)
    try:
        for number, (opcode, argument, position) in enumerate(pickletools.genops(file)):
            if opcode.name == "STOP":
                return _plain(machine.pop())
            if number >= _MOST_VALUES:
                raise UnsafePickleError(f"more than {_MOST_VALUES:,} values")
            if not machine.follow(opcode.name, argument):
                what = f"an instruction that is not data, {opcode.name}, at offset {position}"
                raise UnsafePickleError(what)
    except (IndexError, KeyError, TypeError, OverflowError, MemoryError, AttributeError) as error:
        raise ValueError("its instructions make no sense") from error
    raise ValueError("it ends early")


class _Machine:
    """The stack and the memory that a pickle's instructions work on."""

    def __init__(self, size: int) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        # Text is made bytes, and then an array: twice the bytes of the file at most.
        self._copied, self._most_copied = 0, 2 * size

    def pop(self) -> Any:
        """Remove the last value."""
        if self._stack[-1] is _MARK:
            raise ValueError("its instructions make no sense")
        return self._stack.pop()

    def _pop_to_mark(self) -> list[Any]:
        at = len(self._stack) - 1
        while self._stack[at] is not _MARK:
            at -= 1
        values = self._stack[at + 1 :]
        del self._stack[at:]
        return values

    def follow(self, name: str, argument: Any) -> bool:
        """Do what an instruction says; return False if it is not one for data."""
        if name in _PUSHES:
            if isinstance(argument, int) and not -(2**63) <= argument < 2**64:
                raise UnsafePickleError("an integer of more than 64 bits")
            self._stack.append(argument)
        elif name in _TUPLES:
            self._stack.append(tuple([self.pop() for _ in range(_TUPLES[name])][::-1]))
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name]())
        elif name in _METHODS:
            _METHODS[name](self, argument)
        else:
            return name in ("PROTO", "FRAME")
        return True

    def mark(self, _: Any) -> None:
        """Push a mark."""
        self._stack.append(_MARK)

    def drop(self, _: Any) -> None:
        """Remove a value or a mark."""
        self._stack.pop()

    def drop_to_mark(self, _: Any) -> None:
        """Remove all down to a mark."""
        self._pop_to_mark()

    def store(self, number: Any) -> None:
        """Keep the last value under a number."""
        self._memo[len(self._memo) if number is None else int(number)] = self._stack[-1]

    def load(self, number: Any) -> None:
        """Push the value of a number."""
        self._stack.append(self._memo[int(number)])

    def make_tuple(self, _: Any) -> None:
        """Make a tuple of the values down to a mark."""
        self._stack.append(tuple(self._pop_to_mark()))

    def make_list(self, _: Any) -> None:
        """Make a list of the values down to a mark."""
        self._stack.append(self._pop_to_mark())

    def make_dict(self, _: Any) -> None:
        """Make a dict of the keys and values down to a mark."""
        values = self._pop_to_mark()
        self._stack.append({})
        self._set_items(values)

    def append(self, _: Any) -> None:
        """Append the last value to the list before it."""
        self._append_all([self.pop()])

    def append_all(self, _: Any) -> None:
        """Append the values down to a mark to the list before it."""
        self._append_all(self._pop_to_mark())

    def _append_all(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, list):
            raise TypeError
        target += values

    def set_item(self, _: Any) -> None:
        """Set a key of the dict before it."""
        value, key = self.pop(), self.pop()
        self._set_items([key, value])

    def set_items(self, _: Any) -> None:
        """Set the keys down to a mark in the dict before it."""
        self._set_items(self._pop_to_mark())

    def _set_items(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict) or len(values) % 2:
            raise TypeError
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, _ATOMS):
                raise UnsafePickleError(f"a key that is a {type(key).__name__}")
            target[key] = value

    def find(self, name: str) -> None:
        """Push what a module and a name in it stand for."""
        self._push_global(*name.split(" ", 1))

    def find_on_stack(self, _: Any) -> None:
        """Push what a module and a name on the stack stand for."""
        name, module = self.pop(), self.pop()
        self._push_global(_text(module), _text(name))

    def _push_global(self, module: str, name: str) -> None:
        known = _GLOBALS.get((module.replace("numpy._core.", "numpy.core."), name))
        if known is None:
            raise UnsafePickleError(f"the name {module[:80]}.{name[:80]}")
        self._stack.append(known)

    def make(self, _: Any) -> None:
        """Make a value from a name and arguments."""
        arguments, known = self.pop(), self.pop()
        if not isinstance(known, _Global) or not isinstance(arguments, tuple):
            raise TypeError
        self._count_copies(arguments)
        self._stack.append(known.make(*arguments))

    def set_state(self, _: Any) -> None:
        """Give the last value its state."""
        state, target = self.pop(), self._stack[-1]
        if not isinstance(target, _PickledArray | _Dtype):
            raise UnsafePickleError("an object with a state")
        self._count_copies(state)
        target.set_state(state)

    def _count_copies(self, values: Any) -> None:
        """Refuse to make values of the same text or bytes again and again."""
        if isinstance(values, tuple):
            copied = (len(value) for value in values if isinstance(value, str | bytes | bytearray))
            self._copied += sum(copied)
        if self._copied > self._most_copied:
            raise UnsafePickleError("text that is repeated")


def _make_array(subtype: Any, *_: Any) -> _PickledArray:
    if subtype is not _NDARRAY:
        raise TypeError
    return _PickledArray()


def _make_dtype(code: Any, *_: Any) -> _Dtype:
    return _Dtype(_text(code))


def _make_scalar(dtype: Any, data: Any) -> Any:
    return _array_of(data, dtype, (), by_columns=False).item()


def _make_array_of_buffer(data: Any, dtype: Any, shape: Any, order: Any = "C") -> _PickledArray:
    array = _PickledArray()
    array.values = _array_of(data, dtype, shape, by_columns=_text(order) == "F")
    return array


def _make_bytes(text: Any = "", encoding: Any = "latin1") -> bytes:
    """Return the bytes that protocols before 3 have as text."""
    return text if isinstance(text, bytes) else _latin1(text, _text(encoding))


def _latin1(text: Any, encoding: str) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise UnsafePickleError(f"bytes as text in {encoding[:40]}")
    return text.encode("latin-1")


def _make_dict(items: Any = ()) -> dict[Any, Any]:
    if items:
        raise TypeError
    return {}


def _never(*_: Any) -> Any:
    raise TypeError


def _array_of(data: Any, dtype: Any, shape: Any, *, by_columns: bool) -> "NDArray[Any]":
    """Return the array of a shape in bytes; these must be exactly its values."""
    import numpy

    if isinstance(data, str):  # of Python 2
        data = data.encode("latin-1")
    axes = (shape,) if isinstance(shape, int) else shape
    if not isinstance(dtype, _Dtype) or not isinstance(data, bytes | bytearray):
        raise UnsafePickleError("an array of objects")
    kind = dtype.numpy()
    if not isinstance(axes, tuple) or not all(type(n) is int and n >= 0 for n in axes):
        raise UnsafePickleError("an array with an invalid shape")
    if len(axes) > _MAX_AXES or prod(axes) * kind.itemsize != len(data) or not kind.itemsize:
        shown = f"{kind} of shape {axes[:_MAX_AXES]}"
        raise UnsafePickleError(f"an array of {len(data):,} bytes that claims to be {shown}")
    return numpy.frombuffer(data, kind).reshape(axes, order="F" if by_columns else "C")


def _plain(value: Any) -> Any:
    """Return a value with NumPy's arrays in it: itself, or those in a dict."""
    if isinstance(value, dict):
        return {key: _plain_item(item) for key, item in value.items()}
    return _plain_item(value)


def _plain_item(value: Any) -> Any:
    return value.values if isinstance(value, _PickledArray) else value


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if not isinstance(value, str):
        raise TypeError
    return value


_NDARRAY = _Global(_never)
_GLOBALS: Mapping[tuple[str, str], _Global] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Global(_make_dtype),
    ("numpy.core.multiarray", "_reconstruct"): _Global(_make_array),
    ("numpy.core.multiarray", "scalar"): _Global(_make_scalar),
    ("numpy.core.numeric", "_frombuffer"): _Global(_make_array_of_buffer),
    ("_codecs", "encode"): _Global(_make_bytes),
    ("__builtin__", "bytes"): _Global(_make_bytes),
    ("builtins", "bytes"): _Global(_make_bytes),
    ("__builtin__", "bytearray"): _Global(_make_bytes),
    ("builtins", "bytearray"): _Global(_make_bytes),
    ("collections", "OrderedDict"): _Global(_make_dict),
}
"""All names that a pickle may have; NumPy 2 calls ``numpy.core`` ``numpy._core``."""

_PUSHES = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE"),
        *("BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)
_CONSTANTS: Mapping[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_METHODS: Mapping[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine.mark,
    "POP": _Machine.drop,
    "POP_MARK": _Machine.drop_to_mark,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine.store),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.load),
    "TUPLE": _Machine.make_tuple,
    "LIST": _Machine.make_list,
    "DICT": _Machine.make_dict,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.append_all,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "GLOBAL": _Machine.find,
    "STACK_GLOBAL": _Machine.find_on_stack,
    "REDUCE": _Machine.make,
    "BUILD": _Machine.set_state,
}
