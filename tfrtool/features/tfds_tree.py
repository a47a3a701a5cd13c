"""features.json of TFDS (tensorflow-datasets 4.9.10) as a tree of fields, and back."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfrtool.examples.tfds_metadata import Json, connector, dimensions
from tfrtool.features.types import Encoding, Field, Kind, ListOf, Struct, Values, check_tree, join

_ENCODINGS = {"none": Encoding.NONE, "bytes": Encoding.RAW, "zlib": Encoding.ZLIB}
_TFDS_ENCODINGS = {encoding: name for name, encoding in _ENCODINGS.items()}
_STRINGS = ("object", "string", "str", "bytes")
_DEEPEST = 64
"""Levels of features.json that are read; a tree has fewer."""

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
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a description of features ({error})") from error
    if not isinstance(root, Struct):
        raise ValueError("the features are not a FeaturesDict")
    check_tree(root)
    return root, tuple(notes)


def _field(data: Any, path: str, notes: list[str], depth: int) -> Field:
    """Return the field that a part of features.json describes."""
    if depth > _DEEPEST:
        raise ValueError("features are nested too deeply")
    if "type" in data and "pythonClassName" not in data:
        return _older(data, path, notes, depth)
    for key, read in _READERS.items():
        if key in data:
            return read(data[key], path, notes, depth) if data[key] is not None else _bytes({})
    if "featuresDict" in data:
        parts = data["featuresDict"].get("features", {})
        return _struct(parts, path, notes, depth)
    if "sequence" in data:
        sequence, name = data["sequence"], str(data.get("pythonClassName", ""))
        item = _field(sequence["feature"], path, notes, depth + 1)
        length = int(sequence.get("length", -1))
        is_dataset = name.rpartition(".")[2] == "Dataset"
        return _list(item, None if length < 0 else length, path, notes, is_dataset=is_dataset)
    name = str(data.get("pythonClassName", "without a class")).rpartition(".")[2]
    raise UnknownFeatureError(f"unknown feature {name}")


def _struct(parts: Mapping[str, Any], path: str, notes: list[str], depth: int) -> Struct:
    fields: dict[str, Field] = {}
    for name, data in parts.items():
        inner = join(path, name)
        try:
            fields[name] = _field(data, inner, notes, depth + 1)
        except UnknownFeatureError as error:
            notes.append(f"{inner!r} is not shown: {error}")
    return Struct(fields)


def _list(
    item: Field, length: int | None, path: str, notes: list[str], *, is_dataset: bool = False
) -> ListOf:
    """Return a list; values of a size that records don't hold stay one flat list."""
    if isinstance(item, Values) and item.encoding is Encoding.NONE and None in item.shape:
        notes.append(f"the shape of {path!r} is not stored; its values are one list")
        item = Values(kind=item.kind, dtype=item.dtype, info=item.info)
        length = None
    return ListOf(item=item, length=length, is_dataset=is_dataset)


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
    notes.append(f"the shape of {path!r} is not stored; its values are one list")
    return (None,)


def _audio(data: Any, path: str, notes: list[str], depth: int) -> Values:
    if data.get("lazyDecode"):
        return Values(kind=Kind.AUDIO, info=dict(data))
    found = _tensor({**data, "dtype": data["dtype"]}, path, notes, depth)
    return Values(
        kind=found.kind,
        dtype=found.dtype,
        shape=found.shape,
        encoding=found.encoding,
        info={"audio": dict(data)},
    )


def _video(data: Any, path: str, notes: list[str], depth: int) -> Field:  # noqa: ARG001
    frames = _shape(data.get("shape"))
    item = Values(kind=Kind.IMAGE, info=dict(data))
    return ListOf(item=item, length=frames[0] if frames else None)


def _translation(data: Any, path: str, notes: list[str], depth: int) -> Field:  # noqa: ARG001
    text = Values(kind=Kind.TEXT)
    if data.get("variableLanguagesPerExample"):
        return ListOf(item=Struct({"language": text, "translation": text}))
    return Struct({str(language): text for language in data["languages"]})


def _box(data: Any, path: str, notes: list[str], depth: int) -> Values:  # noqa: ARG001
    return Values(kind=Kind.NUMBER, dtype="float32", shape=_BOX, info={"box": dict(data)})


def _bytes(info: Mapping[str, Any]) -> Values:
    return Values(kind=Kind.BYTES, info=info)


def _simple(kind: Kind) -> Callable[..., Values]:
    """Return what reads a feature whose type says everything that the tree needs."""

    def read(data: Any, path: str, notes: list[str], depth: int) -> Values:  # noqa: ARG001
        return Values(kind=kind, info=dict(data))

    return read


_READERS: Mapping[str, Callable[[Any, str, list[str], int], Field]] = {
    "tensor": _tensor,
    "text": _simple(Kind.TEXT),
    "classLabel": _simple(Kind.LABEL),
    "image": _simple(Kind.IMAGE),
    "video": _video,
    "audio": _audio,
    "boundingBox": _box,
    "translation": _translation,
}


def _older(data: Any, path: str, notes: list[str], depth: int) -> Field:
    """Return the field of a part in the notation of TFDS before 4.5.

    ``content`` is what ``proto_cls`` says, as protobuf's JSON, perhaps as text.
    """
    import json

    name, content = str(data["type"]).rpartition(".")[2], data.get("content") or {}
    content = json.loads(content) if isinstance(content, str) else content
    if name in ("FeaturesDict", "Features"):
        return _struct(content.get("features", content), path, notes, depth)
    if name in ("Sequence", "Dataset"):
        item = _field(content.get("feature") or content["content"], path, notes, depth + 1)
        length = content.get("length")
        length = None if length is None or int(length) < 0 else int(length)
        return _list(item, length, path, notes, is_dataset=name == "Dataset")
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
    return _READERS[keys[name]](_camel(content), path, notes, depth)


def _camel(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of protobuf's fields as its JSON has them."""
    changed = dict[str, Any]()
    for key, value in content.items():
        head, *rest = str(key).split("_")
        changed[head + "".join(map(str.title, rest))] = value
    if isinstance(changed.get("shape"), Sequence):
        changed["shape"] = {"dimensions": [-1 if n is None else n for n in changed["shape"]]}
    return changed


def _shape(data: Any) -> tuple[int | None, ...]:
    """Return the sizes of a shape; None for any."""
    sizes = tuple(map(int, (data or {}).get("dimensions", ())))
    return tuple(None if size < 0 else size for size in sizes)


def tfds_of_tree(root: Field) -> Json:
    """Return what features.json has of a field."""
    if isinstance(root, Struct):
        parts = {name: tfds_of_tree(part) for name, part in root.fields.items()}
        return connector("FeaturesDict", featuresDict={"features": parts})
    if isinstance(root, ListOf):
        name = "Dataset" if root.is_dataset else "Sequence"
        length = "-1" if root.length is None else str(root.length)
        item = tfds_of_tree(root.item)
        return connector(name, sequence={"feature": item, "length": length})
    return _tfds_values(root)


def _tfds_values(values: Values) -> Json:
    info = dict(values.info)
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
    dtype = "object" if values.kind in (Kind.BYTES, Kind.TEXT, Kind.IMAGE) else "int64"
    if values.kind in (Kind.NUMBER, Kind.BOOL):
        dtype = values.dtype
    shape = [-1 if size is None else size for size in values.shape]
    encoding = _TFDS_ENCODINGS[values.encoding]
    return connector("Tensor" if shape else "Scalar", dtype, shape, encoding)
