"""How often each string comes, in bounded memory."""

from typing import TYPE_CHECKING, Any

from tfrtool.errors import UsageError
from tfrtool.examples.content import describe_bytes
from tfrtool.inspection.stats.number_fold import EXACT_VALUES
from tfrtool.inspection.summary.summary_json import value_json
from tfrtool.records.crc import crc32c

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST = 256
"""Bytes of a string that is held; of a longer one its length, its CRC and its first bytes are."""

_HEAD = 48
_LEAST, _DISTINCT = 13, 14  # base 2 logarithms of the sizes of sketches: 6,144 strings, 16 KiB


def load_datasketches() -> Any:
    """Import DataSketches; `UsageError` where it is not installed."""
    try:
        import datasketches
    except ImportError as error:
        hint = 'pip install "tfrtool[stats]"'
        what = "statistics need DataSketches, which is not installed"
        raise UsageError(what, hint=hint) from error
    return datasketches


class StringFold:
    """A fold over strings: exact up to ``room`` different ones.

    The sketches are DataSketches' frequent items and HyperLogLog, which draw nothing at random.
    """

    def __init__(self, room: int = EXACT_VALUES) -> None:
        sketches = load_datasketches()
        size = max(_LEAST, (4 * room // 3).bit_length())  # three quarters of it are used
        self._frequent = sketches.frequent_strings_sketch(size)
        self._distinct = sketches.hll_union(_DISTINCT)

    def __getstate__(self) -> tuple[bytes, bytes]:
        """Return what goes to another process."""
        return self._frequent.serialize(), self._distinct.get_result().serialize_updatable()

    def __setstate__(self, state: tuple[bytes, bytes]) -> None:
        """Take that back."""
        sketches = load_datasketches()
        self._frequent = sketches.frequent_strings_sketch.deserialize(state[0])
        self._distinct = sketches.hll_union(_DISTINCT)
        self._distinct.update(sketches.hll_sketch.deserialize(state[1]))

    def add(self, values: "pa.Array") -> None:
        """Take in a binary array without nulls."""
        counted = values.value_counts()
        held, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
        for value, count in zip(held, counts, strict=True):
            key = _key(value).decode("latin-1")
            self._frequent.update(key, count)
            self._distinct.update(key)

    def merge(self, other: "StringFold") -> None:
        """Take in what another fold has seen; what comes out depends on the order."""
        self._frequent.merge(other._frequent)
        self._distinct.update(other._distinct.get_result())

    def held(self) -> tuple[dict[str, int], int, int]:
        """Return how often each string comes, how many there are, and how far counts are too low.

        That is 0 while all strings are held.
        """
        every = load_datasketches().frequent_items_error_type.NO_FALSE_NEGATIVES
        counts = {key: low for key, _, low, _ in self._frequent.get_frequent_items(every, 0)}
        short = self._frequent.get_upper_bound("")  # of a key that there is not
        distinct = round(self._distinct.get_estimate()) if short else len(counts)
        return counts, distinct, short


def _key(value: bytes) -> bytes:
    if len(value) <= LONGEST:
        return b"=" + value
    return b"~%d %08x %s" % (len(value), crc32c(value), value[:_HEAD])


def string_json(key: str) -> Any:
    """Return a string of a fold as JSON values: of a long one its length, CRC-32C and content."""
    held = key[1:].encode("latin-1")
    if key.startswith("="):
        return value_json(held)
    size, crc, head = held.split(b" ", 2)
    return {"bytes": int(size), "crc32c": crc.decode(), "content": describe_bytes(head)}
