"""What a record's image and label are, and whether they can be used, without decoding the image."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from math import prod
from pathlib import Path

from google.protobuf.message import DecodeError

from tfrtool.errors import DatasetError
from tfrtool.examples.content import decode_text
from tfrtool.examples.example import DType, Value, feature_key
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.images.header import limit_problem
from tfrtool.loading.dataset.dataset import Dataset, Split
from tfrtool.loading.dataset.forms import ImageEncoding
from tfrtool.records.compression import Compression
from tfrtool.records.count import as_error, count_shard
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.records.reader import read_shard
from tfrtool.records.shards import Shard
from tfrtool.storage.limits import MAX_CLASSES

_LONGEST_NAME = 1024
_NUMBER, _NAME = b"image/class/label", b"image/class/text"
"""TensorFlow's models keep the number of an image's class and its name side by side."""


def find_classes(
    shards: Iterable[Path],
    label: str,
    dtype: DType,
    *,
    skip: bool,
    local: Callable[[Path], AbstractContextManager[Path]] = nullcontext,
) -> tuple[str, ...]:
    """Read all records, and return the names of the classes that there are, by number.

    Numbers stay as they are, and those that no record has keep their place; their names are those
    that stand beside them in ``image/class/text``, else the numbers. Strings are names, and are
    numbered in sorted order. Damage, or a record whose label can't be a class, is an error unless
    it is skipped. ``local`` gives the file to read for a shard.
    """
    key = feature_key(label)
    found: dict[Value | None, set[bytes]] = {}
    for path in shards:
        for item in _items(path, local):
            if isinstance(item, Fault):
                if not skip and item.kind is not FaultKind.EMPTY:
                    raise as_error(path, item, in_dataset=True)
                continue
            values = _single_values(item.payload, (key, _NAME)) or {}
            value, text = values.get(key), values.get(_NAME)
            problem = _label_problem(label, value, dtype, MAX_CLASSES)
            if problem is None:
                texts = found.setdefault(value, set())
                if isinstance(text, bytes) and len(texts) < 2:  # more than one is no name
                    texts.add(text)
            elif not skip:
                raise DatasetError(problem, path=path, record=item.index, offset=item.offset)
    if dtype is DType.STRING:
        return tuple(sorted(_text(value) for value in found))
    named = {value: _text(next(iter(names))) for value, names in found.items() if len(names) == 1}
    if key != _NUMBER or not len(named) == len(found) == len(set(named.values())):
        named = {}
    count = max((value for value in found if isinstance(value, int)), default=-1) + 1
    return tuple(named.get(number) or str(number) for number in range(count))


def _items(
    path: Path, local: Callable[[Path], AbstractContextManager[Path]]
) -> Iterator[Record | Fault]:
    with local(path) as file:
        yield from read_shard(file)


def _text(value: Value | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _single_values(payload: bytes, keys: Iterable[bytes]) -> dict[bytes, Value | None] | None:
    """Return the values of some features of an Example; None if it is no Example.

    A feature is not in the result if the record doesn't have it or it has no kind, and None if it
    has none or several values. Straight from the message: most of a record is its image.
    """
    wanted = frozenset(keys)
    try:
        message = pb.Example.FromString(payload)
    except DecodeError:
        return None
    found: dict[bytes, Value | None] = {}
    for entry in message.features.feature:
        if entry.key in wanted:
            kind = entry.value.WhichOneof("kind")
            if kind is not None:
                values = getattr(entry.value, kind).value
                # Of a key that comes twice the last counts, as in every protobuf map.
                found[entry.key] = values[0] if len(values) == 1 else None
    return found


def _label_problem(label: str, value: Value | None, dtype: DType, classes: int) -> str | None:
    """Return why a value can't be a class; None if it can. None stands for no or several values."""
    found = f"{len(value)} bytes" if isinstance(value, bytes) else f"the number {value}"
    if value is None:
        expected, found = f"one {dtype.value} value", "none or several"
    elif dtype is DType.STRING:
        expected = "a name in UTF-8"
        if isinstance(value, bytes) and len(value) <= _LONGEST_NAME:
            expected = expected if decode_text(value) is None else ""
    elif not isinstance(value, int):
        expected = "an int64"
    else:
        expected = "" if 0 <= value < classes else f"a number from 0 to {classes - 1}"
    if not expected:
        return None
    return f"the feature {label!r} is no class: expected {expected}, found {found}"


