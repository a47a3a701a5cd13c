"""Records as JSON Lines: most of a block at once, in C, and the others one by one."""

import json
from collections.abc import Callable, Iterator, Sequence

from tfrtool.examples.example import LARGE
from tfrtool.inspection.rows.payload_json import PayloadJson
from tfrtool.records import frames
from tfrtool.records.frames import Frames
from tfrtool.records.framing import Record
from tfrtool.storage.remote_path import AnyPath


def record_lines(
    path: AnyPath,
    records: Sequence[Record],
    payloads: PayloadJson,
    reject: Callable[[Record, str], None],
) -> Iterator[str]:
    """Yield a line for each of the consecutive records, but for those that can't be described.

    Args:
        path: the shard that they are in.
        records: at least one.
        payloads: describes them, with all of their features.
        reject: called with a record that can't be described, and why.
    """
    start = f'{{"shard": {json.dumps(str(path))}, "record": '
    features, first = _features_json(records, payloads), records[0].index
    for at, text in enumerate(features):
        if text:
            yield f'{start}{first + at}, "features": {text}}}'
            continue
        record = records[at]
        content = payloads.try_describe(record.payload)
        if isinstance(content, str):
            reject(record, content)
        else:
            yield json.dumps({"shard": str(path), "record": record.index} | content)


def _features_json(records: Sequence[Record], payloads: PayloadJson) -> Iterator[str]:
    """Yield the features of each record, or nothing if Python has to describe it."""
    if frames.native is None or not isinstance(records, Frames):
        yield from [""] * len(records)
        return
    content, ends = records.features_json(
        LARGE,  # longer ones have limits, which Python knows
        lambda value: json.dumps(payloads.describe_string(value)).encode("ascii"),
    )
    text, start = content.decode("ascii"), 0
    for end in ends:
        yield text[start:end]
        start = end
