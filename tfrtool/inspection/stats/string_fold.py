"""How often each string comes, in bounded memory."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tfrtool.errors import UsageError
from tfrtool.examples.content import describe_bytes
from tfrtool.inspection.summary.summary_json import value_json
from tfrtool.records.crc import crc32c

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST = 256
"""Bytes of a string that is held; of a longer one its length, its CRC and its first bytes are."""

_HEAD = 48
_FREQUENT, _DISTINCT = 13, 14  # base 2 logarithms of the sizes of sketches: 6,144 strings, 16 KiB


class HeldStrings(NamedTuple):
    """Strings by their keys, and how often each comes, at least."""

    counts: Mapping[bytes, int]
    distinct: int
    short: int  # by how much a count may be too low


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
    """A fold over strings: exact up to ``room`` different ones, then sketches.

    The sketches are DataSketches' frequent items and HyperLogLog, which draw nothing at random.
    """

    def __init__(self) -> None:
        self._counts: Counter[bytes] = Counter()
        self._sketches: tuple[Any, Any] | None = None

    def __getstate__(self) -> tuple[Any, ...]:
        """Return what goes to another process."""
        if self._sketches is None:
            return (self._counts,)
        frequent, distinct = self._sketches
        return self._counts, frequent.serialize(), distinct.get_result().serialize_updatable()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """Take that back."""
        self._counts, self._sketches = state[0], None
        if len(state) > 1:
            sketches = load_datasketches()
            distinct = sketches.hll_union(_DISTINCT)
            distinct.update(sketches.hll_sketch.deserialize(state[2]))
            self._sketches = sketches.frequent_strings_sketch.deserialize(state[1]), distinct

    @property
    def exact(self) -> bool:
        """Whether it still holds all strings."""
        return self._sketches is None

    def add(self, values: "pa.Array", room: int) -> None:
        """Take in a binary array without nulls."""
        import pyarrow as pa
        import pyarrow.compute as pc

        long = pc.greater(pc.binary_length(values), LONGEST)
        if pc.any(long).as_py():
            keys = [_long_key(value.as_py()) for value in values.filter(long)]
            self._take(Counter(keys), room)
            values = values.filter(pc.invert(long))
        counted = values.value_counts()
        texts = pc.binary_join_element_wise(
            pa.scalar(b"="), counted.field("values"), pa.scalar(b"")
        )
        found = zip(texts.to_pylist(), counted.field("counts").to_pylist(), strict=True)
        self._take(dict(found), room)

    def merge(self, other: "StringFold", room: int) -> None:
        """Take in what another fold has seen; what comes out depends on the order."""
        self._take(other._counts, room)
        if other._sketches is not None:
            frequent, distinct = self._sketch()
            frequent.merge(other._sketches[0])
            distinct.update(other._sketches[1].get_result())

    def held(self) -> HeldStrings:
        """Return what is known of each string."""
        if self._sketches is None:
            return HeldStrings(self._counts, len(self._counts), 0)
        frequent, distinct = self._sketches
        every = load_datasketches().frequent_items_error_type.NO_FALSE_NEGATIVES
        found = frequent.get_frequent_items(every, 0)
        short = max((high - low for _, _, low, high in found), default=0)
        counts = {text.encode("latin-1"): low for text, _, low, _ in found}
        return HeldStrings(counts, round(distinct.get_estimate()), short)

    def _take(self, counts: Mapping[bytes, int], room: int) -> None:
        if self._sketches is None:
            self._counts.update(counts)
            if len(self._counts) > room:
                self._sketch()
            return
        frequent, distinct = self._sketches
        for key, count in counts.items():
            text = key.decode("latin-1")
            frequent.update(text, count)
            distinct.update(text)

    def _sketch(self) -> tuple[Any, Any]:
        """Return the sketches, which take over where there are none."""
        if self._sketches is None:
            sketches = load_datasketches()
            made = sketches.frequent_strings_sketch(_FREQUENT), sketches.hll_union(_DISTINCT)
            self._sketches, counts, self._counts = made, self._counts, Counter()
            self._take(counts, 0)
        return self._sketches


def _long_key(value: bytes) -> bytes:
    return b"~%d %08x %s" % (len(value), crc32c(value), value[:_HEAD])


def string_json(key: bytes) -> Any:
    """Return a string of a fold as JSON values: of a long one its length, CRC-32C and content."""
    if key.startswith(b"="):
        return value_json(key[1:])
    size, crc, head = key[1:].split(b" ", 2)
    return {"bytes": int(size), "crc32c": crc.decode(), "content": describe_bytes(head)}
