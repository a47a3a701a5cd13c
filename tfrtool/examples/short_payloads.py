"""Examples without most bytes of their long values, for what needs only types and short values."""

from collections.abc import Collection

from tfrtool.examples.content import starts_as_utf8
from tfrtool.records.wire import read_varint, varint

LONG = 1024
"""Bytes of a feature, with its name, up to which it stays as it is."""

_KEPT = 64
"""Bytes of a long value that stay; most images show within them that they are not text."""

_KEPT_HEAD = b"\x12\x44\x0a\x42\x0a\x40"
"""What is before such a value: a feature with a list of one string."""

_SHORT_NAME = 0x7F - 2 - len(_KEPT_HEAD) - _KEPT
"""Bytes of a name with which the length of such a feature still takes one byte."""


def shorten(payload: bytes, names: set[bytes]) -> bytes:
    """Return an Example with only the first bytes of each long value that is not text.

    Its features have the same names, kinds and numbers of values, and strings are text or not as
    before. Anything unusual stays as it is.

    Args:
        payload: a record's bytes, of whatever kind.
        names: gets the names of the features that were shortened.
    """
    end = len(payload)
    if end <= LONG or payload[0] != 0x0A:
        return payload
    parts, found = [], []
    try:
        size, at = read_varint(payload, 1)
        if at + size != end:
            return payload
        while at < end:
            start = at
            if payload[at] != 0x0A:
                return payload
            size, at = read_varint(payload, at + 1)
            stop = at + size
            if size <= LONG:
                parts.append(payload[start:stop])
            else:
                length, at = payload[at + 1], at + 2
                name, first = payload[at : at + length], at + length
                for tag in _KEPT_HEAD[::2]:
                    if payload[first] != tag:
                        return payload
                    size, first = read_varint(payload, first + 1)
                    if first + size != stop:
                        return payload
                prefix = payload[first : first + _KEPT]
                # No UTF-8 starts with bytes from 0x80 to 0xC1, or from 0xF5 on.
                may_be_text = prefix[0] < 0x80 or 0xC1 < prefix[0] < 0xF5
                if may_be_text and b"\0" not in prefix and starts_as_utf8(prefix):
                    return payload
                prefix = b"\xff" + prefix[1:]  # in no case UTF-8
                if payload[at - 2] != 0x0A or length > _SHORT_NAME:
                    return payload
                found.append(name)
                parts.append(
                    b"\x0a%c\x0a%c%b%b%b"
                    % (length + 2 + len(_KEPT_HEAD) + _KEPT, length, name, _KEPT_HEAD, prefix)
                )
            at = stop
    except (ValueError, IndexError):
        return payload
    if at != end:
        return payload
    names.update(found)
    body = b"".join(parts)
    return b"\x0a" + varint(len(body)) + body


def empty_strings(payload: bytes, keys: Collection[bytes]) -> bytes:
    """Return an Example in which the strings of long features are empty, and as many as before.

    Anything unusual stays as it is.

    Args:
        payload: a record's bytes, of whatever kind.
        keys: the names of these features.
    """
    end, parts = len(payload), list[bytes]()
    if end <= LONG or payload[0] != 0x0A:
        return payload
    try:
        size, at = read_varint(payload, 1)
        if at + size != end:
            return payload
        unchanged = at
        while at < end:
            size, entry = read_varint(payload, at + 1)
            stop = entry + size
            length, key = read_varint(payload, entry + 1)
            if payload[at] != 0x0A or payload[entry] != 0x0A:
                return payload
            value = key + length
            if size > LONG and payload[key:value] in keys:
                count = _count_strings(payload, value, stop)
                if count < 0:
                    return payload
                strings = b"\x0a\0" * count
                feature = b"\x0a" + varint(len(strings)) + strings
                entry_bytes = payload[entry:value] + b"\x12" + varint(len(feature)) + feature
                parts += (payload[unchanged:at], b"\x0a" + varint(len(entry_bytes)), entry_bytes)
                unchanged = stop
            at = stop
    except (ValueError, IndexError):
        return payload
    if at != end or not parts:
        return payload
    body = b"".join([*parts, payload[unchanged:]])
    return b"\x0a" + varint(len(body)) + body


def _count_strings(payload: bytes, at: int, end: int) -> int:
    """Return how many strings a map entry's value has; -1 if it is none of strings alone."""
    for tag in b"\x12\x0a":
        if payload[at] != tag:
            return -1
        size, at = read_varint(payload, at + 1)
        if at + size != end:
            return -1
    count = 0
    while at < end:
        size = payload[at + 1]
        if payload[at] != 0x0A:
            return -1
        if size < 0x80:
            at += 2 + size
        elif payload[at + 2] < 0x80:  # as of most images
            at += 3 + (size & 0x7F | payload[at + 2] << 7)
        else:
            size, at = read_varint(payload, at + 1)
            at += size
        count += 1
    return count if at == end else -1
