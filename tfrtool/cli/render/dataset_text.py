"""What a dataset holds, as a page."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from tfrtool.cli.output import human_bytes, human_count
from tfrtool.cli.render.page import Block, Facts, Heading, Page, Table, Tone, Toned, findings
from tfrtool.errors import printable
from tfrtool.inspection.dataset.dataset_summary import DatasetSummary, SplitSummary
from tfrtool.inspection.dataset.label_mix import MixDistance
from tfrtool.inspection.dataset.shuffle import Order, ShuffleQuality
from tfrtool.records.framing import LocatedFault

_WIDTH = 80
_LABELS_SHOWN = 20
_SHARDS_SHOWN = 16
_NAMES_SHOWN = 8
_LONG = 24
"""Columns from which on a shard's name is shown without what all of them begin with."""


def dataset_page(summary: DatasetSummary) -> Page:
    """Return what ``inspect dataset`` shows of a dataset."""
    page: list[Block] = [Heading(printable(str(summary.dataset))), Facts(list(_head(summary)))]
    if summary.faults:
        page.append(findings(list(map(_fault, summary.faults)), summary.more_faults))
    if summary.splits:
        page.append(_splits(summary))
        if any(split.labels for split in summary.splits.values()):
            page.append(_labels(summary.splits))
    for name, split in summary.splits.items():
        if split.shuffle is not None:
            rows = list(_order(split, split.shuffle))
            page += [Heading(printable(name)), Facts(rows)]
            page += [_shards(split)] if len(split.shards) > 1 else []
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
    yield from _wrapped("metadata", checked if summary.described else unchecked)
    for note in summary.notes:
        yield from _wrapped("taken", note)


def _label(summary: DatasetSummary) -> str:
    if summary.label is None:
        found = _listed(summary.label_candidates)
        return f"not clear which; name it with --label: {found}" if found else "none"
    name, distinct = printable(summary.label), summary.distinct_labels
    if distinct is None:
        return f"{name}; too many different values for a label, so that its order is not measured"
    text = f"{name}, {'1 class' if distinct == 1 else f'{distinct:,} classes'}"
    labelled = sum(split.records - split.unlabelled for split in summary.splits.values())
    if distinct > 10 and distinct > labelled / 2:
        text += ": most records have one of their own; is it a label? --label names another"
    return text


def _fault(located: LocatedFault) -> tuple[str, str]:
    fault = located.fault
    where = "" if fault.record is None else f"record {fault.record} at offset {fault.offset}: "
    what = f"{fault.kind.value}: {printable(located.path.name)}"
    return what, where + printable(fault.message)


def _splits(summary: DatasetSummary) -> Table:
    rows = []
    for name, split in summary.splits.items():
        sizes = sorted(shard.records for shard in split.shards)
        missing = f" of {len(sizes) + split.missing_shards:,}" if split.missing_shards else ""
        rows.append(
            (
                printable(name),
                f"{split.records:,}",
                f"{split.records / summary.records:.1%}" if summary.records else "-",
                f"{len(sizes):,}{missing}",
                " to ".join(dict.fromkeys(f"{size:,}" for size in sizes[:1] + sizes[-1:])) or "-",
                human_bytes(split.bytes),
                ", ".join(sorted({shard.shard.compression.value for shard in split.shards})),
            )
        )
    head = ("split", "records", "share", "shards", "in a shard", "size", "compressed")
    return Table(head=head, rows=rows, right=frozenset((1, 2, 3, 4, 5)))


