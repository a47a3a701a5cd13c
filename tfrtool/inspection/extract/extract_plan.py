"""Which features become files, folders and names, decided before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import ShardError, UsageError, printable
from tfrtool.examples.example import (
    DType,
    Example,
    Feature,
    PayloadKind,
    classify_payload,
    decode_example,
)
from tfrtool.examples.roles import Roles, find_roles, info_beside, is_image
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.records.framing import Fault
from tfrtool.records.reader import read_records
from tfrtool.records.stream import open_shard
from tfrtool.storage.locations import take_paths

__all__ = ["ExtractOptions", "ExtractPlan", "find_feature", "plan_extract"]

_SAMPLE = 64
"""Records whose features are looked at for the parts that nobody named: one may lack its label."""

_SEARCH = 10_000
"""Records that are looked through for a feature which was asked for, and may be rare."""

_HEAD = 4097
"""Bytes of a value that tell what it is; a text that is so long is no name or label."""

_NAMES_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractOptions:
    """What to take out, and where to.

    Attributes:
        directory: where the files go; unless ``overwrite``, it is empty, or not there yet.
        feature: the string feature whose values become files; None takes the image.
        by: the feature that decides the class folder; None takes the label, if there is one.
        name: the feature that names the files; None takes what is in common use.
        flat: no folders at all: each file lies in the directory under its base name.
        limit: how many whole records to take at most; None for all.
        overwrite: whether what an earlier extract made there is replaced.
    """

    directory: Path
    feature: str | None = None
    by: str | None = None
    name: str | None = None
    flat: bool = False
    limit: int | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        take_paths(self, "directory")
        if self.flat and self.by is not None:
            raise UsageError("folders by a feature and one flat folder exclude each other")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit is at least 1, not {self.limit}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractPlan:
    """The features that play a part.

    Attributes:
        feature: the string feature, or feature list, whose values become files.
        by: the feature that decides the class folder; None for no class folders.
        name: the feature that names the files; None where there is none.
    """

    feature: str
    by: str | None
    name: str | None


def find_feature(example: Example, name: str) -> Feature | None:
    """Return a feature of a record, a feature list as one feature with the values of all steps.

    Steps that disagree about their type make a feature without a kind.
    """
    feature = example.features.get(name)
    if feature is not None or name not in example.feature_lists:
        return feature
    steps = [step for step in example.feature_lists[name] if step.dtype is not None]
    dtypes = {step.dtype for step in steps}
    if len(dtypes) != 1:
        return Feature(dtype=None, values=())
    return Feature(dtype=dtypes.pop(), values=tuple(v for step in steps for v in step.values))


def plan_extract(shards: Sequence[Path], options: ExtractOptions) -> ExtractPlan:
    """Decide the parts that features play, from what is asked for and what the records hold.

    Raises:
        UsageError: a feature that was asked for is not there, or is no string feature.
        ShardError: there is no record to take anything out of, or none has an image.
    """
    wanted = {name for name in (options.feature, options.by, options.name) if name is not None}
    seen: dict[str, Feature] = {}
    heads: dict[str, Feature] = {}  # the first values of each feature, as far as roles need them
    lists: set[str] = set()
    roles = Roles(image=None, label=None, name=None)
    infos = {directory: info_beside(directory) for directory in {path.parent for path in shards}}
    for number, (path, example) in enumerate(_examples(shards)):
        for name in (*example.features, *example.feature_lists):
            feature = find_feature(example, name)
            if feature is None:
                continue
            if name not in seen or seen[name].dtype is None:
                seen[name] = Feature(dtype=feature.dtype, values=())
            if number < _SAMPLE and len(feature.values):
                lists |= {name} if len(feature.values) > 1 else set()
                heads.setdefault(name, _head(feature))
        if number < _SAMPLE:
            found = find_roles(example.features, infos[path.parent])
            roles = Roles(
                image=None, label=roles.label or found.label, name=roles.name or found.name
            )
        elif wanted <= seen.keys():
            break
        if number >= _SEARCH:
            break
        del example, feature  # a large record is not held while the next one is read
    missing = sorted(wanted - seen.keys())
    if missing:
        raise UsageError(
            f"no record has a feature {missing[0]!r}",
            path=shards[0],
            found=_listed(seen),
        )
    feature_name = options.feature or _image(heads, lists, infos.values())
    if feature_name is None:
        images = [name for name, head in heads.items() if is_image(head.values[0])]
        if images:
            raise UsageError(
                "several features hold images",
                path=shards[0],
                found=", ".join(map(repr, sorted(images))),
                hint="--feature chooses one of them",
            )
        strings = any(feature.dtype is DType.STRING for feature in seen.values())
        raise ShardError(
            "no image in the records",
            path=shards[0],
            found=_listed(seen),
            hint="--feature takes out another string feature" if strings else None,
        )
    if seen[feature_name].dtype not in (DType.STRING, None):
        raise UsageError(
            f"feature {feature_name!r} can't become files",
            path=shards[0],
            expected="string",
            found=_dtype(seen[feature_name]),
        )
    if options.name is not None:
        dtype = seen[options.name].dtype
        if options.name == feature_name or dtype not in (DType.STRING, None):
            raise UsageError(
                f"feature {options.name!r} can't name the files",
                path=shards[0],
                expected="a string feature beside the one that is taken out",
                found=_dtype(seen[options.name]),
            )
    by = None if options.flat else options.by or roles.label
    name_from = options.name or roles.name
    return ExtractPlan(
        feature=feature_name,
        by=by if by != feature_name else None,
        name=name_from if name_from != feature_name else None,
    )


def _head(feature: Feature) -> Feature:
    value = feature.values[0]
    value = value[:_HEAD] if isinstance(value, bytes) else value
    return Feature(dtype=feature.dtype, values=(value,))


def _image(
    heads: dict[str, Feature], lists: set[str], infos: Iterable[DatasetInfo | None]
) -> str | None:
    """Return the feature that is the image, by its name or as the only one.

    A list of images is as good as one, where there is none that stands alone.
    """
    info = next((info for info in infos if info is not None), None)
    alone = {name: head for name, head in heads.items() if name not in lists}
    return find_roles(alone, info).image or find_roles(heads, info).image


def _examples(shards: Sequence[Path]) -> Iterator[tuple[Path, Example]]:
    """Yield the records that are examples for certain.

    Raises:
        ShardError: there are none.
    """
    others: str | None = None
    count = 0
    for path in shards:
        with open_shard(path) as file:
            for item in read_records(file):
                if isinstance(item, Fault):
                    others = others or item.message
                    continue
                kind = classify_payload(item.payload)
                if kind in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE):
                    count += 1
                    yield path, decode_example(item.payload, kind)
                else:
                    others = _KINDS[kind]
    if not count:
        raise ShardError(
            "nothing to take out", path=shards[0], expected="records with features", found=others
        )


_KINDS = {
    PayloadKind.EVENT: "TensorBoard events",
    PayloadKind.EMPTY: "empty records",
    PayloadKind.UNKNOWN: "records that are neither Example nor SequenceExample",
}


def _dtype(feature: Feature) -> str:
    return "never set" if feature.dtype is None else feature.dtype.value


def _listed(features: dict[str, Feature]) -> str:
    names = sorted(features)
    text = ", ".join(
        f"{printable(name)} ({_dtype(features[name])})" for name in names[:_NAMES_SHOWN]
    )
    more = len(names) - _NAMES_SHOWN
    return (text or "records without any feature") + (f" and {more} more" if more > 0 else "")
