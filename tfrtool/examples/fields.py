"""The fields of a record: structs, lists, and values with a type that has one spelling."""

import enum
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tfrtool.errors import UsageError, suggestion
from tfrtool.examples.example import DType
from tfrtool.storage.limits import MAX_DIMENSIONS, MAX_TENSOR_VALUES

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("float16", "bfloat16", "float32", "float64")

ITEM_SIZES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
}
"""Bytes of a value, as encoded tensors hold it."""

MAX_DEPTH = 32
"""Structs and lists within each other; TFDS' own datasets have about five."""

_SPELLING = re.compile(
    r"(?:(raw|zlib|tensor):)?([a-z]+[0-9]*(?:\([^)]*\))?)(?:\[([^\]]*)\])?", re.ASCII
)
_TIME = re.compile(r"timestamp(\([A-Za-z0-9_+:/-]{1,64}\))?|date|decimal\(\d{1,2},\d{1,2}\)")
_FORM = (
    "a type such as int64, float32[7], raw:uint8[*,3], raw:uint8[@height,@width,3], "
    "tensor:float32, bool, text, bytes, label, image or audio"
)


class Kind(enum.Enum):
    """What values are."""

    NUMBER = "number"
    BOOL = "bool"
    TEXT = "text"
    BYTES = "bytes"
    LABEL = "label"
    IMAGE = "image"
    AUDIO = "audio"
    TIME = "time"
    """Timestamps, dates and decimals, which records store as numbers or text."""
    MIXED = "mixed"
    """Features whose type differs between records: lists of each type, as in a tf.train.Feature."""


class Null(enum.Enum):
    """What null stands for where a record has at most one value: `Values.null`."""

    ABSENT = "absent"
    """A feature that is absent."""
    EMPTY = "empty"
    """A feature without values."""
    UNSET = "unset"
    """A feature without a kind."""
    ANY = "any"
    """Any of these: enough to read, but not to restore a record."""

    @property
    def info(self) -> Mapping[str, Any]:
        """The `Values.info` of values for which null stands for this."""
        return {"optional": True, "null": self}


