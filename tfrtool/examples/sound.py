"""Sound in records: which features are samples, and the same as a WAV file."""

import math
import os
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SOUND_NAMES = (
    *("audio", "waveform", "wav", "speech", "sound", "samples", "signal", "pcm"),
    *("audio/samples", "audio/data", "audio/waveform", "audio/array"),
)
"""Usual names of features with samples; also at the end of longer names."""

_RATE_ENDINGS = (
    *("sample_rate", "sampling_rate", "samplerate", "samplingrate", "sample_rate_hz"),
    *("sampling_frequency", "sample_frequency", "frame_rate", "framerate", "/rate", "sr"),
)
_LOWEST_RATE, _HIGHEST_RATE = 100, 10_000_000
_MOST_CHANNELS = 64
_PCM, _FLOAT = 1, 3
"""WAVE_FORMAT_PCM and WAVE_FORMAT_IEEE_FLOAT."""

_HEAD = struct.Struct("<4sI4s4sIHHIIHH4sI")
"""What is before the samples: the names and sizes of chunks, and the format."""

_EXACT_TYPES = {(_PCM, 16): "<i2", (_PCM, 32): "<i4", (_FLOAT, 32): "<f4"}

_LONGEST = 2**32 - 256
"""Bytes of samples: RIFF has 32 bits for the size of a file."""

_FULL_SCALE = {16: 2.0**15, 24: 2.0**23}


class FeatureValues(Protocol):
    """What is asked of a feature."""

    @property
    def values(self) -> Sequence[Any]:
        """Its values."""


def is_sound_name(name: str) -> bool:
    """Return whether a feature has a usual name of samples."""
    name = name.lower()
    return name in _SOUND_NAMES or name.endswith(tuple(f"/{one}" for one in _SOUND_NAMES))


def rate_feature(features: Mapping[str, FeatureValues], sound: str) -> str | None:
    """Return the feature of a record that has the sample rate of another one, in hertz."""
    names = [
        name
        for name, feature in features.items()
        if name.lower().endswith(_RATE_ENDINGS) and rate_of(feature.values) is not None
    ]
    alike = {name: len(os.path.commonprefix((name, sound))) for name in names}  # noqa: RUF071
    return max(names, key=lambda name: (alike[name], -len(name)), default=None)


def rate_of(values: Sequence[Any]) -> int | None:
    """Return the sample rate that the values of a feature are; None if they are something else."""
    value = values[0] if len(values) == 1 else None
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    is_rate = _LOWEST_RATE <= value <= _HIGHEST_RATE and value == int(value)
    return int(value) if is_rate else None


def wav_of(samples: "NDArray[Any]", rate: int, *, exact: bool = False) -> bytes:
    """Return samples as a WAV file.

    Whole numbers have 16 bits if they fit, otherwise 32. Numbers from -1 to 1 have 16 bits if that
    is exact, otherwise 24, which changes them by less than 1e-7. Others are 32-bit floats.

    Args:
        samples: one size, or two of which the last one is the channels.
        rate: samples a second.
        exact: whether all but whole numbers are 32-bit floats, which few older programs read.

    Raises:
        ValueError: they aren't samples of sound.
    """
    channels = samples.shape[1] if samples.ndim == 2 else 1
    if samples.ndim not in (1, 2) or not 0 < channels <= _MOST_CHANNELS:
        shape = " x ".join(map(str, samples.shape))
        raise ValueError(f"an array of {shape or 'one number'} is not sound")
    if samples.nbytes > _LONGEST:
        raise ValueError(f"{samples.nbytes:,} bytes of samples (limit {_LONGEST:,})")
    code, bits, data = _encoded(samples.reshape(-1), exact=exact)
    block = channels * bits // 8
    head = struct.pack("<HHIIHH", code, channels, rate, rate * block, block, bits)
    chunks = b"fmt " + struct.pack("<I", len(head)) + head
    padding = bytes(len(data) % 2)
    chunks += b"data" + struct.pack("<I", len(data)) + data + padding
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def samples_of(file: bytes) -> "NDArray[Any]":
    """Return the samples of a WAV file that `wav_of` made exactly; `ValueError` for another one."""
    import numpy as np

    if len(file) < _HEAD.size:
        raise ValueError("not a WAV file of samples")
    names = b"RIFF", b"WAVE", b"fmt ", b"data"
    riff, _, form, fmt, _, code, channels, _, _, _, bits, data, size = _HEAD.unpack_from(file)
    dtype = _EXACT_TYPES.get((code, bits))
    if (riff, form, fmt, data) != names or dtype is None or size > len(file) - _HEAD.size:
        raise ValueError("not a WAV file of samples")
    samples = np.frombuffer(file, dtype, size // np.dtype(dtype).itemsize, _HEAD.size)
    return samples.reshape(-1, channels) if channels > 1 else samples


def _encoded(samples: "NDArray[Any]", *, exact: bool) -> tuple[int, int, bytes]:
    """Return the format, the bits of a sample, and the bytes of all."""
    import numpy as np

    most = float(np.abs(samples.astype(np.float64)).max()) if samples.size else 0.0
    is_whole = samples.dtype.kind in "iub"
    if is_whole and most < 2**31:
        bits = 16 if most < 2**15 else 32
        return _PCM, bits, samples.astype(f"<i{bits // 8}").tobytes()
    if is_whole:
        raise ValueError("whole numbers of more than 32 bits are not sound")
    numbers = samples.astype(np.float64)
    if most <= 1 and not exact:
        for bits, scale in _FULL_SCALE.items():
            scaled = np.clip(np.round(numbers * scale), -scale, scale - 1)
            if bits == 24 or bool((scaled == numbers * scale).all()):
                integers = scaled.astype("<i4").view(np.uint8).reshape(-1, 4)
                return _PCM, bits, integers[:, : bits // 8].tobytes()
    if not exact and most < 2**15 and bool((numbers == np.round(numbers)).all()):
        return _PCM, 16, numbers.astype("<i2").tobytes()
    return _FLOAT, 32, numbers.astype("<f4").tobytes()
