"""The one bit that makes a CRC fail."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from tfrtool.inspection.verify.causes import find_bit_flip
from tfrtool.records.crc import masked_crc32c


@given(st.binary(min_size=1, max_size=400), st.data())
def test_any_bit_of_the_data_is_found(data: bytes, draw: st.DataObject) -> None:
    """Whichever bit is flipped, it is named."""
    byte = draw.draw(st.integers(0, len(data) - 1))
    bit = draw.draw(st.integers(0, 7))
    wrong = bytearray(data)
    wrong[byte] ^= 1 << bit
    found = find_bit_flip(bytes(wrong), masked_crc32c(data))
    assert found == (byte, bit)


@given(st.binary(max_size=100), st.integers(0, 31))
def test_any_bit_of_the_crc_is_found(data: bytes, bit: int) -> None:
    """A CRC that is wrong in one bit, while the data is right, is named, too."""
    found = find_bit_flip(data, masked_crc32c(data) ^ 1 << bit)
    assert found == (len(data) + bit // 8, bit % 8)


@given(st.binary(min_size=3, max_size=3), st.binary(min_size=3, max_size=3))
def test_other_differences_are_no_single_bit(data: bytes, other: bytes) -> None:
    """Where more than one bit is wrong, none is named."""
    difference = int.from_bytes(data, "big") ^ int.from_bytes(other, "big")
    assume(len(data) == len(other) and difference.bit_count() > 1)
    assert find_bit_flip(other, masked_crc32c(data)) is None


def test_right_data() -> None:
    """Where nothing is wrong, no bit is."""
    assert find_bit_flip(b"abc", masked_crc32c(b"abc")) is None