class Encoding(enum.Enum):
    """How a record holds the numbers of a tensor: one by one, or packed in one string."""

    NONE = "none"
    RAW = "raw"
    """Little-endian bytes; TFDS calls it "bytes"."""
    ZLIB = "zlib"
    """The same, compressed."""
    TENSOR = "tensor"
    """A serialized TensorProto, which has its own shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Values of one type.

    Attributes:
        kind: what they are.
        dtype: NumPy's name of numbers and booleans, the word of a time or decimal; "" for others.
        shape: the sizes of a tensor; None for any size, ``()`` for a single value.
        encoding: how a tensor is stored.
        size_features: for each size, the feature of the record that has it, or None; ``()`` if
            there is none. Such sizes are None in the shape. A feature that has several sizes is
            named for each of them.
        info: what features.json says besides, under its keys; and of values that were inferred,
            what null stands for, and whether they are UTF-8.
    """

    kind: Kind
    dtype: str = ""
    shape: tuple[int | None, ...] = ()
    encoding: Encoding = Encoding.NONE
    size_features: tuple[str | None, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if self.kind is Kind.NUMBER and self.dtype not in (*_INTEGERS, *_FLOATS):
            raise ValueError(f"unknown type of numbers {self.dtype[:40]!r}")
        if len(self.shape) > MAX_DIMENSIONS:
            raise ValueError(f"{len(self.shape)} dimensions (limit {MAX_DIMENSIONS})")
        if any(size is not None and size < 0 for size in self.shape):
            raise ValueError(f"negative size in the shape {list(self.shape)}")
        if self.extent > MAX_TENSOR_VALUES:
            raise ValueError(f"a tensor of {self.extent:,} values (limit {MAX_TENSOR_VALUES:,})")
        if self.encoding is not Encoding.NONE and self.kind not in (Kind.NUMBER, Kind.BOOL):
            raise ValueError(f"{self.kind.value} values can't be encoded")
        if self.kind in (Kind.IMAGE, Kind.AUDIO) and self.shape:
            raise ValueError(f"{self.kind.value} values have no shape")
        unknown = self.shape.count(None) - len(self.named_sizes)
        if unknown > 1 and (self.encoding is Encoding.NONE or self.size_features):
            raise ValueError("more than one unknown size, which only encoded tensors can have")
        if self.size_features and self.encoding is Encoding.TENSOR:
            raise ValueError("serialized tensors have their own sizes")

    @property
    def size(self) -> int:
        """Product of the known sizes."""
        return math.prod(size for size in self.shape if size is not None)

    @property
    def extent(self) -> int:
        """Lists and values that a tensor takes in a table: a size of 0 doesn't make it small."""
        return math.prod(size for size in self.shape if size)

    @property
    def named_sizes(self) -> tuple[str, ...]:
        """The features with sizes, in order, one for each size."""
        return tuple(name for name in self.size_features if name is not None)

    @property
    def stores_shape(self) -> bool:
        """Whether records hold the shape beside the values, as they can't be divided without."""
        is_packed = self.encoding in (Encoding.RAW, Encoding.ZLIB)
        return is_packed and not self.size_features and self.shape.count(None) > 1

    @property
    def null(self) -> Null | None:
        """What null stands for, if that is known: a feature without values is null, too."""
        return self.info.get("null")

    @property
    def is_float(self) -> bool:
        """Whether they are floating-point numbers."""
        return self.kind is Kind.NUMBER and self.dtype in _FLOATS

    @classmethod
    def parse(cls, text: str) -> "Values":
        """Read a spelling such as ``zlib:float32[*,3]``; `UsageError` if it is none."""
        match = _SPELLING.fullmatch(text.strip())
        encoding, word, sizes = match.groups() if match else (None, "", None)
        try:
            parts = [] if sizes is None else [part.strip() for part in sizes.split(",")]
            shape = tuple(None if part[:1] == "@" else _size(part) for part in parts)
            named = tuple(part[1:] if part[:1] == "@" else None for part in parts)
            if "" in named:
                raise ValueError("a size has no name")
            kind = Kind.NUMBER if word in (*_INTEGERS, *_FLOATS) else None
            kind = Kind.TIME if _TIME.fullmatch(word) else kind or Kind(word)
            if kind is Kind.TIME and word == "time":
                raise ValueError("no such type")
            dtype = word if kind in (Kind.NUMBER, Kind.TIME, Kind.BOOL) else ""
            return cls(
                kind=kind,
                dtype=dtype,
                shape=shape,
                encoding=Encoding(encoding or "none"),
                size_features=named if any(named) else (),
            )
        except ValueError as error:
            what = f"invalid type {repr(text)[:100]}"
            raise UsageError(what, expected=_FORM) from error

    def __str__(self) -> str:
        encoding = "" if self.encoding is Encoding.NONE else f"{self.encoding.value}:"
        shape = shape_text(self.shape, self.size_features) if self.shape else ""
        return f"{encoding}{self.dtype or self.kind.value}{shape}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    """Any number of items.

    Attributes:
        item: what each item is.
        length: the number of items; None for any.
        is_dataset: whether it is TFDS' ``Dataset``, such as the steps of an episode, and no
            ``Sequence``.
    """

    item: "Field"
    length: int | None = None
    is_dataset: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields with names, in order."""

    fields: "Mapping[str, Field]"


Field = Struct | ListOf | Values


def stored_values(dtype: DType, info: Mapping[str, Any] | None = None) -> Values:
    """Return values that features of a type store, as they are; of strings, bytes."""
    if dtype is DType.STRING:
        return Values(kind=Kind.BYTES, info=info or {})
    return Values(kind=Kind.NUMBER, dtype=dtype.value, info=info or {})


class Leaf(NamedTuple):
    """Values in a tree.

    Attributes:
        path: the names of the structs around it and its own, joined by slashes.
        level: the number of lists around it.
        values: what it is.
    """

    path: str
    level: int
    values: Values


def leaves_of(item: Field, path: str = "", level: int = 0) -> Iterator[Leaf]:
    """Yield the values of a field, in order."""
    if isinstance(item, Struct):
        for name, part in item.fields.items():
            yield from leaves_of(part, join(path, name), level)
    elif isinstance(item, ListOf):
        yield from leaves_of(item.item, path, level + 1)
    else:
        yield Leaf(path, level, item)


def paths_of(item: Field, path: str = "") -> Iterator[str]:
    """Yield the paths of all fields in a field, in order."""
    if isinstance(item, Struct):
        for name, part in item.fields.items():
            yield join(path, name)
            yield from paths_of(part, join(path, name))
    elif isinstance(item, ListOf):
        yield from paths_of(item.item, path)


def join(path: str, name: str) -> str:
    """Return the path of a field in a struct."""
    return f"{path}/{name}" if path else name


def select_fields(root: Struct, names: Iterable[str]) -> Struct:
    """Return the fields of these names or paths, in this order, each under that name.

    A path leads through structs and lists: ``steps/action`` is the list of the steps' actions.

    Raises:
        UsageError: no such field; the error suggests the nearest path.
    """
    chosen: dict[str, Field] = {}
    for name in dict.fromkeys(names):
        found = field_at(root, name)
        if found is None:
            known = {*root.fields, *(leaf.path for leaf in leaves_of(root))}
            raise UsageError(f"no column {name!r}", hint=suggestion(name, sorted(known), "columns"))
        chosen[name] = found
    return Struct(chosen)


def field_at(item: Field, path: str) -> Field | None:
    """Return what a path leads to, in the lists that it leads through; None if that is nothing."""
    if isinstance(item, ListOf):
        part = field_at(item.item, path)
        if part is None:
            return None
        return ListOf(item=part, length=item.length, is_dataset=item.is_dataset)
    if not isinstance(item, Struct):
        return None
    if path in item.fields:
        return item.fields[path]
    for name, part in item.fields.items():
        if path.startswith(f"{name}/"):
            found = field_at(part, path[len(name) + 1 :])
            if found is not None:
                return found
    return None


def with_field_at(item: Field, path: str, change: Callable[[Field], Field]) -> Field | None:
    """Return a field with what a path leads to changed; None if it leads to nothing."""
    if isinstance(item, ListOf):
        part = with_field_at(item.item, path, change)
        return None if part is None else replace(item, item=part)
    if not isinstance(item, Struct):
        return None
    for name, part in item.fields.items():
        found = None
        if path == name:
            found = change(part)
        elif path not in item.fields and path.startswith(f"{name}/"):
            found = with_field_at(part, path[len(name) + 1 :], change)
        if found is not None:
            return Struct({**item.fields, name: found})
    return None


def only_fields(item: Field, paths: Collection[str], path: str = "") -> Field | None:
    """Return a field with only what some paths lead to, or is below that; None without any."""
    if path and path in paths:
        return item
    if isinstance(item, ListOf):
        part = only_fields(item.item, paths, path)
        if part is None:
            return None
        return ListOf(item=part, length=item.length, is_dataset=item.is_dataset)
    if not isinstance(item, Struct):
        return None
    parts = {name: only_fields(part, paths, join(path, name)) for name, part in item.fields.items()}
    fields = {name: part for name, part in parts.items() if part is not None}
    return Struct(fields) if fields else None


def with_info(root: Struct, change: Callable[[str, Values], Values], path: str = "") -> Struct:
    """Return a tree with each leaf changed by a function of its path and itself."""

    def changed(item: Field, path: str) -> Field:
        if isinstance(item, Struct):
            return with_info(item, change, path)
        if isinstance(item, ListOf):
            return replace(item, item=changed(item.item, path))
        return change(path, item)

    return Struct({name: changed(part, join(path, name)) for name, part in root.fields.items()})


def has_logical_types(root: Struct) -> bool:
    """Return whether a tree says more than the names and types of features, and of their lists."""
    return not all(map(_is_plain, root.fields.values()))


def needs_inference(root: Struct) -> bool:
    """Return whether records show more than a tree says.

    That is so where its features are as they are stored, and some may be missing (TFDS has a
    ``Sequence`` for these) or text (which TFDS also calls strings).
    """
    fields = root.fields.values()
    unsure = any(isinstance(item, ListOf) or item == _BYTES for item in fields)
    return unsure and not has_logical_types(root)


_BYTES = Values(kind=Kind.BYTES)


def _is_plain(item: Field) -> bool:
    values = item.item if isinstance(item, ListOf) else item
    if not isinstance(values, Values) or values.shape or values.encoding is not Encoding.NONE:
        return False
    if values.kind is Kind.IMAGE:
        return item is values
    return values.kind is not Kind.BOOL and values.dtype in ("", "int64", "float32")


_RESTORED = (Null.EMPTY, Null.UNSET)
"""What null stands for, if that isn't an absent feature, as anywhere else."""


def tree_json(item: Field) -> Any:
    """Return a field as JSON: types as they are spelled, with a ``?`` if values may be missing.

    What null stands for comes after that.
    """
    if isinstance(item, Struct):
        return {"struct": {name: tree_json(part) for name, part in item.fields.items()}}
    if isinstance(item, ListOf):
        data = {"list": tree_json(item.item)}
        data |= {} if item.length is None else {"length": item.length}
        return data | ({"dataset": True} if item.is_dataset else {})
    if not item.info.get("optional"):
        return str(item)
    return f"{item}?{item.null.value if item.null in _RESTORED else ''}"


def tree_from_json(data: Any, depth: int = 0) -> Field:
    """Read what `tree_json` returns; `ValueError` if it isn't that."""
    if depth > MAX_DEPTH:
        raise ValueError(f"fields are nested more than {MAX_DEPTH} levels deep")
    if isinstance(data, str):
        try:
            word, mark, null = data.partition("?")
            values = Values.parse(word)
            info = Null(null).info if null else {"optional": True}
        except UsageError as error:
            raise ValueError(str(error)) from error
        return replace(values, info=info) if mark else values
    if not isinstance(data, dict) or not {"struct", "list"} & {*data}:
        raise ValueError("neither a type nor a struct or list")
    if "struct" in data:
        parts = data["struct"]
        if not isinstance(parts, dict):
            raise ValueError("the fields of a struct have no names")
        return Struct({name: tree_from_json(part, depth + 1) for name, part in parts.items()})
    length, is_dataset = data.get("length"), data.get("dataset", False)
    if not (length is None or type(length) is int) or not isinstance(is_dataset, bool):
        raise ValueError("invalid length of a list")
    return ListOf(
        item=tree_from_json(data["list"], depth + 1), length=length, is_dataset=is_dataset
    )


def tree_lines(root: Struct, indent: str = "") -> Iterator[str]:
    """Yield a tree as lines of text, a field each, with what is in it indented."""
    for name, part in root.fields.items():
        lists, item = "", part
        while isinstance(item, ListOf):
            lists += "list of " if item.length is None else f"list of {item.length} "
            item = item.item
        if isinstance(item, Struct):
            yield f"{indent}{name}: {lists}".rstrip(" ") + ("" if not lists else " structs")
            yield from tree_lines(item, f"{indent}  ")
        else:
            yield f"{indent}{name}: {lists}{item}{_about(item)}"


def _about(values: Values) -> str:
    """Return what else is known of labels and images: classes, and height, width and channels."""
    if values.kind is Kind.LABEL and (count := class_count(values)):
        return f" ({'1 class' if count == 1 else f'{count:,} classes'})"
    sizes = image_sizes(values)
    return shape_text(sizes) if sizes else ""


def class_count(values: Values) -> int:
    """Return the number of classes of a label; 0 if it isn't known."""
    with suppress(ValueError, TypeError):
        return len(values.info.get("names") or ()) or int(values.info.get("numClasses") or 0)
    return 0


def image_sizes(values: Values) -> tuple[int | None, ...]:
    """Return the height, width and channels of an image by its metadata; None for any number.

    Nothing, if the metadata doesn't say it.
    """
    with suppress(ValueError, TypeError, AttributeError):
        sizes = tuple(map(int, (values.info.get("shape") or {}).get("dimensions", ())))[-3:]
        if values.kind is Kind.IMAGE and len(sizes) == 3:
            return tuple(None if size < 0 else size for size in sizes)
    return ()


def shape_text(
    shape: Sequence[int | None], size_features: Sequence[str | None] | None = None
) -> str:
    """Return a shape as it is spelled, such as ``[4,*,2]``."""
    named = size_features or [None] * len(shape)
    pairs = zip(shape, named, strict=True)
    sizes = (f"@{name}" if name else "*" if size is None else str(size) for size, name in pairs)
    return f"[{','.join(sizes)}]"


def _size(text: str) -> int | None:
    if text == "*":
        return None
    if not re.fullmatch(r"\d{1,11}", text, re.ASCII):
        raise ValueError(f"invalid size {text!r}")
    return int(text)