def _labels(splits: Mapping[str, SplitSummary]) -> Table:
    """Show the labels' counts, a column for each split as long as there is room."""
    names = list(next(iter(splits.values())).labels)
    if len(names) > _LABELS_SHOWN:  # the most frequent and the rarest
        names.sort(key=lambda name: -sum(split.labels[name] for split in splits.values()))
        more = len(names) - _LABELS_SHOWN
        names = names[: _LABELS_SHOWN // 2] + names[-_LABELS_SHOWN // 2 :]
    else:
        more = 0
    columns = [[printable(name) for name in names]]
    head = ["label"]
    room = _WIDTH - 2 - max(map(len, names), default=0)
    for title, split in splits.items():
        labelled = max(split.records - split.unlabelled, 1)
        counts = [split.labels[name] for name in names]
        cells = [f"{count:,} ({count / labelled:.1%})" for count in counts]
        room -= 2 + max(map(len, (printable(title), *cells)))
        if room < 0 and len(head) > 1:
            head[0] = f"label ({len(head) - 1} of {len(splits)} splits)"
            break
        head.append(printable(title))
        columns.append(cells)
    rows = list(zip(*columns, strict=True))
    if more:
        rows.insert(_LABELS_SHOWN // 2, (f"... {more:,} more", *([""] * (len(head) - 1))))
    unlabelled = [split.unlabelled for split in splits.values()][: len(head) - 1]
    if any(unlabelled):
        rows.append(("(none)", *(f"{count:,}" for count in unlabelled)))
    return Table(head=head, rows=rows, right=frozenset(range(1, len(head))))


def _order(split: SplitSummary, found: ShuffleQuality) -> Iterator[tuple[str, str]]:
    yield "balance", printable(split.balance or "")
    if split.absent_labels:
        yield from _wrapped("absent", _listed(split.absent_labels))
    if (mix := split.mix_distance) is not None:
        words = "as chance has it" if mix.is_chance else "more than by chance"
        yield "mix", f"{_off(mix)} from all splits, {words}"
    good = found.order in (Order.SHUFFLED, Order.REGULAR)
    verdict, *advice = printable(found.shuffle).split("; ")
    yield "order", Toned(verdict, Tone.GOOD if good else Tone.BAD)
    for line in advice:
        yield "", line
    if found.order in (Order.ONE_LABEL, Order.TOO_FEW):
        return
    z = "" if found.runs_z is None else f" (z = {found.runs_z:.1f})"
    yield "runs", f"{found.runs:,} of one label; {found.expected_runs:,.0f} by chance{z}"
    longest = f"{found.longest_run:,}, of {printable(found.longest_run_label)}"
    yield "longest", f"{longest}; {found.expected_longest_run:,.1f} by chance"
    spread = f"{found.batch_spread:.2f} times as much as by chance"
    noise = f"(1 +/- {found.batch_spread_noise:.2f})"
    yield "batches", f"of {found.batch}: mixes vary {spread} {noise}"
    buffer = found.interleaved_shuffle_buffer
    if found.shuffle_buffer > 1 and buffer is not None:
        need = "no buffer is needed" if buffer == 1 else f"a buffer of {buffer:,} is needed"
        yield "", f"with the shards read in turn, {need}"
    mixes = [shard.mix_distance for shard in split.shards if shard.mix_distance is not None]
    if len(mixes) > 1:
        alike = "alike" if found.shards_are_alike else "not alike"
        worst = max(mixes, key=lambda mix: mix.mix_distance - mix.mix_distance_by_chance)
        yield "shards", f"{alike}: the farthest is {_off(worst)} from the whole"


def _off(mix: MixDistance) -> str:
    return f"{mix.mix_distance:.3f} ({mix.mix_distance_by_chance:.3f} by chance)"


def _shards(split: SplitSummary) -> Table:
    """Show the shards, with as many label columns as there is room for."""
    shards = split.shards[:_SHARDS_SHOWN]
    names = [printable(shard.shard.path.name) for shard in shards]
    same = len(os.path.commonprefix(names).rstrip("0123456789"))  # noqa: RUF071 - no paths
    if same > 3 and max(map(len, names)) > _LONG:
        names = [f"...{name[same:]}" for name in names]
    width = 2 + max(map(len, names)) + 2 + 9 + 2 + 6
    chosen: set[str] = set()
    for label in sorted(split.labels, key=lambda label: -split.labels[label]):
        width += 2 + max(len(printable(label)), 7)
        if width > _WIDTH or not split.labels[label]:
            break
        chosen.add(label)
    labels = [label for label in split.labels if label in chosen]
    rows = [
        (
            name,
            f"{shard.records:,}",
            "-" if shard.mix_distance is None else f"{shard.mix_distance.mix_distance:.3f}",
            *(f"{shard.labels.get(label, 0):,}" for label in labels),
        )
        for name, shard in zip(names, shards, strict=True)
    ]
    head = ("shard", "records", "off", *map(printable, labels))
    if len(split.shards) > len(shards):
        more = f"... {len(split.shards) - len(shards):,} more"
        rows.append((more, *("" for _ in head[1:])))
    return Table(head=head, rows=rows, right=frozenset(range(1, len(head))))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    text = ", ".join(map(printable, names[:_NAMES_SHOWN]))
    return f"{text} and {more:,} more" if more > 0 else text


def _wrapped(label: str, text: str) -> Sequence[tuple[str, str]]:
    lines = textwrap.wrap(text, _WIDTH - 14) or [""]
    return [(label if not number else "", line) for number, line in enumerate(lines)]
