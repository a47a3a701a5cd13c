"""The images that a model gets most wrong: drawn as they are stored, and listed to be dropped."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO

import tensorflow as tf

from tfrtool.errors import UsageError, WriteError, named_record, os_errors_as, printable, some_of
from tfrtool.images.charts import shortened_name
from tfrtool.images.pixels import Picture
from tfrtool.images.sheet import Tile, draw_large_tiles, save_sheet, small_picture
from tfrtool.loading.dataset_facts import DatasetFacts
from tfrtool.loading.decoding import record_decoder
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard
from tfrtool.storage.atomic_files import new_file
from tfrtool.training.tallies import ImageResult

_MOST_DRAWN = 1000
"""Maximum number of images on a sheet, within the size that sheets may have."""

_LABELS_LISTED = 5


def original_pictures(
    dataset: DatasetFacts, name: str, mistakes: Sequence[tuple[ImageResult, int]]
) -> list[Picture]:
    """Return the first images by their positions in a split, at their stored proportions."""
    split, start = dataset.local_split(name), 0
    in_shards = [*split.positions()] if split.ranges else range(split.records)
    positions = [in_shards[number] for _, number in mistakes[:_MOST_DRAWN]]
    record = [tf.TensorSpec([], tf.string)]
    decode = tf.function(record_decoder(dataset), record, autograph=False)
    pictures: dict[int, Picture] = {}
    for path, length in zip(split.shards, split.lengths, strict=True):
        wanted = {position - start for position in positions if 0 <= position - start < length}
        items = read_shard(path, compression=split.compression, verify_payload=False)
        for number, item in enumerate(islice(items, max(wanted, default=-1) + 1)):
            if number in wanted and isinstance(item, Record):
                pictures[start + number] = small_picture(decode(item.payload)[0].numpy())
        start += length
    return [pictures[position] for position in positions]


def save_mistakes(
    file: IO[bytes], results: Sequence[ImageResult], pictures: Sequence[Picture], what: str
) -> None:
    """Write a PNG of the first images, with labels and predictions."""
    tiles = [_tile(*pair) for pair in zip(pictures, results, strict=False)]
    sure = " with its probability" if results[0].probabilities else ""
    sheet = draw_large_tiles(tiles, f"{what}: label, and below it the prediction{sure}")
    save_sheet(sheet, file, ".png")


def _tile(picture: Picture, result: ImageResult) -> Tile:
    """Return an image with its label, and below it the prediction and the name of the record."""
    record = "" if result.record is None else named_record(result.shard.name, result.record)
    labels, predicted = (", ".join(names) or "none" for names in (result.labels, result.predicted))
    number = f"{result.probability or 0:.0%}" if result.value is None else ""
    note = shortened_name(predicted, 8)
    return Tile(picture, shortened_name(labels, 18), number, note=note, record=record)


def check_drop_list(path: Path, *, overwrite: bool) -> None:
    """Raise an error if a list can't be written, before time is spent on an evaluation."""
    with os_errors_as(WriteError, path, "can't be written"):
        path.parent.stat()
    if path.exists() and not overwrite:
        raise UsageError("already exists", path=path, hint="use --overwrite to replace it")


def save_drop_list(
    path: Path, what: str, results: Sequence[ImageResult], dataset: DatasetFacts
) -> None:
    """Write the records of results as a list that ``tfrtool filter --drop`` reads."""
    counts = Counter(shard.name for split in dataset.splits.values() for shard in split.shards)
    lines = [f"# {printable(what)}, highest loss first", *(_line(one, counts) for one in results)]
    with os_errors_as(WriteError, path, "can't be written"), new_file(path) as file:
        file.write("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))


def _line(result: ImageResult, counts: Mapping[str, int]) -> str:
    """Return the line for a record, with a comment that says why it is listed."""
    shard = result.shard.name if counts[result.shard.name] == 1 else result.shard.absolute()
    labels, predicted = (
        some_of([printable(name) for name in names], _LABELS_LISTED) or "none"
        for names in (result.labels, result.predicted)
    )
    reason = f"{labels}, predicted {predicted}, loss {result.loss:.4g}"
    if result.record is None:
        return f"# {shard}: record number unknown because of damage: {reason}"
    return f"{named_record(shard, result.record)}  # {reason}"
