"""``tfrtool repair``."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.output import Outcome, emit
from tfrtool.cli.parameters import OUTPUT_OR_URL, STREAMED, command, standard_input
from tfrtool.errors import human_bytes, human_count, printable
from tfrtool.page import Bad, Good, Heading, Page, Table, facts, shortened
from tfrtool.records.compression import Compression
from tfrtool.records.repair_options import RepairOptions

if TYPE_CHECKING:
    from tfrtool.records.repair import RepairReport

_SHOWN = 10


@command(
    "tfrtool repair damaged.tfrecord saved.tfrecord",
    "tfrtool repair foreign.tfrecord saved.tfrecord --accept-checksums zero",
    options=RepairOptions,
)
@click.argument("shard", metavar="SOURCE", type=STREAMED)
@click.argument("out", metavar="TARGET", type=OUTPUT_OR_URL)
def repair_command(shard: str, out: str, as_json: bool, **words: Any) -> Outcome:
    """Recover every intact record of a damaged shard into a new file.

    SOURCE is a shard, or - for standard input; it is never changed. A record is intact if both of
    its CRCs match. TARGET must not exist yet, and is verified before it appears.

    Other writers than TensorFlow may store other checksums: tfrtool verify names the style, and
    --accept-checksums recovers the records. The styles are:

    - zero: all checksums are zero
    - zero-payload: only those of payloads are zero
    - unmasked: CRC-32C without TensorFlow's mask
    - zlib: zlib's CRC-32, with or without the mask
    - big-endian: lengths and checksums are big-endian
    - missing: a length of 8 bytes precedes each payload

    With zero, zero-payload and missing, damaged payloads can't be detected.

    Exit code 3 means that something was lost, and 1 that there was nothing to recover.
    """
    from tfrtool.cli.output import Bars
    from tfrtool.records.repair import repair_shard
    from tfrtool.storage.json_values import to_json_values

    with Bars() as bars:
        source = standard_input() if shard == "-" else shard
        report = repair_shard(source, out, on_progress=bars, **words)
    data = to_json_values(report)
    if report.accepted_checksums is None:
        del data["accepted_checksums"]
    emit({"path": data.pop("shard"), **data} if as_json else _page(report))
    return Outcome.FINE if report.is_whole else Outcome.DAMAGE


def _page(report: "RepairReport") -> Page:
    """Return what ``repair`` shows."""
    packed = "" if report.compression is Compression.NONE else f", {report.compression.value}"
    saved = f"{human_count(report.records, 'record')}{packed}, read back and compared"
    lost: str = Good("nothing")
    if not report.is_whole:
        size, places = human_bytes(report.lost_bytes), human_count(report.lost_count, "place")
        lost = Bad(f"{size} in {places}, {human_count(report.fault_count, 'fault')}")
    page: list[str | Table] = [
        Heading(printable(str(report.out))),
        facts(("recovered", saved), ("lost", lost), *_accepted(report)),
    ]
    ranges = [
        (f"{part.bytes:,}", f"{part.offset:,}", f"{part.offset + part.bytes:,}")
        for part in report.lost[:_SHOWN]
    ]
    if ranges:
        head = ("lost bytes", "start", "end")
        page.append(Table(head=head, rows=ranges, right=(0, 1, 2)))
    titles = [fault.title for fault in report.faults]
    return [*page, *shortened(titles, _SHOWN, max(report.lost_count, report.fault_count))]


def _accepted(report: "RepairReport") -> Iterator[tuple[str, str]]:
    """Yield what was accepted as checksums, and what that means."""
    style = report.accepted_checksums
    if style is not None:
        proof = "valid in every recovered record"
        if not style.checks_payloads:
            proof = "damage inside payloads can't be detected"
        yield "checksums", f"{style.value} in the source; {proof}"
