"""What all jobs are given, beside what each of them does."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tfrtool.engines.engine import Engine, Workers
from tfrtool.engines.pool import workers_of
from tfrtool.errors import UsageError, human_count
from tfrtool.records.shard_sets import check_dataset_name, check_version
from tfrtool.storage.arguments import OnError, as_shard_size, parse_enum_fields
from tfrtool.storage.progress import OnProgress, no_progress
from tfrtool.writing.write_options import (
    Existing,
    check_folder_name,
    check_goal,
    check_numbers,
    dataset_identity,
)

_SHARD_SIZE = "128MiB"
"""See `tfrtool.write`."""


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """Where a job writes to, and how; `tfrtool.reshard` says what each of these means."""

    folder: Path
    name: str = ""
    version: str = ""
    on_error: OnError = OnError.SKIP
    workers: Workers = None
    existing: Existing = Existing.REFUSE
    dry_run: bool = False
    on_progress: OnProgress = no_progress

    def __post_init__(self) -> None:
        check_goal(self.folder)
        check_folder_name(self.folder)
        parse_enum_fields(self, on_error=OnError, existing=Existing)
        check_numbers(None, self.workers if isinstance(self.workers, int) else None)
        identity = dataset_identity(self.folder, self.name or None, self.version or None)
        for key, value in zip(("name", "version"), identity, strict=True):
            object.__setattr__(self, key, value)
        check_dataset_name(self.name)
        check_version(self.version)

    def running(self) -> AbstractContextManager[object]:
        """Return what holds the engine of the workers, if they have one, for several maps."""
        return self.workers if isinstance(self.workers, Engine) else nullcontext()

    @property
    def stop(self) -> bool:
        """Whether the first damage ends the job."""
        return self.on_error is OnError.STOP


@dataclass(frozen=True, kw_only=True)
class SizeSettings(JobSettings):
    """What those are given that cut splits into files: how many, or of which size."""

    shards: int | None = None
    shard_size: int | str | None = None
    engine: str = "local"
    engine_address: str | None = None

    def __post_init__(self) -> None:
        JobSettings.__post_init__(self)
        workers = workers_of(self.engine, self.engine_address, self.workers)
        object.__setattr__(self, "workers", workers)
        check_numbers(self.shards, None)
        if self.shards is not None and self.shard_size is not None:
            raise UsageError("--shards and --shard-size cannot be used together")
        as_shard_size(self.shard_size or _SHARD_SIZE)

    @property
    def shard_bytes(self) -> int:
        """How large a file is at most before compression, to within one record."""
        return as_shard_size(self.shard_size or _SHARD_SIZE)


def too_many_shards(shards: int, split: str, records: int) -> UsageError:
    """Return the error of a split that has fewer records than it should have shards."""
    has = f"split {split!r} has {human_count(records, 'record')}"
    return UsageError(f"--shards {shards} is too many: {has}")
