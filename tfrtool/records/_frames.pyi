from collections.abc import Callable
from typing import Any

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

def masked_crcs(data: Buffer, starts: Buffer, ends: Buffer, /) -> bytes:
    """Return the masked CRCs of payloads."""

def frame(data: Buffer, starts: Buffer, ends: Buffer, keys: Buffer, /) -> bytes:
    """Return payloads with a frame around each, one behind the other."""

def find_entries(
    data: Buffer,
    starts: Buffer,
    ends: Buffer,
    keys: Buffer,
    key_ends: Buffer,
    key_order: Buffer,
    most: int,
    /,
) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes]:
    """Return which maps are irregular, and the entries of the others, and their order."""

def feature_kinds(
    data: Buffer, starts: Buffer, ends: Buffer, counts: bool, /
) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the kinds of features, where their values start and how many; and the irregular."""

def fields_of(
    data: Buffer, starts: Buffer, ends: Buffer, most: int, /
) -> tuple[bytes, bytes, bytes, bytes]:
    """Return how many fields messages have, which are irregular, and where the fields are."""

def integers_at(data: Buffer, starts: Buffer, ends: Buffer, /) -> tuple[bytes, bytes, bytes]:
    """Return how many packed integers are at places, which are irregular, and the integers."""

def bytes_at(data: Buffer, starts: Buffer, ends: Buffer, /) -> tuple[bytes, bytes]:
    """Return the bytes at places together, and where those of each end."""

def encode_examples(columns: list[Any], rows: int, /) -> tuple[bytes, bytes]:
    """Return the Examples of rows together, and where each ends."""

def varints_of(values: Buffer, /) -> tuple[bytes, bytes]:
    """Return integers as varints, and where each ends."""

def features_json(
    data: Buffer, starts: Buffer, most: int, describe: Callable[[bytes], bytes], /
) -> tuple[bytes, bytes]:
    """Return the features in frames as JSON, and where those of each end."""
