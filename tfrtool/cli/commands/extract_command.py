"""``tfrtool extract``."""

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.output import Outcome, emit
from tfrtool.cli.parameters import OUTPUT, SHARDS, command, resolve_shards
from tfrtool.errors import human_bytes, human_count, printable
from tfrtool.inspection.inspect_options import ExtractOptions
from tfrtool.page import Bad, Heading, Page, Table, facts, shortened

if TYPE_CHECKING:
    from tfrtool.inspection.extract.extract import ExtractReport

_FOLDERS_SHOWN = 12
_LISTED = 5


@command(
    "tfrtool extract shards/pets photos",
    "tfrtool extract 'data/*.tfrecord*' masks --feature image/mask --flat",
    "tfrtool extract street street-voc --annotations voc",
    options=ExtractOptions,
)
@SHARDS
@click.argument("directory", type=OUTPUT, metavar="TARGET")
def extract_command(
    shards: tuple[str, ...], directory: str, as_json: bool, **choices: Any
) -> Outcome:
    """Extract images from TFRecord files, byte for byte.

    SHARDS are files, quoted globs and directories. TARGET must be empty or new; it gets a folder
    per class, with files named as in the records. TARGET.jsonl gets the other features, one line
    per record.

    Exit code 3 means that a record was damaged or had nothing to extract, or that objects couldn't
    be exported unchanged.
    """
    from tfrtool.cli.bars import Bars
    from tfrtool.inspection.extract.extract import extract

    with Bars() as bars:
        report = extract(resolve_shards(shards), directory, **choices, on_progress=bars)
    emit(report.to_json() if as_json else _page(report))
    return Outcome.FINE if report.complete else Outcome.DAMAGE


def _page(report: "ExtractReport") -> Page:
    """Return what ``extract`` prints."""
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
        facts(*about),
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
            where = f"record {first[reason].record} of {printable(first[reason].shard.name)}"
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
