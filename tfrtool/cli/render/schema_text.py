"""A schema for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from tfrtool.cli.output import human_count
from tfrtool.cli.render.page import Block, Heading, Lines, Page, Table
from tfrtool.errors import printable
from tfrtool.examples.example import is_utf8
from tfrtool.examples.statistics import FeatureStatistics
from tfrtool.examples.wording import (
    conflict_text,
    lengths_text,
    name_text,
    value_text,
    values_text,
)
from tfrtool.inspection.schema.shard_schema import InferredSchema, ShardLoss

_WIDTH = 80
_NO_BREAK = "\N{NO-BREAK SPACE}"
_LONGEST_VALUES = 36
_VALUES_LISTED = 20
_LABELS = frozenset({"label", "labels", "class", "target", "category", "species", "y"})
_HEAD = ("feature", "dtype", "shape", "present", "values")


def schema_page(inferred: InferredSchema) -> Page:
    """Return what ``inspect schema --emit table`` shows."""
    records, shards = inferred.records, human_count(inferred.shards, "shard")
    title = f"{human_count(records, 'record')} of {shards}, {inferred.payload.title}"
    page: list[Block] = [Heading(title)]
    if inferred.sampled:
        page.append(Lines([_sample_text(inferred)]))
    if inferred.features:
        rows = [_row(feature, records) for feature in inferred.features]
        page.append(Table(head=_HEAD, rows=rows))
    notes = [line for note in _notes(inferred) for line in _hanging(note)]
    if notes:
        page += [Heading("To note"), Lines(notes)]
    histograms = [line for item in inferred.features for line in _histogram(item)]
    if histograms:
        page += [Heading("Values"), Lines(histograms)]
    return page


def notes_of(inferred: InferredSchema) -> list[str]:
    """Return why others than the records that were looked at may not fit, a clause each."""
    notes = []
    if inferred.sampled:
        notes.append(f"this is {_sample_text(inferred)}; others may not fit")
    if inferred.left_out:
        notes.append(_left_out_text(inferred))
    return notes


def _sample_text(inferred: InferredSchema) -> str:
    share = human_count(inferred.records, "record")
    return f"a sample: {share}, the first of each shard in equal shares"


def _left_out_text(inferred: InferredSchema) -> str:
    count = human_count(inferred.left_out, "feature")
    return f"there are too many names: {count} of records are not in"


def loss_text(loss: ShardLoss) -> str:
    """Return what of a shard is not in the schema."""
    path = printable(str(loss.path))
    if loss.whole:
        return f"{path}: left out, for it holds {printable(loss.content)}"
    first = loss.faults[0]
    record = "" if first.record is None else f" (record {first.record})"
    return (
        f"{path}: {human_count(loss.count, 'fault')}; what they concern is left out; the first is "
        f"{first.kind.value} at offset {first.offset}{record}: {printable(first.message)}"
    )


def _row(feature: FeatureStatistics, records: int) -> tuple[str, ...]:
    dtype = "never set" if feature.dtype is None else feature.dtype.value
    size = feature.size(records)
    shape = "[]" if size == 1 else f"[{'*' if size is None else size}]"
    if feature.is_list:
        shape = lengths_text(feature)
    elif size is None and feature.present and feature.min_length != feature.max_length:
        shape = f"[*] {lengths_text(feature)}"
    text = values_text(feature)
    return (
        name_text(feature.name),
        "mixed" if feature.conflict else dtype,
        shape,
        "all" if feature.present == records else f"{feature.present:,}",
        text if len(text) <= _LONGEST_VALUES else values_text(feature, brief=True),
    )


def _notes(inferred: InferredSchema) -> Iterator[str]:
    for feature in inferred.features:
        parts = [conflict_text(feature)]
        if feature.duplicates:
            count = human_count(feature.duplicates, "record")
            parts.append(f"more than once in {count}, where the last one counts")
        if not is_utf8(feature.key):
            parts.append(
                "the name is no UTF-8: tf.io takes it as bytes, tf.train.Example refuses the record"
            )
        if text := "; ".join(filter(None, parts)):
            yield f"{name_text(feature.name)}: {text}"
    unset = [f"{name_text(item.name)} {item.unset:,}" for item in inferred.features if item.unset]
    if unset:
        yield f"there without a kind, which counts as missing: {_joined(unset)}"
    if inferred.left_out:
        yield _left_out_text(inferred)


def _histogram(feature: FeatureStatistics) -> list[str]:
    """Return how often each value of a label comes."""
    distinct = feature.range.distinct
    words = "".join(c if c.isalpha() else " " for c in feature.name.lower()).split()
    if not distinct or len(distinct) > _VALUES_LISTED or _LABELS.isdisjoint(words):
        return []
    counts = [f"{value_text(value)} ({distinct[value]:,})" for value in sorted(distinct)]
    return _hanging(f"{name_text(feature.name)}: {_joined(counts)}")


def _joined(items: Iterable[str]) -> str:
    """Join items, each of which stays on one line."""
    return ", ".join(item.replace(" ", _NO_BREAK) for item in items)


def _hanging(text: str) -> list[str]:
    lines = textwrap.wrap(
        text,
        _WIDTH - 2,
        subsequent_indent="  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]
