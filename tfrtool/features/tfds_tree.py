"""features.json of TFDS (tensorflow-datasets 4.9.10) as a tree of fields, and back."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tfrtool.examples.fields import Encoding, Field, Kind, ListOf, Struct, Values, join
from tfrtool.examples.tfds_metadata import Json, connector, dimensions
from tfrtool.features.stored_layout import can_divide, check_tree, is_field_name
from tfrtool.storage.json_values import bounded_integer
from tfrtool.storage.limits import MAX_COLUMNS

_ENCODINGS = {"none": Encoding.NONE, "bytes": Encoding.RAW, "zlib": Encoding.ZLIB}
_TFDS_ENCODINGS = {encoding: name for name, encoding in _ENCODINGS.items()}
_STRINGS = ("object", "string", "str", "bytes")
_DEEPEST = 64
"""Levels of features.json that are read; a tree has fewer."""

_STORED_AS_BYTES = (Kind.BYTES, Kind.TEXT, Kind.IMAGE)

_NAMED = 100
"""Characters of a name in a note."""

_BOX = (4,)
"""Sizes of a bounding box: ymin, xmin, ymax, xmax."""


class UnknownFeatureError(ValueError):
    """A feature that no tree has, such as one of a class outside TFDS."""


def tree_of_tfds(content: Any) -> tuple[Struct, tuple[str, ...]]:
    """Return the tree that features.json describes, and notes on features it can't describe.

    ``content`` is the file's JSON, in its present form (``featuresDict``) or the older one
    (``type``, ``content``).

    Raises:
        ValueError: it isn't such a file, or it exceeds a limit.
    """
    notes = list[str]()
    try:
        root = _field(content, "", notes, 0)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a description of features ({str(error)[:_NAMED]})") from error
    if not isinstance(root, Struct):
        raise ValueError("the features are not a FeaturesDict")
    stored = _divisible(root, "", notes, 0)
    root = stored if isinstance(stored, Struct) else Struct({})
    if len(notes) > MAX_COLUMNS:
        raise ValueError(f"{len(notes):,} features of unknown types (limit {MAX_COLUMNS:,})")
    check_tree(root)
    return root, tuple(notes)


def tfds_parts(content: Any) -> dict[str, Json]:
    """Return what features.json has of each feature, by name; in the present form, as it is.

    Raises:
        ValueError: it isn't such a file.
    """
    root, _ = tree_of_tfds(content)
    parts = (content.get("featuresDict") or {}).get("features")
    return dict(parts or {name: tfds_of_tree(item) for name, item in root.fields.items()})


def tfds_dict(parts: Mapping[str, Json]) -> Json:
    """Return the features.json of features."""
    return connector("FeaturesDict", featuresDict={"features": parts})


def with_tfds_facts(content: Any, path: str, key: str, facts: Mapping[str, Any]) -> Json:
    """Return features.json with more facts under a key of the feature at a path, if it has that.

    The others stay as they are, as TFDS has several spellings of the same.

    Raises:
        ValueError: it isn't such a file.
    """

    def changed(at: str, data: Json) -> Json:
        if data.get("sequence"):
            inner = data["sequence"]
            return {**data, "sequence": {**inner, "feature": changed(at, inner["feature"])}}
        if data.get("featuresDict"):
            parts = data["featuresDict"].get("features", {})
            parts = {name: changed(join(at, name), part) for name, part in parts.items()}
            return {**data, "featuresDict": {"features": parts}}
        return {**data, key: {**data[key], **facts}} if at == path and key in data else data

    return changed("", tfds_dict(tfds_parts(content)))


def _divisible(item: Field, path: str, notes: list[str], level: int) -> Field | None:
    """Return a field without what records don't store: structs of nothing, and unknown shapes.

    None if they store nothing of it.
    TFDS writes a list of tensors of unknown sizes, but can't read it. Its values are one flat list.
    """
    if isinstance(item, Struct):
        parts = item.fields.items()
        found = {name: _divisible(part, join(path, name), notes, level) for name, part in parts}
        fields = {name: part for name, part in found.items() if part is not None}
        return Struct(fields) if fields else None
    if isinstance(item, ListOf):
        values = item.item
        if not level and isinstance(values, Values) and not can_divide(values):
            notes.append(f"the shape of {_short(path)} is not stored; its values are one list")
            return replace(item, item=replace(values, shape=()), length=None)
        part = _divisible(values, path, notes, level + 1)
        return None if part is None else replace(item, item=part)
    if level and not can_divide(item):
        notes.append(f"{_short(path)} is not shown: lists don't store its shape")
        return None
    return item


def _short(path: str) -> str:
    return repr(path[:_NAMED])


def _field(data: Any, path: str, notes: list[str], depth: int) -> Field:
    """Return the field that a part of features.json describes."""
    if depth > _DEEPEST:
        raise ValueError("features are nested too deeply")
    if not isinstance(data, dict):
        raise ValueError("a feature is not a JSON object")
    if "type" in data and "pythonClassName" not in data:
        return _older(data, path, notes, depth)
    for key, read in _READERS.items():
        if data.get(key) is not None:
            return read(data[key], path, notes, depth)
    if data.get("featuresDict") is not None:
        parts = data["featuresDict"].get("features", {})
        return _struct(parts, path, notes, depth)
    name = str(data.get("pythonClassName", "without a class")).rpartition(".")[2]
    if data.get("sequence") is not None:
        sequence = data["sequence"]
        item = _field(sequence["feature"], path, notes, depth + 1)
        length = _size(sequence.get("length", -1))
        return ListOf(item=item, length=length, is_dataset=name == "Dataset")
    raise UnknownFeatureError(f"unknown feature {name[:40]}")


def _struct(parts: Mapping[str, Any], path: str, notes: list[str], depth: int) -> Struct:
    fields: dict[str, Field] = {}
    for name, data in parts.items():
        inner = join(path, name)
        try:
            if not is_field_name(name):
                raise UnknownFeatureError("its name is empty or not text")
            fields[name] = _field(data, inner, notes, depth + 1)
        except UnknownFeatureError as error:
            notes.append(f"{_short(inner)} is not shown: {error}")
    return Struct(fields)


def _tensor(data: Any, path: str, notes: list[str], depth: int) -> Values:  # noqa: ARG001
    dtype, shape = str(data["dtype"]), _shape(data.get("shape"))
    encoding = _ENCODINGS.get(str(data.get("encoding", "none")).lower())
    if encoding is None:
        raise UnknownFeatureError(f"unknown encoding {str(data['encoding'])[:40]}")
    info = {"optional": True} if data.get("optional") else {}
    if dtype in _STRINGS:
        return Values(kind=Kind.BYTES, shape=_stored_shape(shape, path, notes), info=info)
    kind = Kind.BOOL if dtype == "bool" else Kind.NUMBER
    if encoding is Encoding.NONE:
        shape = _stored_shape(shape, path, notes)
    try:
        return Values(kind=kind, dtype=dtype, shape=shape, encoding=encoding, info=info)
    except ValueError as error:
        raise UnknownFeatureError(f"{error}") from error


def _stored_shape(
    shape: tuple[int | None, ...], path: str, notes: list[str]
) -> tuple[int | None, ...]:
    """Return a shape by which values can be divided; of several unknown sizes, a flat list's."""
    if shape.count(None) < 2:
        return shape
    notes.append(f"the shape of {_short(path)} is not stored; its values are one list")
    return (None,)


