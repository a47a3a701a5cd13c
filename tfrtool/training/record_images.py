"""Images in the records of shards, to be classified: labels aren't needed."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tfrtool.errors import ShardError, os_errors_as
from tfrtool.examples.example import Feature, decode_example
from tfrtool.examples.roles import FirstRecords
from tfrtool.images.header import limit_problem
from tfrtool.loading.dataset_facts import DatasetFacts
from tfrtool.records.framing import Fault
from tfrtool.records.reader import read_shard


class RecordImage(NamedTuple):
    """An image in a record: the values of its features, or why it can't be read.

    ``decode`` returns its pixels at their stored size, uint8 [height, width, channels].
    """

    record: int | None
    name: str | None = None
    problem: str | None = None
    decode: Callable[[], Any] | None = None


def read_record_images(path: str) -> Iterator[RecordImage]:
    """Yield the image of each record of a shard, in order, and damage in its place."""
    first, facts = FirstRecords(), None
    shard = Path(path)
    try:
        with os_errors_as(ShardError, path):
            for features in first.read([shard]):
                facts = facts or _find_image(shard, first.roles.image, features)
            if facts is None:
                yield RecordImage(None, problem="no images in its first records")
                return
            for item in read_shard(shard):
                if isinstance(item, Fault):
                    yield RecordImage(item.record, problem=f"{item.title}: {item.message}")
                    continue
                try:
                    features = decode_example(item.payload).features
                except ValueError as error:
                    yield RecordImage(item.index, problem=str(error))
                    continue
                yield _record_image(item.index, facts, first.roles.name, features)
    except ShardError as error:
        yield RecordImage(None, problem=error.what)


def _find_image(
    shard: Path, image: str | None, features: Mapping[str, Feature]
) -> DatasetFacts | None:
    """Return which feature has the image, and how it is stored; None if the record has none."""
    from tfrtool.loading.open_dataset import find_image

    if image is None or image not in features:
        return None
    form = find_image(shard.parent, features, image)
    if form is None:
        return None
    return DatasetFacts(
        directory=shard.parent, name=shard.name, splits={}, image_feature=image, image_form=form
    )


def _record_image(
    record: int, facts: DatasetFacts, name_feature: str | None, features: Mapping[str, Feature]
) -> RecordImage:
    image, form = facts.image_feature, facts.image_form
    name = _single(features, name_feature or "")
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else None
    data = _single(features, image)
    sides = {side: _single(features, side) for side in form.size_features}
    if not isinstance(data, bytes) or not all(isinstance(side, int) for side in sides.values()):
        return RecordImage(record, text, f"feature {image!r} is not a single image")
    problem = None if form.size else limit_problem(data)
    if problem is not None:
        return RecordImage(record, text, problem)
    return RecordImage(record, text, decode=partial(_decode, facts, {image: data, **sides}))


def _single(features: Mapping[str, Feature], name: str) -> Any:
    values = features[name].values if name in features else ()
    return values[0] if len(values) == 1 else None


def _decode(facts: DatasetFacts, features: Mapping[str, Any]) -> Any:
    import tensorflow as tf

    from tfrtool.loading.decoding import full_image

    return full_image(facts, {name: tf.constant(value) for name, value in features.items()})
