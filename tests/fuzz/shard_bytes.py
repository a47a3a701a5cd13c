"""Changing shards record by record: nothing with wrong CRCs gets past the first header."""

from __future__ import annotations

import random

from tests.fuzz.target import Scramble
from tfrtool.records.framing import (
    FOOTER_SIZE,
    FRAME_SIZE,
    HEADER,
    HEADER_SIZE,
    frame,
    header,
)
from tfrtool.records.resync import headers

__all__ = ["join", "mutate_shard", "split_records"]

_PAYLOADS = (
    b"",
    bytes(4),
    bytes(8),
    bytes(40),
    header(0),
    header(16),
    frame(b""),
    frame(b"inner") * 3,
    b"\x1f\x8b\x08\0" * 4,
    b"x" * 300,
)
"""Payloads that are hard for a reader: zeros are like lengths, and headers like headers."""

_LENGTHS = (0, 1, 8, 16, 300, 5000, 559_903, 2**31 - 1, 2**31, 2**32, 2**40, 2**64 - 1)


def split_records(data: bytes) -> list[bytes]:
    """Split bytes into whole records and the runs of bytes between them."""
    pieces: list[bytes] = []
    start = 0
    for position in headers(data):
        end = position + FRAME_SIZE + HEADER.unpack_from(data, position)[0]
        if start <= position and end <= len(data) and _is_record(data[position:end]):
            pieces += [data[start:position]] if start < position else []
            pieces.append(data[position:end])
            start = end
    return pieces + ([data[start:]] if start < len(data) else [])


def _is_record(piece: bytes) -> bool:
    return piece == frame(piece[HEADER_SIZE:-FOOTER_SIZE])


def join(pieces: list[bytes]) -> bytes:
    """Put pieces together."""
    return b"".join(pieces)


def mutate_shard(data: bytes, rng: random.Random, scramble: Scramble) -> bytes:
    """Change a shard: the records that it has, their payloads, or the bytes as such."""
    pieces = split_records(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(pieces)) if pieces else 0
        piece = pieces[at] if pieces else b""
        match rng.randrange(10):
            case 0 | 1:
                pieces[at : at + 1] = [frame(scramble(piece[HEADER_SIZE:-FOOTER_SIZE]))]
            case 2 | 3:
                pieces.insert(at, frame(rng.choice(_PAYLOADS)))
            case 4:
                pieces.insert(rng.randint(0, len(pieces)), piece)
            case 5:
                pieces[at : at + 1] = []
            case 6:
                upto = rng.randint(at, len(pieces))
                pieces[at:upto] = [frame(join(pieces[at:upto]))]
            case 7:
                pieces[at : at + 1] = [header(rng.choice(_LENGTHS)) + piece[HEADER_SIZE:]]
            case 8:
                pieces[at : at + 1] = [_damaged(piece, rng)]
            case _:
                pieces[at : at + 1] = [scramble(piece)]
    return join(pieces)


def _damaged(piece: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(piece) + 1)
    match rng.randrange(5):
        case 0 if at < len(piece):
            return piece[:at] + bytes([piece[at] ^ 1 << rng.randrange(8)]) + piece[at + 1 :]
        case 1:
            return piece[:at]
        case 2:
            return piece[at:]
        case 3:
            return piece[:at] + rng.randbytes(rng.choice((1, 3, 12, 40))) + piece[at:]
        case _:
            return piece[:at] + piece[at + rng.choice((1, 4, 12, 30)) :]
