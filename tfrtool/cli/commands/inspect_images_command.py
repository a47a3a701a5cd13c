"""``tfrtool inspect images``."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from tfrtool.cli.output import Bars, Outcome, emit, warn, warn_of_letters
from tfrtool.cli.parameters import SHARDS, command, resolve_shards
from tfrtool.declare import Options, option
from tfrtool.errors import human_count, named_record, printable
from tfrtool.inspection.inspect_options import SheetOptions
from tfrtool.page import Bad, Good, Heading, Page, Table, facts, findings

if TYPE_CHECKING:
    from tfrtool.inspection.pictures.contact_sheet import SheetReport

_LISTED = 10


@dataclass(frozen=True, kw_only=True)
class _InspectImagesOptions(Options):
    out: str = option(
        ...,
        "Sheet to write; its suffix sets the format: .png, .jpg, .webp, .gif, .bmp or .tif.",
        metavar="FILE",
        path="output",
        group="Output",
    )


@command(
    "tfrtool inspect images train.tfrecord --out sheet.png",
    "tfrtool inspect images 'data/*.tfrecord*' --out sheet.jpg --limit 500",
    options=(SheetOptions, _InspectImagesOptions),
)
@SHARDS
def inspect_images_command(
    shards: tuple[str, ...], out: str, as_json: bool, **choices: Any
) -> Outcome:
    """Draw the images of TFRecord files on a contact sheet.

    SHARDS are files, quoted globs and directories. Images can be encoded, such as JPEG, or raw
    pixels whose height and width are in other features. An image that can't be shown is drawn as a
    red cross with the reason.

    Exit code 3 means that some images can't be shown.
    """
    from tfrtool.inspection.pictures.contact_sheet import contact_sheet
    from tfrtool.storage.json_values import to_json_values

    with Bars() as bars:
        report = contact_sheet(resolve_shards(shards), out, **choices, on_progress=bars)
    emit(to_json_values(report) if as_json else _page(report))
    for path in report.without:
        warn(f"{printable(str(path))}: no feature with images")
    for one in report.faults:
        warn(str(one))
    warn_of_letters(report.undrawn)
    if report.guessed:
        warn(
            f"guessed the size of {human_count(report.guessed, 'image')} from the number of bytes: "
            "no feature has height and width"
        )
    skipped = report.broken or report.faults or report.without
    return Outcome.DAMAGE if skipped else Outcome.FINE


def _page(report: "SheetReport") -> Page:
    layout, broken, many = report.layout, len(report.broken), len(report.shards) > 1
    names = dict.fromkeys(shard.feature for shard in report.shards if shard.feature is not None)
    sheet = f"{human_count(layout.columns, 'column')}, {human_count(layout.rows, 'row')}"
    about = facts(
        ("sheet", f"{layout.width:,} x {layout.height:,} pixels: {sheet}"),
        ("images", f"{layout.images - broken:,} from feature {_listed(names)}"),
        *(() if report.objects is None else (("objects", f"{report.objects:,} drawn"),)),
        ("broken", (Bad if broken else Good)(f"{broken:,}")),
    )
    page: list[str | Table] = [Heading(printable(str(report.out))), about]
    if many:
        rows = [
            (str(number), f"{shard.images:,}", printable(str(shard.path)))
            for number, shard in enumerate(report.shards)
            if shard.images
        ]
        head = ("shard", "images", "file")
        page.append(Table(head=head, rows=rows, right=(0, 1)))
    if report.other_features:
        others = _listed(report.other_features)
        page.append(f"images in {others} are not shown; use --feature to show them")
    if report.has_boxes and report.objects is None:
        page.append("objects in the images are not shown; use --boxes to draw them")
    found = []
    for item in report.broken:
        record = "a record" if item.record is None else f"record {item.record}"
        if many:
            path = printable(str(item.path))
            record = f"{path}: {record}" if item.record is None else named_record(path, item.record)
        found.append((f"{record} at offset {item.offset}", printable(item.reason)))
    return [*page, *findings(found)]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(printable(name)) for name in islice(names, _LISTED))
