"""Fuzzing the reading of compressed shards."""

from __future__ import annotations

import gzip
import io
import random
import zlib
from collections.abc import Iterator
from contextlib import suppress

from tests.fuzz.framing import check_files, check_reading
from tests.fuzz.shard_bytes import mutate_shard
from tests.fuzz.target import Scramble, Target, fixture_files
from tests.records.strategies import read
from tfrtool.records.compression import Compression, Inflater
from tfrtool.records.framing import crc32c, frame
from tfrtool.records.stream import BLOCK_SIZE

__all__ = ["TARGET"]

_WINDOW_BITS = {Compression.GZIP: 31, Compression.ZLIB: 15}
_MAGIC = b"\x1f\x8b\x08"
_BOMB = 1 << 20
"""Streams longer than this, in bytes, are read once: a kilobyte may well hold a megabyte."""


def seeds() -> Iterator[bytes]:
    """Yield compressed shards, whole and damaged, and a small bomb."""
    for folder in ("golden", "damaged"):
        for data in fixture_files(folder, 5200):
            if data[:1] in (b"\x1f", b"\x78"):
                yield data
    yield zlib.compress(frame(bytes(500_000)) * 3)
    yield gzip.compress(bytes(3_000_000), mtime=0)
    yield gzip.compress(frame(b"one"), mtime=0) + gzip.compress(frame(b"two"), mtime=0)


def check(data: bytes) -> None:
    """Uncompressing piece by piece gives what uncompressing at once gives, and so does reading."""
    for compression in (Compression.GZIP, Compression.ZLIB):
        plain, whole = _reference(data, compression)
        pieces, failure = _inflated(data, compression)
        assert pieces == plain
        assert (failure is None) == whole
        packed = read(data, compression=compression)
        if len(plain) > _BOMB:
            continue
        check_reading(plain, packed, verified=False)
        unpacked = read(plain, compression=Compression.NONE)
        assert packed.records == unpacked.records
        if whole and plain:
            assert [(fault.kind, fault.offset, fault.record) for fault in packed.faults] == [
                (fault.kind, fault.offset, fault.record) for fault in unpacked.faults
            ]
        else:
            assert packed.faults
    if max(len(_reference(data, compression)[0]) for compression in _WINDOW_BITS) <= _BOMB:
        check_files(data)


def _reference(data: bytes, compression: Compression) -> tuple[bytes, bool]:
    """Uncompress member by member, byte by byte; return whether the data is intact."""
    bits = _WINDOW_BITS[compression]
    inflate = zlib.decompressobj(bits)
    output: list[bytes] = []
    start = 0
    for position in range(len(data)):
        if inflate.eof:
            if compression is Compression.ZLIB or not data.startswith(_MAGIC, position):
                return b"".join(output), False
            inflate, start = zlib.decompressobj(bits), position
        try:
            output.append(inflate.decompress(data[position : position + 1]))
        except zlib.error:
            return b"".join(output) + _last_bytes(data[start : position + 1], bits), False
    return b"".join(output), inflate.eof


def _last_bytes(member: bytes, bits: int) -> bytes:
    """Return what the last byte of a member gives before zlib finds damage in it."""
    inflate = zlib.decompressobj(bits)
    inflate.decompress(member[:-1])
    output: list[bytes] = []
    part = member[-1:]
    with suppress(zlib.error):
        while piece := inflate.decompress(part, 1):
            output.append(piece)
            part = inflate.unconsumed_tail
    return b"".join(output)


def _inflated(data: bytes, compression: Compression) -> tuple[bytes, str | None]:
    """Uncompress in pieces of many sizes, none of them longer than was asked for."""
    sizes = random.Random(crc32c(data))
    source = Inflater(io.BytesIO(data), compression)
    output = []
    while piece := source.read(size := sizes.choice((1, 12, 300, 5000, BLOCK_SIZE, BLOCK_SIZE))):
        assert len(piece) <= size
        output.append(piece)
    assert source.read(1) == b""
    return b"".join(output), source.failure


def mutate(data: bytes, rng: random.Random, scramble: Scramble) -> bytes:
    """Change the shard inside, how it is compressed, or the compressed bytes."""
    if rng.randrange(4) == 0:
        return scramble(data)
    compression = Compression.GZIP if data.startswith(_MAGIC) else Compression.ZLIB
    plain = mutate_shard(_reference(data, compression)[0][:_BOMB], rng, scramble)
    cuts = sorted(rng.randint(0, len(plain)) for _ in range(rng.choice((0, 0, 1, 2))))
    packed = b"".join(
        _packed(plain[start:end], rng)
        for start, end in zip([0, *cuts], [*cuts, len(plain)], strict=True)
    )
    return scramble(packed) if rng.randrange(4) == 0 else packed


def _packed(plain: bytes, rng: random.Random) -> bytes:
    pack = zlib.compressobj(
        level=rng.choice((0, 1, 6, 9)),
        wbits=rng.choice((31, 31, 15, 9)),
        strategy=rng.choice((zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY, zlib.Z_FIXED)),
    )
    middle = rng.randint(0, len(plain))
    parts = [pack.compress(plain[:middle])]
    if rng.randrange(2):
        parts.append(pack.flush(rng.choice((zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH))))
    return b"".join([*parts, pack.compress(plain[middle:]), pack.flush()])


TARGET = Target(check=check, seeds=seeds, mutate=mutate)
