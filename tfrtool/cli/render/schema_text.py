"""A schema for people."""

from collections.abc import Iterable, Iterator

from tfrtool.cli.render.page import Heading, Page, Table, wrapped
from tfrtool.errors import human_count, printable
from tfrtool.examples.feature_text import conflict_text, lengths_text, name_text, values_text
from tfrtool.examples.statistics import FeatureStatistics
from tfrtool.inspection.schema.shard_schema import InferredSchema, ShardLoss


def schema_page(inferred: InferredSchema) -> Page:
    """Return what ``inspect schema --emit table`` shows."""
    shards = human_count(inferred.shards, "shard")
    records = human_count(inferred.records, "record")
    page: list[str | Table] = [Heading(f"{records} of {shards}, {inferred.payload.title}")]
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
        share = human_count(inferred.records, "record")
        first = "the first of each shard in equal shares"
        notes.append(f"this is a sample: {share}, {first}; others may not fit")
    if inferred.skipped:
        count = human_count(inferred.skipped, "feature")
        notes.append(f"there are too many names: {count} of records are not in")
    return notes


def loss_text(loss: ShardLoss) -> str:
    """Return what of a shard is not in the schema."""
    path = printable(str(loss.path))
    if loss.content is not None:
        return f"{path}: left out, for it holds {printable(loss.content)}"
    first = loss.faults[0]
    return (
        f"{path}: {human_count(loss.count, 'fault')}; what they concern is left out; the first is "
        f"{first.title}: {printable(first.message)}"
    )


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
            parts.append(f"more than once in {count}, where the last one counts")
        if text := "; ".join(filter(None, parts)):
            yield f"{name_text(feature.name)}: {text}"
    unset = [f"{name_text(item.name)} {item.unset:,}" for item in inferred.features if item.unset]
    if unset:
        yield f"there without a kind, which counts as missing: {', '.join(unset)}"
