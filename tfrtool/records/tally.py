"""How many records there are, and a digest of them that their order makes no difference to."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tfrtool.records.framing import masked_crc32c

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Words: TypeAlias = "NDArray[np.uint64]"

Keys: TypeAlias = "memoryview | array[int] | Words"
"""What `payload_key` makes of payloads, as uint64."""


_FEW = 256
"""Keys that are added up without NumPy, which takes longer to load than small files to write."""

_BITS = 2**64 - 1


@dataclass(slots=True)
class Tally:
    """A multiset of payloads: how many, how long in all, and a digest.

    The digest is the sum of splitmix64(masked CRC-32C << 32 | length) over the payloads, mod 2**64:
    it is the same in any order, and differs if a payload is missing, changed or duplicate.
    """

    records: int = 0
    payload_bytes: int = 0
    digest: int = 0

    def add(self, payloads: Iterable[bytes]) -> None:
        """Count payloads whose CRCs are not known."""
        self.add_keys([payload_key(masked_crc32c(payload), len(payload)) for payload in payloads])

    def add_keys(self, keys: "Sequence[int] | Keys") -> None:
        """Count payloads, by what `payload_key` makes of them."""
        self.records += len(keys)
        if len(keys) <= _FEW:
            few = [*map(int, keys)]
            self.payload_bytes += sum(key & 0xFFFFFFFF for key in few)
            self.digest = (self.digest + sum(map(_mixed, few))) & _BITS
            return
        import numpy as np

        words = np.asarray(keys, np.uint64)
        self.payload_bytes += int((words & np.uint64(0xFFFFFFFF)).sum())
        self.digest = (self.digest + int(splitmix64(words).sum())) & _BITS

    def merge(self, other: "Tally") -> None:
        """Count what another one has counted."""
        self.records += other.records
        self.payload_bytes += other.payload_bytes
        self.digest = (self.digest + other.digest) % 2**64


def payload_key(masked_crc: int, length: int) -> int:
    """Return what a payload counts as: 64 bits of its masked CRC-32C and its length."""
    return masked_crc << 32 | length & 0xFFFFFFFF


def splitmix64(words: Words) -> Words:
    """Mix the bits of 64-bit words (Steele, Lea and Flood 2014); it is a permutation of them."""
    import numpy as np

    mixed = words + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), np.uint64)


def _mixed(word: int) -> int:
    """Do what `splitmix64` does with a single word, in a twentieth of the time."""
    mixed = word + 0x9E3779B97F4A7C15 & _BITS
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _BITS
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _BITS
    return mixed ^ mixed >> 31


def seed_word(seed: int) -> Words:
    """Return a seed as one word of mixed bits."""
    import numpy as np

    return splitmix64(np.array([seed % 2**64], np.uint64))


def digest_text(digest: int) -> str:
    """Return a digest as it is printed: 16 hexadecimal digits."""
    return f"{digest:016x}"
