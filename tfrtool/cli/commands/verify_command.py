"""``tfrtool verify``."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.output import Bars, Outcome, emit
from tfrtool.cli.parameters import STREAMED, command, description_options, standard_input
from tfrtool.errors import ShardError, human_bytes, human_count, named_record, printable
from tfrtool.inspection.inspect_options import VerifyOptions
from tfrtool.page import Bad, Good, Heading, Page, Prose, Table, facts, findings, shortened
from tfrtool.records.framing import HEADER_SIZE, FaultKind

if TYPE_CHECKING:
    from tfrtool.examples.example import PayloadKind
    from tfrtool.inspection.profile import ShardProfile
    from tfrtool.inspection.verify.duplicates import Duplicates
    from tfrtool.inspection.verify.image_check import ImageFindings
    from tfrtool.inspection.verify.schema_check import Anomaly
    from tfrtool.inspection.verify.verify import VerifyReport
    from tfrtool.records.framing import Fault

_SHARDS_SHOWN = 20
_FAULTS_SHOWN = 5
_GROUPS_SHOWN = 5
_COPIES_SHOWN = 4
_PLACES_SHOWN = 5


@command(
    "tfrtool verify data/cats_vs_dogs/4.0.1",
    "tfrtool verify 'data/train-*.tfrecord' --workers 8",
    "tfrtool verify data/cats_vs_dogs/4.0.1 --images --json",
    "tfrtool verify 'data/train-*.tfrecord' --schema schema.json",
    options=VerifyOptions,
)
@click.argument("shards", nargs=-1, required=True, type=STREAMED, metavar="SHARDS|DATASET...")
def verify_command(shards: tuple[str, ...], images: bool, as_json: bool, **words: Any) -> Outcome:
    """Check every record, and that no shard is missing.

    SHARDS are files, quoted globs and directories, or - for a shard on standard input. DATASET is
    a dataset directory. The checks:

    - CRCs of all lengths and payloads
    - truncation and trailing bytes
    - whether every record parses
    - missing, extra and duplicate shards in directories
    - the counts in dataset_info.json
    - whether records match features.json

    Each fault is listed with its likely cause, if there is one, and with the number N of
    TensorFlow's "corrupted record at N".

    Exit code 3 means that a fault was found. With --images, an image that appears in two splits or
    with two labels is a fault; other duplicates are only reported.
    """
    from tfrtool.inspection.verify.verify import verify

    source = standard_input() if shards == ("-",) else shards
    with Bars() as bars, description_options():
        report = verify(source, images=images, on_progress=bars, **words)
    for verdict in report.shards if as_json else ():
        emit(verdict.to_json())
    emit(report.to_json() if as_json else _page(report))
    if report.unreadable:
        first = report.unreadable[0]
        raise ShardError(first.error or "", path=first.path)
    return Outcome.FINE if report.is_sound else Outcome.DAMAGE


def _page(report: "VerifyReport") -> Page:
    """Return what ``verify`` shows: what is wrong, what is worth to be known, and the sum."""
    from tfrtool.inspection.verify.feature_faults import FeatureFault

    page: list[str | Table] = []
    wrong = [shard for shard in report.shards if not shard.is_whole]
    for shard in wrong[:_SHARDS_SHOWN]:
        page += [Heading(printable(str(shard.path))), *_shard(shard)]
    if len(wrong) > _SHARDS_SHOWN:
        more = human_count(len(wrong) - _SHARDS_SHOWN, "more shard")
        page.append(Heading(f"... and {more} with faults; use --json to list all"))
    across, different = list[tuple[str, str]](), list[tuple[str, str]]()
    for fault in report.faults:
        if isinstance(fault, FeatureFault):
            different.append((printable(fault.title), printable(fault.message)))
        else:
            about = f"{fault.kind.value}  {printable(str(fault.path))}"
            across.append((about, printable(fault.message)))
    for title, lines in (("across shards", across), ("different from features.json", different)):
        page += [Heading(title), *findings(lines)] if lines else []
    if report.duplicates is not None and report.duplicates.groups:
        page += _duplicates(report.duplicates)
    if report.anomalies:
        found = [
            (f"{one.anomaly}  {printable(one.feature)}", f"{printable(one.message)}{_places(one)}")
            for one in report.anomalies
        ]
        page += [Heading("different from the schema"), *findings(found)]
    if report.notes:
        page += [Heading("notes"), *(Prose(printable(note), "- ") for note in report.notes)]
    verdict: str = Good("no faults found")
    if not report.is_sound:
        verdict = human_count(report.n_faults, "fault")
        if report.unreadable:
            verdict += f", {human_count(len(report.unreadable), 'shard')} can't be read"
        verdict = Bad(verdict)
    return [*page, Heading(verdict), facts(*_sums(report))]


def _places(anomaly: "Anomaly") -> str:
    """Return in which records an anomaly is."""
    if anomaly.count is None:
        return ""
    path = anomaly.records[0].path
    shown = [str(place.record) for place in anomaly.records[:_PLACES_SHOWN] if place.path == path]
    more = anomaly.count - len(shown)
    text = f"; records {', '.join(shown)} of {printable(path.name)}"
    if len(shown) == 1:
        text = f"; {printable(named_record(path.name, int(shown[0])))}"
    return text + (f" and {more:,} more" if more else "")


def _shard(verdict: "ShardProfile") -> Iterator[str]:
    if verdict.error is not None:
        yield Bad(printable(verdict.error))
    shown = verdict.faults[:_FAULTS_SHOWN]
    found = [(_title(fault), printable(fault.message)) for fault in shown]
    yield from findings(found, verdict.n_faults)
    for cause in dict.fromkeys(fault.cause for fault in shown if fault.cause is not None):
        yield Prose(printable(cause), "likely: ")


def _title(fault: "Fault") -> str:
    """Return where a fault is, with the number in TensorFlow's message, which is the part's."""
    starts = {FaultKind.LENGTH_CRC: 0, FaultKind.PAYLOAD_CRC: HEADER_SIZE}
    if fault.kind not in starts:
        return fault.title
    return f"{fault.title}; TensorFlow: corrupted record at {fault.offset + starts[fault.kind]}"


def _duplicates(duplicates: "Duplicates") -> list[str]:
    counts = [
        (duplicates.across_splits, "in more than one split"),
        (duplicates.across_labels, "with conflicting labels"),
        (duplicates.within, "within one split and label"),
    ]
    title = ", ".join(f"{count:,} {what}" for count, what in counts if count)
    lines: list[str] = [Heading(f"duplicate images: {title}")]
    for group in duplicates.groups[:_GROUPS_SHOWN]:
        for sign, copy in zip(" ===", group.copies, strict=False):
            about = ", ".join(printable(f) for f in (copy.split, copy.label, copy.name) if f)
            text = f"{sign} {printable(named_record(copy.path.name, copy.record))}"
            text += f" ({about})" if about else ""
            lines.append(Bad(text) if group.is_fault else text)
        if group.count > _COPIES_SHOWN:
            lines.append(f"= and {group.count - _COPIES_SHOWN:,} more")
    more = duplicates.spoiled + duplicates.within - _GROUPS_SHOWN
    return shortened(lines, len(lines), len(lines) + more)


def _sums(report: "VerifyReport") -> Iterator[tuple[str, str]]:
    read = len(report.shards) - len(report.unreadable)
    yield "read", f"{human_count(read, 'shard')}, {human_bytes(report.bytes)}"
    text = f"{report.records:,}"
    if any(map(_is_damaged, report.shards)):
        text += " intact"
        if lost := sum(shard.lost for shard in report.shards):
            text += f", {lost:,} damaged"
    elif report.records:
        text += ", all checksums (CRCs) match"
    yield "records", text
    kinds: Counter[PayloadKind] = Counter()
    for shard in report.shards:
        kinds[shard.payload] += shard.records
    if +kinds:
        unfit = any(f.kind is FaultKind.PARSE for s in report.shards for f in s.faults)
        text = ", ".join(f"{kind.title} ({count:,})" for kind, count in (+kinds).items())
        yield "payloads", text + ("; exceptions are listed above" if unfit else "")
    for info in (found.info for found in report.directories):
        if info is not None and info.splits:
            splits = (f"{printable(split.name)} {split.records:,}" for split in info.splits)
            yield "metadata", f"dataset_info.json lists {', '.join(splits)}"
    if report.features_checked and not any(
        fault.kind is FaultKind.SCHEMA for fault in report.faults
    ):
        yield "features", f"{human_count(report.features_checked, 'record')} match features.json"
    if report.duplicates is not None:
        images = [shard.images for shard in report.shards if shard.images is not None]
        yield "images", _image_sum(images, any_duplicates=bool(report.duplicates.groups))


def _is_damaged(shard: "ShardProfile") -> bool:
    """Return whether anything is wrong with a shard but what intact records hold."""
    of_payloads = (FaultKind.PARSE, FaultKind.EMPTY)
    listed = any(fault.kind not in of_payloads for fault in shard.faults)
    return listed or bool(shard.error or shard.lost) or shard.n_faults > len(shard.faults)


def _image_sum(found: "Sequence[ImageFindings]", *, any_duplicates: bool) -> str:
    encoded, pixels = sum(i.encoded for i in found), sum(i.pixels for i in found)
    if not encoded and not pixels:
        return "none found"
    faults = sum(i.n_faults for i in found)
    what = f"checked, {faults:,} broken" if faults else "decoded"
    parts = [f"{encoded:,} {what}"] if encoded else []
    counts = sum((Counter(i.features) for i in found), Counter[str]())
    if len(counts) > 1:
        parts += [f"{count:,} in {printable(name)!r}" for name, count in counts.most_common(8)]
    parts += [f"{pixels:,} as raw pixels"] if pixels else []
    parts += [] if any_duplicates else ["no duplicates"]
    return ", ".join(parts)
