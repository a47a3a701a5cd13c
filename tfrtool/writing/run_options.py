"""Options that commands which write datasets share, and what they mean for a target."""

import enum
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tfrtool.declare import Options, option
from tfrtool.engines.engine import Engine, Workers, workers_option
from tfrtool.engines.pool import engine_of
from tfrtool.errors import UsageError, human_count
from tfrtool.records.compression import named_compression
from tfrtool.records.shard_sets import VERSION, check_dataset_name, check_split_name, check_version
from tfrtool.storage.arguments import as_size
from tfrtool.storage.limits import MAX_SHARDS
from tfrtool.storage.progress import OnProgress, no_progress
from tfrtool.storage.remote_path import AnyPath, RemotePath
from tfrtool.storage.stores import ONLY_READ

_HERE = "local", None
"""Engine and address of this machine's processes."""

SEEDS: Mapping[str, Any] = {"metavar": "N", "least": -(2**63), "most": 2**63 - 1}


class Existing(enum.Enum):
    """What to do with an existing dataset."""

    REFUSE = "refuse"
    """Raise an error."""
    OVERWRITE = "overwrite"
    """Replace it, if tfrtool wrote it."""
    RESUME = "resume"
    """Continue an interrupted run."""


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """Where a job writes to, and how."""

    folder: AnyPath
    name: str
    version: str
    stop: bool = False  # whether the first damage ends the job
    workers: Workers = None
    existing: Existing = Existing.REFUSE
    dry_run: bool = False
    index: bool = False  # whether each shard gets an index
    on_progress: OnProgress = no_progress
    command: str = "write"  # that resumes an interrupted run, for messages

    @property
    def identity(self) -> dict[str, str]:
        """Name and version, as reports list them among the options."""
        return {"name": self.name, "version": self.version}

    def running(self) -> AbstractContextManager[object]:
        """Return what holds the engine of the workers, if they have one, for several maps."""
        return self.workers if isinstance(self.workers, Engine) else nullcontext()


