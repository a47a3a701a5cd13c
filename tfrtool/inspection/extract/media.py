"""The sounds and videos of a record: encoded files as they are, and samples as WAV."""

from collections.abc import Mapping
from dataclasses import dataclass

from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import DType, Example, Feature, PayloadKind, decode_example
from tfrtool.examples.fields import Struct, field_at, leaves_of
from tfrtool.examples.sound import is_sound_name
from tfrtool.inspection.extract.array_files import ArrayFiles, array_files

_MOST = 64
_WAV = "audio/wav"

PLAYED = frozenset(
    {
        *(_WAV, "audio/flac", "audio/mp4", "audio/mpeg", "audio/ogg"),
        *("video/mp4", "video/ogg", "video/quicktime", "video/webm", "video/x-matroska"),
    }
)
"""Media types that `describe_bytes` finds and browsers play. Nothing else is ever served as such:
a record could hold a page with a script.
"""


@dataclass(frozen=True, slots=True)
class Media:
    """A sound or a video of a record.

    Attributes:
        name: its feature, with the index of the value if there are several.
        feature: the feature.
        kind: its media type.
        index: which value of the feature it is.
        samples: what makes a WAV file of samples; None if the value is an encoded file.
    """

    name: str
    feature: str
    kind: str
    index: int = 0
    samples: ArrayFiles | None = None


def media_of(payload: bytes, root: Struct | None) -> list[Media]:
    """Return the sounds and videos of a record; ``root`` has the types of features, if known."""
    example = _example_of(payload)
    if example is None:
        return []
    found = list[Media]()
    for name, feature in sorted(example.features.items()):
        if feature.dtype is DType.STRING:
            found += _encoded(name, feature)
        elif len(feature.values) > 1 and _is_sound(name, root):
            samples = array_files(name, root, example.features)
            if samples is not None and samples.rate is not None:
                found.append(Media(name, name, _WAV, samples=samples))
    return found[:_MOST]


def media_file(payload: bytes, root: Struct | None, number: int) -> tuple[bytes, str]:
    """Return a sound or a video of a record as a file, and its media type, one of `PLAYED`.

    Raises:
        IndexError: the record has fewer of them.
        ValueError: its samples are not sound.
    """
    media, example = media_of(payload, root)[number], _example_of(payload)
    if example is None:
        raise IndexError("no such sound or video")
    if media.samples is not None:
        return media.samples.files(payload, example)[0], media.kind
    value = example.features[media.feature].values[media.index]
    if not isinstance(value, bytes):
        raise IndexError("no such sound or video")
    return value, media.kind


def _example_of(payload: bytes) -> Example | None:
    try:
        return decode_example(payload, PayloadKind.EXAMPLE)
    except ValueError:
        return None


def _encoded(name: str, feature: Feature) -> list[Media]:
    kinds = {
        index: describe_bytes(value)
        for index, value in enumerate(feature.values[:_MOST])
        if isinstance(value, bytes)
    }
    several = len(feature.values) > 1
    return [
        Media(f"{name}[{index}]" if several else name, name, kind, index)
        for index, kind in kinds.items()
        if kind in PLAYED
    ]


def _is_sound(name: str, root: Struct | None) -> bool:
    """Return whether a feature of numbers is samples, by its name or by what a file says."""
    item = None if root is None else field_at(root, name)
    leaf = None if item is None else next((one for _, _, one in leaves_of(item)), None)
    info: Mapping[str, object] = {} if leaf is None else leaf.info
    return is_sound_name(name) or "audio" in info
