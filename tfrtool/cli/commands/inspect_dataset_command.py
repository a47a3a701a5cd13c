"""``tfrtool inspect dataset``."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from tfrtool.cli.output import Bars, Outcome, emit, note, warn
from tfrtool.cli.parameters import INPUT, command
from tfrtool.declare import option
from tfrtool.errors import UsageError, human_bytes, human_count, printable
from tfrtool.inspection.inspect_options import DatasetOptions, ScanOptions, TypesOption
from tfrtool.page import Bad, Good, Heading, Page, Table, facts, findings
from tfrtool.records.framing import FaultKind

if TYPE_CHECKING:
    from tfrtool.inspection.dataset.dataset_summary import DatasetSummary, SplitSummary
    from tfrtool.inspection.dataset.object_counts import ObjectSummary
    from tfrtool.inspection.dataset.shuffle import ShuffleQuality
    from tfrtool.records.framing import LocatedFault

_LABELS_SHOWN = 20
_SHARDS_SHOWN = 16


@dataclass(frozen=True, kw_only=True)
class _InspectDatasetOptions(TypesOption):
    emit: Literal["page", "croissant", "python"] = option(
        "page",
        "Print a readable page, a Croissant description of the dataset (MLCommons) as JSON-LD, or "
        "Python code for the FeaturesDict of TFDS.",
    )
    features: bool = option(
        False, "Print what the features mean instead: names, types and shapes, as a tree."
    )


@command(
    "tfrtool inspect dataset shards/pets",
    "tfrtool inspect dataset ~/tensorflow_datasets/mnist --json",
    "tfrtool inspect dataset pipeline/examples --label-feature species",
    "tfrtool inspect dataset data/robot/1.0.0 --features",
    "tfrtool inspect dataset shards/pets --emit croissant > croissant.json",
    "tfrtool inspect dataset shards/pets --emit python",
    options=(DatasetOptions, _InspectDatasetOptions),
)
@click.argument("dataset", type=INPUT)
def inspect_dataset_command(dataset: str, as_json: bool, **words: Any) -> Outcome:
    """Summarize a dataset: splits, labels, balance and shuffling.

    DATASET is a directory of shards, with or without TFDS metadata. If it has one
    folder per version, the newest is used. One folder per split, as TFX writes them, also works.

    Shows the splits and shards, the counts compared with the metadata, the balance of the labels,
    whether the order is random, and the shuffle buffer that training needs.

    Exit code 3 means damaged records, missing or extra shards, or counts or records that don't
    match the metadata.
    """
    form, features = words.pop("emit"), words.pop("features")
    if as_json and form == "python":
        raise UsageError("--json and --emit python can't be used together")
    if features or form == "python":
        return _print_features(dataset, form, features, as_json=as_json, **words)
    if words.pop("types"):
        raise UsageError("--type requires --features or --emit python")
    if as_json and form == "croissant":
        raise UsageError(
            "--json and --emit croissant can't be used together",
            hint="use --emit croissant alone to print JSON",
        )
    from tfrtool.inspection.dataset.croissant import croissant
    from tfrtool.inspection.dataset.dataset_summary import inspect_dataset
    from tfrtool.storage.json_values import to_json_values

    with Bars() as bars:
        if form == "page":
            summary = inspect_dataset(dataset, on_progress=bars, **words)
        else:
            summary, content, complete = croissant(dataset, on_progress=bars, **words)
    if form == "page":
        emit(to_json_values(summary) if as_json else _page(summary))
        return Outcome.DAMAGE if summary.faults else Outcome.FINE
    for fault in summary.faults:
        warn(": ".join(_fault_text(fault)))
    emit(json.dumps(content, indent=2))
    return Outcome.FINE if complete else Outcome.DAMAGE


def _print_features(
    dataset: str,
    form: str,
    features: bool,
    *,
    as_json: bool,
    label: str | None,
    types: Mapping[str, str] | None,
    **words: Any,
) -> Outcome:
    """Print the tree of features, and what says so; or as Python code."""
    if features and form != "page":
        raise UsageError("--features and --emit can't be used together")
    if label is not None:
        chosen = "--features" if features else "--emit python"
        raise UsageError(f"{chosen} and --label-feature can't be used together")
    from tfrtool.examples.fields import tree_lines
    from tfrtool.features.tfds_source import tfds_source
    from tfrtool.inspection.dataset.feature_tree import read_feature_tree

    with Bars() as bars:
        found = read_feature_tree(dataset, ScanOptions(on_progress=bars, **words), types)
    if form == "python":
        for text in found.notes:
            note(text)
        emit(tfds_source(found.root))
        return Outcome.FINE
    if as_json:
        emit(found.to_json())
        return Outcome.FINE
    notes = [("note", printable(note)) for note in found.notes]
    head = facts(("features", printable(found.source)), *notes)
    lines = list(map(printable, tree_lines(found.root)))
    emit([Heading(printable(str(found.dataset))), head, *(lines or ["  none"])])
    return Outcome.FINE


def _page(summary: "DatasetSummary") -> Page:
    """Return what ``inspect dataset`` shows of a dataset."""
    page: list[str | Table] = [Heading(printable(str(summary.dataset))), _head(summary)]
    page += findings(list(map(_fault_text, summary.faults)))
    if summary.splits:
        page.append(_splits(summary))
        if any(split.labels for split in summary.splits.values()):
            page.append(_labels(summary.splits))
        objects = {name: one.objects for name, one in summary.splits.items() if one.objects}
        page += [_object_classes(objects)] if objects else []
    for name, split in summary.splits.items():
        about = [] if split.shuffle is None else [_order(split.shuffle)]
        about += [] if split.objects is None else [_objects(split.objects)]
        page += [Heading(printable(name)), *about] if about else []
    return page


def _head(summary: "DatasetSummary") -> Table:
    shards = sum(len(split.shards) for split in summary.splits.values())
    size = human_bytes(sum(split.bytes for split in summary.splits.values()))
    return facts(
        ("name", printable(" ".join(filter(None, (summary.name, summary.version))))),
        ("records", f"{summary.records:,} in {human_count(shards, 'shard')}, {size}"),
        ("payload", summary.payload.title),
        ("label", _label(summary)),
        ("metadata", _compared(summary)),
        *_features(summary),
        *(("note", note) for note in summary.notes),
    )


def _compared(summary: "DatasetSummary") -> str:
    """Return what of the metadata was compared with the shards."""
    if summary.version is None:
        return "none, so shards and counts can't be checked"
    if summary.faults:
        return "see the faults below"
    counts = [split.expected_records for split in summary.splits.values()]
    if None in counts:
        return "dataset_info.json does not list the records of each split"
    return "record counts match dataset_info.json"


def _features(summary: "DatasetSummary") -> Iterator[tuple[str, str]]:
    """Yield whether the records match features.json, if they do."""
    if summary.features_checked and all(
        located.fault.kind is not FaultKind.SCHEMA for located in summary.faults
    ):
        yield "features", f"{human_count(summary.features_checked, 'record')} match features.json"


def _label(summary: "DatasetSummary") -> str:
    if summary.label is None:
        if any(split.objects for split in summary.splits.values()):
            return "none per image; objects have classes"
        found = ", ".join(map(printable, summary.label_candidates))
        return f"unknown; choose it with --label-feature: {found}" if found else "none"
    name, distinct = printable(summary.label), summary.distinct_labels
    if distinct is None:
        return f"{name}; too many distinct values to measure the order"
    return f"{name}, {'1 class' if distinct == 1 else f'{distinct:,} classes'}"


def _fault_text(located: "LocatedFault") -> tuple[str, str]:
    """Return what a fault is, and where and why."""
    fault = located.fault
    is_single = fault.record is not None and fault.kind is not FaultKind.SCHEMA
    where = "" if not is_single else f"record {fault.record} at offset {fault.offset}: "
    what = f"{fault.kind.value}: {printable(located.path.name)}"
    return what, where + printable(fault.message)


def _splits(summary: "DatasetSummary") -> Table:
    rows = []
    for name, split in summary.splits.items():
        shards, missing = len(split.shards), split.missing_shards
        rows.append(
            (
                printable(name),
                f"{split.records:,}",
                f"{split.records / summary.records:.1%}" if summary.records else "-",
                f"{shards:,}" + (f" of {shards + missing:,}" if missing else ""),
                human_bytes(split.bytes),
                ", ".join(sorted({shard.shard.compression.value for shard in split.shards})),
            )
        )
    head = ("split", "records", "share", "shards", "size", "compression")
    return Table(head=head, rows=rows, right=(1, 2, 3, 4))


def _labels(splits: "Mapping[str, SplitSummary]") -> Table:
    counts = {name: Counter(split.labels) for name, split in splits.items()}
    names = list(next(iter(splits.values())).labels)
    if len(names) > _LABELS_SHOWN:  # the most frequent
        names.sort(key=lambda name: -sum(one[name] for one in counts.values()))
    if any(split.unlabelled for split in splits.values()):
        names[_LABELS_SHOWN:_LABELS_SHOWN] = ["(none)"]
        for split, label_counts in zip(splits.values(), counts.values(), strict=True):
            label_counts["(none)"] = split.unlabelled
    return _shares("label", names, counts, [split.records for split in splits.values()])


def _object_classes(splits: "Mapping[str, ObjectSummary]") -> Table:
    counts = {name: Counter(one.object_classes) for name, one in splits.items()}
    total = sum(counts.values(), Counter[str]())
    names = [name for name, _ in total.most_common()]
    return _shares("objects", names, counts, [one.objects for one in splits.values()])


def _shares(
    what: str, names: Sequence[str], counts: Mapping[str, Counter[str]], totals: Sequence[int]
) -> Table:
    """Show counts and their shares of totals, with a column for each split."""
    rows = [
        (
            printable(name),
            *(
                f"{one[name]:,} ({one[name] / max(total, 1):.1%})"
                for one, total in zip(counts.values(), totals, strict=True)
            ),
        )
        for name in names[: _LABELS_SHOWN + ("(none)" in names)]
    ]
    if len(rows) < len(names):
        rows.append((f"... {len(names) - len(rows):,} more", *("" for _ in counts)))
    head = (what, *map(printable, counts))
    return Table(head=head, rows=rows, right=range(1, len(head)))


def _objects(found: "ObjectSummary") -> Table:
    least, median, most = found.objects_an_image
    share = (
        "" if found.object_share is None else f"; {found.object_share:.1%} of the image on average"
    )
    sizes = ", ".join(f"{n:,} {size}" for size, n in found.object_sizes.items())
    boxes = max(found.objects - found.unusable_boxes, 1)
    rows = [" ".join(f"{n / boxes:6.1%}" for n in row) for row in found.object_places]
    unusable = f"{found.unusable_boxes:,} unusable; run tfrtool verify to list them"
    return facts(
        ("objects", f"{found.objects:,}; {least:,} to {most:,} per image, median {median:g}"),
        ("", f"{human_count(found.images_without_objects, 'image')} without objects"),
        ("sizes", sizes + share),
        ("centres", "by cell of a 3 x 3 grid over the image"),
        *(("", row) for row in rows),
        *((("boxes", Bad(unusable)),) if found.unusable_boxes else ()),
    )


def _order(found: "ShuffleQuality") -> Table:
    verdict, *advice = found.shuffle.split("; ")
    spread = f"varies {found.batch_spread:.2f}x as much as in random batches"
    return facts(
        ("order", (Good if found.order.name == "SHUFFLED" else Bad)(verdict)),
        *(("", line) for line in advice),
        ("label mix", f"in batches of {found.batch} {spread}"),
    )
