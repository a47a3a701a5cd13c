"""``tfrtool extract``."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.output import Outcome, emit, warn
from tfrtool.cli.parameters import OUTPUT, STREAMED, command, resolve_shards
from tfrtool.declare import Options, option
from tfrtool.errors import UsageError, human_bytes, human_count, named_record, printable
from tfrtool.inspection.inspect_options import ExtractOptions
from tfrtool.page import Bad, Heading, Page, Table, facts, shortened

if TYPE_CHECKING:
    from tfrtool.inspection.extract.extract import ExtractReport
    from tfrtool.inspection.extract.record_file import RecordFile

_FOLDERS_SHOWN = 12
_LISTED = 5


@dataclass(frozen=True, kw_only=True)
class _RecordFileOptions(Options):
    record: int | None = option(
        None,
        "Extract only the record with this number, from 0, to --out.",
        metavar="N",
        least=0,
    )
    out: str | None = option(
        None,
        "File for the image of --record, in place of TARGET.",
        metavar="FILE",
        path="local output",
    )


@command(
    "tfrtool extract shards/pets photos",
    "tfrtool extract train.tfrecord --record 3 --out three.jpg",
    "tfrtool extract 'data/*.tfrecord*' masks --feature image/mask --flat",
    "tfrtool extract street street-voc --annotations voc",
    options=(ExtractOptions, _RecordFileOptions),
)
@click.argument("shards", nargs=-1, type=STREAMED, metavar="SHARDS...")
@click.argument("directory", type=OUTPUT, metavar="TARGET", required=False)
def extract_command(
    shards: tuple[str, ...],
    directory: str | None,
    record: int | None,
    out: str | None,
    as_json: bool,
    **choices: Any,
) -> Outcome:
    """Extract images from TFRecord files, byte for byte.

    SHARDS are files, quoted globs and directories. TARGET must be empty or new; it gets a folder
    per class, with files named as in the records. TARGET.jsonl gets the other features, one line
    per record. To extract a single image, use --record and --out without TARGET.

    Exit code 3 means that a record was damaged or had nothing to extract, or that objects couldn't
    be exported unchanged.
    """
    from tfrtool.cli.output import Bars
    from tfrtool.inspection.extract.extract import extract

    if record is not None or out is not None:
        sources = (*shards, directory) if directory is not None else ()
        return _extract_record(sources, record, out, as_json, choices)
    if directory is None or not shards:
        raise UsageError("missing SHARDS or TARGET")
    with Bars() as bars:
        report = extract(resolve_shards(shards), directory, **choices, on_progress=bars)
    emit(report.to_json() if as_json else _page(report))
    return Outcome.FINE if report.complete else Outcome.DAMAGE


def _extract_record(
    sources: tuple[str, ...],
    record: int | None,
    out: str | None,
    as_json: bool,
    choices: Mapping[str, Any],
) -> Outcome:
    """Write the image of one record to a file."""
    from tfrtool.inspection.extract.record_file import extract_record
    from tfrtool.storage.json_values import to_json_values

    if record is None or out is None:
        raise UsageError("--record and --out must be used together")
    file = extract_record(resolve_shards(sources), record, Path(out), ExtractOptions(**choices))
    emit(to_json_values(file) if as_json else _file_page(file))
    if file.usual_suffix is not None:
        warn(f"{printable(out)} contains {file.content}; the usual suffix is {file.usual_suffix}")
    return Outcome.FINE


def _file_page(file: "RecordFile") -> Page:
    return [
        Heading(printable(str(file.file))),
        facts(
            ("content", f"{file.content}, {human_bytes(file.bytes)}"),
            ("from", f"feature {printable(file.feature)!r} of record {file.record}"),
        ),
    ]


def _about(report: "ExtractReport") -> list[tuple[str, str]]:
    """Return what was written, and by which features files are named and sorted."""
    by, names = f"by feature {report.by!r}", f"from feature {report.name!r}"
    if report.by is None:
        by = "none" if set(report.classes) == {"."} else "from the file names"
    if report.label_guess is not None:
        by = f"none; if {report.label_guess!r} is the label, use --by {report.label_guess}"
    if report.name is None:
        names = "from shard names and record numbers"
    about = [
        ("files", f"{report.files:,} from feature {report.feature!r}"),
        ("size", human_bytes(report.bytes)),
        ("folders", by),
        ("names", names),
        ("metadata", f"{printable(str(report.metadata))}, one line per record"),
    ]
    if report.unlabelled:
        about.append(
            ("unlabelled", f"{human_count(report.unlabelled, 'file')}, not in a class folder")
        )
    objects = report.annotations
    if objects is not None:
        of = human_count(objects.objects, "object")
        about.append(("objects", f"{objects.written:,} of {of} in {objects.format} files"))
        about.append(("annotations", ", ".join(map(printable, objects.files))))
    if objects is not None and objects.lost:
        lost = ", ".join(f"{what} ({some:,})" for what, some in objects.lost.items())
        about.append(("unsupported", lost))
    if objects is not None and objects.renumbered:
        about.append(("renumbered", f"{objects.renumbered:,} duplicate ids"))
    return about


def _page(report: "ExtractReport") -> Page:
    """Return what ``extract`` prints."""
    objects = report.annotations
    rows = [
        ("(top level)" if name == "." else printable(f"{name}/"), f"{count:,}")
        for name, count in report.classes.items()
    ]
    more = len(rows) - _FOLDERS_SHOWN
    if more > 0:
        rest = sum([*report.classes.values()][_FOLDERS_SHOWN:])
        rows[_FOLDERS_SHOWN:] = [(f"... and {human_count(more, 'more folder')}", f"{rest:,}")]
    page: list[str | Table] = [
        Heading(printable(str(report.directory))),
        facts(*_about(report)),
        Table(head=("folder", "files"), rows=rows, right=(1,)),
    ]
    if report.renamed:
        renamed = [f"{one.recorded} -> {printable(one.file)}" for one in report.renamed]
        page.append(Heading(f"renamed: {report.renamed_count:,}"))
        page += shortened(renamed, _LISTED, report.renamed_count)
    if report.skipped:
        page.append(Heading(Bad(f"skipped: {human_count(report.skipped_count, 'record')}")))
        first = {one.reason: one for one in reversed(report.skipped)}
        for reason, count in Counter(one.reason for one in report.skipped).most_common(_LISTED):
            where = printable(named_record(first[reason].shard.name, first[reason].record))
            page.append(f"{reason}: {where}" + (f", first of {count:,}" * (count > 1)))
    if objects is not None and objects.listed:
        page.append(Heading(Bad(f"not written: {human_count(objects.listed_count, 'object')}")))
        page += shortened([*map(printable, objects.listed)], _LISTED, objects.listed_count)
    if objects is not None and objects.problems:
        page.append(Heading(Bad(f"annotations: {human_count(objects.problem_count, 'problem')}")))
        page += shortened([*map(printable, objects.problems)], _LISTED, objects.problem_count)
    if report.faults:
        page.append(Heading(Bad(f"damaged: {human_count(report.fault_count, 'fault')}")))
        page += shortened(list(map(str, report.faults)), _LISTED, report.fault_count)
    return page
