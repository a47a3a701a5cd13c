"""What a dataset holds, as a page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from tfrtool.cli.output import human_bytes, human_count
from tfrtool.cli.render.page import Block, Facts, Heading, Lines, Page, Table, Tone, Toned
from tfrtool.errors import printable
from tfrtool.examples.example import PayloadKind
from tfrtool.inspection.dataset.dataset_layout import LocatedFault
from tfrtool.inspection.dataset.dataset_summary import DatasetSummary, SplitSummary
from tfrtool.inspection.dataset.shuffle import Order, ShuffleQuality, describe_balance

__all__ = ["dataset_page"]

_WIDTH = 80
_FAULTS_SHOWN = 10
_LABELS_SHOWN = 20
_SHARDS_SHOWN = 16
_NAMES_SHOWN = 8
_LONG = 24
"""Columns from which on a shard's name is shown without what all of them begin with."""

_PAYLOADS = {
    PayloadKind.EXAMPLE: "tf.train.Example",
    PayloadKind.SEQUENCE_EXAMPLE: "tf.train.SequenceExample",
    PayloadKind.EVENT: "TensorBoard events",
    PayloadKind.UNKNOWN: "neither Example nor SequenceExample",
    PayloadKind.EMPTY: "nothing",
}


def dataset_page(summary: DatasetSummary) -> Page:
    """Return what ``inspect dataset`` shows of a dataset."""
    page: list[Block] = [Heading(printable(str(summary.directory))), _head(summary)]
    if summary.faults:
        page.append(_faults(summary))
    if summary.splits:
        page.append(_splits(summary))
    if any(split.labels for split in summary.splits):
        page.append(_labels(summary))
    for split in summary.splits:
        if split.shuffle is not None:
            page += _order(split, split.shuffle)
    return page


def _head(summary: DatasetSummary) -> Facts:
    shards = sum(len(split.shards) for split in summary.splits)
    size = human_bytes(sum(split.bytes for split in summary.splits))
    version = "" if summary.version is None else f" {printable(summary.version)}"
    rows = [
        ("name", printable(summary.name) + version),
        ("records", f"{summary.records:,} in {human_count(shards, 'shard')}, {size}"),
        ("payload", _PAYLOADS[summary.payload]),
        *_wrapped("label", _label(summary)),
        *_wrapped("metadata", _metadata(summary)),
    ]
    for note in summary.notes:
        rows += _wrapped("taken", note)
    return Facts(rows)


def _label(summary: DatasetSummary) -> str:
    if summary.label is None:
        found = [printable(name) for name in summary.candidates[:_NAMES_SHOWN]]
        if not found:
            return "none"
        more = ", ..." if len(summary.candidates) > _NAMES_SHOWN else ""
        return f"not clear which; name it with --label: {', '.join(found)}{more}"
    name = printable(summary.label)
    if summary.distinct is None:
        return f"{name}; too many different values for a label, so that no order is told"
    text = f"{name}, {human_count(summary.distinct, 'class').replace('classs', 'classes')}"
    labelled = sum(s.shuffle.records for s in summary.splits if s.shuffle is not None)
    if summary.distinct > 10 and summary.distinct > labelled / 2:
        text += ": most records have one of their own; is it a label? --label names another"
    return text


def _metadata(summary: DatasetSummary) -> str:
    if not summary.described:
        return "none; counts and shards can't be checked against it"
    return "see the faults" if summary.faults else "agrees with all counts and shards"


def _faults(summary: DatasetSummary) -> Lines:
    lines: list[str] = []
    for located in summary.faults[:_FAULTS_SHOWN]:
        lines += _fault_lines(located)
    more = len(summary.faults) - _FAULTS_SHOWN + summary.more_faults
    if more > 0:
        lines.append(f"... and {human_count(more, 'fault')} more; --json lists them")
    return Lines(lines)