def record_check(dataset: Dataset) -> Callable[[bytes], str | None]:
    """Return a function that tells why a record can't be used, as far as its decoder will ask.

    It is None if all is well but, perhaps, the image itself.
    """
    form, image_name, label_name = dataset.image_form, dataset.image_feature, dataset.label_feature
    image_key, label_key = feature_key(image_name), feature_key(label_name)
    said = [feature_key(name) for name in (form.height_feature, form.width_feature) if name]
    classes = len(dataset.class_names)
    names = frozenset(name.encode() for name in dataset.class_names)

    def pixels_problem(image: bytes, values: Mapping[bytes, Value | None]) -> str | None:
        if form.encoding is ImageEncoding.ENCODED:
            problem = limit_problem(image)
            return problem and f"the feature {image_name!r} does not decode: {problem}"
        sides = [values.get(key) for key in said] or [form.height, form.width]
        height, width = (side if isinstance(side, int) else 0 for side in sides)
        if height < 1 or width < 1:
            return "it doesn't say how high and wide its image is"
        # Four characters of base64 stand for three bytes; padding may be there or not.
        packed = form.encoding is ImageEncoding.BASE64
        held = len(image.rstrip(b"=")) * 3 // 4 if packed else len(image)
        size = prod((height, width, form.channels or 0))
        expected = f"{height} x {width} x {form.channels} = {size} bytes of pixels, found {held}"
        what = f"the feature {image_name!r} has a wrong size: expected {expected}"
        return None if held == size else what

    def problem(payload: bytes) -> str | None:
        values = _single_values(payload, (image_key, label_key, *said))
        if values is None:
            return f"its {len(payload)} bytes are no tf.train.Example"
        image, label = values.get(image_key), values.get(label_key)
        if not isinstance(image, bytes):
            return f"the feature {image_name!r} is no image: expected one string value"
        found = pixels_problem(image, values)
        found = found or _label_problem(label_name, label, dataset.label_dtype, classes)
        if found is None and dataset.label_dtype is DType.STRING and label not in names:
            return f"the feature {label_name!r} is no class: expected one of {classes} names"
        return found

    return problem


def limits_problem(dataset: Dataset, shard: Path, compression: Compression) -> str | None:
    """Return which image of a shard is over the limits and must not get to a decoder, if one is.

    TensorFlow has no limit on what a decoder may cost. Told shard by shard, since to ask from the
    graph for each image takes as long as decoding a small one. CRCs are left to TensorFlow.
    """
    if dataset.image_form.encoding is not ImageEncoding.ENCODED:
        return None
    key = feature_key(dataset.image_feature)
    for item in read_shard(shard, compression=compression, verify_payload=False):
        if isinstance(item, Record):
            values = _single_values(item.payload, (key,))
            image = None if values is None else values.get(key)
            problem = limit_problem(image) if isinstance(image, bytes) else None
            if values is None:  # TensorFlow may find an image in it all the same
                problem = "it is no tf.train.Example"
            if problem is not None:
                return f"record {item.index}: {problem}"
    return None


def check_copy(split: Split, number: int, file: Path) -> None:
    """Hold the copy of a remote shard against what was believed of it until now.

    It is a `CorruptShardError` if its framing is damaged, which can end TensorFlow's whole process,
    and a `DatasetError` if it has other records, or another compression.
    """
    found, shard = count_shard(file), split.shards[number]
    if found.faults:
        raise as_error(shard, found.faults[0], in_dataset=True)
    facts = [f"{found.records} records, compression {Shard.at(file).compression.value}"]
    facts.append(f"{split.lengths[number]} records, compression {split.compression.value}")
    if facts[0] != facts[1]:
        what = "the shard does not agree with the metadata"
        raise DatasetError(what, path=shard, expected=facts[1], found=facts[0])
