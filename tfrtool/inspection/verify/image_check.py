"""Whether every image of a shard decodes, and a fingerprint of each, to find it again."""

import hashlib
import struct
from collections.abc import Iterator, Mapping
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
from tfrtool.inspection.verify.payload_check import unparseable
from tfrtool.records.framing import Fault, Record
from tfrtool.storage.capped_list import CappedList

FINGERPRINT = struct.Struct(">16s8sQQ")
"""An image's BLAKE2b (16 bytes), its label's (8; zeros without one), its record, and its offset.

BLAKE2b of 16 bytes tells images apart that anybody could have made by chance: of 2**32 of them,
two fall together with a probability of 2**-65.
"""

_FAULTS_KEPT = 1000
_FEATURES_KEPT = 10_000
_NO_ROLES = Roles(image=None, label=None, name=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFindings:
    """What was found in the images of one shard; all faults are counted, and the first are kept."""

    roles: Roles = _NO_ROLES  # which features are the image, its label and its name
    features: Mapping[str, int] = field(default_factory=dict)
    """The features and feature lists that hold encoded images, and how many values should be one.
    """
    pixels: int = 0  # values that hold bare pixels of the size that their record says
    doubtful: int = 0  # values of the image that are neither: alone they say nothing
    absent: int = 0  # records without a value for the image
    faults: tuple[Fault, ...] = ()  # images that don't decode, and pixels of a wrong size
    n_faults: int = 0
    doubts: tuple[Fault, ...] = ()  # what the doubtful ones are, if there are images elsewhere
    fingerprints: bytes = b""  # sorted, of `FINGERPRINT`'s form

    @property
    def encoded(self) -> int:
        """How many encoded images there should be, broken ones included."""
        return sum(self.features.values())


class _Tally:
    """What was found of the values of one feature."""

    def __init__(self) -> None:
        self.images = self.empty = 0
        self.broken = CappedList[Fault](_FAULTS_KEPT)
        self.others = CappedList[Fault](
            _FAULTS_KEPT
        )  # that are no images; broken ones among images


class ImageCheck:
    """A fold over the records of one shard.

    Every value of a string feature or feature list that starts as an encoded image does is
    decoded. What is not the image by its name holds images if at least half of its values do.
    """

    def __init__(self, directory: Path | None) -> None:
        self._info = info_beside(directory)
        self._roles = self._roles_of_first = _NO_ROLES
        self._records = 0
        self._tallies: dict[str, _Tally] = {}
        self._pixels = self._absent = 0
        self._fingerprints: list[bytes] = []

    def add(self, record: Record) -> None:
        """Take in a record that is an Example."""
        from tfrtool.images.audit import audit_image  # Pillow, for this alone
        from tfrtool.images.decoder import quiet_pillow

        example = decode_example(record.payload, PayloadKind.SEQUENCE_EXAMPLE)
        if self._roles.image is None:
            self._roles = find_roles(example.features, self._info)
            if self._roles.image is None:
                # A list of images is as good as one.
                firsts = {
                    name: Feature(dtype=item.dtype, values=item.values[:1])
                    for name, item in with_first_steps(example).items()
                }
                self._roles = self._roles._replace(image=find_roles(firsts, self._info).image)
        if not self._records:
            self._roles_of_first = self._roles
        self._records += 1
        role, absent = self._roles.image, True
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
                    verdict = audit_image(value)
                if verdict.problem is not None:
                    tally.broken.add(unparseable(record, f"{where}: {verdict.problem}"))
            elif name == role and self._is_pixels(record, example, where, value, tally):
                self._pixels += 1
            else:
                tally.empty += not value
                found = f"{len(value)} bytes of {describe_bytes(value)} data"
                message = f"{where}: expected an encoded image, found "
                tally.others.add(
                    unparseable(record, message + (found if value else "an empty value"))
                )
            if value and (name == role or (role is None and encoded)):
                self._remember(record, example, value, b"" if role else feature_key(name))
        self._absent += role is not None and absent

    def _is_pixels(
        self, record: Record, example: Example, where: str, value: bytes, tally: _Tally
    ) -> bool:
        """Return whether a value holds bare pixels, perhaps of a wrong number."""
        width, height, channels = (
            next(iter(said_size(example.features, self._roles.image or "", endings)[1]), None)
            for endings in (WIDTHS, HEIGHTS, CHANNELS)
        )
        if not width or not height or not value:
            return False
        area = width * height
        if len(value) % area == 0 and channels in (None, len(value) // area):
            return True
        if channels is None or describe_bytes(value) != "binary":
            return False
        wanted = f"{width} x {height} x {channels} = {area * channels} bytes of raw pixels"
        message = f"{where}: expected {wanted}, found {len(value)} bytes"
        tally.broken.add(unparseable(record, message))
        return True

    def _remember(self, record: Record, example: Example, value: bytes, salt: bytes) -> None:
        label = b""
        values = example.values(self._roles.label)
        if len(values):
            label = hashlib.blake2b(repr(tuple(values)).encode(), digest_size=8).digest()
        digest = hashlib.blake2b(value, digest_size=16, key=salt[:64]).digest()
        self._fingerprints.append(FINGERPRINT.pack(digest, label, record.index, record.offset))

    def merge(self, other: "ImageCheck", index: int) -> bool:
        """Take in a fold over a part, as `ShardFold` has it."""
        names = {*self._tallies, *other._tallies}
        known = self._roles.image is not None and other._records > 0
        if len(names) > _FEATURES_KEPT or (known and other._roles_of_first != self._roles):
            return False
        if other._records:
            self._roles = other._roles
        self._records += other._records
        for name, tally in other._tallies.items():
            mine = self._tallies.setdefault(name, _Tally())
            mine.images += tally.images
            mine.empty += tally.empty
            mine.broken.merge(later(tally.broken, index))
            mine.others.merge(later(tally.others, index))
        self._pixels += other._pixels
        self._absent += other._absent
        for digest, label, record, offset in map(FINGERPRINT.unpack, other._fingerprints):
            self._fingerprints.append(FINGERPRINT.pack(digest, label, record + index, offset))
        return True

    def findings(self) -> ImageFindings:
        """Return what was found."""
        role = self._roles.image
        image = _Tally() if role is None else self._tallies.get(role, _Tally())
        held = {
            name: tally
            for name, tally in self._tallies.items()
            if name != role and tally.images and tally.images >= tally.others.count - tally.empty
        }
        features = {name: tally.images + tally.others.count for name, tally in held.items()}
        if role is not None and image.images:
            features = {role: image.images, **features}
        wrong = [image.broken, *(one for t in held.values() for one in (t.broken, t.others))]
        found = chain(*(one.kept for one in wrong))
        faults = sorted(found, key=lambda fault: (fault.offset, fault.message))
        return ImageFindings(
            roles=self._roles,
            features=features,
            pixels=self._pixels,
            doubtful=image.others.count,
            absent=self._absent,
            faults=tuple(faults[:_FAULTS_KEPT]),
            n_faults=sum(one.count for one in wrong),
            doubts=tuple(image.others.kept),
            fingerprints=b"".join(sorted(self._fingerprints)),
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
