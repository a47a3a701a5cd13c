"""The report: one HTML file about a dataset, which needs nothing else."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tfrtool.errors import UsageError, WriteError, os_errors_as
from tfrtool.storage.arguments import Paths, as_path
from tfrtool.storage.atomic_files import new_file
from tfrtool.storage.progress import OnProgress, no_progress
from tfrtool.view.findings import Findings
from tfrtool.view.pieces import PIECES, environment, inline_pictures, piece, style, too_long
from tfrtool.view.terminal import verify_command

MAX_BYTES = 5_000_000
"""The largest report."""

_PICTURES, _TEXT, _PIECE, _FRAME = 3_500_000, 2_500_000, 1_000_000, 100_000
"""Bytes at most of its pictures, of its pieces without them, of one of these, and around them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFile:
    """A report that was written.

    Attributes:
        out: the HTML file.
        bytes: size of the file, in bytes.
        records: number of records in the dataset.
        faults: number of faults, including unreadable shards. None if the dataset could not be
            verified.
        faults_command: command that lists the faults.
        pictures: number of images in the report.
        errors: steps that failed, with the reason for each.
        notes: how the shards were found, one sentence each.
    """

    out: Path
    bytes: int
    records: int
    faults: int | None
    faults_command: str
    pictures: int
    errors: Mapping[str, str]
    notes: tuple[str, ...]


def report(
    dataset: Paths,
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    workers: int | None = None,
    on_progress: OnProgress = no_progress,
) -> ReportFile:
    """Write an HTML file that describes a dataset: contents, problems and sample images.

    The records are read several times: for statistics, for verification and for the images.

    Args:
        dataset: dataset directory; or files and glob patterns.
        out: file to write, with the extension .html. Its size is at most `MAX_BYTES`.
        overwrite: whether to replace an existing file.
        workers: maximum number of worker processes. None uses one per core.
        on_progress: called as records and shards are read.

    Raises:
        ShardError: no shards were found, or they can't be read. Damage is not an error: it is part
            of the report.
        UsageError: ``out`` exists or has another extension.
        WriteError: the file can't be written.
    """
    out = as_path(out)
    check_page(out, overwrite=overwrite)
    with Findings(dataset) as found:
        found.fill(on_progress, workers=workers)
        wanted: dict[int, None] = {}
        left, pieces = _TEXT, dict[str, Markup]()
        for name in PIECES:
            html = piece(name, found, lambda row: wanted.setdefault(row))
            size = len(html.encode("utf-8", "backslashreplace"))
            if size > min(_PIECE, left):
                pieces[name] = too_long(name)
            else:
                left -= size
        pictures = dict[int, str]()
        room = min(_PICTURES, MAX_BYTES - _FRAME - (_TEXT - left))
        for row, picture in inline_pictures(found, list(wanted)).items():
            room -= len(picture)
            if room >= 0:
                pictures[row] = picture
        pieces = {n: pieces.get(n) or piece(n, found, pictures.get) for n in PIECES}
        written = write_page(
            out,
            "report.html",
            overwrite=overwrite,
            heading=found.title,
            pieces={name: html for name, html in pieces.items() if html},
            titles=PIECES,
            f=found,
        )
        return ReportFile(
            out=out,
            bytes=written,
            records=found.table.rows,
            faults=None if found.verdict is None else found.verdict.n_problems,
            faults_command=verify_command(found),
            pictures=len(pictures),
            errors=dict(found.errors),
            notes=found.notes,
        )


def check_page(out: Path, *, overwrite: bool) -> None:
    """Raise a `UsageError` if a page can't be written there, before anything is read."""
    environment()
    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError("the report's file name must end in .html", path=out)
    with os_errors_as(WriteError, out, "can't be written"):
        if not out.parent.is_dir():
            raise UsageError("directory does not exist", path=out.parent)
        if out.exists() and not overwrite:
            raise UsageError("already exists", path=out, hint="use --overwrite to replace it")


def write_page(out: Path, template: str, *, overwrite: bool, **context: Any) -> int:
    """Render a page that needs nothing else, write it whole or not at all; return its size."""
    text = environment().get_template(template).render(style=style(), **context)
    data = text.encode("utf-8", "backslashreplace")
    failing = os_errors_as(WriteError, out, "can't be written")
    with failing, new_file(out, replace=overwrite) as file:
        file.write(data)
    return len(data)
