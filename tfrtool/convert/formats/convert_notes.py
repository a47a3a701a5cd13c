"""What a conversion changes or leaves out: a clause each."""

import re
from collections.abc import Collection, Sequence

from tfrtool.convert.formats.record_format import Content, Scan
from tfrtool.errors import human_count, some_of
from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import DType, PayloadKind, feature_name
from tfrtool.examples.fields import Kind, leaves_of
from tfrtool.examples.tfds_metadata import FEATURES
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.sources import AS_STORED
from tfrtool.features.stored_layout import stored_dtype

_VALUES = re.compile(r"""'[^']*'|"[^"]*"|\d[\d.e+-]*""")
"""What differs between notes that say the same of several columns."""

_NOTES_ALIKE = 3


def shorten_notes(notes: Sequence[str]) -> list[str]:
    """Return notes without those that repeat three others on further columns, and their number."""
    alike: dict[str, list[str]] = {}
    for text in notes:
        alike.setdefault(_VALUES.sub("", text), []).append(text)
    shortened = []
    for texts in alike.values():
        shortened += texts[:_NOTES_ALIKE]
        if len(texts) > _NOTES_ALIKE:
            more = human_count(len(texts) - _NOTES_ALIKE, "similar note")
            shortened.append(f"{more} on other columns; use --json to list them all")
    return shortened


def blank_notes(
    scans: Sequence[Scan], select: Collection[str], retained: Collection[str]
) -> list[str]:
    """Return notes on columns without values that aren't kept, a clause each."""
    blank = {scan.path: {*scan.blank} for scan in scans}
    valued = {n for scan in scans for n in scan.content.columns.names if n not in blank[scan.path]}
    skipped = dict.fromkeys(name for scan in scans for name in scan.blank if name not in valued)
    names = (name for name in skipped if name not in retained and (not select or name in select))
    return [f"column {name!r} has no values; skipped" for name in names]


def stored_notes(columns: Columns) -> list[str]:
    """Return how records store values of other types, a clause each."""
    notes = []
    leaves = leaves_of(columns.root) if isinstance(columns, FeatureColumns) else ()
    for path, _, values in leaves:
        if values.kind is Kind.TIME:
            form = "text" if stored_dtype(values) is DType.STRING else "int64, in microseconds"
            notes.append(f"column {path!r}: {values.dtype.partition('(')[0]}s become {form}")
        if values.shape:
            notes.append(f"column {path!r}: tensors become flat lists, in row-major order")
    return notes


def undeclared_notes(fold: ColumnsFold, columns: Columns) -> list[str]:
    """Return a note on features that features.json doesn't describe, and no column has."""
    if not isinstance(columns, FeatureColumns) or columns.kind is not PayloadKind.EXAMPLE:
        return []
    known = {column.key for column in columns.stored.columns}
    others = [feature.name for feature in fold.features() if feature.key not in known]
    if not others:
        return []
    what = f"{human_count(len(others), 'feature')} not in {FEATURES}: {some_of(others, 3)}"
    return [f"not converted: {what}; {AS_STORED}"]


def table_losses(fold: ColumnsFold, content: Content) -> list[str]:
    """Return what no table has of files of payloads, a clause each."""
    columns = content.columns.columns
    others = fold.kinds[PayloadKind.EVENT] + fold.kinds[PayloadKind.UNKNOWN]
    losses = []
    if others and content.columns.parsed:
        losses.append(f"records that are not Examples: {others:,}")
    if fold.skipped and len(columns) == len(fold.columns().columns):  # all that there are
        losses.append(f"features beyond the first {len(columns):,}")
    return losses


def renamed_notes(columns: Columns) -> list[str]:
    """Return which features have other names as columns, a clause each."""
    return [
        f"feature {name!r} becomes column {column!r}"
        for column, one in zip(columns.names, columns.columns, strict=False)
        if column != (name := feature_name(one.key))
    ]