def _audio(data: Any, path: str, notes: list[str], depth: int) -> Values:
    if data.get("lazyDecode"):
        return Values(kind=Kind.AUDIO, info=dict(data))
    return replace(_tensor(data, path, notes, depth), info={"audio": dict(data)})


def _video(data: Any, path: str, notes: list[str], depth: int) -> Field:  # noqa: ARG001
    frames = _shape(data.get("shape"))
    item = Values(kind=Kind.IMAGE, info=dict(data))
    return ListOf(item=item, length=frames[0] if frames else None)


def _translation(data: Any, path: str, notes: list[str], depth: int) -> Field:  # noqa: ARG001
    text = Values(kind=Kind.TEXT)
    if data.get("variableLanguagesPerExample"):
        return ListOf(item=Struct({"language": text, "translation": text}))
    languages = data["languages"]
    if not isinstance(languages, list) or not all(map(is_field_name, languages)):
        raise UnknownFeatureError("its languages are not names")
    return Struct(dict.fromkeys(languages, text))


def _box(data: Any, path: str, notes: list[str], depth: int) -> Values:  # noqa: ARG001
    return Values(kind=Kind.NUMBER, dtype="float32", shape=_BOX, info={"box": dict(data)})


def _text(data: Any, path: str, notes: list[str], depth: int) -> Values:  # noqa: ARG001
    if data.get("useEncoder"):
        raise UnknownFeatureError("text of an encoder that TFDS no longer has")
    return Values(kind=Kind.TEXT, info=dict(data))


def _label(data: Any, path: str, notes: list[str], depth: int) -> Values:  # noqa: ARG001
    classes = data.get("numClasses")
    count = None if classes is None else _size(classes)
    return Values(kind=Kind.LABEL, info={} if count is None else {"numClasses": str(count)})


def _image(data: Any, path: str, notes: list[str], depth: int) -> Values:  # noqa: ARG001
    _shape(data.get("shape"))
    return Values(kind=Kind.IMAGE, info=dict(data))


_READERS: Mapping[str, Callable[[Any, str, list[str], int], Field]] = {
    "tensor": _tensor,
    "text": _text,
    "classLabel": _label,
    "image": _image,
    "video": _video,
    "audio": _audio,
    "boundingBox": _box,
    "translation": _translation,
}


