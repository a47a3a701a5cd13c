"""Features and skipped records for people."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tfrtool.errors import human_count, printable
from tfrtool.examples.feature_text import lengths_text, name_text, values_text
from tfrtool.examples.fields import shape_text
from tfrtool.examples.schema_fold import FeatureStatistics
from tfrtool.page import Table

if TYPE_CHECKING:
    from tfrtool.inspection.schema.shard_schema import ShardLoss


def loss_text(loss: "ShardLoss") -> str:
    """Return what was skipped of a shard."""
    path = printable(str(loss.path))
    if loss.content is not None:
        return f"{path}: skipped: {printable(loss.content)}"
    first = loss.faults[0]
    what = human_count(loss.count, "fault")
    return f"{path}: skipped {what}; first: {first.title}: {printable(first.message)}"


def feature_table(features: Iterable[FeatureStatistics], records: int) -> Table:
    """Return the features of a number of records."""
    rows = []
    for feature in features:
        dtype = "never set" if feature.dtype is None else feature.dtype.value
        sizes = feature.spec(records).shape
        shape = "[*]" if sizes is None else shape_text(sizes)
        if feature.is_list:
            shape = lengths_text(feature)
        elif sizes is None and feature.present and len(set(feature.lengths)) > 1:
            shape = f"[*] {lengths_text(feature)}"
        dtype = "mixed" if feature.conflict else dtype
        present = "all" if feature.present == records else f"{feature.present:,}"
        rows.append((name_text(feature.name), dtype, shape, present, values_text(feature)))
    return Table(head=("feature", "dtype", "shape", "present", "values"), rows=rows)
