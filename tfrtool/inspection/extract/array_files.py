"""Files made of features that are numbers: sound as WAV, pixels as PNG, other arrays as NPY."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrtool.examples.example import DType, Example, Feature
from tfrtool.examples.fields import Kind, ListOf, Struct, Values, field_at, leaves_of, only_fields
from tfrtool.examples.sound import rate_feature, rate_of, wav_of
from tfrtool.features.record_arrays import FeatureArrays
from tfrtool.images.pixels import PNG_CHANNELS, png_of
from tfrtool.inspection.pictures.array_images import is_array_image


class ArrayFiles:
    """Makes the files of a feature.

    Attributes:
        rate: the feature with the sample rate, or the rate itself; None if it isn't sound.
    """

    def __init__(self, name: str, root: Struct | None, rate: str | int | None) -> None:
        """Choose a feature.

        Args:
            name: the feature.
            root: the fields of records, if it is one of them; otherwise its values are samples.
            rate: the feature with the sample rate, or the rate itself; None if it isn't sound.
        """
        chosen = None if root is None else only_fields(root, {name})
        self._name, self.rate = name, rate
        self._is_image = rate is None and is_array_image(root, name)
        self._is_list = rate is None and root is not None and _is_list(root, name)
        self._arrays = FeatureArrays(chosen) if isinstance(chosen, Struct) else None

    def files(self, payload: bytes, example: Example) -> list[bytes]:
        """Return the files of a record; `ValueError` says why there are none."""
        value: Any
        if self._arrays is None:
            value = np.array(example.values(self._name))
        else:
            value = self._arrays(payload)
            while isinstance(value, dict):  # of the structs that the field is in
                value = next(iter(value.values()))
        rate = rate_of(example.values(self.rate)) if isinstance(self.rate, str) else self.rate
        if self.rate is not None:
            if rate is None:
                raise ValueError(f"no sample rate in {self.rate!r}")
            return [wav_of(np.asarray(value), rate)]
        return [self._file(np.asarray(one)) for one in (value if self._is_list else [value])]

    def _file(self, array: NDArray[Any]) -> bytes:
        """Return a PNG of pixels, or an NPY file of other numbers."""
        if self._is_image and array.dtype == np.uint8:
            pixels = array[:, :, None] if array.ndim == 2 else array
            if pixels.ndim == 3 and pixels.size and pixels.shape[2] in PNG_CHANNELS:
                height, width, channels = pixels.shape
                return png_of(pixels.tobytes(), width, height, channels)
        output = io.BytesIO()
        np.save(output, array, allow_pickle=False)
        return output.getvalue()


def array_files(
    name: str, root: Struct | None, features: Mapping[str, Feature]
) -> ArrayFiles | None:
    """Return what makes files of a feature that is numbers; None if it is something else.

    Args:
        name: the feature.
        root: the fields of records, by types and metadata.
        features: the features of the first records.
    """
    item = None if root is None else field_at(root, name)
    leaf = next((one for _, _, one in leaves_of(item)), None) if item is not None else None
    if isinstance(item, Struct) or (leaf is not None and not _is_number(leaf)):
        return None
    stored = features.get(name)
    is_stored = stored is not None and stored.dtype in (DType.INT64, DType.FLOAT32)
    if leaf is None and not is_stored:
        return None
    rate: str | int | None = rate_feature(features, name)
    if leaf is not None and "audio" in leaf.info:
        rate = rate_of([_as_number(leaf.info["audio"].get("sampleRate"))]) or rate
    can_be_sound = leaf is None or (leaf.dtype != "uint8" and len(leaf.shape) <= 2)
    if rate is not None and can_be_sound:
        return ArrayFiles(name, root if leaf is not None else None, rate)
    return ArrayFiles(name, root, None) if leaf is not None and leaf.shape else None


def _is_number(values: Values) -> bool:
    return values.kind in (Kind.NUMBER, Kind.BOOL)


def _is_list(root: Struct, name: str) -> bool:
    return isinstance(field_at(root, name), ListOf)


def _as_number(value: object) -> Any:
    """Return a number of features.json, where it may be text."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 12 else value
