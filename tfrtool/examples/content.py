"""The content of a string feature, detected from its bytes."""

import math
from codecs import getincrementaldecoder
from itertools import chain, islice

from tfrtool.examples.media_content import describe_media, is_mp3
from tfrtool.records.wire import read_fields, read_tensor
from tfrtool.storage.image_brand import BRAND_BYTES, image_brand

PNG_HEAD = b"\x89PNG\r\n\x1a\n"

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (PNG_HEAD, "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\x93NUMPY", "application/x-npy"),
    (b"\x1f\x8b\x08", "application/gzip"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/avi"}
_BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)

# Most values start with none of these bytes, and need no more than this one look. The box that
# a HEIC or AVIF file starts with is smaller than 16 MiB, so that its length starts with a zero.
FIRST_BYTES = frozenset([magic[0] for magic, _ in _MAGIC] + [*b"RBfOI\x1a\xff\0"])

PRINTABLE_ASCII = bytes([*range(0x20, 0x7F), *b"\t\n\r"])
_LONG = 256
"""From here on, deleting what is printable costs less than decoding and asking; measured."""

_PIECE = 1024 * 1024
"""Bytes of a long text that are looked at a time."""


def describe_bytes(value: bytes) -> str:
    """Return a media type, the name of a serialized message, "text", "binary" or "empty"."""
    if not value:
        return "empty"
    if value[0] in FIRST_BYTES:
        name = _describe_magic(value[:BRAND_BYTES])
        if name is None and is_mp3(value):
            name = "audio/mpeg"
        if name is not None:
            return name
    if is_text(value):
        return "text"
    return _describe_message(value) or "binary"


def _describe_magic(head: bytes) -> str | None:
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if head.startswith(b"RIFF"):
        return _RIFF.get(head[8:12])
    if (brand := image_brand(head)) is not None:
        return f"image/{brand.lower()}"
    if (media := describe_media(head)) is not None:
        return media
    # "BM" alone is too little: the size of the header that follows must be one of the known.
    if head.startswith(b"BM") and int.from_bytes(head[14:18], "little") in _BMP_HEADERS:
        return "image/bmp"
    return None


def is_text(value: bytes) -> bool:
    """Return whether a value is UTF-8 without control characters; makes no copy of it."""
    if len(value) < _LONG:
        return decode_text(value) is not None
    pieces = (value[start : start + _PIECE] for start in range(0, len(value), _PIECE))
    if value.isascii():
        return not any(piece.translate(None, PRINTABLE_ASCII) for piece in pieces)
    decode = getincrementaldecoder("utf-8")().decode
    try:
        return all(_is_printable(decode(piece)) for piece in pieces) and not decode(b"", final=True)
    except UnicodeDecodeError:
        return False


_CONTROLS = bytes({*range(0x20), 0x7F} - {*b"\t\n\r"})


def starts_as_utf8(head: bytes) -> bool:
    """Return whether the first bytes of a value can be UTF-8, perhaps cut within a character."""
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4
    return True


def is_utf8(value: bytes) -> bool:
    """Return whether a value is valid UTF-8."""
    if not starts_as_utf8(value[:_LONG]):  # most values that aren't text
        return False
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_plain_text(value: bytes) -> bool:
    """Return whether a value is UTF-8 text, and not numbers that happen to be valid UTF-8.

    Numbers have NUL, or other control characters for at least half of their bytes. Unlike
    `is_text`, it allows characters that can't be printed.
    """
    if b"\0" in value[:_LONG] or not is_utf8(value) or b"\0" in value:
        return False
    return 2 * count_controls(value) < max(len(value), 1)


def count_controls(data: bytes) -> int:
    """Return the number of control characters of ASCII other than tabs and line breaks."""
    return len(data) - len(data.translate(None, _CONTROLS))


def decode_text(value: bytes) -> str | None:
    """Return a value as text, or None if it isn't UTF-8 or has control characters."""
    if len(value) > _PIECE and not is_text(value):
        return None  # the error below would hold a copy
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if _is_printable(text) else None


