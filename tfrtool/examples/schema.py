"""Schema: what TensorFlow calls a feature_description, with its notations."""

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tfrtool.errors import SchemaError
from tfrtool.examples.example import DType, Value, feature_key, feature_name, is_utf8
from tfrtool.storage.arguments import parse_enum_fields
from tfrtool.storage.json_values import Shown

_NOTATION = re.compile(
    r"(?P<name>.+?):(?:tf\.)?(?P<dtype>[a-z0-9]+)(?::(?P<shape>\[[^\]]*\]))?(?:=(?P<default>.*))?",
    re.DOTALL,
)
_SIZE = re.compile("[0-9]{1,11}")
_FORM = "NAME:DTYPE[:SHAPE][=DEFAULT], such as label:int64=-1 or box:float32:[4]"
_LARGEST_DEFAULT = 1 << 24
_TYPES: dict[DType, type] = {DType.STRING: bytes, DType.INT64: int, DType.FLOAT32: float}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSpec:
    """How to parse one feature.

    Attributes:
        name: name of the feature.
        dtype: type of its values.
        shape: dimensions, ``()`` for a scalar. None means a one-dimensional feature of any length.
        default: values to use if the feature is missing, in row-major order. None means that a
            missing feature is an error (with a shape) or has no values (without one).
        is_list: whether this is a feature list of a SequenceExample, in which each step has this
            shape.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...] | None = ()
    default: tuple[Value, ...] | None = None
    is_list: bool = False

    def __post_init__(self) -> None:
        if type(self.dtype) is not DType:
            parse_enum_fields(self, dtype=DType)
        name, size = repr(self.name), self.size
        if not all(0 <= size < 1 << 31 for size in self.shape or ()):
            raise SchemaError(f"invalid shape for {name}", found=self.shape)
        if self.is_list and size == 0:
            # tf.io.parse_single_sequence_example of TensorFlow 2.21 divides by it, and dies.
            raise SchemaError(
                f"invalid shape for feature list {name}: its steps can't have 0 values"
            )
        if self.default is None:
            return
        if size is None or self.is_list:
            what = "is a feature list" if self.is_list else "has any number of values"
            raise SchemaError(f"{name} can't have a default: it {what}")
        if len(self.default) != size:
            what = f"the default of {name} doesn't match its shape"
            raise SchemaError(what, expected=f"{size} values", found=len(self.default))
        for value in self.default:
            too_large = isinstance(value, int) and not -(2**63) <= value < 2**63
            if too_large or type(value) is not _TYPES[self.dtype]:
                what = f"invalid default for {name}"
                raise SchemaError(what, expected=self.dtype.value, found=repr(value))

    @property
    def size(self) -> int | None:
        """Number of values, or None for any number."""
        return None if self.shape is None else math.prod(self.shape)

    @classmethod
    def parse(cls, notation: str) -> "FeatureSpec":
        """Parse ``NAME:DTYPE[:SHAPE][=DEFAULT]``; raise `SchemaError` if it is malformed."""
        match = _NOTATION.fullmatch(notation)
        if match is None:
            raise SchemaError("invalid feature description", expected=_FORM, found=repr(notation))
        name, dtype, shape, default = match.group("name", "dtype", "shape", "default")
        data: dict[str, Any] = {"dtype": dtype}
        if shape is not None and shape[1:-1].strip():
            sizes = [size.strip() for size in shape[1:-1].split(",")]
            data["shape"] = [int(size) if _SIZE.fullmatch(size) else size for size in sizes]
        if default is not None:
            # A scalar's text is taken whole, commas and all.
            pieces = default.split(",") if "shape" in data else [default]
            read = {"int64": int, "float32": float}.get(dtype, str)
            with contextlib.suppress(ValueError):  # what is left as it is, is refused below
                pieces = [read(piece) for piece in pieces]
            data["default"] = pieces
        return cls.from_json(name, data)

    def __str__(self) -> str:
        text = f"{self.name}:{self.dtype.value}"
        if self.shape != ():
            text += ":[*]" if self.shape is None else f":[{','.join(map(str, self.shape))}]"
        if self.default is not None:
            text += "=" + ",".join(str(_plain(value)) for value in self.default)
        return text

    def to_json(self) -> dict[str, Any]:
        """Return the value that `Schema.from_json` accepts under the feature's name."""
        data: dict[str, Any] = {
            "dtype": self.dtype.value,
            "shape": ["*"] if self.shape is None else list(self.shape),
        }
        if self.default is not None:
            values = [_plain(value) for value in self.default]
            data["default"] = values[0] if self.shape == () else values
        if self.is_list:
            data["list"] = True
        return data

    @classmethod
    def from_json(cls, name: str, data: object) -> "FeatureSpec":
        """Create a spec from the value that `to_json` returns; raise `SchemaError` if malformed.

        A default with a single value fills the whole shape.
        """
        if not isinstance(data, Mapping):
            raise SchemaError(
                f"invalid description of {name!r}", expected="a JSON object", found=data
            )
        unknown = set(data) - {"dtype", "shape", "default", "list"}
        if unknown:
            raise SchemaError(f"unknown keys in the description of {name!r}", found=sorted(unknown))
        word = data.get("dtype")
        if word not in [dtype.value for dtype in DType]:
            what = f"invalid dtype for {name!r}"
            raise SchemaError(what, expected="string, int64 or float32", found=word)
        dtype = DType(word)
        shape = data.get("shape", [])
        sizes = None if shape == ["*"] else shape
        if sizes is not None:
            if not isinstance(sizes, list) or not all(type(size) is int for size in sizes):
                what = f"invalid shape for {name!r}"
                raise SchemaError(what, expected="[], [3], [2,2] or [*]", found=shape)
            sizes = tuple(sizes)
        default = data.get("default")
        if default is not None:
            values = default if isinstance(default, list) else [default]
            count = math.prod(sizes) if sizes and len(values) == 1 else 1
            if count > _LARGEST_DEFAULT:
                most = f"at most {_LARGEST_DEFAULT} values"
                raise SchemaError(
                    f"the default of {name!r} is too large", expected=most, found=count
                )
            default = tuple(_from_plain(dtype, value) for value in values) * count
        is_list = bool(data.get("list"))
        return cls(name=name, dtype=dtype, shape=sizes, default=default, is_list=is_list)

    def to_tf(self, tf: ModuleType) -> Any:
        """Return the spec as an entry of a ``tf.io`` feature description.

        A fixed shape becomes ``FixedLenFeature``. Any number of values becomes ``VarLenFeature``, a
        sparse tensor. A feature list becomes ``FixedLenSequenceFeature`` or ``VarLenFeature``.

        Args:
            tf: the imported ``tensorflow`` module.
        """
        dtype = getattr(tf, self.dtype.value)
        if self.shape is None:
            return tf.io.VarLenFeature(dtype)
        if self.is_list:
            return tf.io.FixedLenSequenceFeature(list(self.shape), dtype)
        if self.default is None:
            return tf.io.FixedLenFeature(list(self.shape), dtype)
        default: Any = self.default[0] if self.shape == () else list(self.default)
        return tf.io.FixedLenFeature(list(self.shape), dtype, default_value=default)


