"""What to write, and how: what `tfrtool.write` was given, checked."""

import enum
import json
import math
import os
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError
from tfrtool.images.recipe import ImageRecipe
from tfrtool.records.compression import Compression, named_compression
from tfrtool.records.shard_sets import VERSION, check_dataset_name, check_split_name, check_version
from tfrtool.sources.folders.class_layout import LabelFrom
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.limits import MAX_SHARDS
from tfrtool.storage.remote_path import RemotePath
from tfrtool.storage.stores import ONLY_READ

_SEEDS = range(-(2**63), 2**63)
_WITHOUT_EFFECT = ("source", "dataset", "existing", "workers", "skip_bad", "may_lack_splits")
"""Options that do not decide what a dataset holds; of a source, its images do."""


_AS_USUAL = SourceOptions()


class Existing(enum.Enum):
    """What becomes of a dataset that is there already."""

    REFUSE = "refuse"
    """It stays, and nothing is written."""
    OVERWRITE = "overwrite"
    """It is replaced, if tfrtool wrote it."""
    RESUME = "resume"
    """An interrupted write is resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What to write, and how; `tfrtool.write` says what each of these means."""

    source: str
    dataset: Path
    name: str
    version: str
    splits: Mapping[str, float]
    shards: int | None
    shard_bytes: int
    seed: int
    shuffle: bool
    compression: Compression
    skip_bad: bool
    dedupe: bool
    recipe: ImageRecipe
    label_from: LabelFrom
    root: Path | None
    existing: Existing
    workers: int
    stratify: bool = False
    may_lack_splits: bool = False  # for images that `append` adds to splits that exist
    meaning: SourceOptions = _AS_USUAL

    def __post_init__(self) -> None:
        check_goal(self.dataset)
        check_folder_name(self.dataset)
        check_dataset_name(self.name)
        check_version(self.version)
        check_splits(self.splits, self.stratify or self.meaning.group_by)
        check_numbers(self.shards, self.workers, self.seed)

    def to_json(self) -> dict[str, Any]:
        """Return the options that decide what a dataset holds, as its report tells them."""
        facts = {key: value for key, value in asdict(self).items() if key not in _WITHOUT_EFFECT}
        facts |= facts.pop("recipe")
        meaning, usual = facts.pop("meaning"), asdict(_AS_USUAL)
        facts |= {key: value for key, value in meaning.items() if value != usual[key]}
        if not self.stratify:
            del facts["stratify"]
        facts["splits"] = [f"{name}={fraction:g}" for name, fraction in self.splits.items()]
        return dict(json.loads(json.dumps(facts, default=_plain)))


def check_goal(folder: Path) -> None:
    """Raise a `UsageError` if nothing can be written there, for it is a URL that is only read."""
    if isinstance(folder, RemotePath) and not folder.store.writes:
        expected = "a local folder, or s3://, gs:// or az://"
        raise UsageError(ONLY_READ, path=folder, expected=expected)


def check_folder_name(folder: Path) -> None:
    """Raise a `UsageError` if a folder to write would have the name of a compressed file."""
    if named_compression(folder) and not folder.is_dir():
        what = "a directory of shards can't have the name of a compressed file"
        hint = "choose another name, and use --compression to compress the shards"
        raise UsageError(what, path=folder, hint=hint)


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


def check_numbers(shards: int | None, workers: int | None, *seeds: int | None) -> None:
    """Raise a `UsageError` if one of the numbers that decide what is written is impossible."""
    for option, value, least, most, expected in (
        ("--shards", shards, 1, 99_999, "1 to 99,999"),
        ("--workers", workers, 1, math.inf, "at least 1"),
        *(("--seed", seed, _SEEDS.start, _SEEDS.stop - 1, "a 64-bit integer") for seed in seeds),
    ):
        if value is not None and not (isinstance(value, int) and least <= value <= most):
            raise UsageError(f"{option} must be {expected}, got {value}")


def check_shard_count(shards: int, splits: int = 1) -> None:
    """Raise a `UsageError` if a dataset would have more shards than its metadata may name."""
    if shards + splits > MAX_SHARDS:
        raise UsageError(
            "too many shards",
            expected=f"at most {MAX_SHARDS - splits:,}",
            found=f"{shards:,}",
            hint="use a larger --shard-size or fewer --shards",
        )


def option_differences(now: Mapping[str, Any], before: object) -> str:
    """Return how the options of an earlier write, as its report tells them, are others."""
    if not isinstance(before, dict) or not before:
        return "unknown options or other images"
    usual = json.loads(json.dumps(asdict(_AS_USUAL), default=_plain))  # which reports leave out
    was, new = {**usual, **before}, {**usual, **now}
    changed = [
        f"{key.replace('_', ' ')} {json.dumps(was[key])} instead of {json.dumps(new[key])}"
        for key in (*now, *(key for key in usual if key not in now))
        if key in was and was[key] != new[key]
    ]
    return ", ".join(changed) or f"other {'images' if 'check' in now else 'records'}"


def _plain(value: object) -> object:
    return value.value if isinstance(value, enum.Enum) else str(value)


def dataset_identity(
    dataset: Path, name: str | None = None, version: str | None = None
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
        plain = unicodedata.normalize("NFKD", folder).encode("ascii", "ignore").decode()
        name = re.sub(r"\W+", "_", plain, flags=re.ASCII).strip("_")
        if not name or not name[0].isalpha():
            name = f"dataset_{name}".rstrip("_")
    return name, version or "1.0.0"
