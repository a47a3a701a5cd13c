"""A conversion to a single file, which appears together with its schema."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tfrtool.errors import UsageError, WriteError, os_errors_as
from tfrtool.features.schema_files import SCHEMA, schema_of
from tfrtool.storage.atomic_files import TEMPORARY, delete_leftovers, move, new_files_by_name
from tfrtool.storage.remote_path import AnyPath
from tfrtool.writing.run_options import Existing, JobSettings


def check_target(settings: JobSettings, *outputs: AnyPath) -> None:
    """Raise a `UsageError` if files exist that may not be replaced, or for --resume."""
    hint = "use --overwrite to replace it"
    if settings.existing is Existing.RESUME:
        raise UsageError("--resume does not apply to one file", path=outputs[0], hint=hint)
    for output in outputs if settings.existing is Existing.REFUSE else ():
        if output.exists() or output.is_symlink():
            raise UsageError("already exists", path=output, hint=hint)


@contextmanager
def single_file(settings: JobSettings, path: AnyPath, *, has_schema: bool) -> Iterator[JobSettings]:
    """Give the settings of a job that writes a single file in a private folder; move it out.

    Raises:
        UsageError: the file or its schema exists, or the run is to be resumed.
        WriteError: the file can't be written, or exists by the time that it is complete.
    """
    outputs = [path, schema_of(path)] if has_schema else [path]
    check_target(settings, *outputs)
    if settings.dry_run:
        yield settings
        return
    delete_leftovers(path)
    writing = os_errors_as(WriteError, path, "can't be written")
    replaces = settings.existing is Existing.OVERWRITE
    with writing, new_files_by_name(outputs, replace=replaces) as folder:
        job_folder = folder / f"{TEMPORARY}job"
        yield replace(settings, folder=job_folder)
        move(job_folder / path.name, folder / path.name)
        if has_schema:
            move(job_folder / SCHEMA, folder / schema_of(path).name)
