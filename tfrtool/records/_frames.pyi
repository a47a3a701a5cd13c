from typing_extensions import Buffer

checksum: str
"""How CRCs are computed: by an "instruction", or by a "table"."""

def scan(
    data: Buffer, position: int, stop: int, limit: int, verify: bool, /
) -> tuple[bytes, bytes]:
    """Return where intact frames start, and the last one ends, as uint64; and their CRCs."""

def check_examples(data: Buffer, starts: Buffer, /) -> tuple[bytes, int]:
    """Return a byte for each frame, 1 if it may be no Example; and what is in the others."""
