"""Which features of a dataset's records are the image and the label, and what others lack."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from tfrtool.errors import (
    DatasetError,
    TfrtoolError,
    UsageError,
    printable,
    some_of,
    suggestion,
)
from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.example import DType, Feature, PayloadKind, decode_example
from tfrtool.examples.objects.read_objects import has_boxes
from tfrtool.examples.roles import IMAGES, LABELS, SAMPLE, find_roles, measures, of_objects
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.loading.forms import (
    Described,
    ImageForm,
    describe,
    find_image_form,
    read_features,
    told,
    with_range,
)
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard

_RANGED = 16
"""Records from which it is told what black and white are."""

_SHOWN = 6
_LONGEST_NAME = 1024

_OBJECTS_ALONE = "its records have boxes but no label for the whole image, which a classifier needs"

_Features = Mapping[str, Feature]


class Wanted(NamedTuple):
    """The names of features that a user has given; None for those to be told."""

    image: str | None = None
    label: str | None = None


class ChosenFeatures(NamedTuple):
    """The image and the label of a dataset."""

    image: str
    label: str
    form: ImageForm
    example: Feature  # the label, as one record has it
    described: Described  # what features.json says of it
    objects: tuple[str, ...]  # features of the objects in images, which are not used


def choose_features(
    root: Path, info: DatasetInfo | None, shards: Sequence[Path], wanted: Wanted, *, skip: bool
) -> ChosenFeatures:
    """Tell which features are the image and the label, from the first records that have both.

    Names that were given come first, then the metadata (``info``), then the names in common use.
    The only feature that can be an image is it; a label is never guessed. With ``skip``, a record
    that can't be parsed is no error.

    Raises:
        UsageError: no record has a feature of a name that was given.
        DatasetError: it is not clear, or what was given can't be it.
    """
    content = read_features(root)
    problem: TfrtoolError = DatasetError("the first record can't be parsed", path=root)
    for number, features in enumerate(_records(root, shards, skip=skip)):
        try:
            chosen = _choose(root, info, content, features, wanted)
        except TfrtoolError as error:
            problem = problem if number else error
            continue
        few = islice(_records(root, shards, skip=True), _RANGED)
        form = with_range(chosen.form, chosen.image, few)
        if isinstance(form, str):
            raise _error(root, "image", chosen.image, [form])
        return chosen._replace(form=form)
    raise problem


def _records(root: Path, shards: Iterable[Path], *, skip: bool) -> Iterator[_Features]:
    """Yield the first records; one that can't be parsed is an error unless it is skipped."""
    items = chain.from_iterable(map(read_shard, shards))
    for record in islice((item for item in items if isinstance(item, Record)), SAMPLE):
        try:
            yield decode_example(record.payload, PayloadKind.EXAMPLE).features
        except ValueError as error:
            if not skip:
                what = f"the first record can't be parsed: {error}"
                raise DatasetError(what, path=root) from error


def _choose(
    root: Path, info: DatasetInfo | None, content: Any, features: _Features, wanted: Wanted
) -> ChosenFeatures:
    """Tell image and label from one record and the ``content`` of features.json."""
    for name in wanted:
        if name is not None and name not in features:
            raise UsageError(
                f"no feature {name!r}", path=root, hint=suggestion(name, features, "features")
            )
    roles = find_roles(features, info)
    said_image, said_label = (info.image_feature, info.label_feature) if info else (None, None)
    images = {name: find_image_form(features, name, describe(content, name)) for name in features}
    fits = [n for n, form in images.items() if isinstance(form, ImageForm) and not of_objects(n)]
    usual = (name for name in (said_image, *IMAGES) if name in fits)
    image = wanted.image or roles.image or next(usual, fits[0] if len(fits) == 1 else None)
    lacks = {name: "" if isinstance(form, ImageForm) else form for name, form in images.items()}
    if image is None:
        raise _unclear(root, "image", features, lacks)
    form = images[image]
    if isinstance(form, str):
        raise _error(root, "image", image, [form])
    lacks = {name: _no_label(item) for name, item in features.items()}
    lacks[image] = "the image feature"
    usual = (name for name in (roles.label, said_label, *LABELS) if name and lacks.get(name) == "")
    label = wanted.label or next(usual, None)
    if label is None:
        if has_boxes(features):
            shown = some_of([printable(name) for name in features if of_objects(name)], _SHOWN)
            raise _error(root, "label", None, [shown], _OBJECTS_ALONE)
        del lacks[image]
        raise _unclear(root, "label", features, lacks)
    if lacks[label]:
        raise _error(root, "label", label, [lacks[label]])
    objects = tuple(filter(of_objects, features)) if has_boxes(features) else ()
    described = describe(content, label)
    return ChosenFeatures(image, label, form, features[label], described, objects)


def _no_label(item: Feature) -> str:
    """Return why a feature can't be the label; nothing if it can."""
    values = item.values
    if item.dtype is None:
        return "no values; needs int64 or string"
    if item.dtype is DType.FLOAT32 and not (len(values) > 1 and {0, 1}.issuperset(values)):
        return f"{told(item)}; needs int64 or string"
    for value in values[:1]:
        if isinstance(value, bytes) and decode_text(value[:_LONGEST_NAME]) is None:
            return f"string, {len(value)} bytes of {describe_bytes(value)}; needs int64 or text"
    return ""


def _unclear(root: Path, role: str, features: _Features, lacks: Mapping[str, str]) -> DatasetError:
    """Return an error that says what each candidate lacks."""
    found = []
    for name, lack in lacks.items():
        measure = role == "label" and measures(name)
        could = "its name suggests a measurement" if measure else "possible"
        found.append(f"{printable(name)}: {lack or f'{told(features[name])}; {could}'}")
    return _error(root, role, None, found[:_SHOWN] or ["no features"])


def _error(
    root: Path, role: str, name: str | None, found: Sequence[str], what: str | None = None
) -> DatasetError:
    """Return an error about a feature that can't be what it should, or about all of them."""
    hint = (
        f"run tfrtool inspect shard {shlex.quote(str(root))} to show the features, and use "
        f"--{role}-feature NAME to choose one"
    )
    if name is not None and role == "image":
        hint = "make a dataset from image files with tfrtool write"
    what = what or f"can't detect the {role} feature"
    what = what if name is None else f"feature {name!r} can't be the {role}"
    return DatasetError(what, path=root, found=" / ".join(found), hint=hint)
