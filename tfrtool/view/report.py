"""The report: one HTML file about a dataset that needs nothing else."""

import base64
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from tfrtool import __version__
from tfrtool.declare import takes
from tfrtool.errors import UsageError, WriteError, os_errors_as
from tfrtool.images.pixels import encoded
from tfrtool.inspection.pictures.objects import thumbnail
from tfrtool.inspection.table.offset_reader import OffsetReader
from tfrtool.inspection.table.record_query import Row
from tfrtool.storage.arguments import Paths, as_path
from tfrtool.storage.atomic_files import delete_leftovers, new_file
from tfrtool.storage.json_values import Shown
from tfrtool.storage.remote_path import AnyPath
from tfrtool.view.findings import Findings
from tfrtool.view.pieces import (
    SECTIONS,
    Links,
    environment,
    section,
    style,
    verify_command,
)
from tfrtool.view.view_options import ReportOptions

MAX_BYTES = 5_000_000
"""The largest report."""

_SPARE = 10_000
"""Bytes for the address of a picture and what is around it."""

_THUMB = 96


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReportFile(Shown):
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

    out: AnyPath
    bytes: int
    records: int
    faults: int | None
    faults_command: str
    pictures: int
    errors: Mapping[str, str]
    notes: tuple[str, ...]


class _Thumbnails:
    """The pictures of records as data URLs, while there is room for them.

    Attributes:
        urls: those that were made, by shard and record.
        room: characters that are left for them.
    """

    def __init__(self, found: Findings) -> None:
        self._found, self._reader = found, OffsetReader(found.paths)
        self.urls: dict[tuple[int, int], str] = {}
        self.room = 0

    def picture(self, row: Row) -> str | None:
        """Return a thumbnail, while there is room for it."""
        key = row.shard, row.record
        if key not in self.urls and self.room > 0:
            record, roles = self._reader.read(row.shard, row.offset), self._found.roles(row.shard)
            data = record and encoded(thumbnail(record.payload, roles, _THUMB))
            if data:
                kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
                text = base64.b64encode(data).decode()
                self.urls[key] = f"data:image/{kind};base64,{text}"
        self.room -= len(self.urls.get(key, ""))
        return self.urls.get(key) if self.room > 0 else None


@takes(ReportOptions)
def report(dataset: Paths, out: str | os.PathLike[str], options: ReportOptions) -> ReportFile:
    """Write an HTML file that describes a dataset: contents, problems and sample images.

    Args:
        dataset: dataset directory; or files and glob patterns.
        out: file to write, with the extension .html. Its size is at most `MAX_BYTES`.

    Raises:
        ShardError: no shards were found, or they can't be read. Damage is not an error: it is part
            of the report.
        UsageError: ``out`` exists or has another extension.
        WriteError: the file can't be written.
    """
    out = as_path(out)
    _check_out(out, overwrite=options.overwrite)
    with Findings(dataset, as_stored=options.as_stored, types=options.types) as found:
        found.fill(options.on_progress, workers=options.workers)
        thumbnails = _Thumbnails(found)

        def page() -> bytes:
            sections = {name: section(name, found, Links(thumbnails.picture)) for name in SECTIONS}
            text = (
                environment()
                .get_template("report.html")
                .render(
                    style=style(),
                    heading=found.title,
                    sections={name: html for name, html in sections.items() if html},
                    titles=SECTIONS,
                    f=found,
                    version=__version__,
                    date=time.strftime("%Y-%m-%d", time.gmtime()),
                )
            )
            return text.encode("utf-8", "backslashreplace")  # type: ignore[no-any-return]

        thumbnails.room = MAX_BYTES - len(page()) - _SPARE  # the first page has no pictures
        data = page()
        delete_leftovers(out)
        with (
            os_errors_as(WriteError, out, "can't be written"),
            new_file(out, replace=options.overwrite) as f,
        ):
            f.write(data)
        return ReportFile(
            out=out,
            bytes=len(data),
            records=found.table.rows,
            faults=None if found.verdict is None else found.verdict.n_problems,
            faults_command=verify_command(found),
            pictures=len(thumbnails.urls),
            errors=dict(found.errors),
            notes=found.notes,
        )


def _check_out(out: AnyPath, *, overwrite: bool) -> None:
    """Raise a `UsageError` before anything is read if the report can't be written."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError("the report's file name must end in .html", path=out)
    with os_errors_as(WriteError, out, "can't be written"):
        if not out.parent.is_dir():
            raise UsageError("directory does not exist", path=out.parent)
        if out.exists() and not overwrite:
            raise UsageError("already exists", path=out, hint="use --overwrite to replace it")
