"""A schema for people."""

from collections.abc import Iterable, Iterator

from tfrtool.cli.render.page import Heading, Page, Table, wrapped
from tfrtool.errors import human_count, printable
from tfrtool.examples.feature_text import conflict_text, lengths_text, name_text, values_text
from tfrtool.examples.schema_fold import FeatureStatistics
from tfrtool.inspection.schema.shard_schema import InferredSchema, ShardLoss


def schema_page(inferred: InferredSchema) -> Page:
    """Return what ``inspect schema --emit table`` shows."""
    shards = human_count(inferred.shards, "shard")
    records = human_count(inferred.records, "record")
    page: list[str | Table] = [Heading(f"{records} in {shards}, {inferred.payload.title}")]
    if inferred.features:
        page.append(feature_table(inferred.features, inferred.records))
    notes = [*_notes(inferred), *notes_of(inferred)]
    if notes:
        page += [Heading("notes"), *(line for note in notes for line in wrapped(note, "- "))]
    return page


def notes_of(inferred: InferredSchema) -> list[str]:
    """Return why others than the records that were looked at may not fit, a clause each."""
    notes = []
    if inferred.sampled:
        count = human_count(inferred.records, "record")
        notes.append(
            f"based on a sample of {count} from the start of the shards; others may differ"
        )
    if inferred.skipped:
        count = human_count(inferred.skipped, "feature occurrence")
        notes.append(f"too many feature names; skipped {count}")
    return notes


def loss_text(loss: ShardLoss) -> str:
    """Return what was skipped of a shard."""
    path = printable(str(loss.path))
    if loss.content is not None:
        return f"{path}: skipped: {printable(loss.content)}"
    first = loss.faults[0]
    what = human_count(loss.count, "fault")
    return f"{path}: skipped {what}; first: {first.title}: {printable(first.message)}"


def feature_table(features: Iterable[FeatureStatistics], records: int) -> Table:
    """Return what was seen of features in so many records."""
    rows = [_row(feature, records) for feature in features]
    return Table(head=("feature", "dtype", "shape", "present", "values"), rows=rows)


def _row(feature: FeatureStatistics, records: int) -> tuple[str, ...]:
    dtype = "never set" if feature.dtype is None else feature.dtype.value
    size = feature.size(records)
    shape = "[]" if size == 1 else f"[{'*' if size is None else size}]"
    if feature.is_list:
        shape = lengths_text(feature)
    elif size is None and feature.present and len(set(feature.lengths)) > 1:
        shape = f"[*] {lengths_text(feature)}"
    return (
        name_text(feature.name),
        "mixed" if feature.conflict else dtype,
        shape,
        "all" if feature.present == records else f"{feature.present:,}",
        values_text(feature),
    )


def _notes(inferred: InferredSchema) -> Iterator[str]:
    for feature in inferred.features:
        parts = [conflict_text(feature)]
        if feature.duplicates:
            count = human_count(feature.duplicates, "record")
            parts.append(f"repeated in {count}, where the last value is used")
        if text := "; ".join(filter(None, parts)):
            yield f"{name_text(feature.name)}: {text}"
    unset = [f"{name_text(item.name)} {item.unset:,}" for item in inferred.features if item.unset]
    if unset:
        yield f"present without a value, treated as missing: {', '.join(unset)}"
