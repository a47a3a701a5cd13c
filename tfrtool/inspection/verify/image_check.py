"""Whether every image of a shard decodes, and a fingerprint of each, to find duplicates."""

import hashlib
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from tfrtool.engines.split_shards import later
from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import (
    DType,
    Example,
    Feature,
    PayloadKind,
    decode_example,
    feature_key,
)
from tfrtool.examples.roles import (
    CHANNELS,
    HEIGHTS,
    WIDTHS,
    Roles,
    find_roles,
    info_beside,
    is_image,
    said_size,
    with_first_steps,
)
from tfrtool.inspection.verify.payload_check import RecordFold, unparseable
from tfrtool.records.framing import Fault, Record
from tfrtool.storage.capped_list import CappedList

FINGERPRINT = struct.Struct("<16s8sQQ")
"""An image's BLAKE2b (16 bytes), its label's (8; zeros without one), its record, and its offset.

Of 2**32 different images, two have the same 16 bytes with a probability of 2**-65.
"""

_FAULTS_KEPT = 1000
_FEATURES_KEPT = 10_000
_NO_ROLES = Roles(image=None, label=None, name=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFindings:
    """What was found in the images of one shard.

    Attributes:
        roles: which features are the image, its label and its name.
        features: the features that hold encoded images, and how many values should be one.
        pixels: number of values that are raw pixels of the recorded size.
        doubtful: number of values of the image feature that are neither.
        absent: number of records without an image.
        faults: the first images that don't decode, or have the wrong number of pixels.
        n_faults: number of these.
    """

    roles: Roles = _NO_ROLES
    features: Mapping[str, int] = field(default_factory=dict)
    pixels: int = 0
    doubtful: int = 0
    absent: int = 0
    faults: tuple[Fault, ...] = ()
    n_faults: int = 0

    @property
    def encoded(self) -> int:
        """How many encoded images there should be, broken ones included."""
        return sum(self.features.values())


class _Tally:
    """The values of one feature."""

    def __init__(self) -> None:
        self.images = self.empty = 0
        self.broken = CappedList[Fault](_FAULTS_KEPT)
        self.others = CappedList[Fault](_FAULTS_KEPT)  # not images; faults if the rest are

    @property
    def holds_images(self) -> bool:
        """Whether at least half of the values are images."""
        return bool(self.images) and self.images >= self.others.count - self.empty


class ImageCheck(RecordFold):
    """Decodes every value of a string feature or feature list that starts as an image does.

    Attributes:
        roles: which features are the image, its label and its name.
        fingerprints: one entry of `FINGERPRINT` per image, in order.
    """

    def __init__(self, directory: Path | None) -> None:
        super().__init__()
        self._info = info_beside(directory)
        self.roles = self._roles_of_first = _NO_ROLES
        self._records = self._pixels = self._absent = 0
        self._tallies: dict[str, _Tally] = {}
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
            self.roles = find_roles(example.features, self._info)
            if self.roles.image is None:
                # A list of images is as good as one.
                firsts = {
                    name: Feature(dtype=item.dtype, values=item.values[:1])
                    for name, item in with_first_steps(example).items()
                }
                self.roles = self.roles._replace(image=find_roles(firsts, self._info).image)
        if not self._records:
            self._roles_of_first = self.roles
        self._records += 1
        role, absent = self.roles.image, True
        for name, place, value in string_values(example):
            absent = absent and name != role
            if name not in self._tallies and len(self._tallies) == _FEATURES_KEPT:
                continue
            tally = self._tallies.setdefault(name, _Tally())
            where = f"feature {name!r}{place}"
            encoded = is_image(value)
            if encoded:
                tally.images += 1
                with quiet_pillow():
                    problem = audit_image(value).problem
                if problem is not None:
                    tally.broken.add(unparseable(record, f"{where}: {problem}"))
            elif name == role and (pixels := self._pixel_problem(example, value)) is not None:
                self._pixels += 1
                if pixels:
                    tally.broken.add(unparseable(record, f"{where}: {pixels}"))
            else:
                tally.empty += not value
                found = f"{len(value)} bytes of {describe_bytes(value)} data"
                found = f"expected an encoded image, found {found if value else 'an empty value'}"
                tally.others.add(unparseable(record, f"{where}: {found}"))
            if value and (name == role or (role is None and encoded)):
                self._remember(record, example, value, b"" if role else feature_key(name))
        self._absent += role is not None and absent

    def _pixel_problem(self, example: Example, value: bytes) -> str | None:
        """Return why raw pixels are too many or too few, or "". None if it isn't raw pixels."""
        width, height, channels = (
            next(iter(said_size(example.features, self.roles.image or "", endings)[1]), None)
            for endings in (WIDTHS, HEIGHTS, CHANNELS)
        )
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
        known = self.roles.image is not None and other._records > 0
        names = {*self._tallies, *other._tallies}
        return len(names) <= _FEATURES_KEPT and not (known and other._roles_of_first != self.roles)

    def merge(self, other: "ImageCheck", index: int) -> None:
        """Add the images of the next part."""
        super().merge(other, index)
        if other._records:
            self.roles = other.roles
        self._records += other._records
        for name, tally in other._tallies.items():
            mine = self._tallies.setdefault(name, _Tally())
            mine.images += tally.images
            mine.empty += tally.empty
            mine.broken.merge(later(tally.broken, index))
            mine.others.merge(later(tally.others, index))
        self._pixels += other._pixels
        self._absent += other._absent
        for digest, label, record, offset in FINGERPRINT.iter_unpack(other.fingerprints):
            self.fingerprints += FINGERPRINT.pack(digest, label, record + index, offset)

    @property
    def encoded(self) -> set[str]:
        """The features that hold encoded images."""
        role = self.roles.image
        return {
            name
            for name, tally in self._tallies.items()
            if (tally.images if name == role else tally.holds_images)
        }

    def findings(self, encoded: Collection[str]) -> ImageFindings:
        """Return what was found, where these features hold images in some of the shards.

        In those, a value that is not an image is a fault.
        """
        role, features, wrong = self.roles.image, dict[str, int](), list[CappedList[Fault]]()
        doubtful = 0
        for name, tally in self._tallies.items():
            if name == role:
                wrong.append(tally.broken)
                doubtful = 0 if name in encoded else tally.others.count
            if (tally.holds_images or name == role) and name in encoded:
                wrong += [tally.others] if name == role else [tally.broken, tally.others]
                features[name] = tally.images + tally.others.count
        faults = sorted(
            chain(*(one.kept for one in wrong)), key=lambda fault: (fault.offset, fault.message)
        )
        return ImageFindings(
            roles=self.roles,
            features={name: count for name, count in features.items() if count},
            pixels=self._pixels,
            doubtful=doubtful,
            absent=self._absent,
            faults=tuple(faults[:_FAULTS_KEPT]),
            n_faults=sum(one.count for one in wrong),
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
