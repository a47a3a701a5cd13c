"""Which features of a dataset's records are the image and the label, and what others lack."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from tfrtool.errors import DatasetError, TfrtoolError, UsageError, nearest, printable
from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.example import DType, Example, Feature, PayloadKind, decode_example
from tfrtool.examples.roles import IMAGES, LABELS, find_roles, measures
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.loading.dataset.forms import (
    Described,
    ImageForm,
    describe,
    find_image_form,
    read_features,
    with_range,
)
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard

_LOOKED_AT = 64
"""Records from which features are told at most."""

_RANGED = 16
"""Records from which it is told what black and white are."""

_SHOWN = 6
_LONGEST_NAME = 1024


class Wanted(NamedTuple):
    """The names of features that a user has given; None for those to be told."""

    image: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenFeatures:
    """The image and the label of a dataset, as one of its records has them."""

    image: str
    label: str
    form: ImageForm
    features: Mapping[str, Feature]  # of that record
    described: Described  # what the metadata says of both


def choose_features(
    root: Path, info: DatasetInfo | None, shards: Sequence[Path], wanted: Wanted, *, skip: bool
) -> ChosenFeatures:
    """Tell which features are the image and the label, from the first records that have both.

    Names that were given come first, then the metadata (``info``), then the names in common use,
    then the only feature that can be it. With ``skip``, a record that can't be parsed is no error.

    Raises:
        UsageError: no record has a feature of a name that was given.
        DatasetError: it is not clear, or what was given can't be it.
    """
    content = read_features(root)
    problem: TfrtoolError | None = None
    for example in _examples(root, shards, skip=skip):
        record = _FirstRecord(root, info, content, example.features)
        found = record.choose(wanted)
        if isinstance(found, TfrtoolError):
            problem = problem or found
            continue
        few = islice(_examples(root, shards, skip=True), _RANGED)
        form = with_range(found.form, filter(None, (one.features.get(found.image) for one in few)))
        if isinstance(form, str):
            raise record.unclear("image", found.image, form)
        return replace(found, form=form)
    raise problem or DatasetError("the first record can't be parsed", path=root)


def _examples(root: Path, shards: Iterable[Path], *, skip: bool) -> Iterator[Example]:
    """Yield the first records; one that can't be parsed is an error unless it is skipped."""
    items = chain.from_iterable(map(read_shard, shards))
    for record in islice((item for item in items if isinstance(item, Record)), _LOOKED_AT):
        try:
            yield decode_example(record.payload, PayloadKind.EXAMPLE)
        except ValueError as error:
            if not skip:
                what = f"the first record can't be parsed: {error}"
                raise DatasetError(what, path=root) from error


class _FirstRecord(NamedTuple):
    """What is known of a dataset whose features are told from one record."""

    root: Path
    info: DatasetInfo | None
    content: Any  # of features.json
    features: Mapping[str, Feature]

    def choose(self, wanted: Wanted) -> ChosenFeatures | TfrtoolError:
        """Tell image and label, or why that can't be."""
        for name in wanted:
            if name is not None and name not in self.features:
                near = ", ".join(map(printable, nearest(name, self.features)))
                hint = f"it may be one of these: {near}"
                return UsageError(f"no feature {name!r}", path=self.root, hint=hint)
        roles = find_roles(self.features, self.info)
        image = wanted.image or roles.image or self._usual_image()
        if image is None:
            return self.unclear("image")
        label = wanted.label or (roles.label if roles.label != image else None)
        label = label or self._usual_label(image)
        if label is None or label == image:
            return self.unclear("label", label, "it is the image", image)
        described = describe(self.content, self.root, image, label)
        form, lack = find_image_form(self.features, image, described), self._no_label(label)
        if isinstance(form, str):
            return self.unclear("image", image, form)
        if lack:
            return self.unclear("label", label, lack)
        return ChosenFeatures(
            image=image, label=label, form=form, features=self.features, described=described
        )

    def _no_image(self, name: str) -> str:
        """Return why a feature can't be the image; nothing if it can."""
        form = find_image_form(self.features, name, describe(self.content, self.root, name, name))
        return form if isinstance(form, str) else ""

    def _no_label(self, name: str) -> str:
        """Return why a feature can't be the label; nothing if it can."""
        item = self.features[name]
        values = item.values
        if item.dtype is None:
            return "no values; want int64 or string"
        if item.dtype is DType.FLOAT32 and not (len(values) > 1 and {0, 1}.issuperset(values)):
            return f"{_told(item)}; want int64 or string"
        for value in values[:1]:
            if isinstance(value, bytes) and decode_text(value[:_LONGEST_NAME]) is None:
                return f"string, {len(value)} bytes of {describe_bytes(value)}; want int64 or text"
        return ""

    def _usual_image(self) -> str | None:
        said = self.info.image_feature if self.info else None
        fits = [name for name in self.features if not self._no_image(name)]
        usual = (name for name in (said, *IMAGES) if name in fits)
        return next(usual, fits[0] if len(fits) == 1 else None)

    def _usual_label(self, image: str) -> str | None:
        said = self.info.label_feature if self.info else None
        names = (name for name in (said, *LABELS) if name is not None and name in self.features)
        return next((name for name in names if name != image and not self._no_label(name)), None)

    def unclear(
        self, role: str, name: str | None = None, lack: str = "", image: str | None = None
    ) -> DatasetError:
        """Return an error that says what is wrong with a feature, or what all of them lack.

        Where it is about the label, the ``image`` is known.
        """
        what, found = f"it is not clear which feature is the {role}", []
        if name is not None:
            what, found = f"the feature {name!r} can't be the {role}", [lack]
        for one in [] if name is not None else [one for one in self.features if one != image]:
            lack = self._no_image(one) if role == "image" else self._no_label(one)
            told = _told(self.features[one])
            if not lack and role == "label" and measures(one):
                lack = f"{told}; its name is that of a measure"
            found.append(f"{printable(one)}: {lack or told + '; could be it'}")
        hint = (
            f"tfrtool inspect shard {shlex.quote(str(self.root))} shows what the records hold, and "
            f"--{role}-feature NAME says which it is"
        )
        if name is not None and role == "image":
            hint = "tfrtool write makes such a dataset of image files"
        found = found[:_SHOWN] or ["no features"]
        return DatasetError(what, path=self.root, found=" / ".join(found), hint=hint)


def _told(item: Feature) -> str:
    count, dtype = len(item.values), "no type" if item.dtype is None else item.dtype.value
    return f"{dtype}, {count:,} value{'s' * (count != 1)}"