@dataclass(frozen=True, slots=True)
class Schema(Shown):
    """Feature description: one `FeatureSpec` per feature."""

    specs: tuple[FeatureSpec, ...]  # no name twice, but in a context and as a list

    def __post_init__(self) -> None:
        seen: set[tuple[str, bool]] = set()
        for spec in self.specs:
            if (spec.name, spec.is_list) in seen:
                raise SchemaError(f"duplicate description of {spec.name!r}")
            seen.add((spec.name, spec.is_list))

    def __iter__(self) -> Iterator[FeatureSpec]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)

    @classmethod
    def from_notation(cls, notations: str | Iterable[str]) -> "Schema":
        """Create a schema from texts like ``label:int64=-1``; raise `SchemaError` if malformed."""
        notations = [notations] if isinstance(notations, str) else notations
        return cls(tuple(map(FeatureSpec.parse, notations)))

    @classmethod
    def from_json(cls, text: str | bytes) -> "Schema":
        """Create a schema from a JSON object that maps feature names to descriptions.

        A name used by both the context and the feature lists of a SequenceExample maps to a list of
        two descriptions.

        Raises:
            SchemaError: the text is not such an object.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"invalid JSON: {error}") from error
        if not isinstance(data, dict):
            raise SchemaError("invalid schema", expected="a JSON object")
        return cls(
            tuple(
                FeatureSpec.from_json(name, item)
                for name, items in data.items()
                for item in (items if items and isinstance(items, list) else [items])
            )
        )

    def to_json(self) -> dict[str, Any]:
        """Return the schema as plain JSON values that `from_json` accepts."""
        data: dict[str, Any] = {}
        for spec in self.specs:
            item = spec.to_json()
            data[spec.name] = [data[spec.name], item] if spec.name in data else item
        return data

    def to_feature_description(self, tf: ModuleType) -> dict[Any, Any]:
        """Return the context features in the form that ``tf.io.parse_single_example`` accepts."""
        return _keyed({spec.name: spec.to_tf(tf) for spec in self.specs if not spec.is_list})

    def to_sequence_description(self, tf: ModuleType) -> dict[Any, Any]:
        """Return the feature lists as ``tf.io.parse_single_sequence_example`` accepts them."""
        return _keyed({spec.name: spec.to_tf(tf) for spec in self.specs if spec.is_list})


def _keyed(description: dict[str, Any]) -> dict[Any, Any]:
    """Return a description by names, or by their bytes if one of them isn't UTF-8.

    TensorFlow takes both, but not both at once: it sorts them.
    """
    keys = {name: feature_key(name) for name in description}
    if all(map(is_utf8, keys.values())):
        return description
    return {key: description[name] for name, key in keys.items()}


def _plain(value: Value) -> str | float:
    return feature_name(value) if isinstance(value, bytes) else value


def _from_plain(dtype: DType, value: Any) -> Any:
    """Return what `_plain` was made of, and what is not of that type as it is."""
    if dtype is DType.STRING and isinstance(value, str):
        return feature_key(value)
    if dtype is DType.FLOAT32 and type(value) is int:
        with contextlib.suppress(OverflowError):
            return float(value)
    return value
