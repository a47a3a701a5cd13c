"""Feature descriptions in files: JSON, or Python source, which is parsed and never run."""

import ast
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tfrtool.errors import SchemaError, enumeration
from tfrtool.examples.example import feature_name
from tfrtool.examples.schema import FeatureSpec, Schema
from tfrtool.storage.limits import MAX_SOURCE_BYTES
from tfrtool.storage.opening import read_bounded

_PARAMETERS = {
    "FixedLenFeature": ("shape", "dtype", "default_value"),
    "VarLenFeature": ("dtype",),
    "FixedLenSequenceFeature": ("shape", "dtype", "allow_missing", "default_value"),
}
"""Classes of ``tf.io``, and their parameters by position."""

_CALLS = "tf.io.FixedLenFeature, VarLenFeature or FixedLenSequenceFeature"
_SEQUENCE = "sequence_features"
"""The parameter of ``tf.io.parse_single_sequence_example`` for feature lists."""

_LARGEST = 2**64


def read_description(path: str | os.PathLike[str]) -> Schema:
    """Return the description in a file: Python source if its name ends in .py, otherwise JSON.

    Raises:
        SchemaError: the file has no valid description; the error names its path and line.
        OSError: it can't be read, is not a regular file, or is too large.
    """
    is_source = os.fspath(path).lower().endswith(".py")
    try:
        if is_source:
            return parse_source(read_bounded(path, MAX_SOURCE_BYTES))
        return Schema.from_json(read_bounded(path))
    except SchemaError as error:
        error.path = os.fspath(path)
        raise


def parse_source(source: bytes) -> Schema:
    """Return the description in Python source: a dict of ``tf.io.FixedLenFeature`` and the like.

    Other code is ignored. Of a SequenceExample, there may be a dict of the context, and another of
    the feature lists.
    """
    found: dict[bool, dict[Schema, int]] = {False: {}, True: {}}
    for name, item in _descriptions(_syntax_tree(source)):
        calls = {
            _feature(key or value): _call(value)
            for key, value in zip(item.keys, item.values, strict=True)
        }
        if len(calls) < len(item.keys):
            raise _problem(item, "a feature is described twice")
        is_list = name == _SEQUENCE or _describes_lists([*calls.values()])
        specs = [_spec(feature, call, is_list) for feature, call in calls.items()]
        found[is_list].setdefault(Schema(tuple(specs)), item.lineno)
    for schemas in found.values():
        if len(schemas) > 1:
            lines = enumeration([*map(str, schemas.values())], "and")
            raise SchemaError(f"several feature descriptions, in lines {lines}", hint="keep one")
    return Schema(tuple(spec for schemas in found.values() for one in schemas for spec in one))