def _older(data: Any, path: str, notes: list[str], depth: int) -> Field:
    """Return the field of a part in the notation of TFDS before 4.5.

    ``content`` is what ``proto_cls`` says, as protobuf's JSON, perhaps as text.
    """
    name, content = str(data["type"]).rpartition(".")[2], data.get("content") or {}
    if isinstance(content, str):
        content = json.loads(content, parse_int=bounded_integer)
    if name in ("FeaturesDict", "Features"):
        parts = content.get("features", {}) if data.get("proto_cls") else content
        return _struct(parts, path, notes, depth)
    if name in ("Sequence", "Dataset"):
        item = _field(content["feature"], path, notes, depth + 1)
        length = content.get("length")
        length = None if length is None else _size(length)
        return ListOf(item=item, length=length, is_dataset=name == "Dataset")
    keys = {
        "Tensor": "tensor",
        "Scalar": "tensor",
        "Text": "text",
        "ClassLabel": "classLabel",
        "LabeledImage": "image",
        "Image": "image",
        "Video": "video",
        "Audio": "audio",
        "BBoxFeature": "boundingBox",
        "Translation": "translation",
        "TranslationVariableLanguages": "translation",
    }
    if name not in keys:
        raise UnknownFeatureError(f"unknown feature {name[:40]}")
    if name == "TranslationVariableLanguages":
        content = {**content, "variable_languages_per_example": True}
    return _READERS[keys[name]](_camel(content), path, notes, depth)


def _camel(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of protobuf's fields as its JSON has them."""
    changed = dict[str, Any]()
    for key, value in content.items():
        head, *rest = str(key).split("_")
        changed[head + "".join(map(str.title, rest))] = value
    if isinstance(changed.get("shape"), list):
        changed["shape"] = {"dimensions": [-1 if n is None else n for n in changed["shape"]]}
    return changed


def _shape(data: Any) -> tuple[int | None, ...]:
    """Return the sizes of a shape; None for any."""
    sizes = (data or {}).get("dimensions", [])
    if not isinstance(sizes, list):
        raise ValueError("the sizes of a shape are not a list")
    return tuple(map(_size, sizes))


def _size(value: object) -> int | None:
    """Return a size; None for any, which is negative. In protobuf's JSON, integers are strings."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value, re.ASCII):
        value = int(value)
    if type(value) is not int or value >= 2**63:
        raise ValueError(f"invalid size {repr(value)[:40]}")
    return None if value < 0 else value


def tfds_stored(values: Values) -> Values:
    """Return the values of the feature that stores some, if TFDS has no words for their shape."""
    if values.encoding is not Encoding.TENSOR and not values.size_features:
        return values
    if values.encoding is not Encoding.NONE:
        return Values(kind=Kind.BYTES, info=values.info)
    return replace(values, shape=(None,), size_features=())


def tfds_of_tree(root: Field) -> Json:
    """Return what features.json has of a field."""
    if isinstance(root, Struct):
        items = ((name, part) for name, part in root.fields.items() if not _is_mixed(part))
        parts = {name: tfds_of_tree(part) for name, part in items}
        return tfds_dict(parts)
    if isinstance(root, ListOf):
        name = "Dataset" if root.is_dataset else "Sequence"
        length = "-1" if root.length is None else str(root.length)
        item = tfds_of_tree(root.item)
        return connector(name, sequence={"feature": item, "length": length})
    return _tfds_values(root)


_INFERRED = ("optional", "null", "is_utf8")
"""Keys of `Values.info` that features.json doesn't have."""


def _is_mixed(item: Field) -> bool:
    """Return whether TFDS has no feature for a field."""
    return isinstance(item, Values) and item.kind is Kind.MIXED


def _tfds_values(values: Values) -> Json:
    info = {key: one for key, one in values.info.items() if key not in _INFERRED}
    is_optional = bool(values.info.get("optional"))
    if values.kind is Kind.TEXT and not values.shape:
        return connector("Text", text=info)
    if values.kind is Kind.LABEL and not values.shape:
        names = info.pop("names", None)
        count = info.pop("numClasses", None) or (names and str(len(names)))
        return connector("ClassLabel", classLabel={**info, "numClasses": count} if count else info)
    if values.kind is Kind.IMAGE and not values.shape:
        content = {"dtype": "uint8", "shape": dimensions(-1, -1, 3), **info}
        return connector("Image", image=content)
    if values.kind is Kind.AUDIO:
        return connector("Audio", audio=info)
    if "audio" in info:
        return connector("Audio", audio=info["audio"])
    if "box" in info:
        return connector("BBoxFeature", boundingBox=info["box"])
    values = tfds_stored(values)
    is_text = values.kind is Kind.TIME and values.dtype.startswith("decimal")
    dtype = "object" if is_text or values.kind in _STORED_AS_BYTES else "int64"
    if values.kind in (Kind.NUMBER, Kind.BOOL):
        dtype = values.dtype
    shape = [-1 if size is None else size for size in values.shape]
    encoding = _TFDS_ENCODINGS[values.encoding]
    content = connector("Tensor" if shape else "Scalar", dtype, shape, encoding)
    content["tensor"] |= {"optional": True} if is_optional else {}
    return content
