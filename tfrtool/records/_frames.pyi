from typing_extensions import Buffer

interface: int
"""Counted up with each change of the functions."""

checksum: str
"""How CRCs are computed: by an "instruction", or by a "table"."""

def scan(
    data: Buffer, position: int, stop: int, limit: int, verify: bool, base: int = 0, /
) -> tuple[bytes, bytes]:
    """Return where intact frames start, and the last one ends; and the keys of their payloads."""

def pick(data: Buffer, starts: Buffer, sizes: Buffer, /) -> tuple[bytes, bytes] | None:
    """Return frames in the given order with the keys of their payloads, if all are intact."""

def check_examples(data: Buffer, starts: Buffer, /) -> tuple[bytes, int]:
    """Return a byte for each frame, 1 if it may be no Example; and what is in the others."""

def match_features(data: Buffer, starts: Buffer, features: Buffer, keys: Buffer, /) -> bytes:
    """Return a byte for each frame, 1 if it may have other features than these."""
