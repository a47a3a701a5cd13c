"""The sounds of a record: encoded files as they are, and samples as WAV."""

from collections.abc import Mapping
from dataclasses import dataclass

from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import DType, Example, Feature, PayloadKind, decode_example
from tfrtool.examples.fields import Struct, field_at, leaves_of
from tfrtool.examples.sound import is_sound_name
from tfrtool.inspection.extract.array_files import ArrayFiles, array_files

_MOST_SOUNDS = 64
_WAV = "audio/wav"


@dataclass(frozen=True, slots=True)
class Sound:
    """A sound of a record.

    Attributes:
        name: its feature, with the index of the value if there are several.
        feature: the feature.
        index: which value of the feature it is.
        samples: what makes a WAV file of samples; None if the value is an encoded file.
    """

    name: str
    feature: str
    index: int = 0
    samples: ArrayFiles | None = None


def sounds_of(payload: bytes, root: Struct | None) -> list[Sound]:
    """Return the sounds of a record; ``root`` has the types of its features, if a file does."""
    example = _example_of(payload)
    if example is None:
        return []
    found = list[Sound]()
    for name, feature in sorted(example.features.items()):
        if feature.dtype is DType.STRING:
            found += _encoded_sounds(name, feature)
        elif len(feature.values) > 1 and _is_sound(name, root):
            samples = array_files(name, root, example.features)
            if samples is not None and samples.rate is not None:
                found.append(Sound(name, name, samples=samples))
    return found[:_MOST_SOUNDS]


def sound_file(payload: bytes, root: Struct | None, number: int) -> tuple[bytes, str]:
    """Return one of the sounds of a record as a file, and its media type.

    Raises:
        IndexError: the record has fewer sounds.
        ValueError: its samples are not sound.
    """
    sound, example = sounds_of(payload, root)[number], _example_of(payload)
    if example is None:
        raise IndexError("no sound")
    if sound.samples is not None:
        return sound.samples.files(payload, example)[0], _WAV
    value = example.features[sound.feature].values[sound.index]
    if not isinstance(value, bytes):
        raise IndexError("no sound")
    return value, describe_bytes(value)


def _example_of(payload: bytes) -> Example | None:
    try:
        return decode_example(payload, PayloadKind.EXAMPLE)
    except ValueError:
        return None


def _encoded_sounds(name: str, feature: Feature) -> list[Sound]:
    indexes = [
        index
        for index, value in enumerate(feature.values[:_MOST_SOUNDS])
        if isinstance(value, bytes) and describe_bytes(value).startswith("audio/")
    ]
    several = len(feature.values) > 1
    return [Sound(f"{name}[{index}]" if several else name, name, index) for index in indexes]


def _is_sound(name: str, root: Struct | None) -> bool:
    """Return whether a feature of numbers is samples, by its name or by what a file says."""
    item = None if root is None else field_at(root, name)
    leaf = None if item is None else next((one for _, _, one in leaves_of(item)), None)
    info: Mapping[str, object] = {} if leaf is None else leaf.info
    return is_sound_name(name) or "audio" in info
