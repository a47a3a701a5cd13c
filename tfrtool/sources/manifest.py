"""The items of a source on the disk, in a file of Arrow, where they are too many for memory."""

import mmap
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from tfrtool.sources.items import Item
from tfrtool.storage.scratch.external_sort import close_with, forget, scratch_errors

HELD = 2**17
"""Items that stay in memory, and those of a batch in the file: some 40 MB."""

_ACCESSES = 2048
"""Items that are looked up before mapped memory is let go: each may bring in some 300 kB."""

_CODING = "utf-8", "surrogatepass"  # sorts as texts do, and takes what is no UTF-8

_NEW: Any = object.__new__
_SET_KEY, _SET_LABEL, _SET_BYTES, _SET_PLACE, _SET_SPLIT = (
    Item.__dict__[name].__set__ for name in ("key", "label", "bytes", "place", "split")
)


class ManifestWriter:
    """Takes the items of a source, sorted by key, and gives them back as a sequence.

    Up to `HELD` are a tuple in the end; more are a `Manifest`, in a file without a name, which
    lasts as long as that. A full disk is a `WriteError`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Start without items."""
        self._folder = folder
        self._items: list[Item] = []
        self._names: dict[str | None, int] = {}  # numbers of labels and splits in the file
        self._file: Any = None
        self._writer: Any = None
        self.count = 0

    def add(self, item: Item) -> None:
        """Take the next item."""
        self.count += 1
        if len(self._items) == HELD:
            self._spill()
        self._items.append(item)

    def close(self) -> Sequence[Item]:
        """Return all items."""
        if self._file is None:
            return tuple(self._items)
        self._spill()
        with scratch_errors(self._folder), self._file:
            self._writer.close()
            self._file.flush()
            mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return Manifest(mapped, [*self._names], self.count)

    def _spill(self) -> None:
        import pyarrow

        number, items = self._names, self._items
        for item in items:
            number.setdefault(item.label, len(number))
            number.setdefault(item.split, len(number))
        small, texts = pyarrow.int32(), pyarrow.binary()
        columns = {
            "key": pyarrow.array([item.key.encode(*_CODING) for item in items], texts),
            "label": pyarrow.array([number[item.label] for item in items], small),
            "bytes": pyarrow.array([item.bytes for item in items], pyarrow.int64()),
            # In a zip archive that is more than 64 bits.
            "place": pyarrow.array([_packed(item.place) for item in items], texts),
            "split": pyarrow.array([number[item.split] for item in items], small),
        }
        batch = pyarrow.record_batch(columns)
        with scratch_errors(self._folder):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
                close_with(self, self._file)
                self._writer = pyarrow.ipc.new_file(self._file, batch.schema)
            self._writer.write_batch(batch)
        self._items = []


class Manifest(Sequence[Item]):
    """Items in a mapped file; each is made when it is asked for.

    Several threads may read it at once. It can't be pickled.
    """

    def __init__(self, mapped: mmap.mmap, names: Sequence[Any], count: int) -> None:
        """Read the file that a `ManifestWriter` has made, with so many items."""
        import pyarrow

        self._mapped, self._names, self._count, self._accesses = mapped, names, count, 0
        reader = pyarrow.ipc.open_file(pyarrow.py_buffer(mapped))
        batches = map(reader.get_batch, range(reader.num_record_batches))
        self._batches = [[_view(column) for column in batch.columns] for batch in batches]

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Item]: ...
    def __getitem__(self, at: int | slice) -> Item | Sequence[Item]:
        if isinstance(at, slice):
            return tuple(map(self.__getitem__, range(*at.indices(self._count))))
        self._accesses += 1
        if self._accesses % _ACCESSES == 0:
            forget(self._mapped)
        batch, row = divmod(range(self._count)[at], HELD)
        return self._item(row, self._batches[batch])

    def __iter__(self) -> Iterator[Item]:
        for number, batch in enumerate(self._batches):
            for row in range(min(HELD, self._count - number * HELD)):
                yield self._item(row, batch)
            forget(self._mapped)

    def _item(self, row: int, batch: Sequence[Any]) -> Item:
        (key_at, key), labels, sizes, (place_at, place), splits = batch
        item: Item = _NEW(Item)  # a tenth of what its own checks take, which it has passed
        _SET_KEY(item, str(key[key_at[row] : key_at[row + 1]], *_CODING))
        _SET_LABEL(item, self._names[labels[row]])
        _SET_BYTES(item, sizes[row])
        start, end = place_at[row], place_at[row + 1]
        _SET_PLACE(item, int.from_bytes(place[start:end], "little") if start < end else 0)
        _SET_SPLIT(item, self._names[splits[row]])
        return item


def _view(column: Any) -> Any:
    """Return the numbers of a column; of texts, where each begins, and all of them together."""
    _, first, *texts = column.buffers()
    numbers = memoryview(first).cast("B").cast("q" if column.type == "int64" else "i")
    return (numbers, memoryview(texts[0] or b"")) if texts else numbers


def _packed(place: int) -> bytes:
    return place.to_bytes((place.bit_length() + 7) // 8, "little")