@dataclass(frozen=True, kw_only=True)
class NameOptions(Options):
    """Options for the identity of a dataset."""

    name: str | None = option(
        None, "Name of the dataset.  [default: from TARGET's path]", metavar="TEXT", group="Output"
    )
    version: str | None = option(
        None,
        "Version of the dataset.  [default: from TARGET's path, or 1.0.0]",
        metavar="X.Y.Z",
        group="Output",
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """Options for running a job."""

    existing: Literal["refuse", "overwrite", "resume"] = option(
        "refuse",
        "What to do with an existing dataset: raise an error, replace it if tfrtool wrote it, or "
        "continue an interrupted run.",
        group="Output",
        flags={
            "resume": "Continue an interrupted run of this command.",
            "overwrite": "Replace output that tfrtool wrote earlier.",
        },
        common=True,
    )
    dry_run: bool = option(
        False, "Show what would be written, without writing it.", group="Output", common=True
    )
    workers: int | None = workers_option(group="Execution")
    on_progress: OnProgress = option(
        no_progress, "Called regularly, from the calling thread.", cli=None
    )

    def settings(self, folder: AnyPath) -> JobSettings:
        """Return what the options mean for a target; `UsageError` if nothing can be written."""
        check_goal(folder)
        if named_compression(folder) and not folder.is_dir():
            what = "a directory of shards can't have the name of a compressed file"
            hint = "choose another name, and use --compression to compress the shards"
            raise UsageError(what, path=folder, hint=hint)
        name, version = (getattr(self, key, None) for key in ("name", "version"))
        if name is not None:
            check_dataset_name(name)
        if version is not None:
            check_version(version)
        name, version = dataset_identity(folder, name, version)
        return JobSettings(
            folder=folder,
            name=name,
            version=version,
            stop=getattr(self, "on_error", None) == "stop",
            workers=self.workers,
            existing=Existing(self.existing),
            dry_run=self.dry_run,
            index=getattr(self, "index", False),
            on_progress=self.on_progress,
        )


@dataclass(frozen=True, kw_only=True)
class SizeOptions(RunOptions, NameOptions):
    """Options of jobs that cut splits into files."""

    on_error: Literal["skip", "stop"] = option(
        "skip",
        "Skip damaged records and list them (exit code 3), or stop at the first.",
        group="Source",
        common=True,
    )
    shards: int | None = option(
        None,
        "Number of shards per split.",
        metavar="N",
        group="Shards",
        least=1,
        most=99_999,
        common=True,
    )
    shard_size: int | str | None = option(
        None,
        "Approximate maximum size of a shard before compression, such as 100MB. Not with "
        "--shards.  [default: 128MiB]",
        metavar="SIZE",
        group="Shards",
        parse=str,
        common=True,
    )
    index: bool = option(
        False,
        "Write SHARD.idx next to each shard, for random access and NVIDIA DALI.",
        group="Shards",
    )
    engine: Literal["local", "ray"] = option(
        "local", "Run locally or on a Ray cluster.", group="Execution"
    )
    engine_address: str | None = option(
        None,
        "HOST:PORT of the Ray cluster.  [default: $RAY_ADDRESS]",
        metavar="ADDRESS",
        group="Execution",
    )

    # Maximum size of a file before compression, to within one record.
    shard_bytes: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shards is not None and self.shard_size is not None:
            raise UsageError("--shards and --shard-size can't be used together")
        size = as_size("128MiB" if self.shard_size is None else self.shard_size, "--shard-size")
        object.__setattr__(self, "shard_bytes", size)

    @property
    def pool(self) -> Workers:
        """The number of workers, if they are processes of this machine, or the engine."""
        if isinstance(self.workers, Engine) or (self.engine, self.engine_address) == _HERE:
            return self.workers
        return engine_of(self.engine, self.engine_address, self.workers)


@dataclass(frozen=True, kw_only=True)
class CompressionOptions(SizeOptions):
    """Options of jobs that write TFRecord files of a size."""

    compression: Literal["none", "gzip", "zlib"] = option(
        "none",
        "Compression of the shards. TFDS can only read uncompressed shards.",
        group="Shards",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.index and self.compression != "none":
            raise UsageError("--index and --compression can't be used together")


def check_goal(folder: AnyPath) -> None:
    """Raise a `UsageError` if the target is a read-only URL."""
    if isinstance(folder, RemotePath) and not folder.store.writes:
        expected = "a local folder, or s3://, gs:// or az://"
        raise UsageError(ONLY_READ, path=folder, expected=expected)


def check_splits(splits: Mapping[str, float], rule: object = None) -> None:
    """Raise a `UsageError` if splits have impossible names, or fractions that don't add up to 1.

    There must be some where there is a rule for them.
    """
    if rule and not splits:
        what = "--stratify and --group-by require --split"
        raise UsageError(what, hint="use --split NAME=FRACTION for each split")
    for name, fraction in splits.items():
        check_split_name(name)
        if not 0 < fraction <= 1:
            what = f"invalid --split {name}={fraction:g}"
            raise UsageError(what, expected="a fraction above 0 and up to 1")
    total = math.fsum(splits.values())
    if splits and not math.isclose(total, 1, abs_tol=1e-6):
        raise UsageError(f"--split fractions must add up to 1, not {total:g}")


def check_shard_count(shards: int, splits: int = 1) -> None:
    """Raise a `UsageError` if a dataset would have more shards than its metadata may name."""
    if shards + splits > MAX_SHARDS:
        raise UsageError(
            "too many shards",
            expected=f"at most {MAX_SHARDS - splits:,}",
            found=f"{shards:,}",
            hint="use a larger --shard-size or fewer --shards",
        )


def too_many_shards(shards: int, split: str, records: int, noun: str = "record") -> UsageError:
    """Return the error of a split that has fewer records than it should have shards."""
    has = f"split {split!r} has {human_count(records, noun)}"
    return UsageError(f"--shards {shards} is too many: {has}")


def parse_pairs(
    option: str, texts: Iterable[str], expected: str, sign: str = "="
) -> dict[str, str]:
    """Parse the values of an option such as ``--rename OLD=NEW``.

    Args:
        option: its name, for errors.
        texts: what was typed.
        expected: the form of each, with an example: "OLD=NEW, such as label=class".
        sign: what separates the two parts.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, _, value = text.rpartition(sign)
        if name in pairs:
            raise UsageError(f"{option} {name!r} is given twice")
        if not name or not value:
            raise UsageError(f"invalid {option} {text[:100]!r}", expected=expected)
        pairs[name] = value
    return pairs


def parse_names(texts: Iterable[str]) -> list[str]:
    """Parse the values of an option such as ``--select A,B``."""
    return [name for text in texts for name in text.split(",")]


def parse_splits(texts: Iterable[str]) -> dict[str, float]:
    """Parse the values of ``--split NAME=FRACTION``."""
    expected = "NAME=FRACTION, such as train=0.8"
    fractions = {}
    for name, text in parse_pairs("--split", texts, expected).items():
        try:
            fractions[name] = float(text)
        except ValueError:
            what = f"invalid --split {f'{name}={text}'[:100]!r}"
            raise UsageError(what, expected=expected) from None
    return fractions


def dataset_identity(
    dataset: AnyPath, name: str | None = None, version: str | None = None
) -> tuple[str, str]:
    """Return the name and version of a dataset, from its path where they are not given.

    A path that ends in ``NAME/X.Y.Z`` says both; else its last folder, made a valid name by
    leaving out accents and by underscores, is the name, and the version is 1.0.0.
    """
    path = Path(os.path.abspath(dataset))  # noqa: PTH100 - links are not to be resolved
    folder = path.name
    if VERSION.fullmatch(folder) and path.parent.name:
        version, folder = version or folder, path.parent.name
    if name is None:
        ascii_name = unicodedata.normalize("NFKD", folder).encode("ascii", "ignore").decode()
        name = re.sub(r"\W+", "_", ascii_name, flags=re.ASCII).strip("_")
        if not name or not name[0].isalpha():
            name = f"dataset_{name}".rstrip("_")
    return name, version or "1.0.0"
