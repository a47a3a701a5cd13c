"""What a dataset holds, as a page."""

import os
import textwrap
from collections.abc import Iterator, Mapping

from tfrtool.cli.output import human_bytes
from tfrtool.cli.render.page import Block, Facts, Heading, Page, Table, Tone, Toned, findings
from tfrtool.errors import human_count, printable
from tfrtool.inspection.dataset.dataset_summary import DatasetSummary, SplitSummary
from tfrtool.inspection.dataset.shuffle import Order, ShuffleQuality
from tfrtool.records.framing import LocatedFault

_WIDTH = 80
_LABELS_SHOWN = 20
_SHARDS_SHOWN = 16


def dataset_page(summary: DatasetSummary) -> Page:
    """Return what ``inspect dataset`` shows of a dataset."""
    page: list[Block] = [Heading(printable(str(summary.dataset))), Facts(list(_head(summary)))]
    if summary.faults:
        page.append(findings(list(map(fault_text, summary.faults))))
    if summary.splits:
        page.append(_splits(summary))
        if any(split.labels for split in summary.splits.values()):
            page.append(_labels(summary.splits))
    for name, split in summary.splits.items():
        about: list[Block] = [] if split.shuffle is None else [_order(split.shuffle)]
        if split.labels and len(split.shards) > 1:
            about.append(_shards(split))
        page += [Heading(printable(name)), *about] if about else []
    return page


def _head(summary: DatasetSummary) -> Iterator[tuple[str, str]]:
    shards = sum(len(split.shards) for split in summary.splits.values())
    size = human_bytes(sum(split.bytes for split in summary.splits.values()))
    yield "name", printable(" ".join(filter(None, (summary.name, summary.version))))
    yield "records", f"{summary.records:,} in {human_count(shards, 'shard')}, {size}"
    yield "payload", summary.payload.title
    yield from _wrapped("label", _label(summary))
    checked = "see the faults" if summary.faults else "agrees with all counts and shards"
    unchecked = "none; counts and shards can't be checked against it"
    yield "metadata", unchecked if summary.version is None else checked
    for note in summary.notes:
        yield from _wrapped("taken", note)


def _label(summary: DatasetSummary) -> str:
    if summary.label is None:
        found = ", ".join(map(printable, summary.label_candidates))
        return f"not clear which; name it with --label: {found}" if found else "none"
    name, distinct = printable(summary.label), summary.distinct_labels
    if distinct is None:
        return f"{name}; too many different values for a label, so that its order is not measured"
    return f"{name}, {'1 class' if distinct == 1 else f'{distinct:,} classes'}"


def _wrapped(label: str, text: str) -> list[tuple[str, str]]:
    lines = textwrap.wrap(text, _WIDTH - 14) or [""]
    return [(label if not number else "", line) for number, line in enumerate(lines)]


def fault_text(located: LocatedFault) -> tuple[str, str]:
    """Return what a fault is, and where and why."""
    fault = located.fault
    where = "" if fault.record is None else f"record {fault.record} at offset {fault.offset}: "
    what = f"{fault.kind.value}: {printable(located.path.name)}"
    return what, where + printable(fault.message)


def _splits(summary: DatasetSummary) -> Table:
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
    head = ("split", "records", "share", "shards", "size", "compressed")
    return Table(head=head, rows=rows, right=frozenset((1, 2, 3, 4)))


def _labels(splits: Mapping[str, SplitSummary]) -> Table:
    """Show the labels' counts, a column for each split as long as there is room."""
    names = list(next(iter(splits.values())).labels)
    more = len(names) - _LABELS_SHOWN
    if more > 0:  # the most frequent
        names.sort(key=lambda name: -sum(split.labels[name] for split in splits.values()))
        names = names[:_LABELS_SHOWN]
    counts = [*names, None] if any(split.unlabelled for split in splits.values()) else names
    columns = [["(none)" if name is None else printable(name) for name in counts]]
    head = ["label"]
    room = _WIDTH - 2 - max(map(len, columns[0]), default=0)
    for title, split in splits.items():
        cells = []
        for name in counts:
            count = split.unlabelled if name is None else split.labels[name]
            cells.append(f"{count:,} ({count / max(split.records, 1):.1%})")
        room -= 2 + max(map(len, (printable(title), *cells)))
        if room < 0 and len(head) > 1:
            head[0] = f"label ({len(head) - 1} of {len(splits)} splits)"
            break
        head.append(printable(title))
        columns.append(cells)
    rows = list(zip(*columns, strict=True))
    if more > 0:
        rows.append((f"... {more:,} more", *("" for _ in head[1:])))
    return Table(head=head, rows=rows, right=frozenset(range(1, len(head))))


def _order(found: ShuffleQuality) -> Facts:
    verdict, *advice = found.shuffle.split("; ")
    tone = Tone.GOOD if found.order is Order.SHUFFLED else Tone.BAD
    spread = f"{found.batch_spread:.2f} times as much as by chance"
    batches = f"of {found.batch}: mixes of labels vary {spread}"
    lines = [("", line) for line in advice]
    return Facts([("order", Toned(verdict, tone)), *lines, ("batches", batches)])


def _shards(split: SplitSummary) -> Table:
    """Show the shards by what tells their names apart, with the labels that there is room for."""
    shards = split.shards[:_SHARDS_SHOWN]
    names = [printable(shard.shard.path.name) for shard in shards]
    prefix = os.path.commonprefix(names)  # noqa: RUF071 - no paths
    names = [name[max(map(prefix.rfind, "-._")) + 1 :] for name in names]
    width = 2 + max(map(len, names)) + 2 + 9
    chosen: set[str] = set()
    for label in sorted(split.labels, key=lambda label: -split.labels[label]):
        width += 2 + max(len(printable(label)), 7)
        if width > _WIDTH or not split.labels[label]:
            break
        chosen.add(label)
    labels = [label for label in split.labels if label in chosen]
    rows = [
        (name, f"{shard.records:,}", *(f"{shard.labels.get(label, 0):,}" for label in labels))
        for name, shard in zip(names, shards, strict=True)
    ]
    head = ("shard", "records", *map(printable, labels))
    if len(split.shards) > len(shards):
        more = f"... {len(split.shards) - len(shards):,} more"
        rows.append((more, *("" for _ in head[1:])))
    return Table(head=head, rows=rows, right=frozenset(range(1, len(head))))
