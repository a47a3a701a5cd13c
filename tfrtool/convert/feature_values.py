"""The values of one feature in each record, whatever their type and number."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from tfrtool.errors import UsageError, suggestion
from tfrtool.examples.arrow.columns import CONTEXT, Column, Columns
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.example import PayloadKind, feature_key, feature_name
from tfrtool.examples.roles import SAMPLE, FirstRecords
from tfrtool.inspection.rows.batches import infer_columns
from tfrtool.storage.remote_path import AnyPath


def feature_values(payloads: Sequence[bytes], name: str) -> list[list[Any] | None]:
    """Return the values of a feature in each payload; None for a record without values."""
    column = Column.of_lists(feature_key(name), None)
    try:
        rows = decode_batch(payloads, Columns(PayloadKind.SEQUENCE_EXAMPLE, (column,)))
    except MisfitError:  # at least one is not a message with features
        if len(payloads) == 1:
            return [None]
        half = len(payloads) // 2
        return feature_values(payloads[:half], name) + feature_values(payloads[half:], name)
    return [
        next((one for one in value.values() if one), None) if value else None
        for value in rows.column(CONTEXT).field(0).to_pylist()
    ]


def no_feature(name: str, shards: Sequence[AnyPath], option: str) -> UsageError:
    """Return the error for a feature that no record has."""
    columns = infer_columns(shards[:1], workers=1)
    known = [feature_name(column.key) for column in columns.columns]
    return UsageError(f"no feature {name!r} for {option}", hint=suggestion(name, known, "features"))


def image_feature(shards: Sequence[AnyPath]) -> str | None:
    """Return the feature that holds the images, by the first records."""
    first = FirstRecords()
    for _ in islice(first.read(shards), SAMPLE):
        if first.roles.image is not None:
            break
    return first.roles.image
