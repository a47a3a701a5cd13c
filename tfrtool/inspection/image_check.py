"""Whether every image of a shard decodes, and a fingerprint of each, to find it again."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import DType, Example, Feature, PayloadKind, decode_example
from tfrtool.examples.roles import Roles, find_roles, info_beside
from tfrtool.records.framing import Fault, FaultKind, Record

__all__ = ["FINGERPRINT", "ImageCheck", "ImageFindings", "image_values"]

FINGERPRINT = struct.Struct(">16s8sIQ")
"""An image's BLAKE2b (16 bytes), its label's (8; zeros without one), its shard and its record.

BLAKE2b of 16 bytes tells images apart that anybody could have made by chance: of 2**32 of them,
two fall together with a probability of 2**-65.
"""

_FAULTS_KEPT = 1000
_CHANNELS = ("channels", "depth")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFindings:
    """What was found in the images of one shard.

    Attributes:
        roles: which features are the image, its label and its name; None where no record told.
        encoded: how many images in a known format there are, broken ones included.
        pixels: how many values hold bare pixels of the size that their record says.
        doubtful: how many are neither, so that nothing can be said about them alone.
        absent: how many records have no value for the image.
        faults: images that don't decode, and pixels of a wrong size; the first of them.
        n_faults: how many there are in all.
        doubts: the faults that the doubtful ones are if the feature holds encoded images
            elsewhere; the first of them.
        fingerprints: sorted, of `FINGERPRINT`'s form, with 0 for the shard.
    """

    roles: Roles | None = None
    encoded: int = 0
    pixels: int = 0
    doubtful: int = 0
    absent: int = 0
    faults: tuple[Fault, ...] = ()
    n_faults: int = 0
    doubts: tuple[Fault, ...] = ()
    fingerprints: bytes = b""

    def __post_init__(self) -> None:
        if len(self.fingerprints) % FINGERPRINT.size:
            raise ValueError("fingerprints are of one size")

    @property
    def images(self) -> int:
        """How many values the image feature has."""
        return self.encoded + self.pixels + self.doubtful


class ImageCheck:
    """A fold over the records of one shard."""

    def __init__(self, directory: Path | None) -> None:
        self._info = info_beside(directory)
        self._roles: Roles | None = None
        self._others: dict[str, bool] = {}  # other features: whether they hold encoded images
        self._encoded = self._pixels = self._doubtful = self._absent = self._n_faults = 0
        self._faults: list[Fault] = []
        self._doubts: list[Fault] = []
        self._fingerprints: list[bytes] = []

    def add(self, record: Record) -> None:
        """Take in a record that is an Example."""
        example = decode_example(record.payload, PayloadKind.SEQUENCE_EXAMPLE)
        if self._roles is None or self._roles.image is None:
            self._roles = find_roles(example.features, self._info)
        role = self._roles.image
        values = image_values(example, role)
        self._absent += role is not None and not values
        for value in values:
            self._check(record, example, str(role), value)
            self._remember(record, example, value)
        self._check_others(record, example, role)

    def _check(self, record: Record, example: Example, name: str, value: bytes) -> None:
        if describe_bytes(value).startswith("image/"):
            self._encoded += 1
            self._audit(record, name, value)
            return
        size = _pixels_said(example.features)
        if size is not None and value:
            width, height, channels = size
            area = width * height
            fits = len(value) == area * channels if channels else area and len(value) % area == 0
            if fits:
                self._pixels += 1
                return
            if channels and describe_bytes(value) == "binary":
                self._pixels += 1
                wanted = f"{width} x {height} x {channels} = {area * channels} bytes of pixels"
                self._fault(record, name, f"expected {wanted}, found {len(value)} bytes")
                return
        self._doubtful += 1
        if len(self._doubts) < _FAULTS_KEPT:
            what = describe_bytes(value)
            found = "no bytes" if what == "empty" else f"{len(value)} bytes of {what} data"
            message = f"feature {name!r}: expected an encoded image, found {found}"
            self._doubts.append(_fault(record, message))

    def _check_others(self, record: Record, example: Example, role: str | None) -> None:
        for name, feature in example.features.items():
            if name == role or feature.dtype is not DType.STRING or not feature.values:
                continue
            if name not in self._others:
                value = feature.values[0]
                encoded = isinstance(value, bytes) and describe_bytes(value).startswith("image/")
                self._others[name] = encoded
            if self._others[name]:
                for value in feature.values:
                    if isinstance(value, bytes):
                        self._audit(record, name, value)

    def _audit(self, record: Record, name: str, value: bytes) -> None:
        from tfrtool.images.audit import audit_image
        from tfrtool.images.decoder import quiet_pillow

        with quiet_pillow():
            verdict = audit_image(value)
        if verdict.problem is not None:
            self._fault(record, name, verdict.problem if value else "it has no bytes")

    def _fault(self, record: Record, name: str, problem: str) -> None:
        self._n_faults += 1
        if len(self._faults) < _FAULTS_KEPT:
            self._faults.append(_fault(record, f"feature {name!r}: {problem}"))

    def _remember(self, record: Record, example: Example, value: bytes) -> None:
        if not value:
            return
        label = b""
        name = None if self._roles is None else self._roles.label
        if name is not None and name in example.features:
            values = example.features[name].values
            if len(values):
                label = hashlib.blake2b(repr(tuple(values)).encode(), digest_size=8).digest()
        digest = hashlib.blake2b(value, digest_size=16).digest()
        self._fingerprints.append(FINGERPRINT.pack(digest, label, 0, record.index))

    def findings(self) -> ImageFindings:
        """Return what was found."""
        self._fingerprints.sort()
        return ImageFindings(
            roles=self._roles,
            encoded=self._encoded,
            pixels=self._pixels,
            doubtful=self._doubtful,
            absent=self._absent,
            faults=tuple(self._faults),
            n_faults=self._n_faults,
            doubts=tuple(self._doubts),
            fingerprints=b"".join(self._fingerprints),
        )


def image_values(example: Example, role: str | None) -> list[bytes]:
    """Return the bytes that a record has for its image feature."""
    feature = None if role is None else example.features.get(role)
    return [] if feature is None else [v for v in feature.values if isinstance(v, bytes)]


def _fault(record: Record, message: str) -> Fault:
    return Fault(kind=FaultKind.PARSE, offset=record.offset, record=record.index, message=message)


def _pixels_said(features: Mapping[str, Feature]) -> tuple[int, int, int | None] | None:
    """Return the width, height and channels that a record says; None where it says no size."""
    width = _number(features, ("width",))
    height = _number(features, ("height",))
    if width is None or height is None:
        return None
    return width, height, _number(features, _CHANNELS)


def _number(features: Mapping[str, Feature], endings: tuple[str, ...]) -> int | None:
    found = [
        feature.values[0]
        for name, feature in features.items()
        if name.lower().endswith(endings)
        and feature.dtype is DType.INT64
        and len(feature.values) == 1
    ]
    value = found[0] if len(found) == 1 else None
    return value if isinstance(value, int) and value >= 0 else None
