"""What verification found as text for people, in 80 columns."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from tfrtool.cli.output import human_bytes
from tfrtool.cli.render.page import (
    Block,
    Facts,
    Heading,
    Lines,
    Page,
    Tone,
    Toned,
    findings,
    shortened,
)
from tfrtool.errors import human_count, printable
from tfrtool.examples.example import PayloadKind
from tfrtool.inspection.verify.duplicates import Duplicates
from tfrtool.inspection.verify.image_check import ImageFindings
from tfrtool.inspection.verify.verify import VerifyReport
from tfrtool.inspection.verify.verify_shard import ShardVerdict
from tfrtool.records.framing import FaultKind

_WIDTH = 78  # a block of lines stands two columns in
_SHARDS_SHOWN = 20
_FAULTS_SHOWN = 5
_GROUPS_SHOWN = 5
_COPIES_SHOWN = 4


def verify_page(report: VerifyReport) -> Page:
    """Return what ``verify`` shows: what is wrong, what is worth to be known, and the sum."""
    page: list[Block] = []
    wrong = [shard for shard in report.shards if not shard.is_whole]
    for shard in wrong[:_SHARDS_SHOWN]:
        page += [Heading(printable(str(shard.path))), Lines(_shard(shard))]
    if len(wrong) > _SHARDS_SHOWN:
        more = human_count(len(wrong) - _SHARDS_SHOWN, "shard")
        page.append(Lines([f"... and faults in {more} more; --json lists them all"]))
    if report.faults:
        found = [
            (f"{fault.kind.value}  {printable(str(fault.path))}", printable(fault.message))
            for fault in report.faults
        ]
        page += [Heading("all shards together"), findings(found)]
    if report.duplicates is not None and report.duplicates.groups:
        page += _duplicates(report.duplicates)
    if report.notes:
        lines = [line for note in report.notes for line in _wrapped(printable(note), "- ")]
        page += [Heading("notes"), Lines(lines)]
    verdict: str = Toned("all is well", Tone.GOOD)
    if not report.is_sound:
        verdict = human_count(report.n_faults, "fault")
        if report.unreadable:
            verdict += f", {human_count(len(report.unreadable), 'shard')} can't be read"
        verdict = Toned(verdict, Tone.BAD)
    return [*page, Heading(verdict), Facts(list(_sums(report)))]


def _shard(verdict: ShardVerdict) -> list[str]:
    shown = verdict.faults[:_FAULTS_SHOWN]
    found = [(fault.title, printable(fault.message)) for fault in shown]
    lines = [*findings(found, verdict.n_faults - len(shown)).lines]
    if verdict.error is not None:
        lines.insert(0, Toned(printable(verdict.error), Tone.BAD))
    for cause in dict.fromkeys(fault.cause for fault in shown if fault.cause is not None):
        lines += _wrapped(printable(cause), "likely: ")
    return lines


def _duplicates(duplicates: Duplicates) -> list[Block]:
    counts = [
        (duplicates.across_splits, "in more than one split"),
        (duplicates.across_labels, "with contradicting labels"),
        (duplicates.within, "within one split and label"),
    ]
    title = ", ".join(f"{count:,} {what}" for count, what in counts if count)
    lines: list[str] = []
    for group in duplicates.groups[:_GROUPS_SHOWN]:
        for sign, copy in zip(" ===", group.copies, strict=False):
            facts = ", ".join(printable(f) for f in (copy.split, copy.label, copy.name) if f)
            text = f"{sign} {printable(copy.path.name)} record {copy.record}"
            text += f" ({facts})" if facts else ""
            lines.append(Toned(text, Tone.BAD) if group.is_fault else text)
        if group.count > _COPIES_SHOWN:
            lines.append(f"= {group.count - _COPIES_SHOWN:,} more")
    more = duplicates.spoiled + duplicates.within - _GROUPS_SHOWN
    lines = shortened(lines, len(lines), len(lines) + more)
    return [Heading(f"the same image again: {title}"), Lines(lines)]


def _sums(report: VerifyReport) -> Iterator[tuple[str, str]]:
    yield "read", f"{human_count(len(report.shards), 'shard')}, {human_bytes(report.bytes)}"
    lost = any(shard.lost for shard in report.shards)
    text = human_count(report.records, "whole record" if lost else "record")
    yield "records", f"{text}; the CRCs of lengths and payloads hold" if report.records else text
    kinds = Counter[PayloadKind]()
    for shard in report.shards:
        kinds[shard.payload] += shard.records
    if +kinds:
        unfit = any(f.kind is FaultKind.PARSE for s in report.shards for f in s.faults)
        word = "in shards of" if unfit else "as"
        parsed = (f"{count:,} {word} {kind.title}" for kind, count in (+kinds).items())
        yield "parsed", ", ".join(parsed)
    for found in report.directories:
        if found.info is not None and found.info.splits:
            splits = ", ".join(
                f"{printable(split.name)} {split.records:,}" for split in found.info.splits
            )
            yield "metadata", f"dataset_info.json says {splits}"
    if report.duplicates is not None:
        images = [shard.images for shard in report.shards if shard.images is not None]
        yield "images", _image_sum(images, any_duplicates=bool(report.duplicates.groups))


def _image_sum(found: Sequence[ImageFindings], *, any_duplicates: bool) -> str:
    encoded, pixels = sum(i.encoded for i in found), sum(i.pixels for i in found)
    if not encoded and not pixels:
        return "none found"
    faults = sum(i.n_faults for i in found)
    what = f"looked at, {faults:,} of them broken" if faults else "decoded"
    parts = [f"{encoded:,} {what}"] if encoded else []
    counts = sum((Counter(i.features) for i in found), Counter[str]())
    if len(counts) > 1:
        parts += [f"{count:,} in {printable(name)!r}" for name, count in counts.most_common(8)]
    parts += [f"{pixels:,} of bare pixels"] if pixels else []
    parts += [] if any_duplicates else ["no two are the same"]
    return ", ".join(parts)


def _wrapped(text: str, first: str = "") -> list[str]:
    """Return lines of at most `_WIDTH` columns, which start where the first one does."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
