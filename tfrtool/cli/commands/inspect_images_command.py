"""``tfrtool inspect images``."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from tfrtool.cli.outcome import Outcome
from tfrtool.cli.output import emit_json, emit_page, human_count, warn
from tfrtool.cli.parameters import INPUT, OUTPUT, shards_of
from tfrtool.cli.render.page import Facts, Heading, Lines, Page, Table, Tone, Toned
from tfrtool.cli.shared_options import debug_option, json_option
from tfrtool.errors import printable

if TYPE_CHECKING:
    from tfrtool.inspection.pictures.contact_sheet import SheetReport

__all__ = ["inspect_images_command"]

_LISTED = 10


@click.command(
    name="images",
    epilog="\b\nExamples:\n"
    "  tfrtool inspect images train.tfrecord --out sheet.png\n"
    "  tfrtool inspect images 'data/*.tfrecord*' --out sheet.jpg --limit 500 --thumb 64",
)
@click.argument("shards", nargs=-1, required=True, type=INPUT)
@click.option(
    "--out",
    required=True,
    type=OUTPUT,
    metavar="FILE",
    help="The sheet to write; its end says the format: .png, .jpg, .webp, .gif, .bmp, .tif.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="How many images to show: the first ones, evenly from each shard.",
)
@click.option(
    "--columns",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many pictures stand side by side; by default about a square.",
)
@click.option(
    "--thumb",
    type=click.IntRange(min=32, max=1024),
    default=128,
    show_default=True,
    metavar="PX",
    help="The side of the square that a picture fits into.",
)
@click.option("--feature", metavar="NAME", help="The feature that holds the image.")
@click.option("--label", metavar="NAME", help="The feature that labels it.")
@click.option("--overwrite", is_flag=True, help="Replace a sheet that is there already.")
@json_option
@debug_option
def inspect_images_command(
    shards: tuple[str, ...],
    out: str,
    limit: int,
    columns: int | None,
    thumb: int,
    feature: str | None,
    label: str | None,
    overwrite: bool,
    as_json: bool,
) -> Outcome:
    """Draw the images of TFRecord files on a contact sheet, with labels and sizes.

    Images may be encoded, or raw pixels beside features that tell their height and width. An
    image that can't be shown is a red cross with the reason. SHARDS: files, quoted globs and
    directories. Exit code 3 means that some can't be shown.
    """
    from tfrtool.cli.progress import Bars
    from tfrtool.inspection.pictures.contact_sheet import SheetOptions, contact_sheet

    options = SheetOptions(
        limit=limit, columns=columns, thumb=thumb, image=feature, label=label, overwrite=overwrite
    )
    with Bars(unit="img") as bars:
        report = contact_sheet(
            shards_of(shards), Path(out), options, lambda d, t: bars.show("drawing", d, t)
        )
    if as_json:
        emit_json(report.to_json())
    else:
        emit_page(_page(report))
    for path in report.without:
        warn(f"{printable(str(path))}: no feature holds an image")
    for path, fault in report.faults:
        warn(f"{printable(str(path))}, offset {fault.offset}: {printable(fault.message)}")
    if report.guessed:
        warn(
            f"the size of {human_count(report.guessed, 'image')} was guessed from the number of "
            "bytes: no feature tells height and width"
        )
    left_out = report.broken or report.faults or report.without
    return Outcome.DAMAGE if left_out else Outcome.FINE


def _page(report: SheetReport) -> Page:
    layout = report.layout
    width, height = layout.size
    broken = len(report.broken)
    page: list[Heading | Facts | Table | Lines] = [
        Heading(printable(str(report.out))),
        Facts(
            [
                (
                    "sheet",
                    f"{width:,} x {height:,} pixels: {human_count(layout.across, 'column')}, "
                    f"{human_count(layout.down, 'row')}",
                ),
                ("images", f"{layout.count - broken:,} from {_features(report)}"),
                ("broken", Toned(f"{broken:,}", Tone.BAD if broken else Tone.GOOD)),
            ]
        ),
    ]
    if len(report.shards) > 1:
        rows = [
            (str(number), f"{count:,}", printable(str(path)))
            for number, (path, count) in enumerate(report.shards)
            if count
        ]
        head = ("shard", "records", "file")
        page.append(Table(head=head, rows=rows[:_LISTED], right=frozenset({0, 1})))
        if len(rows) > _LISTED:
            page.append(Lines([f"... and {len(rows) - _LISTED:,} more shards"]))
    lines = []
    if report.others:
        names = ", ".join(repr(name) for name in report.others[:_LISTED])
        lines.append(f"not shown: images in {printable(names)}; --feature shows them")
    for item in report.broken[:_LISTED]:
        record = "a record" if item.record is None else f"record {item.record}"
        where = f"{printable(str(item.path))}: " if len(report.shards) > 1 else ""
        lines.append(f"{where}{record} at offset {item.offset}")
        lines += wrap(printable(item.reason), 78, initial_indent="    ", subsequent_indent="    ")
    if broken > _LISTED:
        lines.append(f"... and {broken - _LISTED:,} more; --json lists them all")
    if lines:
        page.append(Lines(lines))
    return page


def _features(report: SheetReport) -> str:
    names = [repr(printable(name)) for name in dict.fromkeys(report.features.values())]
    more = len(names) - _LISTED
    text = ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")
    return f"feature {text}" if len(names) == 1 else f"features {text}"
