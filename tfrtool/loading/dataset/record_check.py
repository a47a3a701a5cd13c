"""What a record's image and label are, and whether they can be used, without decoding the image."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from google.protobuf.message import DecodeError

from tfrtool.errors import DatasetError
from tfrtool.examples.example import DTYPES, DType, Feature, Value, feature_key
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.images.header import limit_problem
from tfrtool.loading.dataset.dataset import Dataset, Split
from tfrtool.loading.dataset.forms import ImageEncoding, image_problem, tensor_problem
from tfrtool.loading.dataset.label_form import LabelEncoding, LabelFold, LabelForm, label_check
from tfrtool.records.compression import Compression
from tfrtool.records.count import as_error, count_shard
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.records.reader import read_shard
from tfrtool.records.shards import Shard

_NUMBER, _NAME = b"image/class/label", b"image/class/text"
"""TensorFlow's models keep the number of an image's class and its name side by side."""

_Values = tuple[DType | None, Sequence[Value]]
_NO_VALUES: _Values = (None, ())


def find_labels(
    shards: Sequence[Path],
    label: str,
    dtype: DType,
    *,
    skip: bool,
    listed: bool = False,
    local: Callable[[Path], AbstractContextManager[Path]] = nullcontext,
) -> tuple[LabelForm, tuple[str, ...]]:
    """Read all records, and return the form of their labels, and the names of the classes.

    Numbers are those that some record has, in their order; their names are those that stand beside
    them in ``image/class/text``, else the numbers. Strings are names, and are numbered in sorted
    order. A vector has a class for each of its values. With ``listed`` labels are lists, whatever
    they look like.

    Damage, or a record whose label can't be one of that form, is an error unless it is skipped.
    ``local`` gives the file to read for a shard.
    """
    key, fold = feature_key(label), LabelFold(label, dtype)
    check = label_check(label, LabelForm(dtype=dtype, encoding=LabelEncoding.LIST))
    for path, record, values in _labels(shards, key, local, skip=skip):
        held = values.get(key, _NO_VALUES)
        if _NAME not in values and fold.add_known(*held):
            continue
        problem = check(_feature(held))
        if problem is None:
            fold.add(held[1], next(iter(values.get(_NAME, _NO_VALUES)[1]), None))
        elif not skip:
            raise DatasetError(problem, path=path, record=record.index, offset=record.offset)
    form, names = fold.result(listed=listed, named=key == _NUMBER)
    if fold.exceptions(form) and not skip:
        check = label_check(label, form, names)
        for path, record, values in _labels(shards, key, local, skip=skip):
            problem = check(_feature(values.get(key)))
            if problem is not None:
                raise DatasetError(problem, path=path, record=record.index, offset=record.offset)
    return form, names


def _labels(
    shards: Iterable[Path],
    key: bytes,
    local: Callable[[Path], AbstractContextManager[Path]],
    *,
    skip: bool,
) -> Iterator[tuple[Path, Record, Mapping[bytes, _Values]]]:
    """Yield each record with the values of its label; damage is an error unless it is skipped."""
    for path in shards:
        for item in _items(path, local):
            if isinstance(item, Fault):
                if not skip and item.kind is not FaultKind.EMPTY:
                    raise as_error(path, item, in_dataset=True)
            elif (values := _values(item.payload, (key, _NAME))) is not None:
                yield path, item, values
            elif not skip:
                what = f"its {len(item.payload)} bytes are no tf.train.Example"
                raise DatasetError(what, path=path, record=item.index, offset=item.offset)


def _items(
    path: Path, local: Callable[[Path], AbstractContextManager[Path]]
) -> Iterator[Record | Fault]:
    with local(path) as file:
        yield from read_shard(file)


def _feature(held: _Values | None) -> Feature:
    dtype, values = held or _NO_VALUES
    return Feature(dtype=dtype, values=values)


def _values(payload: bytes, keys: Iterable[bytes]) -> dict[bytes, _Values] | None:
    """Return types and values of some features of an Example; None if it is no Example.

    A feature is not in the result if the record doesn't have it or it has no kind. Straight from
    the message: most of a record is its image.
    """
    wanted = frozenset(keys)
    try:
        message = pb.Example.FromString(payload)
    except DecodeError:
        return None
    found: dict[bytes, _Values] = {}
    for entry in message.features.feature:
        if entry.key in wanted:
            kind = entry.value.WhichOneof("kind")
            if kind is not None:
                # Of a key that comes twice the last counts, as in every protobuf map.
                found[entry.key] = DTYPES[kind], getattr(entry.value, kind).value
    return found


def record_check(dataset: Dataset) -> Callable[[bytes], str | None]:
    """Return a function that tells why a record can't be used, as far as its decoder will ask.

    It is None if all is well but, perhaps, the image itself.
    """
    form, image_name, label_name = dataset.image_form, dataset.image_feature, dataset.label_feature
    image_key, label_key = feature_key(image_name), feature_key(label_name)
    said = [feature_key(name) for name in (form.height_feature, form.width_feature) if name]
    label_problem = label_check(label_name, dataset.label_form, dataset.class_names)

    def problem(payload: bytes) -> str | None:
        values = _values(payload, (image_key, label_key, *said))
        if values is None:
            return f"its {len(payload)} bytes are no tf.train.Example"
        sides = [_feature(values.get(key)) for key in said]
        found = image_problem(form, _feature(values.get(image_key)), sides)
        found = found and f"the feature {image_name!r} {found}"
        return found or label_problem(_feature(values.get(label_key)))

    return problem


def limits_problem(dataset: Dataset, shard: Path, compression: Compression) -> str | None:
    """Return which image of a shard is over the limits and must not get to a decoder, if one is.

    TensorFlow has no limit on what a decoder may cost. Told shard by shard, since to ask from the
    graph for each image takes as long as decoding a small one. CRCs are left to TensorFlow.
    """
    form = dataset.image_form
    if form.encoding not in (ImageEncoding.ENCODED, ImageEncoding.TENSOR):
        return None
    key = feature_key(dataset.image_feature)
    for item in read_shard(shard, compression=compression, verify_payload=False):
        if isinstance(item, Record):
            values = _values(item.payload, (key,))
            held = () if values is None else values.get(key, _NO_VALUES)[1]
            image, problem = held[0] if len(held) == 1 else None, None
            if isinstance(image, bytes):
                encoded = form.encoding is ImageEncoding.ENCODED
                problem = limit_problem(image) if encoded else tensor_problem(form, image)
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