def _fault_lines(located: LocatedFault) -> Iterator[str]:
    fault = located.fault
    where = "" if fault.record is None else f"record {fault.record} at offset {fault.offset}: "
    yield Toned(f"{fault.kind.value}: {printable(located.path.name)}", Tone.BAD)
    for line in textwrap.wrap(where + printable(fault.message), _WIDTH - 6):
        yield f"    {line}"


def _splits(summary: DatasetSummary) -> Table:
    rows = []
    for split in summary.splits:
        share = f"{split.records / summary.records:.1%}" if summary.records else "-"
        sizes = [shard.records for shard in split.shards]
        spread = "-" if not sizes else _range(min(sizes), max(sizes))
        kinds = sorted({shard.shard.compression.value for shard in split.shards})
        missing = f" of {len(split.shards) + split.missing:,}" if split.missing else ""
        rows.append(
            (
                printable(split.name),
                f"{split.records:,}",
                share,
                f"{len(split.shards):,}{missing}",
                spread,
                human_bytes(split.bytes),
                ", ".join(kinds),
            )
        )
    head = ("split", "records", "share", "shards", "in a shard", "size", "compressed")
    return Table(head=head, rows=rows, right=frozenset((1, 2, 3, 4, 5)))


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _labels(summary: DatasetSummary) -> Table:
    """Show the labels' counts, a column for each split as long as there is room."""
    names = list(summary.splits[0].labels)
    total = {name: sum(split.labels[name] for split in summary.splits) for name in names}
    if len(names) > _LABELS_SHOWN:  # the most frequent and the rarest
        ranked = sorted(names, key=lambda name: -total[name])
        half = _LABELS_SHOWN // 2
        shown: list[str | None] = [*ranked[:half], None, *ranked[-half:]]
    else:
        shown = list(names)
    splits = _fitting(summary, [name for name in shown if name is not None])
    rows = []
    for name in shown:
        if name is None:
            rows.append((f"... {len(names) - _LABELS_SHOWN:,} more", *("" for _ in splits)))
        else:
            rows.append((printable(name), *(_share(split, name) for split in splits)))
    if any(split.unlabelled for split in splits):
        rows.append(("(none)", *(f"{split.unlabelled:,}" for split in splits)))
    head = ("label", *(printable(split.name) for split in splits))
    if len(splits) < len(summary.splits):
        head = (f"label ({len(splits)} of {len(summary.splits)} splits)", *head[1:])
    return Table(head=head, rows=rows, right=frozenset(range(1, len(head))))


def _fitting(summary: DatasetSummary, names: Sequence[str]) -> Sequence[SplitSummary]:
    """Return the first splits whose columns fit beside those of the labels."""
    room = _WIDTH - 2 - max(map(len, names), default=0)
    for number, split in enumerate(summary.splits):
        cells = [_share(split, name) for name in names]
        room -= 2 + max(len(printable(split.name)), *map(len, cells))
        if room < 0:
            return summary.splits[: max(number, 1)]
    return summary.splits


def _share(split: SplitSummary, name: str) -> str:
    count, labelled = split.labels[name], split.records - split.unlabelled
    return f"{count:,} ({count / labelled:.1%})" if labelled > 0 else f"{count:,}"


def _order(split: SplitSummary, quality: ShuffleQuality) -> list[Block]:
    good = quality.order in (Order.SHUFFLED, Order.REGULAR)
    verdict = printable(quality.verdict).split("; ")
    rows = [("balance", printable(describe_balance(split.labels)))]
    if split.absent:
        named = [printable(name) for name in split.absent[:_NAMES_SHOWN]]
        more = len(split.absent) - len(named)
        text = ", ".join(named) + (f" and {more:,} more" if more else "")
        rows += _wrapped("absent", text)
    if split.mix is not None:
        mix = split.mix
        words = "as chance has it" if mix.is_chance else "more than by chance"
        rows.append(
            ("mix", f"{mix.distance:.3f} from all splits, {words} ({mix.chance:.3f} on average)")
        )
    rows.append(("order", Toned(verdict[0], Tone.GOOD if good else Tone.BAD)))
    rows += [("", line) for line in verdict[1:]]
    if quality.order not in (Order.ONE_LABEL, Order.TOO_FEW):
        rows += _numbers(split, quality)
    blocks: list[Block] = [Heading(f"{printable(split.name)}"), Facts(rows)]
    if len(split.shards) > 1:
        blocks.append(_shards(split))
    return blocks