def _is_printable(text: str) -> bool:
    if not text.isprintable():
        text = text.replace("\n", "").replace("\t", "").replace("\r", "")
    return text.isprintable()


PixelForm = tuple[int, int]
"""Channels of a pixel (1, 2, 3 or 4), and bits of a channel."""

# PNG specification, 11.2.2: the color types; a palette stands for RGB.
_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}


def png_form(value: bytes) -> PixelForm | None:
    """Return the form of a PNG's pixels; None of anything else."""
    if len(value) < 26 or not value.startswith(PNG_HEAD):
        return None
    channels = _PNG_CHANNELS.get(value[25])
    return None if channels is None else (channels, 16 if value[24] == 16 else 8)


# tensorflow/core/framework/types.proto: the number of a dtype, and the bytes of one value.
_ITEM_BYTES = {
    1: 4, 2: 8, 3: 4, 4: 1, 5: 2, 6: 1, 8: 8, 9: 8, 10: 1, 11: 1, 12: 1, 13: 4, 14: 2, 15: 2,
    16: 2, 17: 2, 18: 16, 19: 2, 22: 4, 23: 8,
}  # fmt: skip
_STRING = 7

# tensorflow/core/framework/tensor.proto: tensor_content; string_val; and where
# `tf.make_tensor_proto` keeps a few values: float_val, double_val, int_val, int64_val and bool_val.
_CONTENT, _STRINGS, _NUMBERS = 4, 8, (5, 6, 7, 10, 11)


def _describe_message(value: bytes) -> str | None:
    """Name a serialized message, or return None.

    Protobuf has no type names on the wire, and short bytes of any sort parse as some message by
    luck. An Example or SequenceExample must have a feature, fill its bytes without a field that
    the message type doesn't know, and have a name and a kind in each feature: at least eight
    bytes that have to be as they are, and lengths that must agree at four levels. A TensorProto
    must have as many bytes of values as its dtype and shape make. An ExampleListWithContext must
    have nothing but such Examples.
    """
    try:
        if value[:1] == b"\x08":
            return "TensorProto" if _is_tensor(value) else None
        if value[:1] not in (b"\n", b"\x12"):
            return None
        name = _describe_example(value)
        return "ExampleListWithContext" if name is None and _is_example_list(value) else name
    except ValueError:
        return None


def _describe_example(value: bytes) -> str | None:
    from google.protobuf.message import DecodeError  # most values need no protobuf

    from tfrtool.examples.example import knows_all_fields, parse_message

    try:
        message = parse_message(value)
    except DecodeError:
        return None
    lists = message.feature_lists.feature_list
    steps = ((entry.key, step) for entry in lists for step in entry.value.feature)
    features = chain(((entry.key, entry.value) for entry in message.context.feature), steps)
    known = [bool(key and is_text(key) and one.WhichOneof("kind")) for key, one in features]
    if not known or not all(known) or not knows_all_fields(message):
        return None
    return "tf.train.SequenceExample" if lists else "tf.train.Example"


def _is_example_list(value: bytes) -> bool:
    # tensorflow_serving/apis/input.proto: examples = 1, context = 2, all of them tf.train.Example.
    examples = 0
    for number, example in read_fields(value):
        if number not in (1, 2) or not isinstance(example, bytes):
            return False
        if example and _describe_example(example) != "tf.train.Example":
            return False
        examples += len(example) > 0
    return examples > 0


def _is_tensor(value: bytes) -> bool:
    dtype, shape, fields = read_tensor(value)
    count = math.prod(shape)
    if dtype == _STRING:
        for number, field_value in fields:
            if number != _STRINGS or isinstance(field_value, int):
                return False
            count -= 1
        return count == 0
    rest = list(islice(fields, 2))
    if dtype not in _ITEM_BYTES or len(rest) != 1:
        return dtype in _ITEM_BYTES and not rest and count == 0
    ((number, field_value),) = rest
    if not isinstance(field_value, bytes):
        return False
    if number == _CONTENT:
        return len(field_value) == count * _ITEM_BYTES[dtype]
    return number in _NUMBERS and len(field_value) > 0
