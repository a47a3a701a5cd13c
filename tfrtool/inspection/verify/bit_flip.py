"""Finding the one bit that makes a CRC-32C fail, if a single one does."""

from __future__ import annotations

from tfrtool.records.crc import crc32c, mask, unmask


def find_bit_flip(data: bytes, stored: int) -> tuple[int, int] | None:
    """Find the bit of ``data`` or of its stored masked CRC that, flipped back, makes both agree.

    A CRC is linear: what two texts of one length differ in decides alone what their CRCs differ
    in. The difference of the CRCs is therefore led back byte by byte, from the end of the data,
    until it is that of a single bit. It takes about 0.1 s a MiB; a difference of another sort
    passes for a single bit in 1 of 2**29 cases a byte.

    Returns:
        The byte, counted on into the CRC, and the bit's number in it, 0 for the lowest; or None.
    """
    difference = unmask(stored) ^ crc32c(data)
    masked = stored ^ mask(crc32c(data))
    if masked.bit_count() == 1:
        byte, bit = divmod(masked.bit_length() - 1, 8)
        return len(data) + byte, bit
    zero = crc32c(b"\0")
    table = [crc32c(bytes((value,))) ^ zero for value in range(256)]
    bits = {table[1 << bit]: bit for bit in range(8)}
    by_top = {entry >> 24: value for value, entry in enumerate(table)}  # these are all different
    for byte in range(len(data) - 1, -1, -1):
        if difference in bits:
            return byte, bits[difference]
        value = by_top[difference >> 24]
        difference = ((difference ^ table[value]) << 8 | value) & 0xFFFFFFFF
    return None
