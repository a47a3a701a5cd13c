"""`tfrtool.convert`: records of one format as another."""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from tfrtool.convert.convert_options import ConvertOptions
from tfrtool.convert.formats.assumed_records import UnexpectedRecordError
from tfrtool.convert.formats.convert_notes import shorten_notes
from tfrtool.convert.formats.convert_plan import ConvertPlan, plan_conversion
from tfrtool.convert.formats.convert_request import ConvertRequest, resolve_request
from tfrtool.convert.formats.single_file import single_file
from tfrtool.convert.formats.source_scan import scan_files
from tfrtool.declare import takes
from tfrtool.engines.local_copies import local_copies
from tfrtool.errors import TfrtoolError
from tfrtool.features.schema_files import SCHEMA
from tfrtool.inspection.rows.batches import LABEL_NAME
from tfrtool.storage.arguments import Paths, as_path
from tfrtool.storage.json_values import Shown, to_json_values
from tfrtool.writing.job import Job, publish_records
from tfrtool.writing.job_report import JobReport
from tfrtool.writing.run_options import JobSettings


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConvertReport(Shown):
    """Result of a conversion, or the plan of a dry run.

    Attributes:
        job: files written, and number of records read and written.
        source: name of the source format.
        target: name of the target format.
        columns: Arrow type of each column written.
        losses: what the target format can't store, one clause each.
        notes: decisions made during the conversion, one clause each.
    """

    job: JobReport
    source: str
    target: str
    columns: Mapping[str, str]
    losses: Sequence[str]
    notes: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        details = to_json_values(
            {name: getattr(self, name) for name in ("columns", "losses", "notes")}
        )
        return {"from": self.source, "to": self.target, **self.job.to_json(), **details}


@takes(ConvertOptions)
def convert(
    source: Paths, target: str | os.PathLike[str], options: ConvertOptions
) -> ConvertReport:
    """Convert records between TFRecord, Parquet, JSON Lines, CSV and other formats.

    Splits, class names, images and the content of features.json are preserved. Memory is bounded,
    whatever the size of the data. By default, a column of doubles becomes int64 if all values are
    whole numbers, otherwise float32; whole numbers that float32 can't represent are an error.
    Records that are not Examples count as damaged if the others are Examples.

    Args:
        source: files, glob patterns and directories, one or several.
        target: directory to write to; or one file, whose extension determines the format.

    Raises:
        UsageError: an option is invalid, or the target exists.
        SchemaError: a feature has several types, or no feature matches a column or row.
        SourceError: a file can't be read, or is not what its name indicates.
        ShardError: a shard can't be read.
        WriteError: a file can't be written, or differs from the source when read back.
    """
    request = resolve_request(source, as_path(target), options)
    settings = request.settings
    copies = local_copies(request.files.paths, settings.workers, settings.on_progress)
    with settings.running(), copies:
        try:
            plan, job = _convert(request, assume=True)
        except UnexpectedRecordError:
            plan, job = _convert(request, assume=False)
    content = plan.rows.after
    columns = {one.name: str(one.type) for one in content.schema}
    return ConvertReport(
        job=job,
        source=request.source_format.spec.name,
        target=request.target_format.spec.name,
        columns=columns | ({LABEL_NAME: "string"} if content.named_label else {}),
        losses=plan.losses,
        notes=plan.notes,
    )


def _convert(request: ConvertRequest, *, assume: bool) -> tuple[ConvertPlan, JobReport]:
    """Scan, plan and write; notes are passed on as soon as they are certain.

    Raises:
        UnexpectedRecordError: records are not what was assumed of them. Nothing was written.
    """
    scanned = scan_files(request, assume=assume)
    try:
        plan = plan_conversion(request, scanned)
    except TfrtoolError as error:
        if scanned.assumed:  # other records may have what is missing
            raise UnexpectedRecordError(error.what) from error
        raise
    job = _write(plan) if scanned.assumed else None
    for text in shorten_notes([*plan.losses, *plan.notes]):
        request.options.on_note(text)
    return plan, job or _write(plan)


def _write(plan: ConvertPlan) -> JobReport:
    """Write the files of a plan, and publish them."""
    request = plan.request
    output: AbstractContextManager[JobSettings] = nullcontext(request.settings)
    if request.single:
        has_schema = SCHEMA in plan.metadata(())
        output = single_file(request.settings, request.target, has_schema=has_schema)
    with output as settings, Job(settings, "convert") as job:
        job.begin(plan.job_plan())
        files = job.write(plan.tasks)
        report = publish_records(job, files, plan.metadata(files))
    return replace(report, dataset=request.target) if request.single else report
