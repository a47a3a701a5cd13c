"""What a record's image and label are, and whether they can be used, without decoding the image."""

from collections.abc import Callable, Iterable
from pathlib import Path

from google.protobuf.message import DecodeError

from tfrtool.errors import DatasetError
from tfrtool.examples.example import DTYPES, Feature, feature_key
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.loading.dataset import Dataset, Split
from tfrtool.loading.forms import NOTHING, ImageEncoding, image_problem
from tfrtool.loading.labels import label_check
from tfrtool.records.compression import Compression
from tfrtool.records.count import as_error, count_shard
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard
from tfrtool.records.shards import Shard


def features_reader(names: Iterable[str]) -> Callable[[bytes], dict[str, Feature]]:
    """Return a function from an Example to some of its features by their names.

    It raises a `ValueError` if the bytes are no Example. A feature is not in the result if the
    record doesn't have it or it has no kind. Straight from the message: most of a record is its
    image.
    """
    wanted = {feature_key(name): name for name in names}

    def read(payload: bytes) -> dict[str, Feature]:
        try:
            message = pb.Example.FromString(payload)
        except DecodeError as error:
            raise ValueError(f"its {len(payload)} bytes are not a tf.train.Example") from error
        found: dict[str, Feature] = {}
        for entry in message.features.feature:
            name = wanted.get(entry.key)
            kind = None if name is None else entry.value.WhichOneof("kind")
            if name is not None and kind is not None:
                # Of a key that comes twice the last counts, as in every protobuf map.
                found[name] = Feature(dtype=DTYPES[kind], values=getattr(entry.value, kind).value)
        return found

    return read


def record_check(dataset: Dataset) -> Callable[[bytes], str | None]:
    """Return a function that tells why a record can't be used, as far as its decoder will ask.

    It is None if all is well but, perhaps, the image itself.
    """
    form, image, label = dataset.image_form, dataset.image_feature, dataset.label_feature
    read = features_reader([image, label, *form.size_features])
    label_problem = label_check(label, dataset.label_form)

    def problem(payload: bytes) -> str | None:
        try:
            features = read(payload)
        except ValueError as error:
            return str(error)
        found = image_problem(form, image, features)
        found = found and f"feature {image!r} {found}"
        return found or label_problem(features.get(label, NOTHING))

    return problem


def limits_problem(dataset: Dataset, shard: Path, compression: Compression) -> str | None:
    """Return which image of a shard is over the limits and must not get to a decoder, if one is.

    TensorFlow has no limit on what a decoder may cost. Told shard by shard, since to ask from the
    graph for each image takes as long as decoding a small one. CRCs are left to TensorFlow.
    """
    form, image = dataset.image_form, dataset.image_feature
    if form.encoding not in (ImageEncoding.ENCODED, ImageEncoding.TENSOR):
        return None
    read = features_reader([image])
    for item in read_shard(shard, compression=compression, verify_payload=False):
        if isinstance(item, Record):
            try:  # in what is no Example, TensorFlow may find an image all the same
                problem = image_problem(form, image, read(item.payload), ranged=False)
            except ValueError as error:
                problem = str(error)
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
        what = "the shard does not match the metadata"
        raise DatasetError(what, path=shard, expected=facts[1], found=facts[0])
