"""What to write, and how: what `tfrtool.write` was given, checked."""

from __future__ import annotations

import enum
import json
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError
from tfrtool.images.recipe import Check, Encode, ImageRecipe, Resize
from tfrtool.records.compression import Compression
from tfrtool.records.shard_sets import check_dataset_name, check_split_name, check_version
from tfrtool.sources.folders.class_layout import LabelFrom
from tfrtool.storage.locations import as_path, take_paths
from tfrtool.storage.words import as_member, as_size, take_words

_SHARD_BYTES = 128 * 1024 * 1024
"""Large enough to read in one stream, small enough for many readers: 100 to 200 MB is the advice
of TensorFlow's data-performance guide and of TFX."""

_VERSION = re.compile(r"(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)", re.ASCII)
_SEEDS = range(-(2**63), 2**63)
_WITHOUT_EFFECT = ("source", "dataset", "existing", "workers", "skip_bad")
"""Options that do not decide what a dataset holds; of a source, its images do."""


class Existing(enum.Enum):
    """What becomes of a dataset that is there already."""

    REFUSE = "refuse"
    """It stays, and nothing is written."""
    OVERWRITE = "overwrite"
    """It is replaced, if tfrtool wrote it."""
    RESUME = "resume"
    """An interrupted write is resumed."""


class _OnBad(enum.Enum):
    SKIP = "skip"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitShare:
    """How much of a source goes into a split.

    Attributes:
        name: the split's name.
        fraction: its part of the images, above 0 and up to 1. Each image is drawn by itself, so
            that a class has about this part in the split.
    """

    name: str
    fraction: float

    def __post_init__(self) -> None:
        check_split_name(self.name)
        if not 0 < self.fraction <= 1:
            raise UsageError(
                f"the fraction of split {self.name!r} is impossible",
                expected="a number above 0 and up to 1",
                found=self.fraction,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What to write, and how; see `tfrtool.write` for what isn't said here.

    Attributes:
        splits: the splits; their fractions add up to 1. Without any, the source's own, or all in
            ``train`` where it has none; a source with splits of its own takes no others.
        shards: how many shards each split gets; None goes by `shard_bytes`.
        skip_bad: whether bad images are left out and listed, or end the work.
        recipe: how images are checked and encoded.
        workers: how many threads work at a time.
    """

    source: str | os.PathLike[str]
    dataset: Path
    name: str = "dataset"
    version: str = "1.0.0"
    splits: tuple[SplitShare, ...] = ()
    shards: int | None = None
    shard_bytes: int = _SHARD_BYTES
    seed: int = 0
    shuffle: bool = True
    compression: Compression = Compression.NONE
    skip_bad: bool = True
    dedupe: bool = False
    recipe: ImageRecipe = field(default_factory=ImageRecipe)
    label_from: LabelFrom = LabelFrom.FOLDER
    root: Path | None = None
    existing: Existing = Existing.REFUSE
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)

    def __post_init__(self) -> None:
        take_words(self, compression=Compression, label_from=LabelFrom, existing=Existing)
        take_paths(self, "dataset", "root")
        as_path(self.source)  # a pattern, or tfds:NAME, is one, too
        object.__setattr__(self, "source", os.fspath(self.source))
        check_dataset_name(self.name)
        check_version(self.version)
        names = [split.name for split in self.splits]
        if len(set(names)) != len(names):
            raise UsageError("a split is given twice", found=", ".join(names))
        total = math.fsum(split.fraction for split in self.splits)
        if self.splits and not math.isclose(total, 1, abs_tol=1e-6):
            raise UsageError(
                "the splits must share all of the images",
                expected="fractions that add up to 1",
                found=f"{total:g}",
            )
        for what, value, least, most, expected in (
            ("number of shards", self.shards, 1, 99_999, "1 to 99,999"),
            ("shard size", self.shard_bytes, 1, math.inf, "1 byte at least"),
            ("number of workers", self.workers, 1, math.inf, "1 at least"),
            ("seed", self.seed, _SEEDS.start, _SEEDS.stop - 1, "a 64-bit integer"),
        ):
            if value is not None and not (isinstance(value, int) and least <= value <= most):
                raise UsageError(f"impossible {what}", expected=expected, found=value)

    def to_json(self) -> dict[str, Any]:
        """Return the options that decide what a dataset holds, as its report tells them."""
        facts = {key: value for key, value in asdict(self).items() if key not in _WITHOUT_EFFECT}
        facts |= facts.pop("recipe")
        facts["splits"] = [f"{share.name}={share.fraction:g}" for share in self.splits]
        return dict(json.loads(json.dumps(facts, default=_plain)))


def _plain(value: object) -> object:
    return value.value if isinstance(value, enum.Enum) else str(value)


def options_of(
    *,
    dataset: str | os.PathLike[str],
    name: str | None,
    version: str | None,
    splits: Mapping[str, float] | None,
    shard_size: int | str,
    check: str,
    on_bad: str,
    encode: str,
    resize: int | tuple[int, int] | None,
    quality: int,
    orient: bool,
    workers: int | None,
    **same: Any,
) -> WriteOptions:
    """Return the options that the arguments of `tfrtool.write` mean."""
    path = as_path(dataset)
    name, version = dataset_identity(path, name, version)
    size = None
    if isinstance(resize, int):
        size = Resize(shorter=resize)
    elif resize is not None:
        size = Resize(width=resize[0], height=resize[1])
    if workers is not None:
        same["workers"] = workers
    return WriteOptions(
        dataset=path,
        name=name,
        version=version,
        splits=tuple(SplitShare(name=n, fraction=part) for n, part in (splits or {}).items()),
        shard_bytes=as_size(shard_size),
        skip_bad=as_member(_OnBad, on_bad, "on_bad") is _OnBad.SKIP,
        recipe=ImageRecipe(
            check=as_member(Check, check, "check"),
            encode=as_member(Encode, encode, "encode"),
            resize=size,
            quality=quality,
            orient=orient,
        ),
        **same,
    )


def parse_splits(notations: Iterable[str]) -> tuple[SplitShare, ...]:
    """Read ``NAME=FRACTION`` again and again."""
    shares = []
    for notation in notations:
        name, _, fraction = notation.partition("=")
        try:
            shares.append(SplitShare(name=name, fraction=float(fraction)))
        except ValueError:
            raise UsageError(
                "not a split", expected="NAME=FRACTION, such as train=0.8", found=repr(notation)
            ) from None
    return tuple(shares)


def dataset_identity(
    dataset: Path, name: str | None = None, version: str | None = None
) -> tuple[str, str]:
    """Return the name and version of a dataset, from its path where they are not given.

    A path that ends in ``NAME/X.Y.Z`` says both; else its last folder, made a valid name by
    leaving out accents and by underscores, is the name, and the version is 1.0.0.
    """
    path = Path(os.path.abspath(dataset))  # noqa: PTH100 - links are not to be resolved
    folder = path.name
    if _VERSION.fullmatch(folder) and path.parent.name:
        version, folder = version or folder, path.parent.name
    if name is None:
        plain = unicodedata.normalize("NFKD", folder).encode("ascii", "ignore").decode()
        name = re.sub(r"\W+", "_", plain, flags=re.ASCII).strip("_")
        if not name or not name[0].isalpha():
            name = f"dataset_{name}".rstrip("_")
    return name, version or "1.0.0"
