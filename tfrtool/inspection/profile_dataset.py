"""All that is known of some shards or a dataset, from one read of their records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tfrtool.errors import TfrtoolError
from tfrtool.examples.dataset_files import find_files
from tfrtool.inspection.dataset.dataset_summary import (
    UNSPLIT,
    DatasetSummary,
    dataset_report,
    label_request,
)
from tfrtool.inspection.inspect_options import VerifyOptions
from tfrtool.inspection.profile import ProfileRequest, profile_shards
from tfrtool.inspection.schema.shard_schema import InferredSchema, schema_report
from tfrtool.inspection.stats.stats import StatsReport, stats_report
from tfrtool.inspection.table.record_table import RowFold, RowRequest
from tfrtool.inspection.verify.dataset_check import written_shards
from tfrtool.inspection.verify.feature_findings import DeclaredFolders
from tfrtool.inspection.verify.verify import VerifyReport, verify_report
from tfrtool.records.shards import locate_shards
from tfrtool.storage.arguments import Paths, as_paths

_MIN_BYTES_PER_PROCESS = 2 * 1024 * 1024
"""Bytes that are looked at in the time that a process takes to start, roughly."""

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetProfile:
    """What `inspect_dataset`, `infer_schema`, `stats` and `verify` return, from one read.

    Attributes:
        summary: None for files and patterns, or if it failed.
        schema: None if it failed, for example because no record is an Example.
        statistics: None if it failed.
        verdict: the result of verification.
        errors: why something failed, by the name of the attribute.
    """

    summary: DatasetSummary | None
    schema: InferredSchema | None
    statistics: StatsReport | None
    verdict: VerifyReport | None
    errors: Mapping[str, str]


def profile_dataset(
    shards: Paths, options: VerifyOptions, rows: RowRequest | None = None
) -> DatasetProfile:
    """Read each record of some shards once, and find everything.

    Args:
        shards: a dataset directory; or files and glob patterns.
        options: how to read them.
        rows: where to store a row for each record, and what to call with each piece of them: with
            one worker as soon as it is written, else when its shard has been read.

    Raises:
        ShardError: no shards were found. Other errors about shards are in the result.
        WriteError: the rows can't be stored.
    """
    arguments = as_paths(shards)
    located = locate_shards(shards)
    files = find_files(shards, lambda name: name or UNSPLIT)
    is_dataset = len(arguments) == 1 and arguments[0].is_dir()
    declared = DeclaredFolders.read(located.sources)
    first, labels = label_request(files, declared) if is_dataset else (None, None)
    request = ProfileRequest(
        features=True,
        statistics=True,
        typed=declared.roots,
        parsing=True,
        images=options.images,
        labels=labels,
        declared=declared.roots,
        rows=rows and (rows if options.workers == 1 else rows._replace(on_piece=None)),
        hashed=written_shards(located.paths),
    )
    profiles = []
    for profile in profile_shards(located.sources, request, options, _MIN_BYTES_PER_PROCESS):
        profiles.append(profile)
        fold = profile.fold(RowFold)
        if rows and rows.on_piece and options.workers != 1:
            for piece in fold.pieces if fold else ():
                rows.on_piece(piece)
    errors: dict[str, str] = {}

    def summarize() -> DatasetSummary | None:
        if first is None or labels is None:
            return None
        return dataset_report(files, first, labels.label, profiles, declared=declared)

    def attempt(name: str, make: Callable[[], _Found]) -> _Found | None:
        try:
            return make()
        except TfrtoolError as error:
            errors[name] = str(error)
            return None

    return DatasetProfile(
        summary=attempt("summary", summarize),
        schema=attempt("schema", lambda: schema_report(profiles, len(profiles))),
        statistics=attempt("statistics", lambda: stats_report(profiles)),
        verdict=attempt("verdict", lambda: verify_report(located, profiles, declared=declared)),
        errors=errors,
    )
