"""Masked CRC-32C."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfrtool.records.crc import crc32c, extend_crc32c, mask, masked_crc32c, unmask

words = st.integers(0, 2**32 - 1)


def test_check_value() -> None:
    """The CRC is Castagnoli's: its check value is the published one."""
    assert crc32c(b"123456789") == 0xE3069283


def test_masked_crc_of_nothing() -> None:
    """The masked CRC of no bytes is the mask's constant."""
    assert masked_crc32c(b"") == 0xA282EAD8


@given(crc=words)
def test_mask_round_trip(crc: int) -> None:
    """Unmasking undoes masking, both ways, and both stay within 32 bits."""
    assert unmask(mask(crc)) == crc
    assert mask(unmask(crc)) == crc
    assert 0 <= mask(crc) < 2**32


@given(data=st.binary())
def test_masked_crc_is_mask_of_crc(data: bytes) -> None:
    """The shortcut gives the mask of the CRC."""
    assert masked_crc32c(data) == mask(crc32c(data))


@given(first=st.binary(), second=st.binary())
def test_extending_a_crc(first: bytes, second: bytes) -> None:
    """A CRC that is extended is the CRC of both parts together."""
    assert extend_crc32c(crc32c(first), second) == crc32c(first + second)
