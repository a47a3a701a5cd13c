"""Whether every image of a shard decodes, and a fingerprint of each, to find duplicates."""

import hashlib
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
"""An image's BLAKE2b (16 bytes), its label's (8; zeros without one), its record and its offset.

Of 2**32 different images, two have the same 16 bytes with a probability of 2**-65.
"""

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
        n_faults: number of images that don't decode, or have the wrong number of pixels.
    """

    roles: Roles = _NO_ROLES
    features: Mapping[str, int] = field(default_factory=dict)
    pixels: int = 0
    doubtful: int = 0
    absent: int = 0
    n_faults: int = 0

    @property
    def encoded(self) -> int:
        """How many encoded images there should be, broken ones included."""
        return sum(self.features.values())


class ImageCheck(RecordFold):
    """Decodes every value of a string feature or feature list that starts as an image does.

    Attributes:
        roles: which features are the image, its label and its name.
        encoded: number of values that start as an image does, by feature.
        doubts: values of the image feature that are neither images nor raw pixels.
        fingerprints: one entry of `FINGERPRINT` per image, in order.
    """

    def __init__(self, directory: Path | None) -> None:
        super().__init__()
        self._info = info_beside(directory)
        self.roles = self._roles_of_first = _NO_ROLES
        self._records = self._pixels = self._absent = 0
        self.encoded: Counter[str] = Counter()
        self.doubts = CappedList[Fault]()
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
            encoded, problem = is_image(value), None
            if encoded and (name in self.encoded or len(self.encoded) < _FEATURES_KEPT):
                self.encoded[name] += 1
                with quiet_pillow():
                    problem = audit_image(value).problem
            elif name == role and (pixels := self._pixel_problem(example, value)) is not None:
                self._pixels += 1
                problem = pixels
            elif name == role:
                found = f"{len(value)} bytes of {describe_bytes(value)} data"
                found = f"expected an encoded image, found {found if value else 'an empty value'}"
                self.doubts.add(unparseable(record, f"feature {name!r}{place}: {found}"))
            if problem:
                self.faults.add(unparseable(record, f"feature {name!r}{place}: {problem}"))
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
        return not (known and other._roles_of_first != self.roles)

    def merge(self, other: "ImageCheck", index: int) -> None:
        """Add the images of the next part."""
        super().merge(other, index)
        if other._records:
            self.roles = other.roles
        self._records += other._records
        self.encoded += other.encoded
        self.doubts.merge(later(other.doubts, index))
        self._pixels += other._pixels
        self._absent += other._absent
        for digest, label, record, offset in FINGERPRINT.iter_unpack(other.fingerprints):
            self.fingerprints += FINGERPRINT.pack(digest, label, record + index, offset)

    def findings(self, *, all_encoded: bool) -> ImageFindings:
        """Return what was found.

        If the image feature holds encoded images, also in other shards, its doubts are faults.
        """
        features, doubtful = Counter(self.encoded), self.doubts.count
        if all_encoded and doubtful:
            features[self.roles.image or ""] += doubtful
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
