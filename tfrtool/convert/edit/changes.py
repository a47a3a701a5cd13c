"""What `edit` does to one payload: images anew, features left out, cast, renamed and added."""

import re
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isinf
from typing import Any

from google.protobuf.message import DecodeError

from tfrtool.errors import SourceError, UsageError, suggestion
from tfrtool.examples.example import DTYPES, DType, Value, decode_example, feature_key, feature_name
from tfrtool.examples.objects.record_features import OBJECTS
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.images.audit import RenderedImage, audit_image, render_image
from tfrtool.images.recipe import Encode, ImageRecipe
from tfrtool.storage.json_values import to_json_values

_LISTS = {dtype: name for name, dtype in DTYPES.items()}
_FLOAT32 = struct.Struct("<f")
_INTEGER = re.compile(rb"\s*[+-]?[0-9]{1,30}\s*")
_PNG = b"\x89PNG\r\n\x1a\n"

OBJECT_STARTS = (OBJECTS, "objects/")
"""What the names of objects' features start with."""

_MEASURED = ("area", "segmentation", "mask")
"""Those of them that are in pixels of the image; boxes and key points are shares of its sides."""


class UneditableError(ValueError):
    """A record can't be changed as it is to be; says why, in a clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes to each record, in the order in which they are made.

    All names are those before any change. A SequenceExample's context and its feature lists may
    share a name, which then means both; what is added goes into the context.
    """

    image: str | None = None  # the feature whose images are encoded anew
    recipe: ImageRecipe | None = None  # how; None leaves images alone
    same_format: bool = False  # whether PNGs stay PNGs, whatever the recipe says
    select: tuple[str, ...] | None = None  # the features that stay; None for all
    drop: tuple[str, ...] = ()
    cast: Mapping[str, DType] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    add: bytes = b""  # a serialized Example with the same features for every record

    def keeps(self, name: str) -> bool:
        """Tell whether a feature stays, under whatever name."""
        return name not in self.drop and (self.select is None or name in self.select)

    @property
    def keeps_size(self) -> bool:
        """Whether records stay about as large, or grow."""
        return self.recipe is None and self.select is None and not (self.drop or self.cast)

    @property
    def names(self) -> set[str]:
        """The features that are named, and are to be there."""
        return {*(self.select or ()), *self.drop, *self.cast, *self.rename}

    @property
    def added(self) -> dict[str, Any]:
        """The features that are added, as messages, by name."""
        features = pb.Example.FromString(self.add).features.feature
        return {feature_name(entry.key): entry.value for entry in features}

    def check(self, known: Collection[str]) -> None:
        """Raise a `UsageError` if a name is unknown, or what is asked for contradicts itself."""
        for name in sorted(self.names - {*known}):
            raise UsageError(
                f"no feature {name!r}", hint=suggestion(name, sorted(known), "features")
            )
        for name in (*self.cast, *self.rename):
            if not self.keeps(name):
                raise UsageError(f"feature {name!r} is dropped, so it can't be cast or renamed")
        if self.recipe is not None and self.image is None:
            raise UsageError(
                "--encode and --resize require an image feature, and the first record has none"
            )
        measured = [f"{start}{name}" for start in OBJECT_STARTS for name in _MEASURED]
        if self.recipe is not None and self.recipe.resize is not None:
            stale = [name for name in measured if name in known and self.keeps(name)]
            if stale:
                raise UsageError(
                    f"{', '.join(stale)} would no longer match the resized images",
                    hint=f"use --drop {','.join(stale)}",
                )
        if self.image is not None and not self.keeps(self.image):
            raise UsageError(f"--encode and --resize require {self.image!r}, which is dropped")
        after = [self.rename.get(name, name) for name in known if self.keeps(name)]
        if known and not after and not self.added:
            raise UsageError("no features would remain: keep or add at least one")
        twice = {name for name in (*after, *self.added) if [*after, *self.added].count(name) > 1}
        if twice:
            raise UsageError(
                f"two features would be named {min(twice)!r}",
                hint="use --drop or --rename on the existing one",
            )

    def to_json(self) -> dict[str, Any]:
        """Return what is changed, for a report; floats are texts, for NaN is no JSON."""
        added = {
            name: [
                feature_name(one)
                if isinstance(one, bytes)
                else one
                if type(one) is int
                else f"{one}"
                for one in feature.values
            ]
            for name, feature in decode_example(self.add).features.items()
        }
        return {
            name: fact for name, fact in (to_json_values(self) | {"add": added}).items() if fact
        }

    def apply(self, payload: bytes) -> bytes:
        """Return a payload with the changes; the same bytes where there is nothing to change.

        `UneditableError` if a value does not fit, or the payload is no message with features.
        """
        try:
            message = pb.SequenceExample.FromString(payload)
        except DecodeError as error:
            raise UneditableError("not a tf.train.Example or SequenceExample") from error
        changed = self.recipe is not None and self._encode_images(message)
        for entries in (message.context.feature, message.feature_lists.feature_list):
            changed |= self._edit(entries)
        if self.add:
            message.MergeFromString(self.add)
        return message.SerializeToString() if changed or self.add else payload

    def _edit(self, entries: Any) -> bool:
        changed = False
        arriving = {*self.rename.values(), *(self.added if self.add else ())}
        for at in reversed(range(len(entries))):
            entry = entries[at]
            name = feature_name(entry.key)
            if not self.keeps(name):
                del entries[at]
                changed = True
                continue
            dtype = self.cast.get(name)
            if dtype is not None:
                for step in _steps(entry):
                    changed |= _cast(name, step, dtype)
            if name in self.rename:
                entry.key = feature_key(self.rename[name])
                changed = True
            elif name in arriving:
                raise UneditableError(f"two features would be named {name!r}")
        return changed

    def _encode_images(self, message: pb.SequenceExample) -> bool:
        """Encode the images of a record anew, and tell its other features of their new form."""
        made: list[RenderedImage] = []
        for entries in (message.context.feature, message.feature_lists.feature_list):
            for entry in entries:
                if feature_name(entry.key) == self.image:
                    for step in _steps(entry):
                        values = step.bytes_list.value
                        for at, data in enumerate(values):
                            image = self._encoded(data)
                            if image is not None:
                                values[at] = image.data
                                made.append(image)
        if len(made) == 1:
            self._describe(message.context.feature, made[0])
        return bool(made)

    def _encoded(self, data: bytes) -> RenderedImage | None:
        recipe = self.recipe or ImageRecipe()
        if self.same_format and data.startswith(_PNG):
            recipe = replace(recipe, encode=Encode.PNG)
        verdict = audit_image(data, recipe)
        if verdict.problem is None and not recipe.always and verdict.conversion is None:
            return None
        try:
            if verdict.problem is None:
                return render_image(data, recipe)
            problem = verdict.problem
        except SourceError as error:
            problem = str(error)
        raise UneditableError(f"the image in {self.image!r} can't be re-encoded: {problem}")

    def _describe(self, entries: Iterable[Any], image: RenderedImage) -> None:
        """Set the sizes and the format beside an image, where a record has them."""
        base = (self.image or "").removesuffix("/encoded").removesuffix("_raw")
        facts = {"height": image.height, "width": image.width, "channels": image.channels}
        for entry in entries:
            name = feature_name(entry.key)
            held = entry.value
            fact = facts.get(name.removeprefix(f"{base}/"))
            if fact is not None and len(held.int64_list.value) == 1:
                held.int64_list.value[0] = fact
            elif name == f"{base}/format" and len(held.bytes_list.value) == 1:
                found, png = held.bytes_list.value[0].lower(), image.data.startswith(_PNG)
                if (found in (b"jpg", b"jpeg")) is png or (found == b"png") is not png:
                    held.bytes_list.value[0] = b"png" if png else b"jpeg"