def _numbers(split: SplitSummary, quality: ShuffleQuality) -> Iterator[tuple[str, str]]:
    z = "" if quality.runs_z is None else f" (z = {quality.runs_z:.1f})"
    yield "runs", f"{quality.runs:,} of one label; {quality.expected_runs:,.0f} by chance{z}"
    longest = f"{quality.longest_run:,}, of {printable(split.longest_label or '')}"
    yield "longest", f"{longest}; {quality.expected_longest_run:,.1f} by chance"
    times = f"{quality.batch_spread:.2f} times as much as by chance"
    yield (
        "batches",
        f"of {quality.batch}: mixes vary {times} (1 +/- {quality.batch_noise:.2f})",
    )
    if quality.buffer > 1 and quality.interleaved_buffer is not None:
        buffer = quality.interleaved_buffer
        need = "no buffer is needed" if buffer == 1 else f"a buffer of {buffer:,} is needed"
        yield "", f"with the shards read in turn, {need}"
    if quality.shard_spread is not None:
        mixes = [shard.mix for shard in split.shards if shard.mix is not None]
        worst = max(mixes, key=lambda mix: mix.distance - mix.chance)
        words = "alike" if quality.shards_are_alike else "not alike"
        yield (
            "shards",
            f"{words}: mixes vary {quality.shard_spread:.2f} times as much as by chance "
            f"(1 +/- {quality.shard_noise:.2f})",
        )
        yield (
            "",
            f"the farthest is {worst.distance:.3f} from the whole; {worst.chance:.3f} by chance",
        )


def _shards(split: SplitSummary) -> Table:
    """Show the shards, with as many label columns as there is room for."""
    shards = split.shards[:_SHARDS_SHOWN]
    names = [printable(shard.shard.path.name) for shard in shards]
    if max(map(len, names)) > _LONG:  # what all of them begin with need not be said again
        same = next((n for n, c in enumerate(zip(*names, strict=False)) if len(set(c)) > 1), 0)
        same = len(names[0][:same].rstrip("0123456789"))
        names = [f"...{name[same:]}" for name in names] if same > 3 else names
    width = 2 + max(map(len, names)) + 2 + 9 + 2 + 6
    frequent = sorted(split.labels, key=lambda label: -split.labels[label])
    chosen: set[str] = set()
    for label in frequent:
        width += 2 + max(len(printable(label)), 7)
        if width > _WIDTH or not split.labels[label]:
            break
        chosen.add(label)
    labels = [label for label in split.labels if label in chosen]
    rows = [
        (
            name,
            f"{shard.records:,}",
            "-" if shard.mix is None else f"{shard.mix.distance:.3f}",
            *(f"{shard.labels.get(label, 0):,}" for label in labels),
        )
        for name, shard in zip(names, shards, strict=True)
    ]
    head = ("shard", "records", "off", *(printable(label) for label in labels))
    if len(split.shards) > len(shards):
        more = f"... {len(split.shards) - len(shards):,} more"
        rows.append((more, *("" for _ in head[1:])))
    return Table(head=head, rows=rows, right=frozenset(range(1, len(head))))


def _wrapped(label: str, text: str) -> Sequence[tuple[str, str]]:
    lines = textwrap.wrap(text, _WIDTH - 14) or [""]
    return [(label if not number else "", line) for number, line in enumerate(lines)]
