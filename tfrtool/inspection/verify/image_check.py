"""Whether every image of a shard decodes, and a fingerprint of each, to find duplicates."""

import hashlib
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfrtool.engines.split_shards import shift_record_index
from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import (
    DType,
    Example,
    PayloadKind,
    decode_example,
    feature_key,
)
from tfrtool.examples.roles import (
    CHANNELS,
    HEIGHTS,
    NO_ROLES,
    WIDTHS,
    FirstRecords,
    Roles,
    is_image,
    said_size,
)
from tfrtool.examples.tfds_metadata import info_beside
from tfrtool.inspection.verify.payload_check import RecordFold, unparseable
from tfrtool.records.framing import Fault, Record
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import MAX_FAULTS
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:
    from tfrtool.images.audit import ImageVerdict
    from tfrtool.inspection.verify.image_shapes import ImageShapes

FINGERPRINT = struct.Struct("<16s8sQQ")
"""An image's BLAKE2b (16 bytes), its label's (8; zeros without one), its record and its offset.

Of 2**32 different images, two have the same 16 bytes with a probability of 2**-65.
"""

IntactImages = dict[tuple[int, str, str], "ImageVerdict"]
"""Images that another fold found intact, by number of the record, feature and place in a list."""

_FEATURES_KEPT = 10_000
_OTHERS_KEPT = 100
"""Faults of values that aren't images, in a feature that may turn out to hold images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFindings:
    """What was found in the images of one shard.

    Attributes:
        roles: which features are the image, its label and its name.
        features: the features that hold encoded images, and how many values should be one.
        pixels: number of values that are raw pixels of the recorded size.
        doubtful: number of values of the image feature that are neither.
        absent: number of records without an image.
        n_faults: number of images that don't decode, or have the wrong number of pixels.
    """

    roles: Roles = NO_ROLES
    features: Mapping[str, int] = field(default_factory=dict)
    pixels: int = 0
    doubtful: int = 0
    absent: int = 0
    n_faults: int = 0

    @property
    def encoded(self) -> int:
        """How many encoded images there should be, broken ones included."""
        return sum(self.features.values())


class _FeatureImages:
    """What was found in the values of one string feature."""

    def __init__(self) -> None:
        self.images = self.empty = 0
        self.broken = CappedList[Fault]()  # images that don't decode, and too few raw pixels
        self.others = CappedList[Fault]()  # values that don't start as an image does

    def merge(self, other: "_FeatureImages", index: int) -> None:
        self.images += other.images
        self.empty += other.empty
        self.broken.merge(shift_record_index(other.broken, index))
        self.others.merge(shift_record_index(other.others, index))


class ImageCheck(RecordFold):
    """Decodes every value of a string feature or feature list that starts as an image does.

    Other features than the image's hold images if at least half of their values do.

    Attributes:
        roles: which features are the image, its label and its name.
        fingerprints: one entry of `FINGERPRINT` per image, in order.
        shapes: the sizes of images by features.json, if there is one.
    """

    def __init__(
        self,
        directory: AnyPath | None,
        shapes: "ImageShapes | None" = None,
        intact: "IntactImages | None" = None,
    ) -> None:
        super().__init__()
        self._intact = {} if intact is None else intact
        self.shapes = shapes
        self._info = info_beside(directory)
        self._first = FirstRecords()
        self.roles = self._roles_of_first = NO_ROLES
        self._records = self._pixels = self._absent = 0
        self._features: dict[str, _FeatureImages] = {}
        self.fingerprints = bytearray()

    def add(self, records: Sequence[Record], rejected: set[int]) -> None:
        """Check the images of records."""
        for record in records:
            if record.index not in rejected:
                self._add(record, decode_example(record.payload, PayloadKind.SEQUENCE_EXAMPLE))

    def _add(self, record: Record, example: Example) -> None:
        from tfrtool.images.audit import audit_image  # Pillow, for this alone
        from tfrtool.images.decoder import quiet_pillow

        if self.roles.image is None:
            self._first.add(example, self._info)
            self.roles = self._first.roles
        if not self._records:
            self._roles_of_first = self.roles
        self._records += 1
        role, absent = self.roles.image, True
        for name, list_index, value in string_values(example):
            absent = absent and name != role
            if name not in self._features and len(self._features) == _FEATURES_KEPT:
                continue
            found = self._features.setdefault(name, _FeatureImages())
            encoded, problem = is_image(value), None
            if encoded:
                found.images += 1
                verdict = self._intact.get((record.index, name, list_index))
                if verdict is None:
                    with quiet_pillow():
                        verdict = audit_image(value)
                problem = verdict.problem
                if problem is None and self.shapes is not None:
                    self.shapes.add(name, verdict, record)
            elif name == role and (pixels := self._pixel_problem(example, value)) is not None:
                self._pixels += 1
                problem = pixels
            else:
                found.empty += not value
                if name == role or len(found.others.entries) < found.images + _OTHERS_KEPT:
                    what = f"{len(value)} bytes of {describe_bytes(value)} data"
                    what = f"expected an encoded image, found {what if value else 'an empty value'}"
                    found.others.add(unparseable(record, f"feature {name!r}{list_index}: {what}"))
                else:
                    found.others.count += 1
            if problem:
                found.broken.add(unparseable(record, f"feature {name!r}{list_index}: {problem}"))
            if value and (name == role or (role is None and encoded)):
                self._remember(record, example, value, b"" if role else feature_key(name))
        self._absent += role is not None and absent

    def _pixel_problem(self, example: Example, value: bytes) -> str | None:
        """Return why raw pixels are too many or too few, or "". None if it isn't raw pixels."""
        width, height, channels = (
            next(iter(said_size(example.features, self.roles.image or "", endings)[1]), None)
            for endings in (WIDTHS, HEIGHTS, CHANNELS)
        )
        _, shape = said_size(example.features, self.roles.image or "", ("shape",), (3,))
        if value and shape and math.prod(shape) == len(value):
            return ""
        if not width or not height or not value:
            return None
        area = width * height
        if len(value) % area == 0 and channels in (None, len(value) // area):
            return ""
        if channels is None or describe_bytes(value) != "binary":
            return None
        wanted = f"{width} x {height} x {channels} = {area * channels} bytes of raw pixels"
        return f"expected {wanted}, found {len(value)} bytes"

    def _remember(self, record: Record, example: Example, value: bytes, salt: bytes) -> None:
        label = bytes(8)
        values = example.values(self.roles.label)
        if len(values):
            label = hashlib.blake2b(repr(tuple(values)).encode(), digest_size=8).digest()
        digest = hashlib.blake2b(value, digest_size=16, key=salt[:64]).digest()
        self.fingerprints += FINGERPRINT.pack(digest, label, record.index, record.offset)

    def can_merge(self, other: "ImageCheck") -> bool:
        """Return whether the next part begins with the same roles."""
        if len({*self._features, *other._features}) > _FEATURES_KEPT:
            return False
        known = self.roles != NO_ROLES and other._records > 0
        return not (known and other._roles_of_first != self.roles)

    def merge(self, other: "ImageCheck", index: int) -> None:
        """Add the images of the next part."""
        super().merge(other, index)
        if other._records:
            self.roles = self._first.roles = other.roles
        self._records += other._records
        for name, found in other._features.items():
            self._features.setdefault(name, _FeatureImages()).merge(found, index)
        if self.shapes is not None and other.shapes is not None:
            self.shapes.mismatches.merge(other.shapes.mismatches, index)
        self._pixels += other._pixels
        self._absent += other._absent
        for digest, label, record, offset in FINGERPRINT.iter_unpack(other.fingerprints):
            self.fingerprints += FINGERPRINT.pack(digest, label, record + index, offset)

    def finish(self) -> None:
        """Collect the faults, which depend on how many values of a feature are images."""
        wrong = [self._image.broken]
        for name in self._others_with_images:
            wrong += [self._features[name].broken, self._features[name].others]
        faults = [fault for one in wrong for fault in one.entries]
        faults.sort(key=lambda fault: (fault.offset, fault.message))
        self.faults.entries = faults[:MAX_FAULTS]
        self.faults.count = sum(one.count for one in wrong)

    @property
    def has_encoded(self) -> bool:
        """Whether any value of the image feature is an encoded image."""
        return self._image.images > 0

    @property
    def doubts(self) -> CappedList[Fault]:
        """Values of the image feature that are neither images nor raw pixels."""
        return self._image.others

    @property
    def _image(self) -> _FeatureImages:
        return self._features.get(self.roles.image or "", _FeatureImages())

    @property
    def _others_with_images(self) -> list[str]:
        return [
            name
            for name, found in self._features.items()
            if name != self.roles.image
            and found.images
            and found.images >= found.others.count - found.empty
        ]

    def findings(self, *, all_encoded: bool) -> ImageFindings:
        """Return what was found.

        If the image feature holds encoded images, also in other shards, its doubts are faults.
        """
        doubtful = self.doubts.count
        features = {}
        images = self._image.images + (doubtful if all_encoded else 0)
        if images and self.roles.image is not None:
            features[self.roles.image] = images
        for name in self._others_with_images:
            features[name] = self._features[name].images + self._features[name].others.count
        return ImageFindings(
            roles=self.roles,
            features=features,
            pixels=self._pixels,
            doubtful=0 if all_encoded else doubtful,
            absent=self._absent,
            n_faults=self.faults.count + (doubtful if all_encoded else 0),
        )


def string_values(example: Example) -> Iterator[tuple[str, str, bytes]]:
    """Yield the values of all string features: the name, the place in a list, and the value."""
    features = [(name, "", item) for name, item in example.features.items()]
    features += [
        (name, f"[{number}]", step)
        for name, steps in example.feature_lists.items()
        for number, step in enumerate(steps if name not in example.features else ())
    ]
    for name, step, item in features:
        for number, value in enumerate(item.values if item.dtype is DType.STRING else ()):
            if isinstance(value, bytes):
                yield name, f"{step}[{number}]" if len(item.values) > 1 else step, value
