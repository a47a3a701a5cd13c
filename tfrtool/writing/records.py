"""An item as a record: read, looked at where nobody has, converted where it must be, serialized."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tfrtool.errors import WriteError
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.images.decoder import decoder_reason
from tfrtool.images.encode import render_image
from tfrtool.images.recipe import Check, Encode
from tfrtool.sources.items import Item
from tfrtool.writing.scan.image_audit import Verdict, digest_of, examine, read_item
from tfrtool.writing.write_plan import ShardTask

_BATCH = 512 * 1024
"""Bytes of images that are prepared at a time: a hand-over costs as much as a small image."""

_BATCH_ITEMS = 32


class Prepared(NamedTuple):
    """A record, or None if its image is bad; and the verdict, if the image was to be looked at."""

    payload: bytes | None
    verdict: Verdict | None


def batches(task: ShardTask) -> Iterator[range]:
    """Yield the places of a task's items, some at a time: no more than is soon done."""
    start = size = 0
    for place, item in enumerate(task.items):
        size += item.bytes
        if size >= _BATCH or place - start + 1 == _BATCH_ITEMS:
            yield range(start, place + 1)
            start, size = place + 1, 0
    if start < len(task.items):
        yield range(start, len(task.items))


def decodes(task: ShardTask) -> bool:
    """Tell whether preparing a task's items means decoding images, and not only copying bytes."""
    looked_at = task.digests is None and task.recipe.check is Check.DECODE
    return task.recipe.always or looked_at or bool(task.convert)


def prepare(task: ShardTask, places: range) -> list[Prepared]:
    """Make records of some of a task's items; after a bad one, the rest is left.

    An item that is gone, or not what was checked, or can't be encoded, is an error.
    """
    prepared = []
    for place in places:
        item = task.items[place]
        if task.digests is None:
            data, verdict = examine(task.reader, item, task.recipe)
            if verdict.problem is not None:
                prepared.append(Prepared(None, verdict))
                break
            convert = verdict.conversion is not None
            prepared.append(Prepared(_encoded(task, item, data, convert=convert), verdict))
        else:
            data = read_item(task.reader, item)
            if digest_of(data) != task.digests[place]:
                raise WriteError(
                    "was changed after it was checked", path=task.reader.describe(item)
                )
            payload = _encoded(task, item, data, convert=place in task.convert)
            prepared.append(Prepared(payload, None))
    return prepared


def _encoded(task: ShardTask, item: Item, data: bytes, *, convert: bool) -> bytes:
    """Return an item as a serialized Example.

    It has ``image``, ``image/filename`` and ``label``; with raw pixels ``image/height``,
    ``image/width`` and ``image/channels``, too.
    """
    size = {}
    if convert or task.recipe.always:
        try:
            image = render_image(data, task.recipe)
        except Exception as error:  # codecs raise anything
            raise WriteError(
                "decodes, but can't be encoded anew",
                path=task.reader.describe(item),
                found=decoder_reason(error),
            ) from error
        data = image.data
        if task.recipe.encode is Encode.RAW:
            sides = {"height": image.height, "width": image.width, "channels": image.channels}
            size = {f"image/{name}": _int64(value) for name, value in sides.items()}
    return encode_example(
        {
            "image": _string(data),
            "image/filename": _string(item.key.encode("utf-8", "surrogateescape")),
            **size,
            "label": _int64(task.labels[item.label]),
        }
    )


def _string(value: bytes) -> Feature:
    return Feature(dtype=DType.STRING, values=(value,))


def _int64(value: int) -> Feature:
    return Feature(dtype=DType.INT64, values=(value,))
