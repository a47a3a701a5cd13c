"""A tree of fields as Python source: TFDS' ``FeaturesDict``, to paste into a dataset builder."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tfrtool.examples.fields import Encoding, Field, Kind, ListOf, Struct, Values, class_count
from tfrtool.features.tfds_tree import tfds_stored

_INDENT = "    "
_ENCODINGS = {Encoding.RAW: "BYTES", Encoding.ZLIB: "ZLIB"}
_BOX_FORMAT = "REL_YXYX"
"""The format that TFDS takes if none is chosen."""


def tfds_source(root: Struct) -> str:
    """Return the source, without a final line break."""
    lines = list(_field(root, "features = ", "", ""))
    imports = ["numpy as np"] if any("np." in line for line in lines) else []
    imports += ["ml_dtypes"] if any("ml_dtypes." in line for line in lines) else []
    imports.append("tensorflow_datasets as tfds")
    return "\n".join([*(f"import {name}" for name in sorted(imports)), "", *lines])


def _field(item: Field, prefix: str, suffix: str, indent: str) -> Iterator[str]:
    """Yield the lines of a field; the first one starts with a prefix, the last one ends so."""
    if isinstance(item, Struct):
        yield f"{indent}{prefix}tfds.features.FeaturesDict({{"
        for name, part in item.fields.items():
            yield from _field(part, f"{_quoted(name)}: ", ",", indent + _INDENT)
        yield f"{indent}}}){suffix}"
    elif isinstance(item, ListOf):
        name = "Dataset" if item.is_dataset else "Sequence"
        end = f", length={item.length}){suffix}" if item.length is not None else f"){suffix}"
        yield from _field(item.item, f"{prefix}tfds.features.{name}(", end, indent)
    else:
        yield f"{indent}{prefix}{_values(item)}{suffix}"


def _values(values: Values) -> str:
    info = values.info
    if values.kind is Kind.TEXT and not values.shape:
        return "tfds.features.Text()"
    if values.kind is Kind.LABEL and not values.shape:
        return _label(values)
    if values.kind is Kind.IMAGE and not values.shape:
        return _image(info)
    if values.kind is Kind.AUDIO or "audio" in info:
        return _call("Audio", _audio_options(info.get("audio", info)))
    if "box" in info:
        return _call("BBoxFeature", _box_options(info["box"]))
    return _tensor(values)


def _tensor(values: Values) -> str:
    values = tfds_stored(values)
    is_text = values.kind is Kind.TIME and values.dtype.startswith("decimal")
    dtype = "int64" if values.kind is not Kind.NUMBER else values.dtype
    if values.kind in (Kind.BYTES, Kind.TEXT, Kind.IMAGE) or is_text:
        dtype = "object_"
    if values.kind is Kind.BOOL:
        dtype = "bool_"
    shown = f"{'ml_dtypes' if dtype == 'bfloat16' else 'np'}.{dtype}"
    options = {"optional": "True"} if values.info.get("optional") else {}
    if values.encoding is not Encoding.NONE:
        options["encoding"] = f"tfds.features.Encoding.{_ENCODINGS[values.encoding]}"
    if not values.shape and not options:
        return f"tfds.features.Scalar({shown})"
    return _call("Tensor", {"shape": repr(values.shape), "dtype": shown, **options})


def _label(values: Values) -> str:
    names = values.info.get("names")
    if names:
        return _call("ClassLabel", {"names": f"[{', '.join(map(_quoted, names))}]"})
    count = class_count(values)
    return _call("ClassLabel", {"num_classes": str(count)} if count else {})


def _image(info: Mapping[str, Any]) -> str:
    options, sizes, label = {}, _sizes(info)[-3:], info.get("label")
    if sizes:
        options["shape"] = repr(sizes)
    if isinstance(label, dict):
        count = Values(kind=Kind.LABEL, info=label)
        return _call("LabeledImage", {"labels": str(class_count(count) or None), **options})
    if (dtype := str(info.get("dtype", "uint8"))).isidentifier() and dtype != "uint8":
        options["dtype"] = f"np.{dtype}"
    if encoding := info.get("encodingFormat"):
        options["encoding_format"] = _quoted(encoding)
    return _call("Image", options)


def _audio_options(info: Mapping[str, Any]) -> dict[str, str]:
    options = {}
    if sizes := _sizes(info):
        options["shape"] = repr(sizes)
    if (dtype := str(info.get("dtype", "int64"))).isidentifier():
        options["dtype"] = f"np.{dtype}"
    if encoding := info.get("encoding"):
        options["encoding"] = f"tfds.features.Encoding.{str(encoding).upper()}"
    if rate := info.get("sampleRate"):
        options["sample_rate"] = str(int(rate))
    if info.get("lazyDecode"):
        options["lazy_decode"] = "True"
    return options


def _box_options(info: Mapping[str, Any]) -> dict[str, str]:
    name = str(info.get("bboxFormat") or _BOX_FORMAT).rpartition(".")[2]
    if name == _BOX_FORMAT or not re.fullmatch("[A-Z_]+", name):
        return {}
    return {"bbox_format": f"tfds.features.bounding_boxes_utils.BBoxFormat.{name}"}


def _sizes(info: Mapping[str, Any]) -> tuple[int | None, ...]:
    sizes = map(int, (info.get("shape") or {}).get("dimensions", ()))
    return tuple(None if size < 0 else size for size in sizes)


def _call(name: str, options: Mapping[str, str]) -> str:
    return f"tfds.features.{name}({', '.join(map('='.join, options.items()))})"


def _quoted(text: object) -> str:
    """Return a text as Python writes it, in double quotes where that needs no escape."""
    shown = ascii(str(text))
    return f'"{shown[1:-1]}"' if shown.startswith("'") and '"' not in shown else shown
