"""Finding the one bit that makes a CRC-32C fail, if a single one does."""

from __future__ import annotations

from dataclasses import dataclass

from tfrtool.records.crc import crc32c, mask, unmask

__all__ = ["BitFlip", "find_bit_flip"]

_SINGLE_BITS = tuple(1 << bit for bit in range(8))


@dataclass(frozen=True, slots=True, kw_only=True)
class BitFlip:
    """A bit that is not what it was.

    Attributes:
        byte: where it is, in bytes from the start of the data; in its CRC if that is `in_crc`.
        bit: its number in the byte, 0 for the lowest.
        in_crc: whether the data is right, and its stored CRC is not.
    """

    byte: int
    bit: int
    in_crc: bool


def find_bit_flip(data: bytes, stored: int) -> BitFlip | None:
    """Find the single bit of ``data`` or of its masked CRC that, flipped back, makes both agree.

    A CRC is linear: what two texts of one length differ in decides alone what their CRCs differ
    in. The difference of the CRCs is therefore led back byte by byte, from the end of the data,
    until it is that of a single bit. It takes about 0.1 s a MiB; a difference of another sort
    passes for a single bit in 1 of 2**29 cases a byte.

    Args:
        data: the bytes.
        stored: their masked CRC-32C as it is stored, which does not hold.
    """
    difference = unmask(stored) ^ crc32c(data)
    masked = stored ^ mask(crc32c(data))
    if masked.bit_count() == 1:
        position = masked.bit_length() - 1
        return BitFlip(byte=position // 8, bit=position % 8, in_crc=True)
    zero = crc32c(b"\0")
    table = [crc32c(bytes((value,))) ^ zero for value in range(256)]
    bits = {table[value]: number for number, value in enumerate(_SINGLE_BITS)}
    by_top = [0] * 256  # the table's highest bytes are all different
    for value, entry in enumerate(table):
        by_top[entry >> 24] = value
    for byte in range(len(data) - 1, -1, -1):
        if difference in bits:
            return BitFlip(byte=byte, bit=bits[difference], in_crc=False)
        value = by_top[difference >> 24]
        difference = ((difference ^ table[value]) << 8 | value) & 0xFFFFFFFF
    return None