def _syntax_tree(source: bytes) -> ast.Module:
    try:
        text = source.decode("utf-8-sig")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on escapes in other texts of the file
            return ast.parse(text)
    except UnicodeDecodeError as error:
        raise SchemaError("not UTF-8", offset=error.start) from error
    except SyntaxError as error:
        raise _problem(error, f"invalid Python: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise SchemaError("invalid Python: too deeply nested, or has null bytes") from error


def _descriptions(tree: ast.Module) -> Iterator[tuple[str, ast.Dict]]:
    """Yield each dict with a feature of ``tf.io``, or else the only dict; and its name, or ""."""
    names, dicts = dict[ast.expr | None, str](), list[ast.Dict]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            names[node.value] = _last_name(node.targets[0])
        elif isinstance(node, ast.AnnAssign):
            names[node.value] = _last_name(node.target)
        elif isinstance(node, ast.keyword):
            names[node.value] = node.arg or ""
        elif isinstance(node, ast.Dict):
            dicts.append(node)
    chosen = [item for item in dicts if any(map(_is_feature, item.values))]
    chosen = chosen or (dicts if len(dicts) == 1 else [])
    if not chosen:
        raise SchemaError("no feature description", expected=f"a dict of {_CALLS}")
    for item in sorted(chosen, key=lambda item: item.lineno):
        yield names.get(item, ""), item


def _is_feature(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _last_name(node.func) in _PARAMETERS


def _last_name(node: ast.AST | None) -> str:
    """Return the last part of a dotted name; empty for any other expression."""
    parts = list[str]()
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [*parts, node.id][0] if isinstance(node, ast.Name) else ""


class _Call(NamedTuple):
    """A feature of ``tf.io``."""

    node: ast.Call
    kind: str
    values: Mapping[str, ast.expr]
    """Arguments by name."""

    @property
    def requires_list(self) -> bool:
        """Whether TensorFlow takes it for feature lists only."""
        return self.kind == "FixedLenSequenceFeature" and not self.allow_missing

    @property
    def allow_missing(self) -> bool:
        node = self.values.get("allow_missing")
        value = getattr(node, "value", None) if node is not None else False
        if not isinstance(value, bool):
            raise _problem(node, "invalid allow_missing", expected="True or False")
        return value


def _call(node: ast.expr) -> _Call:
    if not isinstance(node, ast.Call) or not _is_feature(node):
        raise _problem(node, "not a feature", expected=_CALLS)
    kind = _last_name(node.func)
    parameters = _PARAMETERS[kind]
    pairs = [(keyword.arg, keyword.value) for keyword in node.keywords]
    pairs += zip(parameters, node.args, strict=False)
    values = {name: value for name, value in pairs if name in parameters}
    if len(node.args) > len(parameters) or len(values) < len(pairs):
        raise _problem(node, f"invalid arguments of {kind}", expected=", ".join(parameters))
    missing = [name for name in ("shape", "dtype") if name in parameters and name not in values]
    if missing:
        raise _problem(node, f"{kind} without {missing[0]}")
    return _Call(node, kind, values)


def _describes_lists(calls: Sequence[_Call]) -> bool:
    """Return whether a description must be that of feature lists."""
    of_lists = [call.requires_list for call in calls]
    others = all(call.requires_list or call.kind == "VarLenFeature" for call in calls)
    return any(of_lists) and others


def _spec(name: str, call: _Call, is_list: bool) -> FeatureSpec:
    kind, values, dtype = call.kind, call.values, call.values["dtype"]
    word = dtype.value if isinstance(dtype, ast.Constant) else _last_name(dtype)
    shape = _literals(values["shape"]) if "shape" in values else ["*"]
    if is_list and kind != "VarLenFeature" and not call.requires_list:
        what = f"unsupported {kind} in a description of feature lists"
        raise _problem(call.node, what, expected="VarLenFeature or FixedLenSequenceFeature")
    if kind == "FixedLenSequenceFeature" and not is_list:
        if call.requires_list or shape:
            expected = "the shape [] and allow_missing=True"
            raise _problem(call.node, f"unsupported {kind} of an Example", expected=expected)
        shape = ["*"]
    data: dict[str, Any] = {"dtype": word, "shape": shape, "list": is_list}
    default = values.get("default_value")
    if kind == "FixedLenFeature" and default is not None and not _is_none(default):
        data["default"] = _literals(default)
        if len(data["default"]) == 1 and shape not in ([], [1]):
            raise _problem(default, "a single default for several values")
    try:
        return FeatureSpec.from_json(name, data)
    except SchemaError as error:
        error.what = f"line {call.node.lineno}: {error.what}"
        raise


def _feature(node: ast.expr) -> str:
    """Return the name of a feature."""
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, bytes):
        return feature_name(value)
    if not isinstance(value, str):
        raise _problem(node, "the name of a feature must be a string")
    return value


def _literals(node: ast.expr) -> list[Any]:
    """Return the numbers and strings of a literal, flattened."""
    if isinstance(node, ast.List | ast.Tuple):
        return [value for item in node.elts for value in _literals(item)]
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node, sign = node.operand, -1
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, int | float) and abs(value) < _LARGEST:
        return [sign * value if sign < 0 else value]
    if isinstance(value, str | bytes) and sign > 0:
        return [feature_name(value) if isinstance(value, bytes) else value]
    raise _problem(node, "unsupported value", expected="numbers or strings, or lists of them")


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _problem(node: object, what: str, expected: str | None = None) -> SchemaError:
    line = getattr(node, "lineno", None)
    return SchemaError(what if line is None else f"line {line}: {what}", expected=expected)