def _steps(entry: Any) -> Iterable[Any]:
    """Return the features of an entry: one, or the steps of a feature list."""
    return entry.value.feature if isinstance(entry, pb.FeatureListEntry) else (entry.value,)


def _cast(name: str, feature: Any, dtype: DType) -> bool:
    """Give a feature's values another type; tell whether they had another one."""
    kind = feature.WhichOneof("kind")
    if kind is None or DTYPES[kind] is dtype:
        return False
    values = []
    for value in getattr(feature, kind).value:
        try:
            values.append(as_dtype(value, dtype))
        except (ValueError, OverflowError):
            what = "text" if isinstance(value, bytes) else f"value {value!r}"
            raise UneditableError(
                f"{what} in feature {name!r} can't be cast to {dtype.value}"
            ) from None
    held = getattr(feature, _LISTS[dtype])
    held.SetInParent()
    held.value.extend(values)
    return True


def as_dtype(value: Value, dtype: DType) -> Value:
    """Return a value in another type, if nothing of it is lost; else `ValueError`.

    A text is rounded to the nearest float32; of a float32 it has the digits that give it back.
    """
    if dtype is DType.STRING:
        import numpy as np

        return str(np.float32(value) if isinstance(value, float) else value).encode()
    if dtype is DType.INT64:
        if isinstance(value, bytes) and not _INTEGER.fullmatch(value):
            raise ValueError
        number = int(value)
        if not -(2**63) <= number < 2**63 or (isinstance(value, float) and number != value):
            raise ValueError
        return number
    wide = float(value)
    if isinstance(value, bytes) and (b"_" in value or (isinf(wide) and b"n" not in value.lower())):
        raise ValueError  # what Python takes for digits; and 1e400, which is not infinite
    (narrow,) = _FLOAT32.unpack(_FLOAT32.pack(wide))
    if isinstance(value, int) and narrow != value:
        raise ValueError
    return float(narrow)
